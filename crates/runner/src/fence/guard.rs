//! The fence process: waits for ticks, and kills everything that carries its mark when they stop.

use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Pid;
use windlass_core::launch::BootTime;

use super::{FIRED, MARK, Order, READY, TICK_BYTES, boot_time};
use crate::{kill, os};

/// How long it keeps looking after the node's death, for programs that were just being started.
const LOOK_AFTER_DEATH: Duration = Duration::from_secs(1);
/// When it gives up on processes that do not die; only those stuck in the kernel take that long.
const END_TIME_MAX: Duration = Duration::from_secs(60);
/// How often it looks while nothing may run.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const ROUND_PAUSE: Duration = Duration::from_millis(2);
/// Rounds of looking and killing when a tick is missed; later looks find the rest.
const ROUNDS_MAX: u32 = 100;
/// It wakes up at least this often, because its waits do not count the time that a machine sleeps.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Ticks read at once.
const TICKS_MAX: usize = 512;

/// Runs as a fence until the node closes its end of standard input and everything is killed.
/// `words` are those that follow its own word on the command line.
pub fn guard(words: &[String]) -> io::Result<()> {
    let order = Order::read(words)?;
    // Signals from the node's terminal must not end this process. A session leader is out of the
    // terminal's reach already.
    let _ = rustix::process::setsid();
    os::ignore_requests_to_end()?;
    // It must not keep a directory or a mount in use.
    std::env::set_current_dir("/")?;
    report(READY);
    let mark = Mark::new(&order.boot);
    watch(&order, &mark);
    mark.end_for_good();
    Ok(())
}

/// Returns when the node is gone.
fn watch(order: &Order, mark: &Mark) {
    let mut tick = order.tick;
    let mut fired = false;
    while let Some(newest) = newest_tick() {
        tick = tick.max(newest);
        let left = (tick.0 + order.limit).checked_sub(boot_time().0);
        let pause = match left.filter(|left| !left.is_zero()) {
            Some(left) => {
                fired = false;
                left.min(WAIT_MAX)
            }
            None => {
                // Programs that the node starts late are killed too. It must know of each before it
                // dies; one that takes two rounds to die is reported once.
                let mut told: HashSet<Pid> = HashSet::new();
                let tell = |found: &[Pid]| {
                    let known = told.len();
                    told.extend(found);
                    if told.len() > known {
                        report(FIRED);
                        fired = true;
                    }
                };
                let ended = mark.end_all(tell).unwrap_or(0);
                if !std::mem::replace(&mut fired, true) {
                    report(FIRED);
                }
                if ended > 0 {
                    tracing::error!(
                        processes = ended,
                        "no tick in time: killed everything that was started"
                    );
                }
                LOOK_PAUSE
            }
        };
        wait(pause);
    }
}

/// The newest tick in the pipe, or time 0 if there is none. `None` at its end.
fn newest_tick() -> Option<BootTime> {
    let mut newest = 0;
    let mut bytes = [0; TICKS_MAX * TICK_BYTES];
    while wait(Duration::ZERO) {
        // Bypasses the standard library's buffer, which would hide ticks from the wait.
        match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => return None,
            // Ticks are written whole, and the buffer holds a multiple of them.
            Ok(count) => {
                let ticks = bytes[..count].chunks_exact(TICK_BYTES);
                let ticks = ticks.filter_map(|tick| tick.try_into().ok().map(u64::from_le_bytes));
                newest = ticks.fold(newest, u64::max);
            }
            Err(Errno::INTR) => {}
            // Without its pipe it no longer knows anything about the node.
            Err(_) => return None,
        }
    }
    Some(BootTime(Duration::from_millis(newest)))
}

/// Whether the pipe has data, or has ended, within this time.
fn wait(time: Duration) -> bool {
    let stdin = io::stdin();
    let mut pipe = [PollFd::new(&stdin, PollFlags::IN)];
    let time =
        Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    rustix::event::poll(&mut pipe, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// Ignores a node that does not read or is gone.
fn report(what: u8) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(&[what]).and_then(|()| out.flush());
}

/// What everything that it must kill has in its environment.
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new(boot: &str) -> Mark {
        Mark(format!("{MARK}={boot}"))
    }

    fn is_in(&self, variable: &[u8]) -> bool {
        variable == self.0.as_bytes()
    }

    /// Kills until nothing is found any more; `tell` gets what was found before it dies. Returns
    /// the total number; an error if a look was incomplete.
    pub(super) fn end_all(&self, mut tell: impl FnMut(&[Pid])) -> io::Result<usize> {
        let mut ended = 0;
        let mut last = Ok(0);
        for _ in 0..ROUNDS_MAX {
            last = kill::kill_marked(|variable| self.is_in(variable), &mut tell);
            match last {
                Ok(0) => return Ok(ended),
                Ok(found) => ended += found,
                // The machine is at a limit; the next round may see more.
                Err(_) => {}
            }
            std::thread::sleep(ROUND_PAUSE);
        }
        last.map(|_| ended)
    }

    /// The same, and then keeps looking for a while.
    fn end_for_good(&self) {
        let begin = boot_time().0;
        let mut ended = 0;
        loop {
            let found = self.end_all(|_| {});
            ended += found.as_ref().copied().unwrap_or(0);
            let since = boot_time().0.saturating_sub(begin);
            let is_over = matches!(found, Ok(0)) && since >= LOOK_AFTER_DEATH;
            if is_over || since >= END_TIME_MAX {
                break;
            }
            std::thread::sleep(LOOK_PAUSE / 2);
        }
        if ended > 0 {
            tracing::error!(
                processes = ended,
                "the node is gone: killed everything that it had started"
            );
        }
    }
}
