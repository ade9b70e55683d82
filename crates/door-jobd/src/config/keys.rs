//! Typed access to configuration values by key.

use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use crate::ini;
use crate::log::LogConfig;
use crate::net::Access;
use crate::password::Password;
use crate::wire::{Json, Object};

const LOG_LEVEL: &str = "warn";

pub(super) struct Keys(Object);

impl Keys {
    pub(super) fn parse(text: &str) -> Keys {
        Keys(ini::parse(text))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter()
    }

    /// `None` if it is missing or null.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A required key must not be empty.
    pub(super) fn require(&self, key: &str) -> Result<&Json, ConfigError> {
        let value = self.get(key).filter(|value| value.is_truthy());
        value.ok_or_else(|| format!("'{key}' is not defined").into())
    }

    pub(super) fn required_text(&self, key: &str) -> Result<String, ConfigError> {
        text_of(key, self.require(key)?)
    }

    /// `None` if there is nothing in it.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.get(key).filter(|value| value.is_truthy()) {
            None => Ok(None),
            Some(value) => text_of(key, value).map(Some),
        }
    }

    /// A number truncated to an integer. `None` if missing; an empty value is not a number.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = numeric(value).ok_or_else(|| format!("'{key}' must be an integer"))?;
        Ok(Some(cut(&text)))
    }

    /// An integer; zero or empty means the default.
    pub(super) fn amount(&self, key: &str, default: u32) -> Result<u32, ConfigError> {
        match self.seconds_or_amount(key)? {
            None | Some(0) => Ok(default),
            Some(amount) => Ok(amount),
        }
    }

    /// Seconds; zero or empty means the default.
    pub(super) fn seconds(&self, key: &str, default: u32) -> Result<Duration, ConfigError> {
        self.amount(key, default).map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Seconds that may be zero.
    pub(super) fn seconds_from_zero(&self, key: &str) -> Result<Option<Duration>, ConfigError> {
        let seconds = self.seconds_or_amount(key)?;
        Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }

    fn seconds_or_amount(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        match self.integer(key)? {
            None => Ok(None),
            Some(negative) if negative < 0 => Err(format!("'{key}' must not be negative").into()),
            Some(amount) => Ok(Some(u32::try_from(amount).unwrap_or(u32::MAX))),
        }
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = numeric(value).ok_or_else(|| format!("'{key}' must be a float"))?;
        // Numbers in another base are valid, but JavaScript's parseFloat reads only their leading
        // zero.
        Ok(Some(text.parse().unwrap_or(0.0)))
    }

    pub(super) fn port(&self, key: &str) -> Result<Option<u16>, ConfigError> {
        let Some(port) = self.integer(key)? else { return Ok(None) };
        let port = u16::try_from(port).map_err(|_| format!("'{key}' must be a port number"))?;
        Ok(Some(port))
    }

    pub(super) fn required_port(&self, key: &str) -> Result<u16, ConfigError> {
        self.require(key)?;
        self.port(key).map(Option::unwrap_or_default)
    }

    pub(super) fn switch(&self, key: &str) -> bool {
        match self.get(key) {
            Some(Json::String(text)) => matches!(ini::trim(text), "true" | "1"),
            Some(value) => value.is_truthy(),
            None => false,
        }
    }

    /// A password that is not text counts as set, and no client can match it.
    pub(super) fn password(&self) -> Option<Password> {
        match self.get("password").filter(|value| value.is_truthy())? {
            Json::String(text) => Some(Password::new(text)),
            _ => Some(Password::NoText),
        }
    }

    pub(super) fn access(&self) -> Access {
        let always_allow_localhost = self.switch("always_allow_localhost");
        Access { password: self.password(), always_allow_localhost }
    }

    pub(super) fn log(&self) -> Result<LogConfig, ConfigError> {
        Ok(LogConfig {
            file: self.text("log_file")?.map(PathBuf::from),
            level_file: self.level("log_level_file")?,
            level_console: self.level("log_level_console")?,
        })
    }

    /// The log checks the level.
    pub(super) fn level(&self, key: &str) -> Result<String, ConfigError> {
        match self.get(key) {
            None => Ok(LOG_LEVEL.to_owned()),
            Some(value) if !value.is_truthy() => Ok("null".to_owned()),
            Some(value) => text_of(key, value),
        }
    }
}

fn text_of(key: &str, value: &Json) -> Result<String, ConfigError> {
    match value {
        Json::Object(_) => Err(format!("'{key}' must be a string").into()),
        value => Ok(value.js_string()),
    }
}

/// A text that JavaScript parses as a finite number.
pub(super) fn numeric(value: &Json) -> Option<String> {
    let text = value.js_string();
    let text = ini::trim(&text);
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && text.parse().is_ok_and(f64::is_finite);
    (is_decimal || has_base(text)).then(|| text.to_owned())
}

/// Such as `0x1f`.
fn has_base(text: &str) -> bool {
    let based = |prefix: [&str; 2], base| {
        let digits = prefix.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or("");
        !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base))
    };
    based(["0x", "0X"], 16) || based(["0o", "0O"], 8) || based(["0b", "0B"], 2)
}

/// The leading integer; zero if there is none.
pub(super) fn cut(text: &str) -> i64 {
    let sign = usize::from(text.starts_with(['+', '-']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let number = &text[..sign + digits];
    let beyond = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    if digits == 0 { 0 } else { number.parse().unwrap_or(beyond) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_numeric_is_cut_to_an_integer() {
        for (text, expected) in [
            ("5", Some(5)),
            (" 5 ", Some(5)),
            ("2.9", Some(2)),
            ("-2.9", Some(-2)),
            ("+7", Some(7)),
            ("1e3", Some(1)),
            (".5", Some(0)),
            ("5.", Some(5)),
            ("0x1F", Some(0)),
            ("99999999999999999999", Some(i64::MAX)),
            ("", None),
            (" ", None),
            ("5x", None),
            ("x", None),
            ("1,5", None),
            ("0x", None),
            ("--5", None),
            ("inf", None),
            ("Infinity", None),
            ("NaN", None),
            ("1e999", None),
            ("1_000", None),
        ] {
            assert_eq!(numeric(&text.into()).map(|text| cut(&text)), expected, "{text:?}");
        }
        assert_eq!(numeric(&Json::Bool(true)), None);
        assert_eq!(numeric(&5.into()), Some("5".to_owned()));
    }

    #[test]
    fn switches_are_on_for_two_words_only() {
        for (text, expected) in [
            ("k=true", true),
            ("k=1", true),
            ("k=\" 1 \"", true),
            ("k", true),
            ("k=0", false),
            ("k=false", false),
            ("k=yes", false),
            ("k=True", false),
            ("k=2", false),
            ("k=", false),
            ("", false),
        ] {
            assert_eq!(Keys::parse(text).switch("k"), expected, "{text}");
        }
    }

    #[test]
    fn a_password_that_is_no_text_matches_nothing() {
        let password = |text| Keys::parse(text).password();
        assert!(password("password=pw").is_some_and(|secret| secret.matches("pw")));
        assert!(password("password=123").is_some_and(|secret| secret.matches("123")));
        assert!(password("password=true").is_some_and(|secret| !secret.matches("true")));
        for text in ["", "password=", "password=null", "password=false"] {
            assert_eq!(password(text), None, "{text}");
        }
    }
}
