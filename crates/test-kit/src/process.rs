//! Programs under test: started, watched, signalled, ended. None outlives its test.

use std::borrow::BorrowMut;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{PATIENCE, until_some, when_some};

/// Maximum number of output lines shown when a test fails.
const SHOWN_LINES_MAX: usize = 200;

/// A child process that is killed and reaped on drop, also by a panic.
pub struct Tied(Child);

impl Tied {
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    pub fn alive(&mut self) -> bool {
        self.0.try_wait().expect("the child is ours").is_none()
    }

    /// Waits until it has exited by itself.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let what = format!("process {} ends", self.pid());
        until_some(&what, || self.0.try_wait().expect("the child is ours"))
    }

    /// Terminates it as an administrator would.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Kills it, as a crash would, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended();
    }
}

/// For its pipes.
impl Deref for Tied {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Tied {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that runs until it is ended. Its output goes to a file, which is shown when the test
/// fails.
pub struct Program {
    child: Tied,
    console: PathBuf,
}

impl Program {
    /// Starts it with an output file in this folder.
    #[track_caller]
    pub fn spawn(mut command: impl BorrowMut<Command>, folder: &Path) -> Self {
        let command = command.borrow_mut();
        let console = folder.join(format!("console-{:016x}", fastrand::u64(..)));
        let output = File::create(&console).expect("a file in the test's folder");
        command.stdout(output.try_clone().expect("a second handle")).stderr(output);
        Self { child: Tied::spawn(command), console }
    }

    /// The file with its output.
    pub fn console_file(&self) -> &Path {
        &self.console
    }

    /// Its output so far.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Waits for something that can only happen while it is running.
    #[track_caller]
    pub fn until_some<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        until_some(what, || {
            let lives = self.alive();
            let found = look();
            assert!(lives || found.is_some(), "it ended before {what}: {}", self.console());
            found
        })
    }
}

impl Deref for Program {
    type Target = Tied;

    fn deref(&self) -> &Tied {
        &self.child
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Tied {
        &mut self.child
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if thread::panicking() {
            let (pid, text) = (self.pid(), self.console());
            let lines: Vec<&str> = text.lines().collect();
            let left_out = lines.len().saturating_sub(SHOWN_LINES_MAX);
            eprintln!("process {pid} printed {} lines, the last of them:", lines.len());
            lines[left_out..].iter().for_each(|line| eprintln!("{pid}: {line}"));
        }
    }
}

/// The exit code and output of a program.
#[derive(Debug)]
pub struct Ended {
    /// `None` if it was ended by a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The standard output of a successful run.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }
}

/// Runs a program to its end with this standard input.
#[track_caller]
pub fn run(mut command: impl BorrowMut<Command>, input: impl AsRef<[u8]>) -> Ended {
    let command = command.borrow_mut();
    run_patiently(command, input).unwrap_or_else(|| panic!("waited in vain: {command:?} ends"))
}

/// Like `run`, but returns `None` after killing a program that does not end, for callers that
/// report it themselves.
#[track_caller]
pub fn run_patiently(command: &mut Command, input: impl AsRef<[u8]>) -> Option<Ended> {
    Begun::new(command, input).when_ended()
}

/// A program that runs in the background to its end. Its output can be read before that.
pub struct Begun {
    child: Tied,
    stdout: Pipe,
    stderr: Pipe,
}

impl Begun {
    #[track_caller]
    pub fn new(command: &mut Command, input: impl AsRef<[u8]>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Tied::spawn(command);
        let stdout = Pipe::collect(child.stdout.take().expect("it is piped"));
        let stderr = Pipe::collect(child.stderr.take().expect("it is piped"));
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.as_ref().to_vec();
        // A program may close its input early. One that keeps it open without reading blocks only
        // this thread, until it ends.
        thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        Self { child, stdout, stderr }
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until it has exited by itself.
    #[track_caller]
    pub fn ended(self) -> Ended {
        let pid = self.pid();
        self.when_ended().unwrap_or_else(|| panic!("waited in vain: process {pid} ends"))
    }

    fn when_ended(mut self) -> Option<Ended> {
        let status = when_some(|| self.child.try_wait().expect("the child is ours"))?;
        let (stdout, stderr) = (self.stdout.whole(), self.stderr.whole());
        Some(Ended { code: status.code(), stdout, stderr })
    }
}

impl Deref for Begun {
    type Target = Tied;

    fn deref(&self) -> &Tied {
        &self.child
    }
}

/// An output stream of a program.
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    closed: Receiver<()>,
}

impl Pipe {
    fn collect(mut from: impl Read + Send + 'static) -> Self {
        let (sender, closed) = sync_channel(1);
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let collected = Arc::clone(&bytes);
        thread::spawn(move || {
            let mut piece = [0; 1 << 16];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                let mut bytes = collected.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&piece[..length]);
            }
            let _ = sender.send(());
        });
        Self { bytes, closed }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    fn whole(&self) -> String {
        let closed = self.closed.recv_timeout(PATIENCE);
        closed.expect("no process keeps the output open after the exit");
        self.text()
    }
}

/// Whether a process is running. A zombie is not. It is named as for `number_here`.
pub fn is_alive(process: impl Display) -> bool {
    let Some(number) = number_here(process) else { return false };
    let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else { return false };
    // The program's name, which may contain any character, precedes the state in parentheses.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// The first line of a shell script that names its processes for `number_here`, such as `$NS/$!`.
pub const SH_NAMESPACE: &str =
    "NS=$(readlink /proc/self/ns/pid)@$(sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20)";

/// The number of a process, a zombie as well, as this process sees it; `None` if it is gone. A
/// process of another pid namespace knows only its number there. It is named by that namespace,
/// the time at which the first process there began, and the number, as in
/// `pid:[4026531836]@4711/17`: the kernel gives the number of a namespace that has ended to the
/// next one.
pub fn number_here(process: impl Display) -> Option<u32> {
    let process = process.to_string();
    let Some((namespace, number)) = process.trim().split_once('/') else {
        let number = process.trim().parse().ok()?;
        return Path::new(&format!("/proc/{number}")).exists().then_some(number);
    };
    let (namespace, began) = namespace.split_once('@').expect("the time at which it began");
    let entries = fs::read_dir("/proc").expect("processes can be listed").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |here: u32| Path::new("/proc").join(here.to_string());
    let members: Vec<(u32, String)> = numbers
        .filter(|here| {
            fs::read_link(of(*here).join("ns/pid"))
                .is_ok_and(|link| link.as_os_str().as_encoded_bytes() == namespace.as_bytes())
        })
        .filter_map(|here| Some((here, innermost_number(&of(here))?)))
        .collect();
    // Of this namespace, the first process may not be readable, but is known.
    let is_own = own_namespace() == namespace;
    let first = members.iter().find(|(_, inside)| inside == "1").filter(|_| !is_own);
    let first = if is_own { 1 } else { first?.0 };
    if began_at(&of(first))? != began {
        return None;
    }
    members.iter().find(|(_, inside)| inside == number).map(|(here, _)| *here)
}

fn own_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").expect("a process has a namespace");
    link.to_string_lossy().into_owned()
}

/// When a process began, in ticks since the machine did.
fn began_at(process: &Path) -> Option<String> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The program's name, which may contain any character, ends with the last parenthesis.
    stat.rsplit(')').next()?.split_whitespace().nth(19).map(str::to_owned)
}

/// The number that a process has in its own pid namespace.
fn innermost_number(process: &Path) -> Option<String> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use crate::wait::until;

    fn sleeper(folder: &Folder) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 1000"]);
        let program = Program::spawn(&mut command, folder.dir());
        until("it is ready", || program.console() == "ready\n");
        program
    }

    #[test]
    fn a_program_ends_with_the_test_that_fails() {
        let folder = Folder::new();
        let failed = thread::scope(|scope| {
            let test = scope.spawn(|| {
                let program = sleeper(&folder);
                let pid = program.pid();
                assert!(is_alive(pid));
                std::panic::panic_any(pid);
            });
            test.join().unwrap_err()
        });
        let pid = *failed.downcast::<u32>().unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it was killed and collected");
    }

    #[test]
    fn one_that_was_killed_is_gone_and_has_said_what_it_said() {
        let folder = Folder::new();
        let mut program = sleeper(&folder);
        assert!(program.alive());
        program.kill();
        assert!(!program.alive() && !is_alive(program.pid()));
        assert_eq!(program.console(), "ready\n");
    }

    #[test]
    fn a_process_of_another_namespace_is_found_by_its_number_there() {
        let folder = Folder::new();
        let pid = folder.dir().join("pid");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "sh", "-c"]);
        command.arg(format!("{SH_NAMESPACE}; sleep 1000 & echo $NS/$! > \"$0\"; wait"));
        let mut program = Program::spawn(command.arg(&pid), folder.dir());
        let inside =
            program.until_some("it has a child", || crate::folder::whole_lines(&pid).pop());
        let here = number_here(&inside).unwrap();
        assert!(is_alive(&inside) && is_alive(here), "{inside}");
        let (namespace, number) = inside.split_once('/').unwrap();
        assert!(number.parse::<u32>().unwrap() < 10 && !is_alive(format!("{namespace}/{here}")));
        let _ = kill_process(Pid::from_raw(here.cast_signed()).unwrap(), Signal::KILL);
        until("the child is gone", || !is_alive(&inside));
        program.kill();
        assert_eq!(number_here(&inside), None);
    }

    /// The next namespace often has the number of the one before, and numbers begin anew in it.
    #[test]
    fn a_process_that_is_gone_is_not_taken_for_one_of_a_later_namespace() {
        let (namespace, own) = (own_namespace(), std::process::id());
        let began = began_at(Path::new("/proc/1")).unwrap();
        assert_eq!(number_here(format!("{namespace}@{began}/{own}")), Some(own));
        let earlier = began.parse::<u64>().unwrap() + 1;
        assert_eq!(number_here(format!("{namespace}@{earlier}/{own}")), None);
    }

    #[test]
    fn a_program_that_does_not_read_a_long_input_runs_to_its_end() {
        let long = vec![b'x'; 1 << 20];
        let begun = Begun::new(Command::new("sh").args(["-c", "echo a; exec sleep 1000"]), long);
        until("it has said something", || begun.stdout() == "a\n");
        begun.signal(Signal::KILL);
        assert_eq!(begun.ended().code, None);
    }

    #[test]
    fn a_program_runs_to_its_end_with_its_input() {
        let ended = run(Command::new("sh").args(["-c", "cat; echo no >&2; exit 3"]), b"yes");
        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (Some(3), "yes", "no\n")
        );
    }
}
