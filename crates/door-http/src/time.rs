//! Times and durations in wire form: RFC 3339 in UTC with milliseconds, and short
//! texts such as `90s`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::PartialSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};

use windlass_core::Timestamp;
use windlass_core::time::{format_duration, format_time, parse_duration, parse_time};

/// A point in time on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireTime(pub(crate) Timestamp);

impl WireTime {
    /// Reads RFC 3339 with any offset; fractions of a millisecond are cut off.
    pub(crate) fn parse(text: &str) -> Result<WireTime, String> {
        let plus = if text.contains(' ') { "; in a query a '+' is written as %2B" } else { "" };
        parse_time(text).map(WireTime).map_err(|reason| reason + plus)
    }
}

impl fmt::Display for WireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_time(self.0))
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WireTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireTime, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        WireTime::parse(&text).map_err(de::Error::custom)
    }
}

/// A duration on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireDuration(pub(crate) Duration);

impl Serialize for WireDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for WireDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireDuration, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_duration(&text).map(WireDuration).map_err(de::Error::custom)
    }
}

impl PartialSchema for WireTime {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}
impl utoipa::ToSchema for WireTime {}

impl PartialSchema for WireDuration {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9]+(ms|s|m|h|d)$"))
            .description(Some("A number and a unit: 250ms, 90s, 5m, 2h, 1d; at most ten years."))
            .into()
    }
}
impl utoipa::ToSchema for WireDuration {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(WireTime(Timestamp(0)).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(WireTime(Timestamp(1_800_000_000_007)).to_string(), "2027-01-15T08:00:00.007Z");
        assert_eq!(
            WireTime(Timestamp(i64::MAX)).to_string().len(),
            "9999-12-30T22:00:00.999Z".len()
        );
    }

    #[test]
    fn times_are_read_with_any_offset() {
        let read = |text| WireTime::parse(text).map(|time| time.0.ms());
        assert_eq!(read("2027-01-15T08:00:00Z"), Ok(1_800_000_000_000));
        assert_eq!(read("2027-01-15T09:00:00.007+01:00"), Ok(1_800_000_000_007));
        assert_eq!(read("2027-01-15T03:00:00-05:00"), Ok(1_800_000_000_000));
        for text in
            ["", "now", "2027-01-15", "2027-01-15T08:00:00", "1800000000", "2027-13-01T00:00:00Z"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("2027-01-15T09:00:00 01:00").unwrap_err().contains("%2B"));
    }

    #[test]
    fn durations_are_texts() {
        let read: WireDuration = serde_json::from_str("\"90s\"").unwrap();
        assert_eq!(read.0, Duration::from_secs(90));
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"90s\"");
        assert!(serde_json::from_str::<WireDuration>("90").is_err());
    }
}
