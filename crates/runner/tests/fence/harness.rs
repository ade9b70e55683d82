//! A node for the tests: it has a fence, starts what it is told to, and answers each line that it
//! reads with one line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use windlass_core::launch::{Fence, LaunchSpec, Launcher};
use windlass_runner::CommandLauncher;
use windlass_runner::fence::{ProcessFence, boot_time};

const TICK_PAUSE: Duration = Duration::from_millis(50);
/// Nothing here takes longer unless it never happens.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The node itself. Words: its boot, its fence's limit in milliseconds.
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

/// A node as the tests see it. It is killed when this is dropped.
pub(crate) struct Node {
    pub(crate) boot: String,
    child: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(limit: Duration) -> Node {
        let boot = format!("{:016x}", fastrand::u64(..));
        let limit = limit.as_millis().to_string();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["node", &boot, &limit]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Node { boot, child, lines, answers, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.lines, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
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

    /// Starts a program with a child, one in a session of its own with a child of its own, and an
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
        wait_for("the family", read)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < WAIT_MAX, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn wait_for_death(of: &[u32]) {
    wait_for("the death of all", || (!of.iter().any(|pid| is_alive(*pid))).then_some(()));
}
