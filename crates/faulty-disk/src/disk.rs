//! The handle: which calls fail, and how.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::{self, Call, Kind};
use crate::filter::{self, Answer, Listener, Next, Stopped};
use crate::platter::Platter;
use crate::rest::{Callers, Rest};

/// How long what an operation has started may go on after it.
const REST_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest time between two looks whether that is over.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and returns this `errno`. What a failed sync should have made durable is
    /// lost, though a later sync succeeds.
    Error(i32),
    /// As an error, but a write leaves its first half behind.
    Torn(i32),
    /// Its process is killed. If that is our own, nothing that it writes from now on has an effect.
    Kill,
}

/// Which call below the root fails.
#[derive(Clone)]
pub struct Plan {
    pub fault: Fault,
    pub matches: Arc<dyn Fn(&Call) -> bool + Send + Sync>,
    /// Of those that match, counted from 1.
    pub number: u64,
}

impl Plan {
    pub fn nth(
        number: u64,
        fault: Fault,
        matches: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Plan {
        Plan { fault, matches: Arc::new(matches), number }
    }
}

/// A disk whose calls can fail. Cheap to clone; all clones are the same disk.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Shared>);

struct Shared {
    root: PathBuf,
    state: Mutex<State>,
}

struct State {
    plan: Option<Plan>,
    /// Calls that matched the plan.
    matched: u64,
    /// The call that failed by the plan.
    hit: Option<(Kind, PathBuf)>,
    /// Our own process counts as killed.
    dead: bool,
    calls: BTreeMap<Kind, u64>,
    platter: Platter,
}

impl FaultyDisk {
    /// For files below this directory. Calls that do not fail are made, except for syncs, which are
    /// only noted: that is quick, and `power_cut` shows what would be left. Everything that exists
    /// now is durable.
    pub fn new(root: &Path) -> io::Result<FaultyDisk> {
        let state = State {
            plan: None,
            matched: 0,
            hit: None,
            dead: false,
            calls: BTreeMap::new(),
            platter: Platter::new(root)?,
        };
        Ok(FaultyDisk(Arc::new(Shared { root: root.to_owned(), state: Mutex::new(state) })))
    }

    /// Runs this in a thread whose calls pass through this disk, as do those of all threads and
    /// processes that it starts. Returns when all of them have ended.
    ///
    /// # Panics
    /// If the kernel does not allow it, if `work` panics, or if something goes on for a minute
    /// after it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let (done, rest) = self.run_with_rest(work, REST_TIME_MAX);
        if let Some(rest) = rest {
            panic!("{REST_TIME_MAX:?} after its end, an operation has left behind: {rest}");
        }
        done
    }

    /// Also what has not ended so long after `work`. From then on its calls fail.
    fn run_with_rest<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
        rest_time_max: Duration,
    ) -> (T, Option<Rest>) {
        let (send, receive) = sync_channel::<Listener>(1);
        let (shared, ends) = (self.0.clone(), Arc::new(OnceLock::new()));
        let ends_at = ends.clone();
        let supervisor = thread::spawn(move || match receive.recv() {
            Ok(listener) => shared.supervise(&listener, &ends_at),
            Err(_) => None,
        });
        let numbers = call::numbers();
        let done = thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let listener = filter::install(&numbers).expect("Linux 5.19 or later");
                send.send(listener).expect("the supervisor waits for it");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.get_or_init(|| Instant::now() + rest_time_max);
        let rest = supervisor.join().expect("the supervisor does not panic");
        (done, rest)
    }

    /// Counts from 1 again.
    pub fn set(&self, plan: Plan) {
        let mut state = self.0.state();
        (state.plan, state.matched, state.hit) = (Some(plan), 0, None);
    }

    /// The call that has failed by the current plan, and its file.
    pub fn hit(&self) -> Option<(Kind, PathBuf)> {
        self.0.state().hit.clone()
    }

    /// How many calls of each kind there were below the root.
    pub fn calls(&self) -> BTreeMap<Kind, u64> {
        self.0.state().calls.clone()
    }

    /// Fills an empty directory with what a power cut now would leave: everything that was synced,
    /// and by chance some of the rest, or nothing of it without a seed. Not to be called by what
    /// `run` runs, whose calls wait for this one.
    pub fn power_cut(&self, to: &Path, seed: Option<u64>) -> io::Result<()> {
        self.0.state().platter.copy_to(to, seed)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when everything that it supervises has ended, or what has not at the time that is
    /// set meanwhile.
    fn supervise(&self, listener: &Listener, ends_at: &OnceLock<Instant>) -> Option<Rest> {
        let mut callers = Callers::default();
        loop {
            if ends_at.get().is_some_and(|ends_at| Instant::now() >= *ends_at) {
                return Some(callers.rest());
            }
            match listener.next(LOOK_PAUSE).ok()? {
                Next::Call(stopped) => {
                    callers.note(stopped.thread);
                    if let Some(answer) = self.decide(&stopped) {
                        listener.answer(stopped.id, &answer);
                    }
                }
                Next::Nothing => {}
                Next::End => return None,
            }
        }
    }

    /// `None` for a call that is never answered.
    fn decide(&self, stopped: &Stopped) -> Option<Answer> {
        let call = Call::of(stopped).filter(|call| call.path.starts_with(&self.root));
        let Some(call) = call else { return Some(Answer::Pass) };
        let mut state = self.state();
        *state.calls.entry(call.kind).or_default() += 1;
        match state.fault(&call) {
            None => Some(state.pass(&call)),
            Some(Fault::Error(error)) => Some(state.fail(&call, error)),
            Some(Fault::Torn(error)) => {
                // If it cannot be written, nothing of it is, which is as good.
                let _ = call.write_half();
                Some(state.fail(&call, error))
            }
            Some(Fault::Kill) => match call.process() {
                Some(process) if process != std::process::id() => {
                    filter::kill(process);
                    None
                }
                _ => {
                    state.dead = true;
                    Some(Answer::Error(libc::EIO))
                }
            },
        }
    }
}

impl State {
    fn fault(&mut self, call: &Call) -> Option<Fault> {
        if self.dead {
            return (call.kind != Kind::Read).then_some(Fault::Error(libc::EIO));
        }
        let plan = self.plan.as_ref().filter(|plan| (plan.matches)(call))?;
        self.matched += 1;
        if self.matched != plan.number {
            return None;
        }
        self.hit = Some((call.kind, call.path.clone()));
        Some(plan.fault)
    }

    fn pass(&mut self, call: &Call) -> Answer {
        match (call.kind, call.file()) {
            (Kind::Sync, Some(file)) => match self.platter.sync(&file) {
                Ok(()) => Answer::Value(0),
                Err(_) => Answer::Pass,
            },
            (Kind::Write, Some(file)) => {
                self.platter.written(&file, || call.range());
                Answer::Pass
            }
            _ => Answer::Pass,
        }
    }

    fn fail(&mut self, call: &Call, error: i32) -> Answer {
        if let (Kind::Sync, Some(file), false) = (call.kind, call.file(), self.dead) {
            self.platter.lose(&file);
        }
        Answer::Error(error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// What is left at once after `work`.
    fn rest<T: Send>(work: impl FnOnce() -> T + Send) -> (T, String) {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(dir.path()).unwrap();
        let (done, rest) = disk.run_with_rest(work, Duration::ZERO);
        (done, rest.expect("it has not ended").to_string())
    }

    #[test]
    fn a_thread_that_is_left_behind_is_named() {
        let (end, waits) = sync_channel::<()>(1);
        let (opened, has_opened) = sync_channel(1);
        let ((), rest) = rest(move || {
            let thread = thread::Builder::new().name("left behind".into());
            let blocked = move || {
                let _ = opened.send(File::open("/dev/null").is_ok());
                let _ = waits.recv();
            };
            thread.spawn(blocked).unwrap();
            assert_eq!(has_opened.recv(), Ok(true));
        });
        drop(end);
        assert!(rest.contains("'left behind' of this process"), "{rest}");
    }

    #[test]
    fn a_process_that_is_left_behind_is_named() {
        let (mut child, rest): (Child, _) = rest(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo ready; read end"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut ready = [0; 5];
            child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
            child
        });
        let number = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(rest.contains(&format!("process {number} '")), "{rest}");
    }
}
