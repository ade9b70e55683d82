//! Human-readable times: how long ago, or how soon.

use jiff::Timestamp;
use serde_json::Value;

use windlass_core::Clock;
use windlass_core::time::SystemClock;

/// The current time of this machine's clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millisecond(SystemClock.now().ms()).unwrap_or_default()
}

/// Parses a time from an answer, such as `2026-11-15T20:00:00.000Z`.
pub(crate) fn read(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// `2026-11-15T20:00:00.000Z (5s ago)`; `None` if it is not a time.
pub(crate) fn absolute_and_relative(value: &Value, now: Timestamp) -> Option<String> {
    let time = read(value)?;
    Some(format!("{time:.3} ({})", relative(time, now)))
}

/// `5s ago`, or `-` if it is not a time.
pub(crate) fn ago(value: &Value, now: Timestamp) -> String {
    read(value).map_or("-".into(), |time| relative(time, now))
}

/// `5s ago`, `in 2h`, `now`.
fn relative(time: Timestamp, now: Timestamp) -> String {
    let ms = now.as_millisecond() - time.as_millisecond();
    match ms {
        -999..=999 => "now".into(),
        1000.. => format!("{} ago", two_units(ms)),
        _ => format!("in {}", two_units(-ms)),
    }
}

/// The two largest units: `350ms`, `12s`, `3m20s`, `2h5m`, `4d1h`.
pub(crate) fn two_units(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let Some(at) = units.iter().position(|(unit, _)| ms >= *unit) else {
        return format!("{ms}ms");
    };
    let (unit, name) = units[at];
    let rest = units.get(at + 1).map(|(smaller, name)| (ms % unit / smaller, name));
    match rest {
        Some((rest, smaller)) if rest > 0 => format!("{}{name}{rest}{smaller}", ms / unit),
        _ => format!("{}{name}", ms / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_their_two_largest_units() {
        let cases = [
            (0, "0ms"),
            (350, "350ms"),
            (12_999, "12s"),
            (200_000, "3m20s"),
            (7_500_000, "2h5m"),
            (349_200_000, "4d1h"),
            (86_400_000, "1d"),
        ];
        for (ms, text) in cases {
            assert_eq!(two_units(ms), text);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now: Timestamp = "2026-11-15T20:00:00Z".parse().unwrap();
        let value = |text: &str| Value::from(text);
        assert_eq!(ago(&value("2026-11-15T19:59:55.000Z"), now), "5s ago");
        assert_eq!(ago(&value("2026-11-15T22:00:00.000Z"), now), "in 2h");
        assert_eq!(ago(&Value::Null, now), "-");
        let both = absolute_and_relative(&value("2026-11-15T19:59:55.5Z"), now).unwrap();
        assert_eq!(both, "2026-11-15T19:59:55.500Z (4s ago)");
    }
}
