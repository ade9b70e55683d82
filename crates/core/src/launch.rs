//! The interface for running plain commands: a program is started, signalled and waited for, and
//! its output is kept within bounds. How the program ends is data, never an error of this
//! interface.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    pub program: String,
    pub args: Vec<String>,
    /// The daemon's own directory when absent.
    pub cwd: Option<PathBuf>,
    /// Added to the daemon's own environment.
    pub env: Vec<(String, String)>,
    pub input: Input,
    /// Maximum number of bytes kept of each of its two streams, from the beginning.
    pub output_bytes_max: usize,
    /// Time limit, after which its whole process tree is ended.
    pub time_limit: Option<Duration>,
}

/// The standard input of a command. Nothing is ever written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Open and empty for as long as it runs.
    Open,
    /// End of file.
    Ended,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launched {
    /// Absent when a signal ended it, when it could not be started, and when it could not be
    /// killed.
    pub code: Option<i32>,
    /// Such as `SIGKILL`. Also absent when it could not be killed.
    pub signal: Option<String>,
    pub stdout: Output,
    pub stderr: Output,
    pub timed_out: bool,
    /// Why it could not be started.
    pub failure: Option<String>,
    /// It could not be started because the machine was at a limit; a later try may succeed.
    pub exhausted: bool,
}

/// What a command wrote to one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    pub bytes: Vec<u8>,
    /// The number of bytes that were not kept.
    pub dropped: u64,
}

/// Error numbers of too many open files, in the system and in the process: they have no
/// `ErrorKind`.
const FILES_OF_SYSTEM: i32 = 23;
const FILES_OF_PROCESS: i32 = 24;

/// Whether it failed because the machine is short of descriptors, processes, memory or disk, so
/// that a later try may succeed.
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
    /// Sends a signal to the process itself, not to its children; signal 0 only checks. False when
    /// it has ended or there is no such signal.
    fn signal(&self, signal: SignalTo) -> bool;

    /// Ends it with everything that it started.
    fn kill_tree(&self);

    /// Returns when the process has ended and its output is complete.
    async fn wait(&self) -> Launched;
}

/// A time of the clock that all processes of a machine share and that continues while it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

/// Ends the processes that have its mark when their owner dies, hangs, or stops ticking.
pub trait Fence: Send + Sync + 'static {
    /// The environment variable that marks processes under this fence.
    fn mark(&self) -> (String, String);

    /// The processes may continue for the fence's time from this moment.
    fn tick(&self, at: BootTime);

    /// How often it has ended processes because no tick came in time. It is counted before they
    /// die, so that the cause is known when a death is seen.
    fn fired(&self) -> u64;

    /// Whether the time since the last tick is not over yet. When it is over, nothing may be
    /// started.
    fn allows(&self) -> bool;

    /// The watching process. Absent while there is none; then nothing may be started.
    fn process_id(&self) -> Option<u32>;

    /// Ends all processes with the mark of a fence that died together with its owner. Blocks the
    /// caller for a while.
    fn end_left_by(&self, value: &str);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_at_a_limit_may_start_a_program_later() {
        let system = [FILES_OF_SYSTEM, FILES_OF_PROCESS].map(io::Error::from_raw_os_error);
        let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::OutOfMemory].map(io::Error::from);
        for error in system.iter().chain(&kinds) {
            assert!(is_exhaustion(error), "{error}");
        }
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
            assert!(!is_exhaustion(&kind.into()), "{kind}");
        }
    }
}
