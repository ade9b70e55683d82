//! JSON that is stored unchanged: nothing in it has a special meaning to us or to the server.

use super::filter::number_bson;
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value};

pub(crate) fn document(object: &Map<String, Value>) -> Result<Document, String> {
    let mut document = Document::new();
    for (key, inner) in object {
        name(key)?;
        document.insert(key, value(inner)?);
    }
    Ok(document)
}

pub(crate) fn value(value: &Value) -> Result<Bson, String> {
    Ok(match value {
        Value::Null => Bson::Null,
        Value::Bool(flag) => Bson::Boolean(*flag),
        Value::Number(number) => number_bson(number),
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(values) => {
            Bson::Array(values.iter().map(self::value).collect::<Result<_, _>>()?)
        }
        Value::Object(object) => Bson::Document(document(object)?),
    })
}

/// In BSON a zero byte ends a name, so names must not contain one. Old servers take a name with a
/// leading dollar sign for an operator, and some drivers take it for another type and cannot read
/// the task at all.
pub(crate) fn name(name: &str) -> Result<(), String> {
    if name.contains('\0') {
        return Err("a name may not contain a zero byte".to_owned());
    }
    if name.starts_with('$') {
        return Err(format!("a name may not begin with a dollar sign: {name}"));
    }
    Ok(())
}

/// Checks all names in a document from the database.
pub(crate) fn check(document: &Document) -> Result<(), String> {
    document.iter().try_for_each(|(key, inner)| {
        name(key)?;
        check_value(inner)
    })
}

fn check_value(value: &Bson) -> Result<(), String> {
    match value {
        Bson::Document(document) => check(document),
        Bson::Array(values) => values.iter().try_for_each(check_value),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use serde_json::json;

    #[test]
    fn every_kind_of_value_is_kept() {
        let Value::Object(object) = json!({
            "a": null, "b": true, "c": 1, "d": 5_000_000_000_i64, "e": 0.5, "f": "x",
            "g": [{ "h": [] }], "i.j": "1", "big": 18_446_744_073_709_551_615_u64,
        }) else {
            panic!("an object")
        };
        let stored = document(&object).unwrap();
        let expected = doc! {
            "a": null, "b": true, "c": 1, "d": 5_000_000_000_i64, "e": 0.5, "f": "x",
            "g": [{ "h": [] }], "i.j": "1", "big": 18_446_744_073_709_551_615_f64,
        };
        assert_eq!(stored.len(), expected.len());
        for (name, value) in &expected {
            assert_eq!(stored.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn some_names_are_refused() {
        let refused = |value: Value| document(value.as_object().unwrap()).unwrap_err();
        assert_eq!(refused(json!({ "a": [{ "b\0": 1 }] })), "a name may not contain a zero byte");
        let dollar = "a name may not begin with a dollar sign: $oid";
        assert_eq!(refused(json!({ "a": { "$oid": "x" } })), dollar);
        assert_eq!(check(&doc! { "a": [{ "$oid": "x" }] }), Err(dollar.to_owned()));
        assert_eq!(check(&doc! { "a": [{ "b$": "$x" }] }), Ok(()));
    }
}
