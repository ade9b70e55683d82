//! A task's document.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document};

use super::{Invalid, first, is_nothing, object_id, ours, whole};

/// A task without its arguments: enough to decide about it. Invalid arguments and settings are no
/// error here; the code that runs the task reads them and can report the reason in its output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Task {
    pub id: ObjectId,
    pub queue: ObjectId,
    pub status: i32,
    /// The node that has or had the task.
    pub node: Option<String>,
    /// The boot of ours that has it now.
    pub boot: Option<String>,
    /// The token of its current or last claim.
    pub run: Option<String>,
    pub cancel: bool,
    /// Number of earlier starts.
    pub attempt: i64,
    /// Remaining retries after failures.
    pub retries: i64,
    pub timeout_seconds: Option<i64>,
    pub not_before: Option<DateTime>,
    pub after: Vec<ObjectId>,
    pub params: Result<Document, Invalid>,
}

impl Task {
    pub(crate) fn read(document: &Document) -> Result<Self, Invalid> {
        let ours = ours(document)?;
        let string = |field: &str| ours.get(field).and_then(Bson::as_str).map(str::to_owned);
        Ok(Self {
            id: object_id(document, "_id")?,
            queue: object_id(document, "queue")?,
            status: read_status(document)?,
            node: read_node(document)?,
            boot: string("boot"),
            run: string("run"),
            cancel: ours.get("cancel") == Some(&Bson::Boolean(true)),
            attempt: optional(&ours, "attempt")?.unwrap_or(0),
            retries: optional(&ours, "retries")?.unwrap_or(0),
            timeout_seconds: optional(&ours, "timeout")?,
            not_before: read_not_before(&ours)?,
            after: read_after(&ours)?,
            params: read_params(document),
        })
    }
}

fn read_status(document: &Document) -> Result<i32, Invalid> {
    let status = document.get("status").unwrap_or(&Bson::Undefined);
    // Text is not a valid status: filters on numbers would not find the task.
    let number = if matches!(status, Bson::String(_)) { None } else { whole(status) };
    number
        .and_then(|number| i32::try_from(number).ok())
        .ok_or_else(|| Invalid::not("status", "a whole number", status))
}

/// Foreign programs write null or a number if no node has the task.
fn read_node(document: &Document) -> Result<Option<String>, Invalid> {
    match document.get("node") {
        Some(Bson::String(node)) => Ok(Some(node.clone())),
        None | Some(Bson::Null | Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_)) => Ok(None),
        Some(other) => Err(Invalid::not("node", "a string, null or -1", other)),
    }
}

fn read_params(document: &Document) -> Result<Document, Invalid> {
    match first(document, &["parameters", "params"]) {
        None => Ok(Document::new()),
        Some((_, Bson::Document(params))) => Ok(params.clone()),
        Some((field, other)) => Err(Invalid::not(field, "a document", other)),
    }
}

fn optional(ours: &Document, field: &str) -> Result<Option<i64>, Invalid> {
    match ours.get(field) {
        None => Ok(None),
        Some(nothing) if is_nothing(nothing) => Ok(None),
        Some(value) => match whole(value) {
            Some(number) => Ok(Some(number)),
            None => Err(Invalid::not(&format!("windlass.{field}"), "a whole number", value)),
        },
    }
}

fn read_not_before(ours: &Document) -> Result<Option<DateTime>, Invalid> {
    match ours.get("not_before") {
        None => Ok(None),
        Some(nothing) if is_nothing(nothing) => Ok(None),
        Some(Bson::DateTime(date)) => Ok(Some(*date)),
        Some(other) => Err(Invalid::not("windlass.not_before", "a date", other)),
    }
}

fn read_after(ours: &Document) -> Result<Vec<ObjectId>, Invalid> {
    const WANTED: &str = "an array of ObjectIds";
    let after = match ours.get("after") {
        None => return Ok(Vec::new()),
        Some(nothing) if is_nothing(nothing) => return Ok(Vec::new()),
        Some(Bson::Array(after)) => after,
        Some(other) => return Err(Invalid::not("windlass.after", WANTED, other)),
    };
    let id =
        |id: &Bson| id.as_object_id().ok_or_else(|| Invalid::not("windlass.after", WANTED, id));
    after.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    fn task() -> Document {
        doc! {
            "_id": ObjectId::new(), "queue": ObjectId::new(), "status": -2, "node": -1,
            "parameters": { "user": "a" }, "ctime": DateTime::MIN, "mtime": 0,
            "stdout": Bson::Null, "stderr": Bson::Null,
        }
    }

    fn with_ours(ours: Document) -> Document {
        let mut document = task();
        document.insert("windlass", ours);
        document
    }

    #[test]
    fn a_task_as_another_program_wrote_it() {
        let read = Task::read(&task()).unwrap();
        assert_eq!((read.status, read.node, read.boot), (-2, None, None));
        assert_eq!(read.params, Ok(doc! { "user": "a" }));
        assert_eq!((read.attempt, read.retries, read.cancel), (0, 0, false));
    }

    #[test]
    fn a_task_with_everything_of_ours() {
        let after = ObjectId::new();
        let read = Task::read(&with_ours(doc! {
            "boot": "b", "run": "r", "cancel": true, "attempt": 1, "retries": 2_i64,
            "timeout": 3.0, "not_before": DateTime::MIN, "after": [after],
        }))
        .unwrap();
        assert_eq!((read.boot.as_deref(), read.run.as_deref()), (Some("b"), Some("r")));
        assert_eq!((read.cancel, read.attempt, read.retries), (true, 1, 2));
        assert_eq!((read.timeout_seconds, read.after), (Some(3), vec![after]));
        assert_eq!(read.not_before, Some(DateTime::MIN));
    }

    #[test]
    fn arguments_have_two_names_and_may_be_odd() {
        let mut document = task();
        document.remove("parameters");
        assert_eq!(Task::read(&document).unwrap().params, Ok(doc! {}));
        document.insert("params", doc! { "b": 1 });
        assert_eq!(Task::read(&document).unwrap().params, Ok(doc! { "b": 1 }));
        document.insert("params", "text");
        let odd = Task::read(&document).unwrap().params.unwrap_err();
        assert_eq!(odd.to_string(), "`params` is a string, and must be a document");
    }

    #[test]
    fn every_field_may_have_every_type() {
        let values = [
            Bson::Null,
            Bson::Undefined,
            Bson::Int64(i64::MAX),
            Bson::Double(1.5),
            Bson::from("x"),
            Bson::Boolean(false),
            Bson::from(vec![1]),
            Bson::from(doc! { "a": 1 }),
            Bson::from(DateTime::MIN),
            Bson::from(ObjectId::new()),
        ];
        let ours = [
            "boot",
            "run",
            "last",
            "cancel",
            "attempt",
            "retries",
            "timeout",
            "not_before",
            "after",
        ];
        for value in &values {
            for field in task().keys().map(String::as_str).chain(["params", "windlass"]) {
                let mut document = task();
                document.insert(field, value.clone());
                if let Err(odd) = Task::read(&document) {
                    assert_eq!(odd.field, field, "{value}");
                }
            }
            for field in ours {
                if let Err(odd) = Task::read(&with_ours(doc! { field: value.clone() })) {
                    assert_eq!(odd.field, format!("windlass.{field}"), "{value}");
                }
            }
        }
        for field in ["_id", "queue", "status", "node", "windlass"] {
            let mut document = task();
            document.insert(field, true);
            assert_eq!(Task::read(&document).unwrap_err().field, field);
        }
    }
}
