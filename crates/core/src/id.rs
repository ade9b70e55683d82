//! Job ids: 63 bits that sort by time and are never issued twice.
//!
//! ```text
//! 62            22 21        10 9        0
//! ┌───────────────┬────────────┬──────────┐
//! │ ms since 2020 │   sysid    │ sequence │
//! └───────────────┴────────────┴──────────┘
//! ```
//! Within one daemon ids only grow. When the clock stands still or goes back, or more than 1,024
//! ids are needed in a millisecond, ids continue from the newest one: with its sequence, then with
//! the next millisecond. They may be ahead of the clock by up to `ID_BORROW_MAX`.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use crate::limit::{CLOCK_STEP_MIN, ID_BORROW_MAX, SYSID_MAX};
use crate::time::Timestamp;

/// 2020-01-01T00:00:00Z, in milliseconds since the Unix epoch.
const EPOCH_MS: i64 = 1_577_836_800_000;
const SEQUENCE_BITS: u32 = 10;
const SYSID_BITS: u32 = 12;
const SEQUENCE_MAX: i64 = (1 << SEQUENCE_BITS) - 1;
const MS_MAX: i64 = (1 << 41) - 1;

/// The number of one daemon, unique in its store while its lease lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sysid(NonZeroU16);

impl Sysid {
    pub const FIRST: Sysid = Sysid(NonZeroU16::MIN);

    pub fn new(number: u16) -> Option<Sysid> {
        if number > SYSID_MAX { None } else { NonZeroU16::new(number).map(Sysid) }
    }

    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Sysid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The id of a job or of a handler version. Written in decimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(i64);

impl JobId {
    /// `None` unless the number is positive.
    pub fn new(number: i64) -> Option<JobId> {
        (number > 0).then_some(JobId(number))
    }

    pub fn get(self) -> i64 {
        self.0
    }

    /// The millisecond in the id, which may be ahead of the clock at that moment.
    pub fn made_at(self) -> Timestamp {
        Timestamp((self.0 >> (SEQUENCE_BITS + SYSID_BITS)) + EPOCH_MS)
    }

    /// The number of the daemon that made the id.
    pub fn sysid(self) -> Option<Sysid> {
        Sysid::new(((self.0 >> SEQUENCE_BITS) & i64::from(SYSID_MAX)) as u16)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for JobId {
    type Err = NotAnId;
    fn from_str(text: &str) -> Result<JobId, NotAnId> {
        let canonical = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = canonical.then(|| text.parse().ok()).flatten();
        number.and_then(JobId::new).ok_or(NotAnId)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is a positive whole number of at most 19 digits")]
pub struct NotAnId;

/// The clock is too far behind the newest id to make another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock is {behind_s} seconds behind the newest job id (at most {} are bridged); \
     set the clock right",
    ID_BORROW_MAX.as_secs()
)]
pub struct ClockTooFarBack {
    pub behind_s: u64,
}

/// Makes the ids of one daemon. It has one owner and no locks.
#[derive(Debug)]
pub struct IdGenerator {
    sysid: Sysid,
    /// The smallest possible next id: millisecond since `EPOCH_MS`, and sequence.
    ms: i64,
    sequence: i64,
    /// Whether `clock_step` has reported the current step.
    step_reported: bool,
}

impl IdGenerator {
    /// `newest` is the highest id in the store or in this daemon's journal.
    pub fn new(sysid: Sysid, newest: Option<JobId>) -> IdGenerator {
        let ms = newest.map_or(0, |id| (id.0 >> (SEQUENCE_BITS + SYSID_BITS)) + 1);
        IdGenerator { sysid, ms, sequence: 0, step_reported: false }
    }

    pub fn sysid(&self) -> Sysid {
        self.sysid
    }

    /// The next id, larger than all before it.
    pub fn next(&mut self, now: Timestamp) -> Result<JobId, ClockTooFarBack> {
        let now_ms = (now.0 - EPOCH_MS).clamp(0, MS_MAX);
        if now_ms > self.ms {
            self.ms = now_ms;
            self.sequence = 0;
        } else if self.sequence > SEQUENCE_MAX {
            self.ms += 1;
            self.sequence = 0;
        }
        let ahead_ms = self.ms - now_ms;
        if ahead_ms > ID_BORROW_MAX.as_millis() as i64 {
            return Err(ClockTooFarBack { behind_s: ahead_ms as u64 / 1000 });
        }
        let id = (self.ms << (SEQUENCE_BITS + SYSID_BITS))
            | (i64::from(self.sysid.get()) << SEQUENCE_BITS)
            | self.sequence;
        self.sequence += 1;
        Ok(JobId(id))
    }

    /// How far the clock is behind the ids after it was set back: once for each step, `None`
    /// otherwise. A burst of ids is not a step.
    pub fn clock_step(&mut self, now: Timestamp) -> Option<Duration> {
        let behind = Timestamp(self.ms + EPOCH_MS).since(now);
        let reported = std::mem::replace(&mut self.step_reported, behind >= CLOCK_STEP_MIN);
        (self.step_reported && !reported).then_some(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn generator(newest: Option<JobId>) -> IdGenerator {
        IdGenerator::new(Sysid::new(7).unwrap(), newest)
    }

    #[test]
    fn ids_grow_within_a_millisecond_and_beyond_its_sequence() {
        let mut ids = generator(None);
        let made: Vec<_> = (0..5000).map(|_| ids.next(NOW).unwrap()).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(made[0].made_at(), NOW);
        let within_the_millisecond = made.iter().take_while(|id| id.made_at() == NOW).count();
        assert_eq!(within_the_millisecond, 1024);
        assert_eq!(made[0].sysid(), Sysid::new(7));
    }

    #[test]
    fn s0_10_no_id_comes_twice_after_a_restart_with_the_clock_set_back_an_hour() {
        let mut before = generator(None);
        let newest = (0..2000).map(|_| before.next(NOW).unwrap()).max();
        let mut after = generator(newest);
        let set_back = NOW - Duration::from_secs(3600);
        assert!(after.next(set_back).unwrap() > newest.unwrap());
    }

    #[test]
    fn a_clock_set_back_further_than_the_bound_is_refused_and_later_accepted_again() {
        let mut ids = generator(None);
        ids.next(NOW).unwrap();
        assert!(ids.next(NOW - ID_BORROW_MAX).is_ok());
        let too_far = ids.next(NOW - ID_BORROW_MAX - Duration::from_secs(1));
        assert_eq!(too_far, Err(ClockTooFarBack { behind_s: ID_BORROW_MAX.as_secs() + 1 }));
        assert!(ids.next(NOW).is_ok());
    }

    #[test]
    fn s0_10_a_clock_that_jumped_a_week_ahead_and_back_refuses_no_add() {
        let mut ids = generator(None);
        let ahead = NOW + Duration::from_secs(7 * 24 * 3600);
        let mut newest = ids.next(ahead).unwrap();
        for second in 0..5000 {
            let id = ids.next(NOW + Duration::from_secs(second)).unwrap();
            assert!(id > newest);
            newest = id;
        }
        assert!(newest.made_at().since(ahead) < Duration::from_secs(1), "sequences are used up");
    }

    #[test]
    fn each_step_of_the_clock_is_reported_once_and_a_burst_is_none() {
        let mut ids = generator(None);
        let mut reported = |now| {
            let reports = (0..5000).map(|_| {
                ids.next(now).unwrap();
                ids.clock_step(now)
            });
            reports.flatten().collect::<Vec<_>>()
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(reported(NOW), []);
        assert_eq!(reported(NOW + hour), [], "forward");
        assert_eq!(reported(NOW).len(), 1);
        assert_eq!(reported(NOW + CLOCK_STEP_MIN), [], "still the same step");
        assert_eq!(reported(NOW + hour), [], "the clock has caught up");
        assert_eq!(reported(NOW).len(), 1, "another step");
    }

    #[test]
    fn two_daemons_never_make_the_same_id() {
        let mut a = IdGenerator::new(Sysid::new(1).unwrap(), None);
        let mut b = IdGenerator::new(Sysid::new(4095).unwrap(), None);
        assert_ne!(a.next(NOW).unwrap(), b.next(NOW).unwrap());
        assert!(Sysid::new(0).is_none() && Sysid::new(4096).is_none());
        assert_eq!(Sysid::new(4095).unwrap().to_string(), "4095");
    }

    #[test]
    fn ids_are_read_only_in_plain_decimal() {
        assert_eq!("12".parse::<JobId>(), Ok(JobId(12)));
        for bad in ["", "0", "-1", "+1", "1.0", "x", "9223372036854775808", " 1"] {
            assert_eq!(bad.parse::<JobId>(), Err(NotAnId), "{bad}");
        }
    }
}
