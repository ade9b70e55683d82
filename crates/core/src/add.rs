//! The options of an add, and the rules that hold for them, in a request or in a job that a handler
//! emits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::id::JobId;
use crate::job::{Extra, Priority};
use crate::limit::KEY_BYTES_MAX;
use crate::name::{Invalid, TypeName};
use crate::repeat::Repeat;
use crate::time::{Timestamp, parse_duration, parse_time};

/// The options of a job, from its add until it becomes a `NewJob`. Absent values mean: run now,
/// default priority, the handler's time limit, no expiry, no unique key, nothing follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Don't run before this time.
    pub run_at: Option<Timestamp>,
    pub priority: Priority,
    /// Time limit of one attempt, in whole milliseconds.
    pub timeout: Option<Duration>,
    pub expires: Option<Expiry>,
    pub unique: Option<String>,
    /// The type that gets the result of the job as its payload.
    pub then: Option<TypeName>,
    /// The job that waits for this one.
    pub parent: Option<JobId>,
    pub extra: Extra,
    /// What the answer to the add promises; `None`: what the daemon promises.
    pub durable: Option<Durable>,
}

/// Where the jobs of an add are on disk when it is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durable {
    /// In the journal of the daemon that answers.
    #[default]
    Journal,
    /// In the store, which survives the daemon's machine.
    Store,
}

impl Durable {
    pub const WORDS: &[&str] = &["journal", "store"];

    /// By its word in requests and settings.
    pub fn parse(word: &str) -> Option<Durable> {
        match word {
            "journal" => Some(Durable::Journal),
            "store" => Some(Durable::Store),
            _ => None,
        }
    }
}

/// When a job that has not ended is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// This long after its creation.
    After(Duration),
    At(Timestamp),
}

impl Expiry {
    pub fn of(self, created_at: Timestamp) -> Timestamp {
        match self {
            Expiry::After(duration) => created_at + duration,
            Expiry::At(time) => time,
        }
    }
}

/// The options as they were sent, not yet checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawOptions {
    pub run_at: Option<Timestamp>,
    pub delay: Option<Duration>,
    pub priority: Option<i64>,
    pub timeout: Option<Duration>,
    pub expires: Option<Duration>,
    pub unique: Option<String>,
    pub repeat: Option<String>,
    pub parent: Option<String>,
    pub then: Option<String>,
    pub durable: Option<String>,
}

impl RawOptions {
    pub fn check(self, now: Timestamp) -> Result<AddOptions, Invalid> {
        let repeat = self.repeat.as_deref().map(Repeat::parse).transpose()?;
        let run_at = match (self.run_at, self.delay) {
            (Some(_), Some(_)) => {
                let reason = "'run_at' and 'delay' exclude each other; send one of them";
                return Err(Invalid::new("run_at", reason));
            }
            (Some(run_at), None) => Some(run_at),
            (None, Some(delay)) => Some(now + delay),
            (None, None) => repeat.as_ref().and_then(|repeat| repeat.first(now)),
        };
        if let Some(key) = &self.unique {
            check_key("unique", key)?;
        }
        let name = |name: String| {
            TypeName::new(&name).map_err(|invalid| Invalid { field: "then".into(), ..invalid })
        };
        let durable = |word: String| {
            let invalid =
                || Invalid::new("durable", format!("'{word}' is neither journal nor store"));
            Durable::parse(&word).ok_or_else(invalid)
        };
        let id = |text: String| {
            let invalid = || Invalid::new("parent", format!("'{text}' is not a valid job ID"));
            text.parse::<JobId>().map_err(|_| invalid())
        };
        Ok(AddOptions {
            run_at,
            priority: self.priority.map(Priority::new).transpose()?.unwrap_or_default(),
            timeout: above_zero("timeout", self.timeout)?,
            expires: above_zero("expires", self.expires)?.map(Expiry::After),
            unique: self.unique,
            then: self.then.map(name).transpose()?,
            parent: self.parent.map(id).transpose()?,
            extra: Extra {
                repeat: repeat.map(|repeat| Arc::from(repeat.as_str())),
                ..Extra::default()
            },
            durable: self.durable.map(durable).transpose()?,
        })
    }
}

impl AddOptions {
    /// Reads the options of a job that a handler emits; `null` means none. The fields are those of
    /// a JSON add.
    pub fn parse(options: &Value, now: Timestamp) -> Result<AddOptions, Invalid> {
        let fields = match options {
            Value::Null => return Ok(AddOptions::default()),
            Value::Object(fields) => fields,
            _ => return Err(Invalid::new("options", "a job's options must be an object")),
        };
        let mut raw = RawOptions::default();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let duration = || {
                let text = text(name, value, "90s")?;
                parse_duration(text).map_err(|reason| Invalid::new(name, reason))
            };
            match name.as_str() {
                "run_at" => {
                    let text = text(name, value, "2026-11-15T20:00:00Z")?;
                    let time = parse_time(text).map_err(|reason| Invalid::new(name, reason));
                    raw.run_at = Some(time?);
                }
                "delay" => raw.delay = Some(duration()?),
                "priority" => raw.priority = Some(whole_number(name, value)?),
                "timeout" => raw.timeout = Some(duration()?),
                "expires" => raw.expires = Some(duration()?),
                "unique" => raw.unique = Some(text(name, value, "order-17")?.to_owned()),
                "repeat" => {
                    raw.repeat = Some(text(name, value, "FINISHED, +1 HOUR")?.to_owned());
                }
                "parent" => {
                    raw.parent = Some(text(name, value, "7420395830000000001")?.to_owned());
                }
                "then" => raw.then = Some(text(name, value, "report")?.to_owned()),
                name => {
                    let reason = format!(
                        "there is no option '{name}'; there are run_at, delay, priority, timeout, \
                         expires, unique, repeat, parent and then"
                    );
                    return Err(Invalid::new(name, reason));
                }
            }
        }
        raw.check(now)
    }
}

/// Checks the length of a unique key or an idempotency key.
pub fn check_key(field: &str, key: &str) -> Result<(), Invalid> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let reason = format!("'{field}' has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len());
    Err(Invalid::new(field, reason))
}

/// A time limit must not be zero.
fn above_zero(field: &str, given: Option<Duration>) -> Result<Option<Duration>, Invalid> {
    if given == Some(Duration::ZERO) {
        let reason = format!("'{field}' must be longer than zero, such as 30s");
        return Err(Invalid::new(field, reason));
    }
    Ok(given)
}

fn text<'a>(name: &str, value: &'a Value, example: &str) -> Result<&'a str, Invalid> {
    let refuse = || Invalid::new(name, format!("'{name}' must be a string such as {example}"));
    value.as_str().ok_or_else(refuse)
}

fn whole_number(name: &str, value: &Value) -> Result<i64, Invalid> {
    // Some languages have only one kind of number, and write 5 as 5.0.
    let whole = |number: f64| (number.fract() == 0.0).then_some(number as i64);
    let number = value.as_i64().or_else(|| value.as_f64().and_then(whole));
    number.ok_or_else(|| Invalid::new(name, format!("'{name}' is a whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1000);

    #[test]
    fn all_options_of_an_emitted_job_are_read() {
        let options = json!({"delay":"2s","priority":7.0,"timeout":"1m","expires":"1h",
                             "unique":"k","then":"next","run_at":null,"parent":"17",
                             "repeat":"finished, +1 hour"});
        let seconds = Duration::from_secs;
        let read = AddOptions {
            run_at: Some(Timestamp(3000)),
            priority: Priority::new(7).unwrap(),
            timeout: Some(seconds(60)),
            expires: Some(Expiry::After(seconds(3600))),
            unique: Some("k".into()),
            then: Some(TypeName::new("next").unwrap()),
            parent: JobId::new(17),
            extra: Extra { repeat: Some("FINISHED, +1 HOUR".into()), ..Extra::default() },
            durable: None,
        };
        assert_eq!(AddOptions::parse(&options, NOW), Ok(read));
        let later = json!({"run_at":"1970-01-01T01:00:09+01:00"});
        assert_eq!(AddOptions::parse(&later, NOW).unwrap().run_at, Some(Timestamp(9000)));
        for none in [json!(null), json!({})] {
            assert_eq!(AddOptions::parse(&none, NOW), Ok(AddOptions::default()));
        }
    }

    #[test]
    fn a_job_expires_at_a_time_or_some_time_after_its_creation() {
        assert_eq!(Expiry::After(Duration::from_secs(2)).of(NOW), Timestamp(3000));
        assert_eq!(Expiry::At(Timestamp(7)).of(NOW), Timestamp(7));
    }

    #[test]
    fn a_cron_pattern_sets_the_first_run_unless_the_add_does() {
        let run_at = |options: Value| AddOptions::parse(&options, NOW).unwrap().run_at;
        let cron = "cron: 0 0 * * *";
        assert_eq!(run_at(json!({"repeat":cron})), Some(Timestamp(86_400_000)));
        assert_eq!(run_at(json!({"repeat":cron,"delay":"1s"})), Some(Timestamp(2000)));
        assert_eq!(run_at(json!({"repeat":"DAILY"})), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (json!([]), "options"),
            (json!("90s"), "options"),
            (json!({"delay":5}), "delay"),
            (json!({"delay":"5"}), "delay"),
            (json!({"delay":"5s","run_at":"2027-01-01T00:00:00Z"}), "run_at"),
            (json!({"run_at":"tomorrow"}), "run_at"),
            (json!({"priority":1001}), "priority"),
            (json!({"priority":1.5}), "priority"),
            (json!({"priority":"high"}), "priority"),
            (json!({"timeout":"0s"}), "timeout"),
            (json!({"expires":"0ms"}), "expires"),
            (json!({"unique":""}), "unique"),
            (json!({"unique":"x".repeat(256)}), "unique"),
            (json!({"then":"a|b"}), "then"),
            (json!({"then":""}), "then"),
            (json!({"repeat":"sometimes"}), "repeat"),
            (json!({"repeat":"cron: 61 * * * *"}), "repeat"),
            (json!({"repeat":""}), "repeat"),
            (json!({"repeat":5}), "repeat"),
            (json!({"parent":"x"}), "parent"),
            (json!({"parent":"0"}), "parent"),
            (json!({"parent":1}), "parent"),
            (json!({"colour":"red"}), "colour"),
        ];
        for (options, field) in cases {
            assert_eq!(AddOptions::parse(&options, NOW).unwrap_err().field, field, "{options}");
        }
    }
}
