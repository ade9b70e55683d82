//! A server process: started, signalled, ended, and restarted on the same port with its data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use windlass_test_kit::port::free_port;
use windlass_test_kit::wait::{PATIENCE, when_some};

use crate::folder::Folder;

/// Pause between two checks whether it is up.
const PAUSE: Duration = Duration::from_millis(30);

/// A server process with its port and its folder. Ended on drop.
pub(crate) struct Host {
    pub port: u16,
    process: Mutex<Option<Child>>,
    stands_still: AtomicBool,
    folder: Folder,
}

impl Host {
    pub(crate) fn new(folder: Folder) -> Self {
        let stands_still = AtomicBool::new(false);
        Self { port: free_port(), process: Mutex::new(None), stands_still, folder }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.data()
    }

    /// The id of its process while it runs.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(child) = &mut *self.process() {
            send(child, signal);
        }
    }

    /// Records that a request was not answered in time.
    pub(crate) fn note_silence(&self) {
        self.stands_still.store(true, Ordering::SeqCst);
    }

    /// Why the server is unusable, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.stands_still.load(Ordering::SeqCst) {
            return Some("it did not answer before".to_owned());
        }
        let ended = self.process().as_mut()?.try_wait().ok().flatten()?;
        Some(format!("it ended by itself ({ended}) and said: {}", self.said()))
    }

    /// Ends it with a signal and waits for its exit.
    #[track_caller]
    pub(crate) fn end(&self, signal: Signal) {
        let obeyed = self.collect(signal);
        assert!(obeyed, "it did not end by {signal:?} and was killed: {}", self.said());
    }

    /// Whether the signal ended it. Otherwise it was killed.
    fn collect(&self, signal: Signal) -> bool {
        let Some(mut child) = self.process().take() else { return true };
        let mut ends_by = |signal| {
            send(&mut child, signal);
            when_some(|| has_ended(&mut child).then_some(())).is_some()
        };
        let obeyed = ends_by(signal);
        if !obeyed {
            ends_by(Signal::KILL);
        }
        let _ = fs::remove_file(self.pid_file());
        obeyed
    }

    /// Starts it and waits until `ask` succeeds. An attempt may fail because processes of a killed
    /// predecessor are still exiting.
    pub(crate) fn start(&self, serve: impl Fn() -> Command, ask: impl Fn() -> Result<(), String>) {
        assert!(self.process().is_none(), "it runs");
        let began = Instant::now();
        self.spawn(serve());
        while let Err(told) = ask() {
            assert!(began.elapsed() < PATIENCE, "no answer: {told}{}", self.said());
            thread::sleep(PAUSE);
            let ended = self.process().as_mut().is_some_and(has_ended);
            if ended {
                self.spawn(serve());
            }
        }
    }

    /// From now on it is ended on drop, whatever happens.
    fn spawn(&self, mut command: Command) {
        let log = File::create(self.log()).expect("a log in the server's folder");
        self.folder.belong(&mut command);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pid = child.id();
        *self.process() = Some(child);
        fs::write(self.pid_file(), format!("{pid}\n")).expect("a pid file");
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn path(&self) -> &Path {
        &self.folder.path
    }

    fn pid_file(&self) -> PathBuf {
        self.path().join("pid")
    }

    fn log(&self) -> PathBuf {
        self.path().join("log")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.collect(Signal::KILL);
    }
}

/// Does nothing if it was already reaped: another process may have its id.
fn send(child: &mut Child, signal: Signal) {
    if !has_ended(child) {
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().is_ok_and(|ended| ended.is_some())
}
