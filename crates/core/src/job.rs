//! The job: a type and a payload, with a state.

use std::time::Duration;

use bytes::Bytes;

use crate::id::{JobId, Sysid};
use crate::limit::{PRIORITY_DEFAULT, PRIORITY_MAX};
use crate::name::{Invalid, TypeKey};
use crate::outcome::{Code, Status};
use crate::state::State;
use crate::time::Timestamp;

/// 0 to 1000, higher is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(u16);

impl Priority {
    pub fn new(number: i64) -> Result<Priority, Invalid> {
        match u16::try_from(number) {
            Ok(number) if number <= PRIORITY_MAX => Ok(Priority(number)),
            _ => Err(Invalid::new("priority", "a priority is a whole number from 0 to 1000")),
        }
    }

    pub fn get(self) -> u16 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority(PRIORITY_DEFAULT)
    }
}

/// A job as it enters a store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub id: JobId,
    pub key: TypeKey,
    pub priority: Priority,
    /// Not run before this; the time of the add when nothing was asked for.
    pub run_at: Timestamp,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Time limit of one attempt; wins over the handler's and the type's.
    pub timeout: Option<Duration>,
    /// While a job of this type with this key has not ended, no other one enters.
    pub unique: Option<String>,
    pub payload: Payload,
}

impl NewJob {
    /// When the job is first to run: a time that has passed means now.
    pub fn due_at(&self) -> Timestamp {
        self.run_at.max(self.created_at)
    }
}

/// The bytes that a job is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    Inline(Bytes),
    /// Too large for one buffer: the store has it in pieces, under the job's id.
    Pieces {
        bytes: u64,
    },
}

impl Payload {
    pub fn len(&self) -> u64 {
        match self {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Pieces { bytes } => *bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A job as a store shows it. Payload, result and logs are asked for by id.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub key: TypeKey,
    pub state: State,
    pub priority: Priority,
    /// When it may run (next).
    pub run_at: Timestamp,
    /// When it was first to run (see `NewJob::due_at`); the age limit of retries counts from here.
    pub due_at: Timestamp,
    /// 0 before the first start, 1 during it.
    pub attempt: u32,
    pub created_at: Timestamp,
    /// Start of the newest attempt.
    pub started_at: Option<Timestamp>,
    /// When it ended; only an ended job has it.
    pub finished_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub timeout: Option<Duration>,
    /// There while the job runs, and only then.
    pub lease: Option<Lease>,
    /// How the newest attempt that ended, ended.
    pub last: Option<Ended>,
    pub unique: Option<String>,
    pub payload_bytes: u64,
    /// What the newest attempt said of itself; a store shows it with a single job, not in lists.
    pub progress: Option<Progress>,
}

/// How far a running attempt has come, in its own words.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// 0 to 100.
    pub percent: f64,
    pub message: String,
    pub at: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub code: Code,
    pub status: Status,
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended { code: status.code(), status }
    }
}

/// The lock on a running job. Whoever has the token may renew it and settle the job; nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub owner: Sysid,
    pub token: Token,
    pub expires_at: Timestamp,
}

/// Grows with every claim of a job, so that a late owner is told from the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub i64);

/// The how-manieth start of a daemon on this store: grows with every sysid that is reserved, and
/// is durable before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Boot(pub i64);

/// Claims of one job within one boot that get tokens of that boot's own range.
const TOKENS_PER_BOOT_BITS: u32 = 20;

impl Token {
    /// The token of the next claim, by a daemon of `boot`, of a job whose newest token was `last`.
    /// A claim that a power cut undid is followed by a larger boot, so its token never returns.
    pub fn next(boot: Boot, last: Option<Token>) -> Token {
        let floor = boot.0 << TOKENS_PER_BOOT_BITS;
        Token(floor.max(last.map_or(0, |token| token.0)) + 1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn running_job(attempt: u32, due_at: Timestamp) -> Job {
        Job {
            id: JobId::new(1).unwrap(),
            key: TypeKey::new("acme", "t").unwrap(),
            state: State::Running,
            priority: Priority::default(),
            run_at: due_at,
            due_at,
            attempt,
            created_at: due_at,
            started_at: Some(due_at),
            finished_at: None,
            expires_at: None,
            timeout: None,
            lease: None,
            last: None,
            unique: None,
            payload_bytes: 0,
            progress: None,
        }
    }

    #[test]
    fn tokens_grow_within_a_boot_across_boots_and_between_daemons() {
        let first = Token::next(Boot(5), None);
        let second = Token::next(Boot(5), Some(first));
        let by_older_daemon = Token::next(Boot(3), Some(second));
        let after_power_cut = Token::next(Boot(6), None);
        assert!(first < second && second < by_older_daemon && by_older_daemon < after_power_cut);
    }

    #[test]
    fn priorities_have_a_range() {
        assert!(Priority::new(0).is_ok() && Priority::new(1000).is_ok());
        assert!(Priority::new(-1).is_err() && Priority::new(1001).is_err());
    }
}
