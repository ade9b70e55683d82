//! The options of a search, whose names begin with a dot.

use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value};

use crate::dci::error::Failure;
use crate::dci::param::{Params, UnfoldError, count_of, is_true};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) count: bool,
    /// 0 means all.
    pub(crate) limit: i64,
    pub(crate) skip: u64,
    pub(crate) fields: Option<Document>,
    pub(crate) terse: bool,
    pub(crate) full: bool,
    pub(crate) epoch: bool,
    /// `None` if not requested: a single task is then shown pretty, a list is not.
    pub(crate) pretty: Option<bool>,
}

const FIELDS: &str = ".fields";
const FIELDS_FORM: &str = ".fields must be a JSON array of names or an object of names with 0 or 1";

impl Options {
    pub(crate) fn of(params: &mut Params) -> Result<Self, Failure> {
        if params.options.get(FIELDS).is_some_and(is_true) {
            params.unfold(FIELDS).map_err(|unread| match unread {
                UnfoldError::TooMuch(failure) => failure,
                UnfoldError::NotJson(_) => Failure::bad(FIELDS_FORM),
            })?;
        }
        Self::read(&params.options).map_err(Failure::bad)
    }

    fn read(options: &Map<String, Value>) -> Result<Self, String> {
        let flag = |name| options.get(name).is_some_and(is_true);
        let whole = |name: &str| match options.get(name) {
            None => Ok(0),
            Some(value) => whole(value).ok_or(format!("{name} must be a non-negative integer")),
        };
        let fields = match options.get(FIELDS).filter(|value| is_true(value)) {
            Some(value) => Some(fields(value)?),
            None => None,
        };
        Ok(Self {
            count: flag(".count"),
            limit: whole(".limit")?,
            skip: whole(".skip")?.unsigned_abs(),
            fields,
            terse: flag(".terse"),
            full: flag(".full"),
            epoch: flag(".epoch"),
            pretty: options.get(".pretty").map(is_true),
        })
    }
}

/// A non-negative integer, as a number or text; a missing value is 0.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Null => Some(0),
        Value::String(text) if text.is_empty() => Some(0),
        value => count_of(value),
    }
}

/// The fields to show: a list of names, or an object with 1 (only these) or 0 (all but these).
pub(crate) fn fields(value: &Value) -> Result<Document, String> {
    let mut fields = Document::new();
    let mut add = |name: &str, shown: bool| -> Result<(), String> {
        if name.is_empty() || name.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
            return Err(format!(".fields cannot contain '{name}'"));
        }
        if name.contains('\0') {
            return Err(FIELDS_FORM.to_owned());
        }
        for name in both(name) {
            fields.insert(name, Bson::Int32(shown.into()));
        }
        Ok(())
    };
    match value {
        Value::Array(names) => {
            for name in names {
                add(name.as_str().ok_or(FIELDS_FORM)?, true)?;
            }
        }
        Value::Object(names) => {
            for (name, shown) in names {
                if shown.is_array() || shown.is_object() {
                    return Err(FIELDS_FORM.to_owned());
                }
                add(name, is_true(shown))?;
            }
        }
        _ => return Err(FIELDS_FORM.to_owned()),
    }
    Ok(fields)
}

/// Each dialect has its own name for the arguments, and either may be stored.
fn both(name: &str) -> Vec<String> {
    let (head, rest) = match name.split_once('.') {
        Some((head, rest)) => (head, format!(".{rest}")),
        None => (name, String::new()),
    };
    match head {
        "id" if rest.is_empty() => vec!["_id".to_owned()],
        "params" | "parameters" => vec![format!("params{rest}"), format!("parameters{rest}")],
        _ => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use serde_json::json;

    fn read(value: Value) -> Result<Options, String> {
        let read = Options::of(&mut Params::of(value));
        read.map_err(|failure| failure.body["error"].as_str().unwrap().to_owned())
    }

    #[test]
    fn options_come_as_text_or_as_json() {
        assert_eq!(read(json!({})), Ok(Options::default()));
        let all = Options {
            count: true,
            limit: 5,
            skip: 7,
            fields: Some(doc! { "status": 1 }),
            terse: true,
            full: true,
            epoch: true,
            pretty: Some(true),
        };
        let text = json!({
            ".count": "1", ".limit": "5", ".skip": "7", ".fields": "[\"status\"]",
            ".terse": "1", ".full": "1", ".epoch": "1", ".pretty": "1",
        });
        assert_eq!(read(text), Ok(all.clone()));
        let json = json!({
            ".count": true, ".limit": 5, ".skip": 7, ".fields": ["status"],
            ".terse": 1, ".full": true, ".epoch": true, ".pretty": true,
        });
        assert_eq!(read(json), Ok(all));
        let none =
            json!({ ".count": "0", ".limit": "", ".skip": null, ".fields": "", ".full": "" });
        assert_eq!(read(none), Ok(Options::default()));
        assert_eq!(read(json!({ ".pretty": 0 })).map(|o| o.pretty), Ok(Some(false)));
    }

    #[test]
    fn numbers_are_whole_and_not_negative() {
        for bad in [json!("x"), json!(-1), json!("1.5"), json!([1]), json!(true)] {
            let limit = read(json!({ ".limit": bad }));
            assert_eq!(limit, Err(".limit must be a non-negative integer".to_owned()));
            let skip = read(json!({ ".skip": bad }));
            assert_eq!(skip, Err(".skip must be a non-negative integer".to_owned()));
        }
    }

    #[test]
    fn fields_are_names_and_nothing_else() {
        let check = |value: Value, expected| assert_eq!(fields(&value), Ok(expected));
        check(json!(["status", "a.b"]), doc! { "status": 1, "a.b": 1 });
        check(json!({ "stdout": 0, "stderr": false }), doc! { "stdout": 0, "stderr": 0 });
        check(json!({ "id": 0, "status": 1 }), doc! { "_id": 0, "status": 1 });
        let text = read(json!({ ".fields": "{\"id\":0}" })).unwrap();
        assert_eq!(text.fields, Some(doc! { "_id": 0 }));
        check(json!(["params.user"]), doc! { "params.user": 1, "parameters.user": 1 });
        for bad in [json!("status"), json!("[1"), json!([1]), json!({ "a": {} }), json!(7)] {
            assert_eq!(read(json!({ ".fields": bad })), Err(FIELDS_FORM.to_owned()), "{bad}");
        }
        let operator = fields(&json!(["a.$slice"]));
        assert_eq!(operator, Err(".fields cannot contain 'a.$slice'".to_owned()));
        assert!(fields(&json!({ "$where": 1 })).is_err());
        assert!(fields(&json!([""])).is_err());
    }
}
