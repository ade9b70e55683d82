//! A fence: a separate process that kills what a node started when the node dies, hangs, or fails
//! to send a tick in time.
//!
//! ```text
//! node ── ticks ──► fence     each is the time of a renewal: things may go on for `limit`
//!   │  ◄─ reports ──  │       one byte when it is ready, one each time that it ends everything
//!   └► programs       │       all carry the mark in their environment
//!         ▲───────────┘       ended with their descendants: at the end of the ticks' pipe, or when
//!                             no tick came in time; then it guards on
//! ```
//! The fence finds programs by their environment, so none is lost if the node dies between two
//! instructions. Two kinds escape it: a program whose parent cleared the environment and exited,
//! and a program that changes its user.
//!
//! If the fence itself dies, the node starts another one at once. Until that is ready, `process_id`
//! is absent and nothing may be started.

mod guard;
mod node;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::ClockId;
use windlass_core::launch::BootTime;

pub use self::guard::guard;
pub use self::node::ProcessFence;

/// The word that makes our program a fence.
pub const WORD: &str = "fence";
/// The variable that every process under a fence has in its environment.
pub const MARK: &str = "WINDLASS_FENCE";

/// The fence is ready.
const READY: u8 = b'r';
/// No tick came in time, and everything is being killed.
const FIRED: u8 = b'f';
/// A tick is a time in milliseconds.
const TICK_BYTES: usize = 8;

/// The time on the clock that ticks are measured by.
pub fn boot_time() -> BootTime {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    BootTime(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default()))
}

/// The fence's parameters.
struct Order {
    boot: String,
    limit: Duration,
    /// The newest tick until now.
    tick: BootTime,
}

impl Order {
    /// The command that runs our own program as a fence.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg0("windlass");
        let (limit, tick) = (to_ms(self.limit), to_ms(self.tick.0));
        command.args([WORD, &self.boot, &limit.to_string(), &tick.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env_remove(MARK);
        command
    }

    fn read(words: &[String]) -> io::Result<Order> {
        let wrong = || io::Error::other("a fence can only be started by a node");
        let [boot, limit, tick] = words else { return Err(wrong()) };
        let ms = |word: &str| word.parse().map(Duration::from_millis).map_err(|_| wrong());
        Ok(Order { boot: boot.clone(), limit: ms(limit)?, tick: BootTime(ms(tick)?) })
    }
}

fn to_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_back_from_its_command_line() {
        let tick = BootTime(Duration::from_millis(123_456));
        let order = Order { boot: "ab12".into(), limit: Duration::from_secs(24), tick };
        let command = order.command(Path::new("/bin/true"));
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.collect();
        assert_eq!(words[0], WORD);
        let read = Order::read(&words[1..]).unwrap();
        assert_eq!((read.boot, read.limit, read.tick), (order.boot, order.limit, tick));
    }

    #[test]
    fn what_a_node_would_not_say_is_refused() {
        for words in [&[][..], &["a"], &["a", "b", "1"], &["a", "1", "-1"], &["a", "1", "1", "1"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(Order::read(&words).is_err(), "{words:?}");
        }
    }
}
