//! A node for the tests: it has a fence, starts programs on request, and answers each line that it
//! reads with one line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use windlass_core::launch::{Fence, Input, LaunchSpec, Launcher};
use windlass_runner::CommandLauncher;
use windlass_runner::fence::{ProcessFence, boot_time};
use windlass_test_kit::process::{Tied, is_alive};
use windlass_test_kit::wait::{PATIENCE, until, until_some};

const TICK_PAUSE: Duration = Duration::from_millis(50);

/// The node itself. Arguments: its boot, its fence's limit in milliseconds.
pub(crate) fn run(words: &[String]) {
    let limit = Duration::from_millis(words[1].parse().unwrap());
    let program = std::env::current_exe().unwrap();
    let fence = ProcessFence::start(&program, &words[0], limit).unwrap();
    let ticking = Arc::new(AtomicBool::new(true));
    let (ticks, ticker) = (Arc::clone(&fence), Arc::clone(&ticking));
    std::thread::spawn(move || {
        loop {
            if ticker.load(Ordering::Relaxed) {
                ticks.tick(boot_time());
            }
            std::thread::sleep(TICK_PAUSE);
        }
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let launcher = CommandLauncher::new().unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let answer = match line.as_str() {
            "fired" => fence.fired().to_string(),
            "allows" => u32::from(fence.allows()).to_string(),
            "fence" => fence.process_id().unwrap_or_default().to_string(),
            line if line.starts_with("end left by ") => {
                fence.end_left_by(&line["end left by ".len()..]);
                String::new()
            }
            "ticks on" | "ticks off" => {
                ticking.store(line == "ticks on", Ordering::Relaxed);
                String::new()
            }
            script => {
                let spec = LaunchSpec {
                    program: "/bin/sh".into(),
                    args: vec!["-c".into(), script.into()],
                    cwd: None,
                    env: vec![fence.mark()],
                    input: Input::Open,
                    output_bytes_max: 1024,
                    time_limit: None,
                };
                // Dropping it does not end it.
                drop(launcher.launch(spec));
                String::new()
            }
        };
        println!("{answer}");
    }
}

/// A node as the tests see it. Dropping it kills it.
pub(crate) struct Node {
    pub(crate) boot: String,
    child: Tied,
    lines: ChildStdin,
    answers: Receiver<String>,
    dir: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(limit: Duration) -> Node {
        let boot = format!("{:016x}", fastrand::u64(..));
        let limit = limit.as_millis().to_string();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["node", &boot, &limit]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Tied::spawn(&mut command);
        let lines = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answers) = sync_channel(1);
        std::thread::spawn(move || {
            stdout
                .try_for_each(|line| line.is_ok_and(|line| sender.send(line).is_ok()).then_some(()))
        });
        Node { boot, child, lines, answers, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.lines, "{line}").unwrap();
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    pub(crate) fn number(&mut self, line: &str) -> u32 {
        self.ask(line).parse().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a shell script, in which `$DIR` is the node's directory.
    pub(crate) fn start_script(&mut self, script: &str) {
        let line = format!("DIR={}; {script}", self.dir.path().display());
        self.ask(&line);
    }

    /// Starts a program with a child, a second one in its own session with its own child, and an
    /// orphan there. Returns all of them.
    pub(crate) fn start_family(&mut self) -> Vec<u32> {
        let name = format!("family-{:x}", fastrand::u64(..));
        let path = self.file(&name);
        let say = format!("echo $$ >> $DIR/{name}");
        let leaf = format!("{say}; exec sleep 1000");
        self.start_script(&format!(
            "export DIR; {say}; sh -c '{leaf}' & \
             setsid sh -c '{say}; sh -c \"{}\" & wait' & \
             sh -c 'setsid sh -c \"{}\" &' & wait",
            leaf.replace('$', "\\$"),
            leaf.replace('$', "\\$"),
        ));
        let read = || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let complete = text.lines().count() == 5 && text.ends_with('\n');
            complete.then(|| text.lines().map(|line| line.parse().unwrap()).collect())
        };
        until_some("the family", read)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

pub(crate) fn wait_for_death(of: &[u32]) {
    until("the death of all", || !of.iter().any(|pid| is_alive(*pid)));
}
