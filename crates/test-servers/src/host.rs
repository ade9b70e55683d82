//! A server's process: started, signalled, ended, started again on the same port with its data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use windlass_test_kit::port::free_port;
use windlass_test_kit::wait::PATIENCE;

use crate::folder::Folder;

/// Between two looks at whether it is there.
const PAUSE: Duration = Duration::from_millis(30);

/// One server's process with its port and its folder. It ends when this is dropped.
pub(crate) struct Host {
    pub port: u16,
    process: Mutex<Option<Child>>,
    folder: Folder,
}

impl Host {
    pub(crate) fn new(folder: Folder) -> Self {
        Self { port: free_port(), process: Mutex::new(None), folder }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.data()
    }

    /// The number of its process while it runs.
    pub(crate) fn process_id(&self) -> Option<u32> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.as_ref().map(Child::id)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = &*process {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Ends it by a signal and waits for that.
    pub(crate) fn end(&self, signal: Signal) {
        self.signal(signal);
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = process.take() {
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.pid_file());
    }

    /// Starts it and waits until `ask` gets an answer. A try may fail because processes of the one
    /// that was killed are still ending.
    pub(crate) fn start(&self, serve: impl Fn() -> Command, ask: impl Fn() -> Result<(), String>) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(process.is_none(), "it runs");
        let began = Instant::now();
        let mut child = self.spawn(serve());
        while let Err(told) = ask() {
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "no answer: {told}{}", log());
            thread::sleep(PAUSE);
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                child = self.spawn(serve());
            }
        }
        *process = Some(child);
    }

    fn spawn(&self, mut command: Command) -> Child {
        let log = File::create(self.log()).expect("a log in the server's folder");
        self.folder.belong(&mut command);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        fs::write(self.pid_file(), format!("{}\n", child.id())).expect("a pid file");
        child
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
        self.end(Signal::KILL);
    }
}
