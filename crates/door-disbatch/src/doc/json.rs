//! Documents as JSON, as the command interface shows them and plugins get them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime};
use serde_json::{Value, json as value};

/// How dates are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateFormat {
    /// Text such as `2016-04-26T17:59:33Z`.
    Iso,
    /// Seconds since 1970, with a fraction if needed.
    Seconds,
}

/// Ids become hexadecimal text, binary data becomes base64, and dates follow `times`; other types
/// without a JSON equivalent become text.
pub(crate) fn json(bson: &Bson, times: DateFormat) -> Value {
    convert(bson, times, |id| Value::String(id.to_hex()))
}

/// The same with ids as `{"$oid": ..}`, which clients of the command interface expect.
pub(crate) fn json_shown(bson: &Bson, times: DateFormat) -> Value {
    convert(bson, times, shown_id)
}

pub(crate) fn shown_id(id: ObjectId) -> Value {
    value!({ "$oid": id.to_hex() })
}

fn convert(bson: &Bson, times: DateFormat, id_form: fn(ObjectId) -> Value) -> Value {
    match bson {
        Bson::Null | Bson::Undefined => Value::Null,
        Bson::Boolean(boolean) => Value::Bool(*boolean),
        Bson::Int32(number) => value!(number),
        Bson::Int64(number) => value!(number),
        Bson::Double(number) => value!(number),
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => value!(text),
        Bson::ObjectId(id) => id_form(*id),
        Bson::DateTime(date) => time(*date, times),
        Bson::Decimal128(number) => Value::String(number.to_string()),
        Bson::Array(items) => items.iter().map(|item| convert(item, times, id_form)).collect(),
        Bson::Document(document) => {
            let pairs =
                document.iter().map(|(key, item)| (key.clone(), convert(item, times, id_form)));
            Value::Object(pairs.collect())
        }
        Bson::Binary(binary) => Value::String(BASE64_STANDARD.encode(&binary.bytes)),
        other => Value::String(other.to_string()),
    }
}

fn time(date: DateTime, times: DateFormat) -> Value {
    let millis = date.timestamp_millis();
    match times {
        DateFormat::Seconds if millis % 1000 == 0 => value!(millis / 1000),
        #[expect(clippy::cast_precision_loss, reason = "dates of this era fit a double")]
        DateFormat::Seconds => value!(millis as f64 / 1000.0),
        // A year that RFC 3339 cannot express.
        DateFormat::Iso => {
            date.try_to_rfc3339_string().map_or_else(|_| value!(millis), Value::String)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::spec::BinarySubtype;
    use mongodb::bson::{Binary, doc};

    #[test]
    fn ids_and_dates_become_text() {
        let id = ObjectId::parse_str("571fac85ee63413233049fbd").unwrap();
        let date = DateTime::from_millis(1_461_693_573_000);
        let document = Bson::from(doc! { "_id": id, "mtime": date, "list": [id, Bson::Null] });
        let hex = "571fac85ee63413233049fbd";
        assert_eq!(
            json(&document, DateFormat::Iso),
            value!({ "_id": hex, "mtime": "2016-04-26T17:59:33Z", "list": [hex, null] })
        );
        let shown = value!({ "$oid": hex });
        assert_eq!(
            json_shown(&document, DateFormat::Iso),
            value!({ "_id": shown, "mtime": "2016-04-26T17:59:33Z", "list": [shown, null] })
        );
    }

    #[test]
    fn dates_as_numbers() {
        let whole = Bson::from(DateTime::from_millis(1_461_693_573_000));
        let part = Bson::from(DateTime::from_millis(1_461_693_573_250));
        assert_eq!(json(&whole, DateFormat::Seconds), value!(1_461_693_573));
        assert_eq!(json(&part, DateFormat::Seconds), value!(1_461_693_573.25));
        assert_eq!(json(&part, DateFormat::Iso), value!("2016-04-26T17:59:33.25Z"));
    }

    #[test]
    fn nothing_is_refused() {
        let binary = Binary { subtype: BinarySubtype::Generic, bytes: vec![1] };
        let odd = [
            Bson::Binary(binary),
            Bson::MaxKey,
            Bson::Double(f64::NAN),
            Bson::from(DateTime::MAX),
            Bson::Undefined,
        ];
        for bson in odd {
            json(&bson, DateFormat::Iso);
            json(&bson, DateFormat::Seconds);
        }
    }
}
