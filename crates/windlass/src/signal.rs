//! The two signals that ask for an end: TERM and INT.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Some programs send one request twice, to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(100);

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Which one came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Terminate,
    Interrupt,
}

impl Asked {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Asked::Terminate => "SIGTERM",
            Asked::Interrupt => "SIGINT",
        }
    }

    /// The exit status that a shell gives to a process which a signal ended.
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Asked::Terminate => 128 + 15,
            Asked::Interrupt => 128 + 2,
        }
    }
}

impl Signals {
    /// From now on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one after a first, not counting what comes together with it.
    pub(crate) async fn again(&mut self) -> Asked {
        let together = tokio::time::sleep(TOGETHER);
        let mut together = std::pin::pin!(together);
        loop {
            tokio::select! {
                () = &mut together => return self.next().await,
                _ = self.next() => {}
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
        }
    }
}
