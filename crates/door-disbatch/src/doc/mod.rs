//! Parsed documents of the database. Other programs write them, too, so any field may have any
//! type: invalid fields are reported as [`Invalid`], never guessed.

mod json;
mod node;
mod number;
mod queue;
mod task;

pub(crate) use json::{DateFormat, json, json_shown, shown_id};
pub(crate) use node::Node;
pub(crate) use number::{Limit, whole};
pub(crate) use queue::{Hold, LimitStored, Queue, Sort};
pub(crate) use task::Task;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

/// A field with an invalid type or value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {why}")]
pub(crate) struct Invalid {
    pub field: String,
    pub why: String,
}

impl Invalid {
    fn not(field: &str, wanted: &str, found: &Bson) -> Self {
        Self {
            field: field.to_owned(),
            why: format!("is {}, and must be {wanted}", type_name(found)),
        }
    }
}

/// The value at a path such as `windlass.boot`; `None` if a step is missing or not a document.
pub(crate) fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    let (steps, last) = path.rsplit_once('.').map_or((None, path), |(s, l)| (Some(s), l));
    let mut inner = document;
    for step in steps.into_iter().flat_map(|steps| steps.split('.')) {
        inner = inner.get(step)?.as_document()?;
    }
    inner.get(last)
}

/// The first of these fields that is present and not null.
fn first<'a, 'f>(document: &'a Document, fields: &[&'f str]) -> Option<(&'f str, &'a Bson)> {
    fields.iter().find_map(|field| {
        document.get(field).filter(|value| !is_nothing(value)).map(|value| (*field, value))
    })
}

fn is_nothing(value: &Bson) -> bool {
    matches!(value, Bson::Null | Bson::Undefined)
}

fn object_id(document: &Document, field: &str) -> Result<ObjectId, Invalid> {
    match document.get(field) {
        Some(Bson::ObjectId(id)) => Ok(*id),
        other => Err(Invalid::not(field, "an ObjectId", other.unwrap_or(&Bson::Undefined))),
    }
}

fn text(document: &Document, field: &str) -> Result<String, Invalid> {
    match document.get(field) {
        Some(Bson::String(text)) => Ok(text.clone()),
        other => Err(Invalid::not(field, "a string", other.unwrap_or(&Bson::Undefined))),
    }
}

/// The sub-document with our own fields; empty if there is none.
fn ours(document: &Document) -> Result<Document, Invalid> {
    match document.get("windlass") {
        None => Ok(Document::new()),
        Some(Bson::Document(ours)) => Ok(ours.clone()),
        Some(other) => Err(Invalid::not("windlass", "a document", other)),
    }
}

fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) => "a number with a fraction",
        Bson::String(_) => "a string",
        Bson::Array(_) => "an array",
        Bson::Document(_) => "a document",
        Bson::Boolean(_) => "a boolean",
        Bson::Null => "null",
        Bson::Undefined => "missing",
        Bson::Int32(_) | Bson::Int64(_) => "a number",
        Bson::Binary(_) => "binary data",
        Bson::ObjectId(_) => "an ObjectId",
        Bson::DateTime(_) => "a date",
        _ => "of another type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn a_path_is_followed_through_documents_only() {
        let document = doc! { "windlass": { "boot": "b" }, "node": "n", "list": [{ "boot": 1 }] };
        assert_eq!(at(&document, "node"), Some(&Bson::String("n".to_owned())));
        assert_eq!(at(&document, "windlass.boot"), Some(&Bson::String("b".to_owned())));
        for missing in ["x", "node.boot", "windlass.x", "list.boot", "windlass.boot.x", ""] {
            assert_eq!(at(&document, missing), None, "{missing}");
        }
    }

    #[test]
    fn an_odd_field_says_what_it_is_and_what_it_must_be() {
        let odd = text(&doc! { "name": 5 }, "name").unwrap_err();
        assert_eq!(odd.to_string(), "`name` is a number, and must be a string");
        let odd = object_id(&doc! {}, "_id").unwrap_err();
        assert_eq!(odd.to_string(), "`_id` is missing, and must be an ObjectId");
    }
}
