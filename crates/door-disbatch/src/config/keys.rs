//! Typed access to values by key. Errors name the key and what was expected, but never the value,
//! since it may be a password.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use windlass_program::nearest;

/// Longer times are surely errors and would overflow clocks.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

/// An object of the file.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// The full name of its key; empty for the file itself.
    at: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self { at: "", map }
    }

    /// The full name of a key.
    pub(super) fn name(&self, key: &str) -> String {
        if self.at.is_empty() { format!("`{key}`") } else { format!("`{}.{key}`", self.at) }
    }

    /// `None` if it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.map.iter()
    }

    fn wrong(&self, key: &str, expected: &str, value: &Value) -> String {
        format!("{} must be {expected}, not {}", self.name(key), kind(value))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.wrong(key, "a text", value))?;
        if text.is_empty() {
            return Err(format!("{} must be a non-empty text", self.name(key)));
        }
        Ok(Some(text))
    }

    pub(super) fn required(&self, key: &str, example: &str) -> Result<&'a str, String> {
        let missing = || format!("{} is missing; set it, for example to {example}", self.name(key));
        self.text(key)?.ok_or_else(missing)
    }

    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>, String> {
        Ok(self.text(key)?.map(PathBuf::from))
    }

    /// Perl's files use 1 and 0, too.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let flag = flag_of(value).ok_or_else(|| self.wrong(key, "true or false", value))?;
        Ok(Some(flag))
    }

    /// A whole number above zero.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, String> {
        const EXPECTED: &str = "a whole number above 0";
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number {
            Some(number) if number > 0 => Ok(Some(number)),
            _ => Err(self.wrong(key, EXPECTED, value)),
        }
    }

    /// Above zero; may have a fraction.
    pub(super) fn seconds(&self, key: &str) -> Result<Option<Duration>, String> {
        self.duration(key, "a number of seconds above 0", |seconds| seconds > 0.0)
    }

    pub(super) fn seconds_from_zero(&self, key: &str) -> Result<Option<Duration>, String> {
        self.duration(key, "a number of seconds, 0 or more", |seconds| seconds >= 0.0)
    }

    fn duration(
        &self,
        key: &str,
        expected: &str,
        fits: fn(f64) -> bool,
    ) -> Result<Option<Duration>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || self.wrong(key, expected, value);
        let seconds = value.as_f64().filter(|seconds| fits(*seconds)).ok_or_else(wrong)?;
        if seconds > SECONDS_MAX {
            return Err(format!("{} must be at most 100 years", self.name(key)));
        }
        Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| wrong())
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        const EXPECTED: &str = "a list of texts";
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.wrong(key, EXPECTED, value))?;
        let texts = list.iter().map(|entry| match entry.as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(format!("{} must be {EXPECTED}; {} is in it", self.name(key), kind(entry))),
        });
        texts.collect()
    }

    /// The object below a key. `at` is that key's full name.
    pub(super) fn below(&self, key: &str, at: &'a str) -> Result<Option<Keys<'a>>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let map = value.as_object().ok_or_else(|| self.wrong(key, "an object", value))?;
        Ok(Some(Keys { at, map }))
    }

    /// Warns about each unknown key, with a suggestion.
    pub(super) fn warn_unknown(&self, known: &[&str], warnings: &mut Vec<String>) {
        for key in self.map.keys().filter(|key| !known.contains(&key.as_str())) {
            let meant = nearest(key, known).map(|near| format!("; did you mean `{near}`?"));
            warnings.push(format!(
                "{} is not a key that is known, and is not used{}",
                self.name(key),
                meant.unwrap_or_default()
            ));
        }
    }
}

pub(super) fn flag_of(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| match value.as_u64() {
        Some(0) => Some(false),
        Some(1) => Some(true),
        _ => None,
    })
}

/// The type of a value, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(number) if number.is_i64() && !number.is_u64() => "a number below 0",
        Value::Number(number) if number.as_u64() == Some(0) => "0",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "an empty text",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
