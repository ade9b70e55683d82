//! The job: a type and a payload, with a state.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::add::AddOptions;
use crate::id::{JobId, Sysid};
use crate::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES, PRIORITY_DEFAULT, PRIORITY_MAX};
use crate::name::{Invalid, TypeKey, TypeName};
use crate::outcome::{Code, Json, Status};
use crate::state::State;
use crate::time::Timestamp;

/// 0 to 1000, higher is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(u16);

impl Priority {
    pub fn new(number: i64) -> Result<Priority, Invalid> {
        match u16::try_from(number) {
            Ok(number) if number <= PRIORITY_MAX => Ok(Priority(number)),
            _ => {
                let reason = format!("a priority is a whole number from 0 to {PRIORITY_MAX}");
                Err(Invalid::new("priority", reason))
            }
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
    /// Don't run before this time; the time of the add by default.
    pub run_at: Timestamp,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Time limit of one attempt; overrides the handler's and the type's.
    pub timeout: Option<Duration>,
    /// While a job of this type with this key has not ended, no other one enters.
    pub unique: Option<String>,
    /// The type of the job that follows when this one ends well; see `Job::follow`.
    pub then: Option<TypeName>,
    /// The job that waits for this one; see `family`.
    pub parent: Option<JobId>,
    /// Enters as `paused`, because its parent runs; the end of the parent's attempt queues it.
    pub paused: bool,
    pub extra: Extra,
    pub payload: Payload,
}

/// Rare fields, which a store keeps apart from those of all jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// How it repeats, in the form of `Repeat::as_str`.
    pub repeat: Option<Arc<str>>,
    /// Data of the door that added the job, in a form that only this door reads.
    pub door_text: Option<Arc<str>>,
    /// `run_at` as the client wrote it, if the number alone would not restore that.
    pub run_at_text: Option<Arc<str>>,
    /// Order among equally urgent jobs that are due in the same millisecond, smallest first. 0 for
    /// nearly all; reset when the job gets a new time.
    pub order_key: i64,
    /// A worker has it without a lease; it is queued in case the worker never reports back.
    pub lent: bool,
    /// Only workers that ask for hidden jobs get it; claims and counts of ready jobs ignore it.
    pub hidden: bool,
}

impl Extra {
    pub fn is_none(&self) -> bool {
        *self == Extra::default()
    }

    /// The order of jobs that are equally urgent and due in the same millisecond, smallest first:
    /// by `order_key`, then lent jobs after the others.
    pub fn tie(&self) -> i64 {
        self.order_key.saturating_mul(2).saturating_add(i64::from(self.lent))
    }

    /// Resets what belonged to the old time of a job that gets a new one.
    pub fn retime(&mut self) {
        (self.run_at_text, self.order_key, self.lent) = (None, 0, false);
    }
}

impl NewJob {
    /// A job without options: due now, with the default priority.
    pub fn new(id: JobId, key: TypeKey, payload: Payload, now: Timestamp) -> NewJob {
        NewJob::with(AddOptions::default(), id, key, payload, now)
    }

    /// A job with these options, created now.
    pub fn with(
        options: AddOptions,
        id: JobId,
        key: TypeKey,
        payload: Payload,
        now: Timestamp,
    ) -> NewJob {
        NewJob {
            id,
            key,
            priority: options.priority,
            run_at: options.run_at.unwrap_or(now),
            created_at: now,
            expires_at: options.expires.map(|expiry| expiry.of(now)),
            timeout: options.timeout,
            unique: options.unique,
            then: options.then,
            parent: options.parent,
            paused: false,
            extra: options.extra,
            payload,
        }
    }

    /// Whether it is due in a store whose clock shows `now`. Its creator's clock may be ahead, or
    /// the store's may have been set back since.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.run_at <= now.max(self.created_at)
    }

    /// When the job first comes due: a time in the past means now.
    pub fn due_at(&self) -> Timestamp {
        self.run_at.max(self.created_at)
    }

    /// How many bytes of pieces the store must have when the job enters. `None` if its payload is
    /// inline. Nor does a job need any that had expired when it was created: it never runs, as its
    /// payload cannot be read.
    pub fn pieces_needed(&self) -> Option<u64> {
        let never_runs = self.expires_at.is_some_and(|at| at <= self.created_at);
        (self.payload.is_in_pieces() && !never_runs).then(|| self.payload.len())
    }

    /// Splits a payload that is too large for one buffer; returns its pieces.
    pub fn split_payload(&mut self) -> Vec<Bytes> {
        let (payload, pieces) = self.payload.clone().split();
        self.payload = payload;
        pieces
    }
}

/// The payload of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    Inline(Bytes),
    /// Too large for one buffer: the store keeps it in pieces under the job's id.
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

    /// What it takes in memory.
    pub fn inline_len(&self) -> u64 {
        match self {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Pieces { .. } => 0,
        }
    }

    pub fn is_in_pieces(&self) -> bool {
        matches!(self, Payload::Pieces { .. })
    }

    /// Splits a payload that is too large for one buffer into pieces; returns any other unchanged.
    pub fn split(self) -> (Payload, Vec<Bytes>) {
        let bytes = match self {
            Payload::Inline(bytes) if bytes.len() > PAYLOAD_INLINE_BYTES_MAX => bytes,
            other => return (other, Vec::new()),
        };
        let starts = (0..bytes.len()).step_by(PAYLOAD_PIECE_BYTES);
        let end = |start: usize| bytes.len().min(start + PAYLOAD_PIECE_BYTES);
        let pieces = starts.map(|start| bytes.slice(start..end(start))).collect();
        (Payload::Pieces { bytes: bytes.len() as u64 }, pieces)
    }
}

/// A job as a store returns it. Payload, result and logs are read separately, by id.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub key: TypeKey,
    pub state: State,
    pub priority: Priority,
    /// When it may run next.
    pub run_at: Timestamp,
    /// When it first came due (see `NewJob::due_at`); the age limit of retries counts from here.
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
    /// Present only while the job runs.
    pub lease: Option<Lease>,
    /// How the latest ended attempt ended.
    pub last: Option<Ended>,
    pub unique: Option<String>,
    pub then: Option<TypeName>,
    /// The job that waits for this one.
    pub parent: Option<JobId>,
    /// Whether other jobs name, or have named, this one as their parent.
    pub children: bool,
    pub extra: Extra,
    pub payload_bytes: u64,
    /// The progress of the latest attempt; read with a single job, not in lists.
    pub progress: Option<Progress>,
}

impl Job {
    /// The job right after its insert.
    pub fn queued(new: NewJob) -> Job {
        Job {
            state: if new.paused { State::Paused } else { State::Queued },
            priority: new.priority,
            run_at: new.run_at,
            due_at: new.due_at(),
            attempt: 0,
            created_at: new.created_at,
            started_at: None,
            finished_at: None,
            expires_at: new.expires_at,
            timeout: new.timeout,
            lease: None,
            last: None,
            parent: new.parent,
            children: false,
            payload_bytes: new.payload.len(),
            progress: None,
            id: new.id,
            key: new.key,
            unique: new.unique,
            then: new.then,
            extra: new.extra,
        }
    }

    /// The job during an attempt, without the lease that only a store gives.
    pub fn running(new: NewJob, attempt: u32, started_at: Timestamp) -> Job {
        let (state, started_at) = (State::Running, Some(started_at));
        Job { state, attempt, started_at, ..Job::queued(new) }
    }

    /// Whether it is queued and waits for a duration instead of a time of day: for its next
    /// attempt, or for the worker that it is lent to.
    pub fn waits_a_while(&self) -> bool {
        let Extra { repeat, run_at_text, lent, .. } = &self.extra;
        let retries = self.attempt > 0 && repeat.is_none() && run_at_text.is_none();
        self.state == State::Queued && (*lent || retries)
    }

    /// Whether a worker has it, under a lease or lent.
    pub fn is_out(&self) -> bool {
        self.state == State::Running || (self.state == State::Queued && self.extra.lent)
    }

    /// The attempt of its lease.
    pub fn attempt_id(&self) -> Option<AttemptId> {
        self.lease.map(|lease| AttemptId { job: self.id, token: lease.token })
    }

    /// The type of the job that follows if this one ends with this status.
    pub fn followed_by(&self, status: Status) -> Option<&TypeName> {
        self.then.as_ref().filter(|_| status.code() == Code::Ok)
    }

    /// The job that follows, with the same priority and the result as payload: a string as text,
    /// any other value as JSON, no result as an empty payload.
    pub fn follow(&self, name: TypeName, id: JobId, data: Option<&Json>, now: Timestamp) -> NewJob {
        let key = TypeKey { tenant: self.key.tenant.clone(), name };
        let payload = Payload::Inline(data.map(Json::to_bytes).unwrap_or_default());
        NewJob { priority: self.priority, ..NewJob::new(id, key, payload, now) }
    }
}

/// The progress of a running attempt, as it reports it.
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

/// The lock on a running job. Only the holder of the token may renew it and settle the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub owner: Sysid,
    pub token: Token,
    pub expires_at: Timestamp,
    /// Whether it lasts as long as its owner's number: then `expires_at` is that of the number and
    /// moves with the owner's beats. Otherwise it has its own expiry.
    pub on_beat: bool,
}

/// Identifies one claim: no two claims of a job have the same token. The claiming daemon makes it,
/// so that none is issued twice whatever the store forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub i64);

/// One claim of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    pub job: JobId,
    pub token: Token,
}

/// Boot number: grows with every sysid reservation, and is durable before it is used. It is not
/// below the store's clock in seconds (see `Boot::after`), so that a store that was reset to an
/// older state does not issue one twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Boot(pub i64);

/// Claims per boot number. The rest of the 53 bits that JavaScript reads exactly is for the boot
/// number: enough for a thousand daemons that take one with every beat, for decades.
pub const TOKENS_PER_BOOT: i64 = 1 << 14;

impl Boot {
    /// The next boot number after `last`, at the time `now`.
    pub fn after(last: Boot, now: Timestamp) -> Boot {
        Boot((last.0 + 1).max(seconds_since_2020(now)))
    }

    /// The token of claim number `count`, which is below `TOKENS_PER_BOOT`.
    pub fn token(self, count: i64) -> Token {
        debug_assert!((0..TOKENS_PER_BOOT).contains(&count));
        Token(self.0 * TOKENS_PER_BOOT + count)
    }
}

fn seconds_since_2020(now: Timestamp) -> i64 {
    const START_OF_2020_S: i64 = 1_577_836_800;
    now.ms() / 1000 - START_OF_2020_S
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn running_job(attempt: u32, due_at: Timestamp) -> Job {
        let key = TypeKey::new("acme", "t").unwrap();
        let new = NewJob::new(JobId::new(1).unwrap(), key, Payload::Inline(Bytes::new()), due_at);
        Job::running(new, attempt, due_at)
    }

    #[test]
    fn boot_numbers_grow_and_are_not_below_the_clock() {
        let now = Timestamp(1_800_000_000_000);
        let first = Boot::after(Boot(0), now);
        assert_eq!(first, Boot(222_163_200));
        assert_eq!(Boot::after(first, now), Boot(first.0 + 1));
        assert_eq!(Boot::after(first, Timestamp(0)), Boot(first.0 + 1), "a clock set back");
    }

    #[test]
    fn no_two_tokens_are_the_same_and_javascript_reads_them() {
        let last = Boot(5).token(TOKENS_PER_BOOT - 1);
        assert!(Boot(5).token(0) < Boot(5).token(1) && last < Boot(6).token(0));
        let in_200_years = Boot::after(Boot(0), Timestamp(7_800_000_000_000));
        assert!(in_200_years.token(TOKENS_PER_BOOT - 1).0 < 1 << 53);
    }

    #[test]
    fn s0_62_a_job_that_ends_well_is_followed_by_one_with_its_result() {
        let name = || TypeName::new("next").unwrap();
        let urgent = Priority::new(900).unwrap();
        let first = Job { then: Some(name()), priority: urgent, ..running_job(1, Timestamp(5)) };
        for (status, followed) in [(200, true), (299, true), (100, false), (400, false)] {
            let status = Status::new(status).unwrap();
            assert_eq!(first.followed_by(status).is_some(), followed, "{status:?}");
        }
        assert_eq!(running_job(1, Timestamp(5)).followed_by(Status::OK), None);

        let payload = |data: Option<&str>| {
            let data = data.map(|text| Json::parse(text.to_owned()).unwrap());
            let next = first.follow(name(), JobId::new(2).unwrap(), data.as_ref(), Timestamp(9));
            assert_eq!((next.key.tenant, next.run_at), (first.key.tenant.clone(), Timestamp(9)));
            assert_eq!(next.priority, urgent);
            let Payload::Inline(bytes) = next.payload else { panic!("it is small") };
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        assert_eq!(payload(None), "");
        assert_eq!(payload(Some(r#""a\n\u00e4""#)), "a\nä");
        assert_eq!(payload(Some(r#"{"a": 1.50}"#)), r#"{"a": 1.50}"#);
        assert_eq!(payload(Some("null")), "null");
        assert_eq!(payload(Some(r#""\ud800""#)), r#""\ud800""#, "no text could say this");
    }

    #[test]
    fn a_payload_is_split_only_when_it_is_too_large() {
        for (bytes, pieces) in [(0, 0), (PAYLOAD_INLINE_BYTES_MAX, 0)] {
            let mut new = new_job(vec![7; bytes]);
            assert_eq!(new.split_payload().len(), pieces, "{bytes}");
            assert_eq!(new, new_job(vec![7; bytes]));
        }
        let bytes = PAYLOAD_INLINE_BYTES_MAX + 1;
        let mut new = new_job(vec![7; bytes]);
        let pieces = new.split_payload();
        assert_eq!(pieces.concat(), vec![7; bytes]);
        assert!(pieces.iter().all(|piece| (1..=PAYLOAD_PIECE_BYTES).contains(&piece.len())));
        assert_eq!(new.payload, Payload::Pieces { bytes: bytes as u64 });
    }

    fn new_job(payload: Vec<u8>) -> NewJob {
        let name = TypeName::new("t").unwrap();
        let job = running_job(1, Timestamp(0));
        let new = job.follow(name, JobId::new(2).unwrap(), None, Timestamp(0));
        NewJob { payload: Payload::Inline(payload.into()), ..new }
    }

    #[test]
    fn priorities_have_a_range() {
        assert!(Priority::new(0).is_ok() && Priority::new(1000).is_ok());
        assert!(Priority::new(-1).is_err() && Priority::new(1001).is_err());
        assert_eq!(Priority::new(7).unwrap().get(), 7);
    }

    #[test]
    fn a_worker_has_a_job_that_runs_or_is_lent() {
        let running = running_job(1, Timestamp(5));
        assert_eq!((running.state, running.started_at), (State::Running, Some(Timestamp(5))));
        assert!(running.is_out());
        let queued = Job { state: State::Queued, ..running };
        assert!(!queued.is_out());
        let extra = Extra { lent: true, ..Extra::default() };
        assert!(!extra.is_none() && Extra::default().is_none());
        let lent = Job { extra, ..queued };
        assert!(lent.is_out());
        assert!(!Job { state: State::Failed, ..lent }.is_out());
    }

    #[test]
    fn only_a_payload_that_is_inline_takes_memory() {
        let inline = |text: &'static str| Payload::Inline(Bytes::from_static(text.as_bytes()));
        let pieces = Payload::Pieces { bytes: 9 };
        for (payload, len, inline_len) in
            [(inline(""), 0, 0), (inline("abc"), 3, 3), (pieces, 9, 0)]
        {
            assert_eq!((payload.len(), payload.inline_len()), (len, inline_len));
            assert_eq!((payload.is_empty(), payload.is_in_pieces()), (len == 0, len == 9));
        }
    }
}
