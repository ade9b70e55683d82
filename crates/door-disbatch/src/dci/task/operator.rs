//! Checks a client's filter: only operators that compare stored values are allowed. Operators that
//! run code on the server, compute, or read other collections are refused.

use super::filter::{id, number_bson};
use mongodb::bson::{Bson, DateTime, Document};
use serde_json::{Map, Value};

/// The operators that a client may use.
const ALLOWED: [&str; 19] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$exists",
    "$type",
    "$and",
    "$or",
    "$nor",
    "$not",
    "$all",
    "$elemMatch",
    "$size",
    "$mod",
    "$regex",
];
/// Options of `$regex`, in a separate field.
const REGEX_OPTIONS: &str = "$options";

/// The filter for the database, or why it is refused.
pub(crate) fn filter(object: &Map<String, Value>) -> Result<Document, String> {
    let mut filter = Document::new();
    for (key, value) in object {
        if key.contains('\0') {
            return Err("a name may not contain a zero byte".to_owned());
        }
        if key.starts_with('$') && key != REGEX_OPTIONS && !ALLOWED.contains(&key.as_str()) {
            return Err(format!("operator {key} is not allowed"));
        }
        filter.insert(key, condition(value)?);
    }
    Ok(filter)
}

fn condition(value: &Value) -> Result<Bson, String> {
    Ok(match value {
        Value::Null => Bson::Null,
        Value::Bool(flag) => Bson::Boolean(*flag),
        Value::Number(number) => number_bson(number),
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(values) => {
            Bson::Array(values.iter().map(condition).collect::<Result<_, _>>()?)
        }
        Value::Object(object) => match special(object) {
            Some(value) => value?,
            None => Bson::Document(filter(object)?),
        },
    })
}

/// Values that JSON cannot express: ids and dates.
fn special(object: &Map<String, Value>) -> Option<Result<Bson, String>> {
    if object.len() != 1 {
        return None;
    }
    if object.contains_key("$oid") {
        return Some(id(&Value::Object(object.clone())).map(Bson::ObjectId));
    }
    object.get("$date").map(|value| date(value).map(Bson::DateTime))
}

/// A date: milliseconds since 1970, or a text such as `2016-04-26T17:59:33Z`.
fn date(value: &Value) -> Result<DateTime, String> {
    let parsed = match value {
        Value::Number(number) => number.as_i64().map(DateTime::from_millis),
        Value::String(text) => DateTime::parse_rfc3339_str(text).ok(),
        _ => None,
    };
    parsed.ok_or_else(|| format!("Bad date passed: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{doc, oid::ObjectId};
    use serde_json::json;

    const HEX: &str = "571fac85ee63413233049fbd";

    fn read(value: Value) -> Result<Document, String> {
        let Value::Object(object) = value else { panic!("an object") };
        filter(&object)
    }

    #[test]
    fn comparisons_are_passed_on() {
        let oid = ObjectId::parse_str(HEX).unwrap();
        let check = |value, expected| assert_eq!(read(value), Ok(expected));
        check(json!({}), doc! {});
        check(json!({ "migration": "foo" }), doc! { "migration": "foo" });
        check(
            json!({ "a.b": { "$gte": 1, "$lt": 2.5 } }),
            doc! { "a.b": { "$gte": 1, "$lt": 2.5 } },
        );
        check(json!({ "_id": { "$oid": HEX } }), doc! { "_id": oid });
        check(
            json!({ "$or": [{ "a": { "$in": [{ "$oid": HEX }, null] } }, { "b": true }] }),
            doc! { "$or": [{ "a": { "$in": [oid, null] } }, { "b": true }] },
        );
        check(
            json!({ "a": { "$regex": "^x", "$options": "i" } }),
            doc! { "a": { "$regex": "^x", "$options": "i" } },
        );
        let day = DateTime::from_millis(1_461_693_573_000);
        check(json!({ "d": { "$date": 1_461_693_573_000_i64 } }), doc! { "d": day });
        check(
            json!({ "d": { "$gt": { "$date": "2016-04-26T17:59:33Z" } } }),
            doc! { "d": { "$gt": day } },
        );
    }

    #[test]
    fn other_operators_are_refused_by_name() {
        for name in ["$where", "$function", "$expr", "$jsonSchema", "$text", "$near", "$comment"] {
            let why = Err(format!("operator {name} is not allowed"));
            assert_eq!(read(json!({ name: "1" })), why);
            assert_eq!(read(json!({ "a": { name: "1" } })), why);
            assert_eq!(read(json!({ "$and": [{ "a": { "$not": { name: {} } } }] })), why);
        }
        assert_eq!(
            read(json!({ "$oid": HEX, "b": 1 })),
            Err("operator $oid is not allowed".into())
        );
    }

    #[test]
    fn bad_values_are_refused() {
        let check = |value, why: &str| assert_eq!(read(value), Err(why.to_owned()));
        check(json!({ "a": { "$oid": "x" } }), "Bad OID passed: {\"$oid\":\"x\"}");
        check(json!({ "a": [{ "$oid": 1 }] }), "Bad OID passed: {\"$oid\":1}");
        check(json!({ "a": { "$date": "yesterday" } }), "Bad date passed: \"yesterday\"");
        check(json!({ "a\0": 1 }), "a name may not contain a zero byte");
    }
}
