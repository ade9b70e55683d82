//! The signals that stop the process: TERM and INT, and for the Disbatch programs also HUP and
//! QUIT. The daemon loads files again after a HUP.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_program::Stop;

/// Some programs send a signal twice, to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(100);

pub(crate) struct Signals(Vec<(StopSignal, Signal)>);

/// A signal that asks the process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Hangup,
    Interrupt,
    Quit,
    Terminate,
}

impl StopSignal {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            StopSignal::Hangup => "SIGHUP",
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Quit => "SIGQUIT",
            StopSignal::Terminate => "SIGTERM",
        }
    }

    fn number(self) -> u8 {
        match self {
            StopSignal::Hangup => 1,
            StopSignal::Interrupt => 2,
            StopSignal::Quit => 3,
            StopSignal::Terminate => 15,
        }
    }

    /// The exit code that a shell reports for a process killed by this signal.
    pub(crate) fn exit_status(self) -> u8 {
        128 + self.number()
    }
}

/// Notified by every HUP. From now on that signal no longer kills the process.
pub(crate) fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

impl Signals {
    /// From now on TERM and INT no longer kill the process.
    pub(crate) fn listen() -> io::Result<Signals> {
        Signals::listen_to(&[StopSignal::Terminate, StopSignal::Interrupt])
    }

    /// From now on none of the four kills the process.
    pub(crate) fn listen_to_all() -> io::Result<Signals> {
        Signals::listen_to(&[
            StopSignal::Terminate,
            StopSignal::Interrupt,
            StopSignal::Quit,
            StopSignal::Hangup,
        ])
    }

    fn listen_to(wanted: &[StopSignal]) -> io::Result<Signals> {
        let listen = |wanted: &StopSignal| {
            let kind = SignalKind::from_raw(wanted.number().into());
            Ok((*wanted, signal(kind)?))
        };
        wanted.iter().map(listen).collect::<io::Result<_>>().map(Signals)
    }

    /// Runs a daemon until it ends. The first signal asks it to stop, the second stops it at once.
    /// Returns the first.
    pub(crate) async fn until_end<T>(
        mut self,
        stop: &Stop,
        daemon: impl Future<Output = T>,
        tell: impl FnOnce(StopSignal),
    ) -> (T, Option<StopSignal>) {
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
    pub(crate) async fn again(&mut self) -> StopSignal {
        let together = tokio::time::sleep(TOGETHER);
        let mut together = std::pin::pin!(together);
        loop {
            tokio::select! {
                () = &mut together => return self.next().await,
                _ = self.next() => {}
            }
        }
    }

    pub(crate) async fn next(&mut self) -> StopSignal {
        poll_fn(|cx| {
            for (which, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*which);
                }
            }
            Poll::Pending
        })
        .await
    }
}
