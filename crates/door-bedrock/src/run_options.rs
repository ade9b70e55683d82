//! The options of a request: the headers common to all commands. Pure.

use std::time::Duration;

use windlass_core::Timestamp;

use crate::number::leading_integer;
use crate::wire::Request;

/// Default time limit of a command.
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(110_000);
/// Upper bound of a requested time limit.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest delay of a command; it is only kept in memory until then.
const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunOptions {
    pub when: When,
    /// Time limit of the command, including waiting.
    pub timeout: Duration,
    /// Close the connection after the reply.
    pub closes: bool,
    /// Whether the reply repeats the header; Bedrock does so only for this exact spelling.
    pub says_close: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The client waits for the reply.
    Now,
    /// The client does not, and the connection ends.
    Queued { delay: Duration },
}

impl RunOptions {
    pub(crate) fn of(request: &Request, now: Timestamp) -> RunOptions {
        let given = request.header("timeout").filter(|text| !text.is_empty());
        let timeout = given.map_or(TIMEOUT_DEFAULT, |text| {
            Duration::from_millis(u64::try_from(leading_integer(text)).unwrap_or(0))
        });
        RunOptions {
            when: when(request, now),
            timeout: timeout.min(TIMEOUT_MAX),
            closes: request.connection_is("close"),
            says_close: request.header("Connection") == Some("close"),
        }
    }
}

fn when(request: &Request, now: Timestamp) -> When {
    let execute_us = request.header("commandExecuteTime").map_or(0, leading_integer);
    let delay_us = execute_us.saturating_sub(now.0.saturating_mul(1000));
    match u64::try_from(delay_us) {
        Ok(delay_us) if delay_us > 0 => {
            When::Queued { delay: Duration::from_micros(delay_us).min(DELAY_MAX) }
        }
        _ if request.connection_is("forget") => When::Queued { delay: Duration::ZERO },
        _ => When::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Limits, Parser, Step};

    fn options(headers: &str) -> RunOptions {
        let text = format!("Ping\n{headers}\n\n");
        match Parser::new(Limits::default()).parse(text.as_bytes()).1 {
            Step::Request(request) => RunOptions::of(&request, Timestamp(1_000)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_headers_the_client_waits_110_seconds_and_stays() {
        let expected = RunOptions {
            when: When::Now,
            timeout: Duration::from_secs(110),
            closes: false,
            says_close: false,
        };
        assert_eq!(options("name: x"), expected);
        assert_eq!(options("Connection: wait"), expected);
        assert_eq!(options("timeout:"), expected);
        assert_eq!(options("processTimeout: 1\ncommitCount: 7"), expected);
    }

    #[test]
    fn the_timeout_is_in_milliseconds_and_bounded() {
        assert_eq!(options("Timeout: 1500").timeout, Duration::from_millis(1500));
        assert_eq!(options("timeout: 0").timeout, Duration::ZERO);
        assert_eq!(options("timeout: -5").timeout, Duration::ZERO);
        assert_eq!(options("timeout: soon").timeout, Duration::ZERO);
        assert_eq!(options("timeout: 99999999999999999999").timeout, TIMEOUT_MAX);
    }

    #[test]
    fn only_a_close_in_lower_case_is_said_back() {
        let close = options("Connection: close");
        assert!(close.closes && close.says_close);
        let close = options("connection: Close");
        assert!(close.closes && !close.says_close);
    }

    #[test]
    fn what_is_forgotten_or_put_off_is_queued() {
        assert_eq!(options("Connection: Forget").when, When::Queued { delay: Duration::ZERO });
        let soon = When::Queued { delay: Duration::from_micros(1) };
        assert_eq!(options("commandExecuteTime: 1000001").when, soon);
        assert_eq!(options("commandExecuteTime: 1000001\nConnection: forget").when, soon);
        for past in ["1000000", "5", "-1", "never", ""] {
            assert_eq!(options(&format!("commandExecuteTime: {past}")).when, When::Now);
        }
        let far = When::Queued { delay: DELAY_MAX };
        assert_eq!(options("commandExecuteTime: 99999999999999999999").when, far);
    }
}
