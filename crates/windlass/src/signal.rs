//! The signals that stop the process: TERM and INT, and for the Disbatch programs also HUP and
//! QUIT.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_program::Stop;

/// Some programs send a signal twice, to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(100);

pub(crate) struct Signals(Vec<(Asked, Signal)>);

/// The received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Hangup,
    Interrupt,
    Quit,
    Terminate,
}

impl Asked {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Asked::Hangup => "SIGHUP",
            Asked::Interrupt => "SIGINT",
            Asked::Quit => "SIGQUIT",
            Asked::Terminate => "SIGTERM",
        }
    }

    fn number(self) -> u8 {
        match self {
            Asked::Hangup => 1,
            Asked::Interrupt => 2,
            Asked::Quit => 3,
            Asked::Terminate => 15,
        }
    }

    /// The exit code that a shell reports for a process killed by this signal.
    pub(crate) fn exit_status(self) -> u8 {
        128 + self.number()
    }
}

impl Signals {
    /// From now on TERM and INT no longer kill the process.
    pub(crate) fn listen() -> io::Result<Signals> {
        Signals::listen_to(&[Asked::Terminate, Asked::Interrupt])
    }

    /// From now on none of the four kills the process.
    pub(crate) fn listen_to_all() -> io::Result<Signals> {
        Signals::listen_to(&[Asked::Terminate, Asked::Interrupt, Asked::Quit, Asked::Hangup])
    }

    fn listen_to(wanted: &[Asked]) -> io::Result<Signals> {
        let listen = |asked: &Asked| {
            let kind = SignalKind::from_raw(asked.number().into());
            Ok((*asked, signal(kind)?))
        };
        wanted.iter().map(listen).collect::<io::Result<_>>().map(Signals)
    }

    /// Runs a daemon until it ends. The first signal asks it to stop, the second stops it at once.
    /// Returns the first.
    pub(crate) async fn until_end<T>(
        mut self,
        stop: &Stop,
        daemon: impl Future<Output = T>,
        tell: impl FnOnce(Asked),
    ) -> (T, Option<Asked>) {
        let mut daemon = std::pin::pin!(daemon);
        let first = tokio::select! {
            ended = &mut daemon => return (ended, None),
            signal = self.next() => signal,
        };
        tell(first);
        stop.asked.cancel();
        tokio::select! {
            ended = &mut daemon => return (ended, Some(first)),
            _ = self.again() => stop.now.cancel(),
        }
        (daemon.await, Some(first))
    }

    /// The next signal after the first, ignoring duplicates of the first.
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
        poll_fn(|cx| {
            for (asked, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*asked);
                }
            }
            Poll::Pending
        })
        .await
    }
}
