//! Running other programs from the root of the workspace, and speaking to the developer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, bail, ensure};

/// Pause between two checks whether a program has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Time limit for programs that only answer a question.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Kills a process group (`$0`) when its input ends: when we close it, or when we are gone, by an
/// interrupt or a kill. A line of input means success and kills nothing.
const GUARD: &str = "trap '' INT TERM HUP QUIT; read -r line || kill -9 \"-$0\"";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_owned()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Time limit for all steps of a run together.
pub(crate) struct Limit {
    began: Instant,
    whole: Duration,
}

impl Limit {
    pub(crate) fn new(whole: Duration) -> Self {
        Self { began: Instant::now(), whole }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.whole
    }
}

/// Runs a program to its end, and prints how long it took. At the limit, kills it with everything
/// that it started.
pub(crate) fn step(program: &str, arguments: &[&str], limit: Option<&Limit>) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    say(&format!("==> {}", line(&command)));
    run(&mut command, limit)
}

fn run(command: &mut Command, limit: Option<&Limit>) -> Result<()> {
    let (line, began) = (line(command), Instant::now());
    let mut group = Group::start(command)?;
    let is_over = || limit.is_some_and(Limit::is_over);
    let Some(status) = group.end(is_over)? else {
        let minutes = limit.map_or(0, |limit| limit.whole.as_secs() / 60);
        bail!(
            "`{line}` was ended, because the whole run took longer than its {minutes} minutes.\n\
             Still running were:\n{}\n\
             What hangs is among the tests above that have \"been running for over 60 seconds\" \
             and were never told to be ok; run it alone: cargo test -p CRATE --test FILE NAME",
            group.left.join("\n")
        );
    };
    ensure!(status.success(), "`{line}` failed ({status})");
    say(&format!("    `{line}` done in {} s", began.elapsed().as_secs()));
    Ok(())
}

fn line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs tests with cargo. If some fail, the error repeats what they printed, so that it is at the
/// end of a long output.
pub(crate) fn cargo_test(lane: &str, arguments: &[&str], limit: &Limit, show: Show) -> Result<()> {
    let dir = root().join("target");
    // What cargo builds may be elsewhere.
    fs::create_dir_all(&dir)?;
    let file = dir.join(lane).with_extension("log");
    let output = File::create(&file)?;
    let mut command = Command::new(cargo_program());
    command.args(arguments).current_dir(root());
    command.stdout(output.try_clone()?).stderr(output);
    let title = format!("==> {}", line(&command));
    let has_ended = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        if show == Show::AsItComes {
            say(&title);
            scope.spawn(|| follow(&file, &has_ended));
        }
        let ended = run(&mut command, Some(limit));
        has_ended.store(true, Ordering::Release);
        ended
    });
    let text = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
    if show == Show::AtItsEnd {
        say(&format!("{title}\n{text}"));
    }
    ended.with_context(|| failures(&text))
}

/// When the output of tests is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    AsItComes,
    /// In one piece, because others run at the same time.
    AtItsEnd,
}

/// Prints a file while it grows.
fn follow(file: &Path, has_ended: &AtomicBool) -> Result<()> {
    let mut file = File::open(file)?;
    loop {
        let is_last = has_ended.load(Ordering::Acquire);
        std::io::copy(&mut file, &mut std::io::stdout())?;
        if is_last {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

/// What failed tests have printed: for each test program from `failures:` to its result.
fn failures(output: &str) -> String {
    let mut is_inside = false;
    let inside = output.lines().filter(|line| {
        is_inside |= *line == "failures:";
        let is_shown = is_inside;
        is_inside &= !line.starts_with("test result:");
        is_shown
    });
    inside.collect::<Vec<_>>().join("\n")
}

/// The same cargo that runs us.
pub(crate) fn cargo(arguments: &[&str], limit: Option<&Limit>) -> Result<()> {
    step(&cargo_program(), arguments, limit)
}

pub(crate) fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Whether a program can be started and succeeds. Its output is discarded.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let limit = Limit::new(ANSWER_TIME_MAX);
    let ended = Group::start(&mut command).and_then(|mut group| group.end(|| limit.is_over()));
    matches!(ended, Ok(Some(status)) if status.success())
}

/// A program and its descendants, in their own process group, so that all can be killed at once.
/// Interrupts do not reach them there, so the guard kills them when we end.
struct Group {
    program: Child,
    guard: Child,
    /// The command lines of processes that had to be killed.
    left: Vec<String>,
}

impl Group {
    fn start(command: &mut Command) -> Result<Self> {
        let program = command.process_group(0).stdin(Stdio::null()).spawn();
        let program = program.with_context(|| format!("cannot start {command:?}"))?;
        let guard = Command::new("sh")
            .args(["-c", GUARD, &program.id().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let guard = guard.context("cannot start sh")?;
        Ok(Self { program, guard, left: Vec::new() })
    }

    /// Waits for its end; `None` if it was killed at the time limit.
    fn end(&mut self, is_over: impl Fn() -> bool) -> Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.program.try_wait()? {
                if let Some(mut guard) = self.guard.stdin.take() {
                    std::io::Write::write_all(&mut guard, b"done\n")?;
                }
                self.guard.wait()?;
                return Ok(Some(status));
            }
            if is_over() {
                self.left = members(self.program.id());
                drop(self.guard.stdin.take());
                self.guard.wait()?;
                // The guard, if any, has already killed it.
                self.program.kill()?;
                self.program.wait()?;
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The command lines of the processes of a group.
fn members(group: u32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let line = |folder: PathBuf| {
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        // After the program's name in parentheses: state, parent, group.
        let of: u32 = stat.rsplit(')').next()?.split_whitespace().nth(2)?.parse().ok()?;
        let line = std::fs::read(folder.join("cmdline")).ok().filter(|_| of == group)?;
        Some(String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned())
    };
    processes.filter_map(|process| line(process.path())).filter(|line| !line.is_empty()).collect()
}

#[expect(clippy::print_stdout, reason = "this is how a tool for developers speaks")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "this is how a tool for developers speaks")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that writes the process id of its child, which never ends, and waits for it.
    fn parent_of_a_sleeper(told: &Path) -> String {
        format!("sleep 100000 & echo $! > {0}.part; mv {0}.part {0}; wait", told.display())
    }

    fn told_in(file: &Path) -> String {
        std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
    }

    fn is_gone(pid: &str) -> bool {
        // A zombie may stay listed where nothing reaps orphans.
        let state = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        state.is_empty() || state.lines().any(|line| line.starts_with("State:\tZ"))
    }

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()))
    }

    fn until(what: &str, happened: impl Fn() -> bool) {
        let limit = Limit::new(ANSWER_TIME_MAX);
        while !happened() {
            assert!(!limit.is_over(), "waited in vain: {what}");
            thread::sleep(PAUSE);
        }
    }

    #[test]
    fn a_step_that_does_not_end_is_ended_and_named() {
        let limit = Limit::new(Duration::ZERO);
        let failed = step("sleep", &["100000"], Some(&limit)).unwrap_err().to_string();
        assert!(failed.starts_with("`sleep 100000` was ended, because"), "{failed}");
    }

    #[test]
    fn when_its_time_is_over_a_program_is_ended_with_what_it_started() {
        let told = file("limit");
        let script = parent_of_a_sleeper(&told);
        let mut group = Group::start(Command::new("sh").args(["-c", &script])).unwrap();
        let ended = group.end(|| !told_in(&told).is_empty()).unwrap();
        let child = told_in(&told);
        let _ = std::fs::remove_file(&told);
        assert!(ended.is_none() && group.left.contains(&"sleep 100000".to_owned()));
        until("its child is gone", || is_gone(&child));
    }

    #[test]
    fn what_a_program_started_ends_with_us() {
        let told = file("guard");
        let script = parent_of_a_sleeper(&told);
        let mut group = Group::start(Command::new("sh").args(["-c", &script])).unwrap();
        until("it has begun", || !told_in(&told).is_empty());
        // As the kernel does when we are killed.
        drop(group.guard.stdin.take());
        let limit = Limit::new(ANSWER_TIME_MAX);
        let ended = group.end(|| limit.is_over()).unwrap();
        let child = told_in(&told);
        let _ = std::fs::remove_file(&told);
        assert!(ended.is_some_and(|status| status.code().is_none()), "by the guard: {ended:?}");
        until("its child is gone", || is_gone(&child));
    }

    #[test]
    fn what_failed_tests_printed_is_repeated() {
        let output = "test one ... FAILED\ntest two ... ok\n\nfailures:\n\n\
                      ---- one stdout ----\nassertion failed\n\nfailures:\n    one\n\n\
                      test result: FAILED. 1 passed; 1 failed\n\n\
                      test three ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
        let expected = "failures:\n\n---- one stdout ----\nassertion failed\n\n\
                        failures:\n    one\n\ntest result: FAILED. 1 passed; 1 failed";
        assert_eq!(failures(output), expected);
    }

    #[test]
    fn a_step_within_its_time_says_how_it_ended() {
        let limit = Limit::new(ANSWER_TIME_MAX);
        step("true", &[], Some(&limit)).unwrap();
        let failed = step("sh", &["-c", "exit 3"], Some(&limit)).unwrap_err().to_string();
        assert!(failed.ends_with("failed (exit status: 3)"), "{failed}");
        assert!(succeeds("true", &[]) && !succeeds("false", &[]));
        assert!(!succeeds("no-such-program", &[]));
    }
}
