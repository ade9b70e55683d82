//! Our own options of a new task: priority, a time or other tasks to wait for, a time limit and
//! retries. They are stored in `windlass` in the document, which other programs ignore.

use super::filter;
use crate::database::NewTask;
use crate::dci::param::is_true;
use mongodb::bson::{DateTime, oid::ObjectId};
use serde_json::{Map, Value};

/// A century; more is surely an error.
const SECONDS_MAX: f64 = 3_155_760_000.0;
/// A week.
const TIMEOUT_MAX: i64 = 604_800;
const RETRIES_MAX: i64 = 1_000;
const PRIORITY_MAX: i32 = 1_000_000;
pub(crate) const AFTER_MAX: usize = 100;

/// Reads the options of a request into a task without arguments; `now` is the server's time.
pub(crate) fn read(given: &Map<String, Value>, now: DateTime) -> Result<NewTask, String> {
    let mut task = NewTask::default();
    for (name, value) in given {
        match name.as_str() {
            ".priority" => task.priority = priority(value)?,
            ".delay" | ".not_before" if task.not_before.is_some() => {
                return Err(".delay and .not_before exclude each other".to_owned());
            }
            ".delay" => task.not_before = Some(delay(value, now)?),
            ".not_before" => task.not_before = Some(time(value)?),
            ".after" => task.after = after(value)?,
            ".timeout" => task.timeout_seconds = Some(bounded(name, value, 1, TIMEOUT_MAX)?),
            ".retries" => task.retries = Some(bounded(name, value, 0, RETRIES_MAX)?),
            ".pretty" => {}
            _ => return Err(format!("unknown option {name}")),
        }
    }
    // A task that is already due need not wait for a node to release it.
    task.not_before = task.not_before.filter(|time| *time > now);
    Ok(task)
}

/// Negative priorities are not possible, because the database sorts a missing field below every
/// number. So 0 means no priority.
fn priority(value: &Value) -> Result<Option<i32>, String> {
    let number = bounded(".priority", value, 0, i64::from(PRIORITY_MAX))?;
    Ok(i32::try_from(number).ok().filter(|number| *number > 0))
}

fn bounded(name: &str, value: &Value, least: i64, most: i64) -> Result<i64, String> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("{name} must be an integer from {least} to {most}"))
}

fn delay(value: &Value, now: DateTime) -> Result<DateTime, String> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let seconds = seconds
        .filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))
        .ok_or(".delay must be a number of seconds that is not negative")?;
    Ok(DateTime::from_millis(now.timestamp_millis().saturating_add((seconds * 1000.0) as i64)))
}

/// Text such as `2016-04-26T17:59:33Z`, or seconds since 1970, or milliseconds if as seconds it
/// would be beyond the year 2286.
fn time(value: &Value) -> Result<DateTime, String> {
    const SECONDS_LAST: f64 = 9_999_999_999.0;
    let epoch = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let parsed = match (epoch, value) {
        (Some(number), _) if !(0.0..=SECONDS_LAST * 1000.0).contains(&number) => None,
        (Some(number), _) if number > SECONDS_LAST => Some(DateTime::from_millis(number as i64)),
        (Some(number), _) => Some(DateTime::from_millis((number * 1000.0) as i64)),
        (None, Value::String(text)) => DateTime::parse_rfc3339_str(text).ok(),
        (None, _) => None,
    };
    parsed.ok_or(".not_before must be a time such as 2030-01-31T12:00:00Z, or an epoch".to_owned())
}

/// Ids as a list, or as text separated by commas.
fn after(value: &Value) -> Result<Vec<ObjectId>, String> {
    let ids: Vec<Value> = match value {
        Value::Array(values) => values.clone(),
        Value::String(text) => text.split(',').map(|id| id.trim().into()).collect(),
        one if is_true(one) => vec![one.clone()],
        _ => Vec::new(),
    };
    if ids.len() > AFTER_MAX {
        return Err(format!(".after cannot name more than {AFTER_MAX} tasks"));
    }
    let mut ids = ids.iter().map(filter::id).collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HEX: &str = "571fac85ee63413233049fbd";
    const NOW: DateTime = DateTime::from_millis(1_000_000);

    fn given(value: Value) -> Result<NewTask, String> {
        let Value::Object(object) = value else { panic!("an object") };
        read(&object, NOW)
    }

    #[test]
    fn options_become_fields() {
        let id = ObjectId::parse_str(HEX).unwrap();
        let check = |value, expected| assert_eq!(given(value), Ok(expected));
        check(json!({ ".pretty": 1, ".priority": 0 }), NewTask::default());
        check(
            json!({ ".priority": "5", ".timeout": 60, ".retries": "3" }),
            NewTask {
                priority: Some(5),
                timeout_seconds: Some(60),
                retries: Some(3),
                ..NewTask::default()
            },
        );
        let later =
            || NewTask { not_before: Some(DateTime::from_millis(1_001_500)), ..NewTask::default() };
        check(json!({ ".delay": 1.5 }), later());
        check(json!({ ".not_before": 1001.5 }), later());
        let after = || NewTask { after: vec![id], ..NewTask::default() };
        check(json!({ ".after": HEX }), after());
        check(json!({ ".after": [HEX, { "$oid": HEX }] }), after());
    }

    #[test]
    fn a_time_that_has_passed_is_no_time() {
        for given_options in [
            json!({ ".delay": 0 }),
            json!({ ".not_before": "1970-01-01T00:00:01Z" }),
            json!({ ".after": [] }),
        ] {
            assert_eq!(given(given_options), Ok(NewTask::default()));
        }
    }

    #[test]
    fn times_have_several_forms() {
        let check = |value, millis| assert_eq!(time(&value), Ok(DateTime::from_millis(millis)));
        check(json!("2016-04-26T17:59:33Z"), 1_461_693_573_000);
        check(json!(1_461_693_573), 1_461_693_573_000);
        check(json!("1461693573"), 1_461_693_573_000);
        check(json!(1_461_693_573_250_i64), 1_461_693_573_250);
        for bad in [json!("soon"), json!(-1), json!(1e300), json!([1]), json!(null)] {
            assert!(time(&bad).unwrap_err().starts_with(".not_before must be"), "{bad}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let check = |value: Value, why: &str| assert_eq!(given(value), Err(why.to_owned()));
        check(json!({ ".prio": 1 }), "unknown option .prio");
        check(json!({ ".priority": "high" }), ".priority must be an integer from 0 to 1000000");
        check(json!({ ".timeout": 0 }), ".timeout must be an integer from 1 to 604800");
        check(json!({ ".retries": -1 }), ".retries must be an integer from 0 to 1000");
        check(json!({ ".delay": -1 }), ".delay must be a number of seconds that is not negative");
        check(
            json!({ ".delay": 1, ".not_before": 1 }),
            ".delay and .not_before exclude each other",
        );
        check(json!({ ".after": "x" }), "Bad OID passed: \"x\"");
        let many = vec![HEX; AFTER_MAX + 1];
        check(json!({ ".after": many }), ".after cannot name more than 100 tasks");
    }
}
