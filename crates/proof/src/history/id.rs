//! Numbers that are written as text. Languages whose numbers are floats would round ids, so both
//! are written as strings of digits; reading also takes plain numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A job's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct JobId(pub u64);

/// The fencing token of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

macro_rules! digits {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_any(Digits).map($name)
            }
        }
    };
}

digits!(JobId);
digits!(Token);

struct Digits;

impl Visitor<'_> for Digits {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a string of digits")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        text.parse().map_err(|_| E::custom(format!("'{text}' is not a string of digits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_text_and_read_from_text_and_numbers() {
        let id = JobId(9_007_199_254_740_993);
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""9007199254740993""#);
        for text in [r#""9007199254740993""#, "9007199254740993"] {
            assert_eq!(serde_json::from_str::<JobId>(text).unwrap(), id);
        }
        for text in ["\"12a\"", "-1", "null", "\"\""] {
            assert!(serde_json::from_str::<JobId>(text).is_err(), "{text}");
        }
    }
}
