//! How a job repeats: Bedrock's grammar (`SCHEDULED, +1 HOUR`) or a cron pattern with a time zone,
//! and when it runs next.

use std::fmt;
use std::sync::Arc;

use crate::calendar::{Civil, MODIFIER_FORMS, Modifier, apply_all, items};
use crate::cron::Cron;
use crate::name::Invalid;
use crate::time::Timestamp;

/// Longest text of a repeat, in bytes.
pub const REPEAT_BYTES_MAX: usize = 1024;

/// A slot that was missed is made up for unless the interval is shorter than this.
const CATCH_UP_S: i64 = 4 * 3600;

/// How a job repeats, in the form that is stored. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Repeat(Arc<str>);

/// The times from which a repeat may count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bases {
    /// When the job was to run; none when its text was no date.
    pub scheduled: Option<Civil>,
    /// When it last started.
    pub started: Option<Timestamp>,
    pub now: Timestamp,
}

impl Repeat {
    /// Bedrock's grammar, or `cron: <5 or 6 fields> [zone]`.
    pub fn parse(text: &str) -> Result<Repeat, Invalid> {
        match after_cron(text) {
            None => Repeat::parse_bedrock(text),
            Some(pattern) => {
                bounded(text)?;
                let pattern = pattern.trim();
                Cron::parse(pattern).and_then(Cron::ever).map_err(invalid)?;
                Ok(Repeat(format!("{CRON} {pattern}").into()))
            }
        }
    }

    /// `HOURLY`, `DAILY`, `WEEKLY`, or a base and at least one modifier, in any case.
    pub fn parse_bedrock(text: &str) -> Result<Repeat, Invalid> {
        bounded(text)?;
        let text = text.to_ascii_uppercase();
        Rule::parse(&text).map_err(invalid)?;
        Ok(Repeat(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the next time counts from when the job was to run.
    pub fn is_scheduled(&self) -> bool {
        Rule::parse(&self.0).is_ok_and(|rule| rule.base == Base::Scheduled)
    }

    /// When the job runs again. None when its base is missing, or the time cannot be written.
    pub fn next(&self, bases: &Bases) -> Option<Timestamp> {
        match after_cron(&self.0) {
            None => Some(Rule::parse(&self.0).ok()?.next(bases)?.timestamp()),
            Some(pattern) => Cron::parse(pattern).ok()?.next(bases.now),
        }
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

const CRON: &str = "cron:";

/// The pattern, when the text is one of cron.
fn after_cron(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let prefix = text.get(..CRON.len())?;
    prefix.eq_ignore_ascii_case(CRON).then(|| &text[CRON.len()..])
}

fn bounded(text: &str) -> Result<(), Invalid> {
    if text.len() > REPEAT_BYTES_MAX {
        return Err(invalid(format!("a repeat has at most {REPEAT_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn invalid(reason: String) -> Invalid {
    Invalid::new("repeat", reason)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Scheduled,
    Started,
    Finished,
}

/// Bedrock's repeat, read. Its text is in upper case.
struct Rule {
    base: Base,
    modifiers: Vec<Modifier>,
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, String> {
        let text = match text {
            "HOURLY" => "FINISHED, +1 HOUR",
            "DAILY" => "FINISHED, +1 DAY",
            "WEEKLY" => "FINISHED, +7 DAYS",
            text => text,
        };
        let mut items = items(text);
        let base = match items.next() {
            Some("SCHEDULED") => Base::Scheduled,
            Some("STARTED") => Base::Started,
            Some("FINISHED") => Base::Finished,
            _ => {
                let reason = "a repeat is HOURLY, DAILY, WEEKLY, or begins with SCHEDULED, \
                              STARTED or FINISHED and a comma";
                return Err(reason.into());
            }
        };
        let modifier =
            |item| Modifier::parse(item).ok_or_else(|| format!("'{item}' is not {MODIFIER_FORMS}"));
        let modifiers = items.map(modifier).collect::<Result<Vec<_>, _>>()?;
        if modifiers.is_empty() {
            return Err(format!("behind '{text}' there must be {MODIFIER_FORMS}"));
        }
        Ok(Rule { base, modifiers })
    }

    fn next(&self, bases: &Bases) -> Option<Civil> {
        let now = Civil::from_timestamp(bases.now);
        match self.base {
            Base::Finished => apply_all(&self.modifiers, now),
            Base::Started => apply_all(&self.modifiers, Civil::from_timestamp(bases.started?)),
            Base::Scheduled => self.next_scheduled(bases.scheduled?, now),
        }
    }

    /// Slots that were missed are made up for one by one, unless the job runs so often that it
    /// could never catch up: then it goes on with the first slot in the future.
    fn next_scheduled(&self, last: Civil, now: Civil) -> Option<Civil> {
        let next = apply_all(&self.modifiers, last)?;
        let interval_s = next.seconds() - last.seconds();
        let often = (1..CATCH_UP_S).contains(&interval_s);
        if next > now || !often || !self.modifiers.iter().all(|modifier| modifier.is_shift()) {
            return Some(next);
        }
        let slots = (now.seconds() - last.seconds()).div_euclid(interval_s) + 1;
        last.plus(slots * interval_s)
    }
}
