//! Options in a comment: `timeout=30s retry.attempts=3 env.GREETING="good day"`.

use serde_json::{Map, Value};

use windlass_core::network::Destination;
use windlass_core::secret::SecretName;
use windlass_core::size::parse_size;
use windlass_core::time::parse_duration;

/// The kind of an option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Duration,
    Size,
    Whole,
    Number,
    Network,
    /// Names between commas.
    Secrets,
}

/// All options except `eid` and the variables, by their path in a handler's options.
const OPTIONS: [(&str, Kind); 17] = [
    ("timeout", Kind::Duration),
    ("batch", Kind::Whole),
    ("contexts", Kind::Whole),
    ("context_jobs", Kind::Whole),
    ("idle", Kind::Duration),
    ("memory", Kind::Size),
    ("cpu", Kind::Duration),
    ("processes", Kind::Whole),
    ("file_size", Kind::Size),
    ("scratch", Kind::Size),
    ("network", Kind::Network),
    ("secrets", Kind::Secrets),
    ("retry.attempts", Kind::Whole),
    ("retry.delay", Kind::Duration),
    ("retry.factor", Kind::Number),
    ("retry.delay_max", Kind::Duration),
    ("retry.age", Kind::Duration),
];
const EID: &str = "eid";
/// Prefix of environment variables.
const ENV: &str = "env";

/// Adds the options of one line.
pub(super) fn read(
    line: &str,
    eid: &mut Option<String>,
    options: &mut Map<String, Value>,
) -> Result<(), String> {
    let mut rest = line;
    while !rest.is_empty() {
        let (name, value, behind) = next(rest)?;
        if name == EID {
            let before = eid.replace(value.to_owned());
            before.map_or(Ok(()), |_| Err(twice(name)))?;
        } else {
            put(options, name, json(name, value)?)?;
        }
        rest = behind;
    }
    Ok(())
}

/// The first `name=value` and the rest.
fn next(line: &str) -> Result<(&str, &str, &str), String> {
    let wrong = || {
        let word = line.split_whitespace().next().unwrap_or_default();
        format!(
            "'{word}' is neither a part (body, before, beforeEach, afterEach) nor an option such \
             as timeout=30s"
        )
    };
    let (name, rest) = line.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(wrong());
    }
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
    let (value, behind) = match quote {
        Some(quote) => rest[1..]
            .split_once(quote)
            .filter(|(_, behind)| behind.is_empty() || behind.starts_with([' ', '\t']))
            .ok_or_else(|| format!("the value of '{name}' lacks its closing {quote}"))?,
        None => rest.split_once([' ', '\t']).unwrap_or((rest, "")),
    };
    Ok((name, value, behind.trim_start()))
}

fn json(name: &str, value: &str) -> Result<Value, String> {
    if name.strip_prefix(ENV).and_then(|rest| rest.strip_prefix('.')).is_some_and(|n| !n.is_empty())
    {
        return Ok(value.into());
    }
    let Some((_, kind)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(unknown(name));
    };
    let read = match kind {
        Kind::Duration => parse_duration(value).map(|_| value.into()),
        Kind::Size => parse_size(value).map(|_| value.into()),
        Kind::Whole => value.parse::<u32>().map(Value::from).map_err(|_| not(value, "whole")),
        Kind::Number => value.parse::<f64>().map(Value::from).map_err(|_| not(value, "decimal")),
        Kind::Network => network(value),
        Kind::Secrets => secrets(value),
    };
    read.map_err(|reason| format!("{name}: {reason}"))
}

/// `none`, `public`, or networks and names between commas.
pub(crate) fn network(value: &str) -> Result<Value, String> {
    if matches!(value, "none" | "public") {
        return Ok(value.into());
    }
    let entries = value.split(',').map(|entry| entry.trim().parse::<Destination>());
    entries.map(|entry| entry.map(|entry| entry.to_string())).collect()
}

fn secrets(value: &str) -> Result<Value, String> {
    let names = value.split(',').map(|name| SecretName::new(name.trim()));
    names.map(|name| name.map(|name| name.to_string()).map_err(|wrong| wrong.reason)).collect()
}

/// Sets the value at its path of at most two names.
fn put(options: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), String> {
    let before = match name.split_once('.') {
        None => options.insert(name.into(), value),
        Some((group, member)) => {
            let group = options.entry(group).or_insert_with(|| Map::new().into());
            group.as_object_mut().and_then(|group| group.insert(member.into(), value))
        }
    };
    before.map_or(Ok(()), |_| Err(twice(name)))
}

fn not(value: &str, what: &str) -> String {
    format!("'{value}' is not a {what} number")
}

fn twice(name: &str) -> String {
    format!("'{name}' is given twice")
}

fn unknown(name: &str) -> String {
    let mut known: Vec<_> = OPTIONS.iter().map(|(known, _)| *known).collect();
    known.extend([EID, "env.NAME"]);
    let distance = |known: &&&str| strsim::osa_distance(name, known);
    let nearest = known.iter().min_by_key(distance).copied().unwrap_or_default();
    format!("unknown option '{name}'; did you mean {nearest}? Known options: {}", known.join(", "))
}
