//! Turns a search for tasks into a database filter: values only, never operators.

use mongodb::bson::{Bson, Document, doc, oid::ObjectId};
use serde_json::{Map, Number, Value};

/// Fields whose values are ids.
const IDS: [&str; 2] = ["id", "queue"];

/// All parameters must match; a list matches any of its values.
pub(crate) fn filter(params: &Map<String, Value>) -> Result<Document, String> {
    let mut filter = Document::new();
    for (name, value) in params {
        let field = if name == "id" { "_id" } else { name };
        let wanted = match value {
            Value::Array(values) => {
                let mut any = Vec::with_capacity(values.len());
                for value in values {
                    any.extend(wanted(name, value)?);
                }
                any
            }
            value => wanted(name, value)?,
        };
        let condition = match wanted.as_slice() {
            [one] => one.clone(),
            _ => doc! { "$in": wanted }.into(),
        };
        filter.insert(field, condition);
    }
    Ok(filter)
}

/// The stored values that match.
fn wanted(name: &str, value: &Value) -> Result<Vec<Bson>, String> {
    if IDS.contains(&name) {
        let id = id(value).map_err(|why| format!("{why} for '{name}'"))?;
        return Ok(vec![id.into()]);
    }
    match value {
        Value::String(text) => Ok(match number_of(text) {
            // A node may be named 17, but -1 means no node.
            Some(number) if name == "node" && text != "-1" => {
                vec![number, Bson::String(text.clone())]
            }
            Some(number) => vec![number],
            None => vec![Bson::String(text.clone())],
        }),
        Value::Number(number) => Ok(vec![number_bson(number)]),
        Value::Bool(flag) => Ok(vec![Bson::Boolean(*flag)]),
        Value::Null => Ok(vec![Bson::Null]),
        Value::Array(_) | Value::Object(_) => {
            Err(format!("'{name}' must be a value or an array of values"))
        }
    }
}

/// An id: 24 hex digits, or an object `{"$oid": ..}` with them.
pub(crate) fn id(value: &Value) -> Result<ObjectId, String> {
    let hex = match value {
        Value::Object(object) if object.len() == 1 => object.get("$oid"),
        value => Some(value),
    };
    let text = hex.and_then(Value::as_str);
    let id = text.and_then(|text| ObjectId::parse_str(text).ok());
    id.ok_or_else(|| format!("Bad OID passed: {value}"))
}

/// Parses text that looks like a number: sign, digits, fraction, exponent.
pub(crate) fn number_of(text: &str) -> Option<Bson> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole_bson(whole));
    }
    // Rust's parser also accepts names for infinity and NaN, which are plain names here.
    let numeric = text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    text.parse::<f64>().ok().filter(|number| numeric && number.is_finite()).map(Bson::Double)
}

pub(crate) fn number_bson(number: &Number) -> Bson {
    match number.as_i64() {
        Some(whole) => whole_bson(whole),
        None => number.as_f64().map_or(Bson::Null, Bson::Double),
    }
}

fn whole_bson(whole: i64) -> Bson {
    i32::try_from(whole).map_or(Bson::Int64(whole), Bson::Int32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HEX: &str = "571fac85ee63413233049fbd";

    fn check(params: Value, expected: Document) {
        let Value::Object(params) = params else { panic!("an object") };
        assert_eq!(filter(&params), Ok(expected), "{params:?}");
    }

    fn refused(params: Value, why: &str) {
        let Value::Object(params) = params else { panic!("an object") };
        assert_eq!(filter(&params), Err(why.to_owned()), "{params:?}");
    }

    #[test]
    fn values_become_what_they_look_like() {
        let oid = ObjectId::parse_str(HEX).unwrap();
        check(json!({}), doc! {});
        check(json!({ "id": HEX }), doc! { "_id": oid });
        check(json!({ "id": HEX.to_uppercase() }), doc! { "_id": oid });
        check(json!({ "queue": { "$oid": HEX } }), doc! { "queue": oid });
        check(json!({ "queue": [HEX] }), doc! { "queue": oid });
        check(json!({ "queue": HEX, "status": "-2" }), doc! { "queue": oid, "status": -2 });
        check(json!({ "status": ["1", 2, "3"] }), doc! { "status": { "$in": [1, 2, 3] } });
        check(json!({ "status": [] }), doc! { "status": { "$in": [] } });
        check(json!({ "node": "mig01.example.com" }), doc! { "node": "mig01.example.com" });
        check(json!({ "node": -1 }), doc! { "node": -1 });
        check(json!({ "node": "-1" }), doc! { "node": -1 });
        check(json!({ "node": "17" }), doc! { "node": { "$in": [17, "17"] } });
        check(json!({ "node": null }), doc! { "node": null });
        check(json!({ "a": true }), doc! { "a": true });
        check(json!({ "a": 1.5 }), doc! { "a": 1.5 });
        check(json!({ "a": "9999999999" }), doc! { "a": 9_999_999_999_i64 });
    }

    #[test]
    fn no_value_is_an_operator() {
        refused(
            json!({ "status": { "$gt": 1 } }),
            "'status' must be a value or an array of values",
        );
        refused(json!({ "status": [[1]] }), "'status' must be a value or an array of values");
        refused(json!({ "node": [{ "$ne": 1 }] }), "'node' must be a value or an array of values");
        refused(json!({ "queue": { "$ne": 1 } }), "Bad OID passed: {\"$ne\":1} for 'queue'");
        refused(json!({ "id": "1; drop" }), "Bad OID passed: \"1; drop\" for 'id'");
        refused(json!({ "id": [HEX, 7] }), "Bad OID passed: 7 for 'id'");
        refused(json!({ "queue": null }), "Bad OID passed: null for 'queue'");
    }

    #[test]
    fn a_text_may_look_like_a_number() {
        let looks =
            |text: &str, number: Option<Bson>| assert_eq!(number_of(text), number, "{text}");
        looks("0", Some(Bson::Int32(0)));
        looks("-6", Some(Bson::Int32(-6)));
        looks("+5", Some(Bson::Int32(5)));
        looks("007", Some(Bson::Int32(7)));
        looks("4294967296", Some(Bson::Int64(4_294_967_296)));
        looks("1e3", Some(Bson::Double(1000.0)));
        looks(".5", Some(Bson::Double(0.5)));
        for name in ["", "-", "1x", "0x10", "inf", "NaN", "infinity", "1.2.3", "1e999", "e"] {
            looks(name, None);
        }
    }
}
