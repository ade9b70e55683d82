//! How many tasks may run at a time of the week. Entries such as `"* 07:00": 5` hold from their
//! minute until the next one, over midnight and over the end of the week.

use std::collections::BTreeMap;

const DAYS: u32 = 7;
const MINUTES_OF_DAY: u32 = 24 * 60;
const MINUTES_OF_WEEK: u32 = DAYS * MINUTES_OF_DAY;

/// A minute of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u32);

impl Moment {
    /// Day 0 is Sunday. Times after the end of the week continue in the next one.
    pub(crate) fn new(day: u32, hour: u32, minute: u32) -> Self {
        let minutes = u64::from(day) * u64::from(MINUTES_OF_DAY);
        let minutes = minutes + u64::from(hour) * 60 + u64::from(minute);
        Self(u32::try_from(minutes % u64::from(MINUTES_OF_WEEK)).unwrap_or(0))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The number of tasks from each minute on.
    entries: BTreeMap<Moment, u64>,
}

impl Schedule {
    /// Reads entries such as `* 07:00` or `5 19:00`. An entry for a specific day overrides one for
    /// all days at the same minute. The error is the invalid key.
    pub(crate) fn new<'a>(
        entries: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Result<Self, String> {
        let (mut daily, mut certain) = (BTreeMap::new(), BTreeMap::new());
        for (key, most) in entries {
            match parse(key).ok_or_else(|| key.to_owned())? {
                (Some(day), hour, minute) => {
                    certain.insert(Moment::new(day, hour, minute), most);
                }
                (None, hour, minute) => {
                    let days = (0..DAYS).map(|day| (Moment::new(day, hour, minute), most));
                    daily.extend(days);
                }
            }
        }
        daily.append(&mut certain);
        Ok(Self { entries: daily })
    }

    /// Whether a text is a valid key.
    pub(crate) fn is_key(key: &str) -> bool {
        parse(key).is_some()
    }

    /// The entry that applies: the last one before this moment, possibly from the previous week.
    /// `None` if there are no entries.
    pub(crate) fn at(&self, moment: Moment) -> Option<u64> {
        let before = self.entries.range(..=moment).next_back();
        before.or_else(|| self.entries.last_key_value()).map(|(_, most)| *most)
    }
}

/// Day (`None` for all days), hour and minute.
fn parse(key: &str) -> Option<(Option<u32>, u32, u32)> {
    let bytes = key.as_bytes();
    let &[day, b' ', h1, h2, b':', m1, m2] = bytes else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u32::from(byte - b'0'));
    let day = match day {
        b'*' => None,
        b'0'..=b'6' => Some(digit(day)?),
        _ => return None,
    };
    let (hour, minute) = (digit(h1)? * 10 + digit(h2)?, digit(m1)? * 10 + digit(m2)?);
    (hour < 24 && minute < 60).then_some((day, hour, minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(entries: &[(&str, u64)]) -> Schedule {
        Schedule::new(entries.iter().copied()).unwrap()
    }

    #[test]
    fn the_example_of_the_original_holds() {
        // Five on weekdays, ten in their nights, fifteen at weekends.
        let week = schedule(&[("* 07:00", 5), ("* 19:00", 10), ("1 07:00", 5), ("5 19:00", 15)]);
        for (day, hour, minute, most) in [
            (1, 6, 59, 10),
            (1, 7, 0, 5),
            (1, 18, 59, 5),
            (1, 19, 0, 10),
            (2, 0, 0, 10),
            (5, 18, 59, 5),
            (5, 19, 0, 15),
            (5, 23, 59, 15),
            (6, 0, 0, 15),
            (6, 6, 59, 15),
            (6, 7, 0, 5),
        ] {
            assert_eq!(
                week.at(Moment::new(day, hour, minute)),
                Some(most),
                "{day} {hour}:{minute}"
            );
        }
    }

    #[test]
    fn before_the_first_entry_of_a_day_the_last_one_of_the_day_before_holds() {
        let week = schedule(&[("2 08:00", 1), ("2 20:00", 2), ("4 12:30", 3)]);
        for (day, hour, minute, most) in [
            (2, 7, 59, 3),
            (2, 8, 0, 1),
            (2, 23, 0, 2),
            (3, 1, 0, 2),
            (4, 12, 29, 2),
            (4, 12, 30, 3),
            (6, 23, 59, 3),
            (0, 0, 0, 3),
        ] {
            assert_eq!(
                week.at(Moment::new(day, hour, minute)),
                Some(most),
                "{day} {hour}:{minute}"
            );
        }
    }

    #[test]
    fn a_certain_day_counts_more_than_all_days() {
        for entries in [[("* 07:00", 1), ("3 07:00", 9)], [("3 07:00", 9), ("* 07:00", 1)]] {
            let week = schedule(&entries);
            assert_eq!(week.at(Moment::new(3, 7, 0)), Some(9));
            assert_eq!(week.at(Moment::new(4, 7, 0)), Some(1));
        }
    }

    #[test]
    fn every_minute_is_what_a_walk_back_through_the_week_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..30 {
            let count = random.usize(0..6);
            let entries: Vec<(String, u64)> = (0..count)
                .map(|_| {
                    let day = ["*", "0", "1", "2", "3", "4", "5", "6"][random.usize(0..8)];
                    let (hour, minute) = (random.u32(0..24), random.u32(0..60));
                    (format!("{day} {hour:02}:{minute:02}"), random.u64(0..100))
                })
                .collect();
            let by_key: BTreeMap<&str, u64> =
                entries.iter().map(|(key, most)| (key.as_str(), *most)).collect();
            let week = Schedule::new(by_key.iter().map(|(key, most)| (*key, *most))).unwrap();
            for _ in 0..10 {
                let now = random.u32(0..MINUTES_OF_WEEK);
                let walked = (0..=MINUTES_OF_WEEK).find_map(|back| {
                    let then = (now + MINUTES_OF_WEEK - back) % MINUTES_OF_WEEK;
                    let (day, rest) = (then / MINUTES_OF_DAY, then % MINUTES_OF_DAY);
                    let time = format!("{:02}:{:02}", rest / 60, rest % 60);
                    let certain = by_key.get(format!("{day} {time}").as_str());
                    certain.or_else(|| by_key.get(format!("* {time}").as_str())).copied()
                });
                assert_eq!(week.at(Moment(now)), walked, "{entries:?} {now}");
            }
        }
    }

    #[test]
    fn what_is_no_entry_is_told() {
        assert_eq!(schedule(&[]).at(Moment::new(0, 0, 0)), None);
        for key in [
            "7 07:00", "* 24:00", "* 07:60", "* 7:00", "07:00", "", "*  07:00", "- 07:00",
            "* 0x:00", "* 07:00 ",
        ] {
            assert_eq!(Schedule::new([(key, 1)]), Err(key.to_owned()));
            assert!(!Schedule::is_key(key));
        }
        assert!(Schedule::is_key("* 23:59") && Schedule::is_key("6 00:00"));
    }
}
