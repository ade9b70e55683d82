//! Parses a request to create tasks, before the database is touched.

use super::{operator, plain, template::Template};
use mongodb::bson::Document;
use serde_json::{Map, Value};

#[derive(Debug, PartialEq)]
pub(crate) enum CreateRequest {
    /// One task for each of these arguments.
    List(Vec<Document>),
    /// One task for each document of a collection.
    Collection(Source),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Source {
    pub(crate) collection: String,
    pub(crate) filter: Document,
    pub(crate) template: Template,
}

const LIST: &str = "'params' must be a JSON array of task params objects";
const LIST_FILLED: &str =
    "'params' must be a JSON array of task params objects with key/value pairs";
const FILTER: &str = "'filter' must be a JSON object";
const COLLECTION: &str = "'collection' required and must be a scalar (string)'";
const INVALID: &str = "invalid parameters passed";

/// Reads the three forms, apart from `queue`: `{params: [..]}`, `{params: {..}}`, and `{collection,
/// filter, params: {..}}`. Both names of the arguments are accepted.
pub(crate) fn read(body: &Map<String, Value>) -> Result<CreateRequest, String> {
    let mut names: Vec<&str> = body.keys().map(String::as_str).filter(|n| *n != "queue").collect();
    names.sort_unstable();
    let (name, others) = match names.as_slice() {
        [name @ ("params" | "parameters")] => (*name, false),
        ["collection", "filter", name @ ("params" | "parameters")] => (*name, true),
        _ => return Err(INVALID.to_owned()),
    };
    match (others, body.get(name)) {
        (false, Some(Value::Object(one))) => list(std::iter::once(Some(one))),
        (false, Some(Value::Array(many))) => list(many.iter().map(Value::as_object)),
        (true, Some(Value::Object(params))) => {
            source(body.get("collection"), body.get("filter"), params)
                .map(CreateRequest::Collection)
        }
        (false, _) => Err(LIST.to_owned()),
        _ => Err(INVALID.to_owned()),
    }
}

fn list<'a>(
    items: impl Iterator<Item = Option<&'a Map<String, Value>>>,
) -> Result<CreateRequest, String> {
    let items: Option<Vec<_>> = items.collect();
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Err(LIST.to_owned());
    };
    if items.iter().any(|item| item.is_empty()) {
        return Err(LIST_FILLED.to_owned());
    }
    Ok(CreateRequest::List(items.into_iter().map(plain::document).collect::<Result<_, _>>()?))
}

/// A collection, a filter for it, and the arguments for each document found.
pub(crate) fn source(
    collection: Option<&Value>,
    filter: Option<&Value>,
    params: &Map<String, Value>,
) -> Result<Source, String> {
    let filter = filter.and_then(Value::as_object).ok_or(FILTER)?;
    let collection = match collection {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        _ => return Err(COLLECTION.to_owned()),
    };
    Ok(Source { collection, filter: operator::filter(filter)?, template: Template::read(params)? })
}

/// Disbatch's own collections, which hold no work and may contain secrets.
const OWN: [&str; 8] =
    ["balance", "changelog", "config", "nodes", "queues", "results", "tasks", "reports"];

/// Whether tasks may be created from a collection: from those that the configuration lists, or
/// without a list from all except those of Disbatch and of the server.
pub(crate) fn may_read(allowed: Option<&[String]>, collection: &str) -> bool {
    let servers = collection.starts_with("system.") || collection.contains(['$', '\0']);
    match allowed {
        Some(names) => !servers && names.iter().any(|name| name == collection),
        None => !servers && !OWN.contains(&collection) && !collection.starts_with("tasks."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use serde_json::json;

    fn read_value(value: Value) -> Result<CreateRequest, String> {
        let Value::Object(object) = value else { panic!("an object") };
        read(&object)
    }

    #[test]
    fn one_task_or_a_list() {
        let one = Ok(CreateRequest::List(vec![doc! { "a": 1 }]));
        assert_eq!(read_value(json!({ "queue": "q", "params": { "a": 1 } })), one);
        assert_eq!(read_value(json!({ "queue": "q", "parameters": { "a": 1 } })), one);
        assert_eq!(read_value(json!({ "queue": "q", "params": [{ "a": 1 }] })), one);
        let two = read_value(json!({ "params": [{ "a": 1 }, { "b": [] }] }));
        assert_eq!(two, Ok(CreateRequest::List(vec![doc! { "a": 1 }, doc! { "b": [] }])));
    }

    #[test]
    fn a_collection() {
        let read = read_value(json!({
            "queue": "q", "collection": "users", "filter": { "x": { "$gt": 1 } },
            "params": { "user": "document.name" },
        }));
        let Ok(CreateRequest::Collection(source)) = read else { panic!("{read:?}") };
        assert_eq!(source.collection, "users");
        assert_eq!(source.filter, doc! { "x": { "$gt": 1 } });
        assert_eq!(source.template.params(&doc! { "name": "ann" }), doc! { "user": "ann" });
    }

    fn from(collection: Value, filter: Value) -> Value {
        json!({ "params": { "a": 1 }, "collection": collection, "filter": filter })
    }

    #[test]
    fn every_mistake_has_its_text() {
        let check = |value: Value, why: &str| {
            assert_eq!(read_value(value.clone()), Err(why.into()), "{value}")
        };
        check(json!({ "params": [] }), LIST);
        check(json!({ "params": [1] }), LIST);
        check(json!({ "params": [{ "a": 1 }, []] }), LIST);
        check(json!({ "params": [{ "a": 1 }, {}] }), LIST_FILLED);
        check(json!({ "params": {} }), LIST_FILLED);
        check(json!({}), INVALID);
        check(json!({ "queue": "q" }), INVALID);
        check(json!({ "params": { "a": 1 }, "extra": 1 }), INVALID);
        check(json!({ "params": { "a": 1 }, "parameters": { "a": 1 } }), INVALID);
        check(json!({ "params": { "a": 1 }, "collection": "c" }), INVALID);
        check(json!({ "params": [{ "a": 1 }], "collection": "c", "filter": {} }), INVALID);
        check(from(json!("c"), json!([])), FILTER);
        check(from(json!("c"), json!("{}")), FILTER);
        check(from(json!(""), json!({})), COLLECTION);
        check(from(json!(["c"]), json!({})), COLLECTION);
        check(from(json!(null), json!({})), COLLECTION);
        check(from(json!("c"), json!({ "$where": "1" })), "operator $where is not allowed");
    }

    #[test]
    fn params_that_are_neither_list_nor_object_are_told_what_they_must_be() {
        for params in [json!("x"), json!(5), json!(true), json!(null)] {
            for name in ["params", "parameters"] {
                assert_eq!(
                    read_value(json!({ "queue": "q", name: params })),
                    Err(LIST.into()),
                    "{params}"
                );
            }
        }
    }

    #[test]
    fn only_some_collections_may_be_read() {
        let free = |name| may_read(None, name);
        assert!(free("users") && free("tasks_of_mine"));
        for own in OWN.iter().chain(&["tasks.files", "tasks.chunks", "system.users", "$cmd"]) {
            assert!(!free(own), "{own}");
        }
        let listed = ["users".to_owned(), "reports".to_owned(), "system.users".to_owned()];
        assert!(may_read(Some(&listed), "users") && may_read(Some(&listed), "reports"));
        assert!(!may_read(Some(&listed), "others") && !may_read(Some(&listed), "system.users"));
        assert!(!may_read(Some(&[]), "users"));
    }
}
