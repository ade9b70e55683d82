//! The arguments of a task from a document of another collection: values that begin with
//! `document.` are copied from it, all others are used unchanged.

use super::plain;
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value};

const COPIED: &str = "document.";

#[derive(Debug, PartialEq)]
pub(crate) struct Template {
    params: Vec<(String, ParamSource)>,
}

#[derive(Debug, PartialEq)]
enum ParamSource {
    Fixed(Bson),
    /// The path of a field.
    Copied(Vec<String>),
}

impl Template {
    pub(crate) fn read(params: &Map<String, Value>) -> Result<Self, String> {
        let mut parts = Vec::with_capacity(params.len());
        for (name, value) in params {
            plain::name(name)?;
            let copied = value.as_str().and_then(|text| text.strip_prefix(COPIED));
            let part = match copied {
                Some(field) => ParamSource::Copied(path(field)?),
                None => ParamSource::Fixed(plain::value(value)?),
            };
            parts.push((name.clone(), part));
        }
        Ok(Self { params: parts })
    }

    /// The fields to read: those that are copied, or only the id.
    pub(crate) fn projection(&self) -> Document {
        let mut paths: Vec<&[String]> =
            self.params.iter().filter_map(|(_, part)| part.path()).collect();
        // Servers refuse a field together with a part of it; the whole field suffices.
        let all = paths.clone();
        paths.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
        let mut fields = Document::new();
        for path in paths {
            fields.insert(path.join("."), 1);
        }
        if !fields.contains_key("_id") {
            fields.insert("_id", i32::from(fields.is_empty()));
        }
        fields
    }

    /// The arguments for one document; missing fields become null.
    pub(crate) fn params(&self, document: &Document) -> Document {
        let value = |part: &ParamSource| match part {
            ParamSource::Fixed(value) => value.clone(),
            ParamSource::Copied(path) => get(document, path).cloned().unwrap_or(Bson::Null),
        };
        self.params.iter().map(|(name, part)| (name.clone(), value(part))).collect()
    }
}

impl ParamSource {
    fn path(&self) -> Option<&[String]> {
        match self {
            Self::Fixed(_) => None,
            Self::Copied(path) => Some(path),
        }
    }
}

fn path(field: &str) -> Result<Vec<String>, String> {
    let parts: Vec<String> = field.split('.').map(str::to_owned).collect();
    let named = |part: &String| !part.is_empty() && !part.starts_with('$') && !part.contains('\0');
    if parts.iter().all(named) {
        Ok(parts)
    } else {
        Err(format!("'{COPIED}{field}' is not a field"))
    }
}

fn get<'a>(document: &'a Document, path: &[String]) -> Option<&'a Bson> {
    let (last, way) = path.split_last()?;
    let mut inner = document;
    for part in way {
        inner = inner.get(part)?.as_document()?;
    }
    inner.get(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use serde_json::json;

    fn read(value: Value) -> Result<Template, String> {
        let Value::Object(object) = value else { panic!("an object") };
        Template::read(&object)
    }

    #[test]
    fn fields_of_the_document_are_copied() {
        let template = read(json!({
            "user1": "document.username", "commands": "*", "n": 3, "deep": "document.a.b",
            "gone": "document.none", "under": "document.username.x", "list": ["document.a"],
        }))
        .unwrap();
        let from = doc! { "username": "ann", "a": { "b": [1, 2] }, "other": 1 };
        let expected = doc! {
            "user1": "ann", "commands": "*", "n": 3, "deep": [1, 2],
            "gone": null, "under": null, "list": ["document.a"],
        };
        let params = template.params(&from);
        assert_eq!(params.len(), expected.len());
        for (name, value) in &expected {
            assert_eq!(params.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn only_what_is_copied_is_read() {
        let check = |value, expected| assert_eq!(read(value).unwrap().projection(), expected);
        check(json!({ "a": 1 }), doc! { "_id": 1 });
        check(json!({ "a": "document.x" }), doc! { "x": 1, "_id": 0 });
        check(json!({ "a": "document._id" }), doc! { "_id": 1 });
        check(
            json!({ "a": "document.x.y", "b": "document.x", "c": "document.xy" }),
            doc! { "x": 1, "xy": 1, "_id": 0 },
        );
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for bad in ["document.", "document..a", "document.a.", "document.$where", "document.a.$b"] {
            assert_eq!(read(json!({ "k": bad })), Err(format!("'{bad}' is not a field")));
        }
    }
}
