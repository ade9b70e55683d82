//! Time as the domain sees it: milliseconds since the Unix epoch, read only through a `Clock`.

use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::calendar::{FIRST_S, LAST_S};
use crate::limit::DURATION_MAX;

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// One millisecond after the end of the calendar: a job that is due then never runs, and a
    /// lease until then never ends.
    pub const NEVER: Timestamp = Timestamp((LAST_S + 1) * 1000);

    pub fn ms(self) -> i64 {
        self.0
    }

    /// This many milliseconds later, or earlier if negative; `NEVER` stays `NEVER`.
    pub fn shifted(self, by_ms: i64) -> Timestamp {
        if self == Timestamp::NEVER { self } else { Timestamp(self.0.saturating_add(by_ms)) }
    }

    /// The time since `earlier`; zero if this is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// The only way to learn what time it is.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, which may be set at any moment, in either direction.
    fn now(&self) -> Timestamp;

    /// The time since a fixed moment: it never goes back and is never set. All processes of a
    /// machine count from the same moment until it restarts.
    fn steady(&self) -> Duration;

    /// Identifies the current run of the machine: steady times of two runs cannot be compared.
    fn machine_run(&self) -> i64;
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    pub steady: Duration,
}

/// Tries to read both clocks without an interruption in between.
const MOMENT_TRIES: usize = 5;
/// Two readings of the steady clock, before and after one of the wall clock, that are further apart
/// than this do not belong to one moment: the process was interrupted between them.
const MOMENT_MAX: Duration = Duration::from_millis(100);
/// The wall clock was set if it moved at least this much relative to the steady clock. Gradual
/// corrections stay far below that.
const STEP_MIN_MS: i64 = 1000;

impl Moment {
    pub fn now(clock: &dyn Clock) -> Moment {
        let mut moment = Moment { wall: clock.now(), steady: clock.steady() };
        for _ in 0..MOMENT_TRIES {
            let before = clock.steady();
            moment = Moment { wall: clock.now(), steady: before };
            if clock.steady().saturating_sub(before) <= MOMENT_MAX {
                break;
            }
        }
        moment
    }

    /// How far the wall clock is ahead of the steady one, in milliseconds. Only setting the wall
    /// clock changes it.
    pub fn offset(self) -> i64 {
        self.wall.0 - self.steady.as_millis() as i64
    }

    /// By how many milliseconds the wall clock was set since the clocks were this far apart;
    /// negative when it was set back.
    pub fn step(self, offset: i64) -> Option<i64> {
        let step = self.offset() - offset;
        (step.abs() >= STEP_MIN_MS).then_some(step)
    }
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since.as_millis() as i64)
    }

    fn steady(&self) -> Duration {
        // It counts on while the machine sleeps, as the wall clock does.
        let since_start = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(since_start).unwrap_or_default()
    }

    fn machine_run(&self) -> i64 {
        static RUN: LazyLock<i64> = LazyLock::new(|| {
            let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let digits = id.iter().filter_map(|byte| char::from(*byte).to_digit(16));
            // Half of the digits are enough.
            digits.take(15).fold(0, |id, digit| id << 4 | i64::from(digit))
        });
        *RUN
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    steady_ms: AtomicU64,
    machine_run: AtomicI64,
}

impl ManualClock {
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock {
            now: AtomicI64::new(now.0),
            steady_ms: AtomicU64::new(0),
            machine_run: AtomicI64::new(1),
        }
    }

    /// Sets the wall clock, in either direction; no time passes.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    /// Time passes.
    pub fn advance(&self, by: Duration) {
        self.steady_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
        self.set(self.now() + by);
    }

    /// Time passes until the wall clock shows this.
    pub fn advance_to(&self, now: Timestamp) {
        self.advance(now.since(self.now()));
    }

    /// The machine starts again: steady time begins anew.
    pub fn restart_machine(&self) {
        self.machine_run.fetch_add(1, Ordering::SeqCst);
        self.steady_ms.store(0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.steady_ms.load(Ordering::SeqCst))
    }

    fn machine_run(&self) -> i64 {
        self.machine_run.load(Ordering::SeqCst)
    }
}

/// Reads `250ms`, `90s`, `5m`, `2h`, `1d`; a number without a unit is not accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let refuse = || {
        format!(
            "'{text}' is not a duration; write a number and a unit, such as 250ms, 90s, 5m, 2h, 1d"
        )
    };
    let digits = text.bytes().take_while(|b| b.is_ascii_digit()).count();
    let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
    let unit_ms: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return Err(refuse()),
    };
    match number.checked_mul(unit_ms).map(Duration::from_millis) {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err(format!("'{text}' is longer than ten years")),
    }
}

/// Reads RFC 3339 with any offset, from the year 0000 on; fractions of a millisecond are dropped.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    // The crate also reads years with a sign, and those at the end of its range wrongly.
    let has_four_digits = text.starts_with(|first: char| first.is_ascii_digit());
    let time: Option<jiff::Timestamp> = has_four_digits.then(|| text.parse().ok()).flatten();
    let time = time.filter(|time| time.as_second() >= FIRST_S);
    let refuse = || format!("'{text}' is not a time as in 2026-11-15T20:00:00Z or …+01:00");
    Ok(Timestamp(time.ok_or_else(refuse)?.as_millisecond()))
}

/// Writes RFC 3339 in UTC, with milliseconds.
pub fn format_time(at: Timestamp) -> String {
    // Only times after the year 9999 are out of range.
    let bound = if at.ms() < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.3}", jiff::Timestamp::from_millisecond(at.ms()).unwrap_or(bound))
}

/// Writes a duration so that `parse_duration` reads it back: the largest unit that divides it.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if ms > 0 && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back_as_written() {
        for text in ["0ms", "250ms", "90s", "5m", "2h", "1d", "1500ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_duration(parse_duration("60s").unwrap()), "1m");
    }

    #[test]
    fn times_have_years_of_four_digits() {
        assert_eq!(parse_time("0000-01-01T00:00:00Z"), Ok(Timestamp(FIRST_S * 1000)));
        let early = ["0000-01-01T00:00:00+00:01", "-000001-01-01T00:00:00Z"];
        let at_the_end_of_the_range = "-009999-01-02T01:59:58.999Z";
        for text in early.into_iter().chain([at_the_end_of_the_range, "+002027-01-15T08:00:00Z"]) {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_clock_was_set_when_it_moved_beside_the_time_that_passed() {
        let clock = ManualClock::at(Timestamp(1_800_000_000_000));
        let offset = Moment::now(&clock).offset();
        let step = || Moment::now(&clock).step(offset);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(step(), None, "time passed");
        for (by, expected) in [(999, None), (-999, None), (1000, Some(1000)), (-1000, Some(-1000))]
        {
            let was = clock.now();
            clock.set(was.shifted(by));
            assert_eq!(step(), expected, "{by}");
            clock.set(was);
        }
    }

    /// A process that is interrupted between each two readings, so many times.
    struct Interrupted {
        clock: ManualClock,
        times: AtomicU64,
    }

    impl Interrupted {
        fn times(times: u64) -> Interrupted {
            let clock = ManualClock::at(Timestamp(1_800_000_000_000));
            Interrupted { clock, times: AtomicU64::new(times) }
        }
    }

    impl Clock for Interrupted {
        fn now(&self) -> Timestamp {
            let count_down = |times: u64| times.checked_sub(1);
            let left = self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down);
            if left.is_ok() {
                self.clock.advance(Duration::from_secs(10));
            }
            self.clock.now()
        }

        fn steady(&self) -> Duration {
            self.clock.steady()
        }

        fn machine_run(&self) -> i64 {
            self.clock.machine_run()
        }
    }

    #[test]
    fn both_clocks_are_read_at_one_moment() {
        let clock = Interrupted::times(3);
        let offset = clock.clock.now().ms();
        assert_eq!(Moment::now(&clock).offset(), offset);
        // However often it is interrupted, it gets an answer.
        Moment::now(&Interrupted::times(u64::MAX));
    }

    #[test]
    fn a_machine_that_starts_again_counts_anew() {
        let clock = ManualClock::at(Timestamp(1000));
        clock.advance(Duration::from_secs(1));
        let before = clock.machine_run();
        assert_eq!((clock.now(), clock.steady()), (Timestamp(2000), Duration::from_secs(1)));
        clock.restart_machine();
        assert_eq!((clock.now(), clock.steady()), (Timestamp(2000), Duration::ZERO));
        assert_ne!(clock.machine_run(), before);
    }

    #[test]
    fn the_machines_clocks_run_and_its_run_has_a_name() {
        let (now, steady) = (SystemClock.now(), SystemClock.steady());
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(now.ms() > 1_750_000_000_000 && now.ms() <= system.as_millis() as i64);
        assert!(steady > Duration::ZERO && SystemClock.steady() >= steady);
        let digits = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let digits: String = digits.chars().filter(char::is_ascii_hexdigit).take(15).collect();
        assert_eq!(SystemClock.machine_run(), i64::from_str_radix(&digits, 16).unwrap());
    }

    #[test]
    fn a_time_that_has_no_text_is_written_as_the_nearest_one() {
        assert_eq!(format_time(Timestamp(-1)), "1969-12-31T23:59:59.999Z");
        assert!(format_time(Timestamp::NEVER).starts_with("9999-12-3"));
        assert_eq!(format_time(Timestamp(i64::MAX)), format_time(Timestamp::NEVER));
        assert!(format_time(Timestamp(i64::MIN)).starts_with("-009999-"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "s", "-5s", "1.5s", "5 s", "5S", "99999999999d", "٣s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
