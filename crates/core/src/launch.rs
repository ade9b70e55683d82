//! The seam to running commands for others: a program is started, signalled, waited for, and its
//! output kept within bounds. What the program does is data; nothing here fails because of it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

/// A command to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    pub program: String,
    pub args: Vec<String>,
    /// The daemon's own when absent.
    pub cwd: Option<PathBuf>,
    /// Beside the daemon's own environment.
    pub env: Vec<(String, String)>,
    pub input: Input,
    /// Kept of each of its two streams, from the beginning.
    pub output_bytes_max: usize,
    /// Its whole process tree is ended after this.
    pub time_limit: Option<Duration>,
}

/// What a command finds when it reads its standard input. Nothing is ever written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing, for as long as it runs.
    Open,
    /// Its end.
    Ended,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launched {
    /// Absent when a signal ended it, when it could not be started, and when it was to be ended and
    /// does not die.
    pub code: Option<i32>,
    /// Such as `SIGKILL`. Absent as well when it lives on.
    pub signal: Option<String>,
    pub stdout: Output,
    pub stderr: Output,
    pub timed_out: bool,
    /// Why it could not be started.
    pub failure: Option<String>,
    /// It could not be started because the machine was at a limit; it may be possible later.
    pub exhausted: bool,
}

/// What a command wrote to one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    pub bytes: Vec<u8>,
    /// Bytes that were not kept.
    pub dropped: u64,
}

/// The numbers of too many open files, in the whole system and in the process: they have no kind of
/// their own.
const FILES_OF_SYSTEM: i32 = 23;
const FILES_OF_PROCESS: i32 = 24;

/// Whether it failed because the machine is at a limit, so that it may be possible later: it lacks
/// descriptors, processes, memory or disk.
pub fn is_exhaustion(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull, WouldBlock};
    matches!(error.kind(), WouldBlock | OutOfMemory | StorageFull | QuotaExceeded)
        || matches!(error.raw_os_error(), Some(FILES_OF_SYSTEM | FILES_OF_PROCESS))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalTo {
    Number(i64),
    /// Such as `SIGTERM`.
    Name(String),
}

pub trait Launcher: Send + Sync + 'static {
    /// Starts the command at once.
    fn launch(&self, spec: LaunchSpec) -> Box<dyn Running>;
}

/// A command that was started. Dropping it does not end it.
#[async_trait]
pub trait Running: Send + Sync {
    /// Sends a signal to the process itself, not to its children; signal 0 only asks. False when it
    /// has ended or there is no such signal.
    fn signal(&self, signal: SignalTo) -> bool;

    /// Ends it with everything that it started.
    fn kill_tree(&self);

    /// Answers when the process has ended and nothing more of its output is to be waited for.
    async fn wait(&self) -> Launched;
}

/// A moment of the clock that all processes of a machine share and that goes on while it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

/// Ends what was started under its mark when whoever started it dies, hangs, or can no longer say
/// that it may go on.
pub trait Fence: Send + Sync + 'static {
    /// The variable that everything under this fence must have in its environment.
    fn mark(&self) -> (String, String);

    /// What was started may go on for the fence's time from this moment.
    fn tick(&self, at: BootTime);

    /// How often it has ended what was started because no tick came in time. It is counted before
    /// anything dies, so that whoever sees a death can ask who it was.
    fn fired(&self) -> u64;

    /// Whether the time from the last tick is still running. When it is over, nothing may be
    /// started.
    fn allows(&self) -> bool;

    /// The process that watches. Absent while none does; then nothing may be started.
    fn process_id(&self) -> Option<u32>;

    /// Ends everything under the mark of a fence that has died together with its owner, by the
    /// value of that mark. It takes a while, in which the caller is blocked.
    fn end_left_by(&self, value: &str);
}
