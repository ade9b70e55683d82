//! Formats answers.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::http::ServerAnswer;
use super::table::{lines, one_line, table};
use super::{Command, Failure, OutputFormat};
use crate::status;

pub(super) fn answer(
    command: &Command,
    answer: &ServerAnswer,
    form: OutputFormat,
) -> Result<String, Failure> {
    if form == OutputFormat::Json {
        return Ok(format!("{:#}\n", answer.value));
    }
    let value = &answer.value;
    let shown = match command {
        Command::Plugins => plugins(value),
        Command::Queues => queues(value),
        Command::Nodes => nodes(value),
        Command::CreateQueue { name, .. } => {
            value.get("id").map(|id| format!("Created queue {}: {}\n", one_line(name), text(id)))
        }
        Command::UpdateQueue { queue, fields } => updated(value, "queue", queue, fields),
        Command::UpdateNode { node, fields } => updated(value, "node", node, fields),
        Command::DeleteQueue { queue, .. } => {
            let deleted = value["MongoDB::DeleteResult"]["deleted_count"] == 1;
            deleted.then(|| format!("Deleted queue {}\n", one_line(queue)))
        }
        Command::CreateTask { queue, .. } | Command::CreateTasks { queue, .. } => {
            created(value, queue)
        }
        Command::Tasks(which) if which.count => {
            value.get("count").map(|count| format!("{} tasks\n", text(count)))
        }
        Command::Tasks(_) if form == OutputFormat::Piped => {
            Some(format!("{}\n", answer.text.trim_end()))
        }
        Command::Tasks(_) => tasks(value),
        Command::Task { .. } => value.as_object().map(task),
        Command::Cancel { id } if answer.status == reqwest::StatusCode::ACCEPTED => {
            Some(format!("Task {} is being ended\n", one_line(id)))
        }
        Command::Cancel { id } => Some(format!("Cancelled task {}\n", one_line(id))),
        Command::Retry { id } => Some(format!("Queued task {} again\n", one_line(id))),
    };
    let odd = || format!("the server answered something else: {}", one_line(&answer.text));
    shown.ok_or_else(|| Failure::Failed(odd()))
}

fn plugins(value: &Value) -> Option<String> {
    let names = value.as_array()?.iter().map(|name| format!("{}\n", one_line(&text(name))));
    Some(names.collect())
}

fn queues(value: &Value) -> Option<String> {
    let queues = value.as_array()?;
    // The dialects use different names for some.
    const HEADS: [(&str, &[&str]); 8] = [
        ("ID", &["id"]),
        ("Plugin", &["plugin", "constructor"]),
        ("Name", &["name"]),
        ("Threads", &["threads", "maxthreads"]),
        ("Queued", &["queued"]),
        ("Running", &["running"]),
        ("Completed", &["completed"]),
        ("Orphaned", &["orphaned"]),
    ];
    // The original has no such column: it counts orphaned tasks as queued.
    let orphaned = queues.iter().any(|queue| queue["orphaned"].as_u64().is_some_and(|n| n > 0));
    let heads = if orphaned { &HEADS[..] } else { &HEADS[..HEADS.len() - 1] };
    let cell = |queue: &Value, keys: &[&str]| {
        let values = keys.iter().filter_map(|key| queue.get(*key));
        values.into_iter().find(|value| !value.is_null()).map(text).unwrap_or_default()
    };
    let row = |queue: &Value| heads.iter().map(|(_, keys)| cell(queue, keys)).collect();
    let rows: Vec<Vec<String>> = queues.iter().map(row).collect();
    let heads: Vec<&str> = heads.iter().map(|(head, _)| *head).collect();
    let table = table(&heads, &rows);
    Some(format!("{table}\n{} total queues.\n", queues.len()))
}

fn nodes(value: &Value) -> Option<String> {
    // The draft of 2016 wraps the list.
    let nodes = value.get("nodes").unwrap_or(value).as_array()?;
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            let live = match node.get("live").and_then(Value::as_bool) {
                Some(true) => "yes",
                Some(false) => "no",
                None => "",
            };
            let cell = |key| node.get(key).map(text).unwrap_or_default();
            let seen = node.get("timestamp").map(time).unwrap_or_default();
            vec![cell("node"), cell("maxthreads"), live.into(), seen]
        })
        .collect();
    let table = table(&["Node", "Max threads", "Live", "Last seen"], &rows);
    Some(format!("{table}\n{} total nodes.\n", nodes.len()))
}

fn updated(value: &Value, what: &str, name: &str, fields: &[(String, String)]) -> Option<String> {
    let modified = value["MongoDB::UpdateResult"]["modified_count"].as_u64()?;
    let word = if modified > 0 { "Updated" } else { "No change to" };
    let fields = fields.iter().map(|(field, value)| (field.clone(), value.as_str().into()));
    let fields = Value::Object(fields.collect());
    Some(format!("{word} {what} {}: {fields}\n", one_line(name)))
}

fn created(value: &Value, queue: &str) -> Option<String> {
    let result = &value["MongoDB::InsertManyResult"];
    let inserted = result["inserted"].as_array()?;
    // A long answer lists only the first ids.
    let count = result["inserted_count"].as_u64().unwrap_or(inserted.len() as u64);
    let head = format!("Created {count} tasks in queue {}\n", one_line(queue));
    let ids = inserted.iter().map(|one| format!("{}\n", text(&one["_id"])));
    Some(head + &ids.collect::<String>())
}

fn tasks(value: &Value) -> Option<String> {
    // A single task comes without a list, and no task as an empty object.
    let found = match value {
        Value::Array(list) => list.as_slice(),
        Value::Object(fields) if fields.is_empty() => &[],
        Value::Object(_) => std::slice::from_ref(value),
        _ => return None,
    };
    let row = |task: &Value| {
        let cell = |key| task.get(key).map(text).unwrap_or_default();
        let status = task.get("status").map(status_word).unwrap_or_default();
        let id = task.get("_id").or(task.get("id")).map(text).unwrap_or_default();
        vec![id, cell("queue"), status, cell("node"), cell("ctime"), cell("mtime")]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let table = table(&["ID", "Queue", "Status", "Node", "Created", "Changed"], &rows);
    Some(format!("{table}\n{} tasks.\n", found.len()))
}

/// One field per line, followed by its output.
fn task(fields: &Map<String, Value>) -> String {
    const OUTPUT: [&str; 2] = ["stdout", "stderr"];
    let width = fields.keys().map(|key| key.chars().count()).max().unwrap_or_default();
    let plain = fields.iter().filter(|(key, _)| !OUTPUT.contains(&key.as_str()));
    let mut shown: String = plain
        .map(|(key, value)| {
            let value = if key == "status" { status_word(value) } else { text(value) };
            format!("{:width$}  {}\n", one_line(key), one_line(&value))
        })
        .collect();
    for name in OUTPUT {
        if let Some(output) = fields.get(name).filter(|output| !output.is_null()) {
            let output = lines(&text(output));
            shown.push_str(&format!(
                "\n{name}:\n{}\n",
                output.strip_suffix('\n').unwrap_or(&output)
            ));
        }
    }
    shown
}

/// Text without quotes, ids without their wrapper, nothing for null.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => match fields.get("$oid").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None => value.to_string(),
        },
        _ => value.to_string(),
    }
}

/// A time in milliseconds in readable form; text stays as it is.
fn time(value: &Value) -> String {
    let at = value.as_i64().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| text(value), |at| format!("{at:.0}"))
}

fn status_word(value: &Value) -> String {
    let Some(code) = value.as_i64() else { return text(value) };
    let word = match i32::try_from(code) {
        Ok(status::ORPHANED) => "orphaned",
        Ok(status::CANCELLED) => "cancelled",
        Ok(status::BLOCKED) => "blocked",
        Ok(status::QUEUED) => "queued",
        Ok(status::CLAIMED) => "claimed",
        Ok(status::RUNNING) => "running",
        Ok(status::SUCCEEDED) => "succeeded",
        Ok(status::FAILED..) => "failed",
        _ => return code.to_string(),
    };
    format!("{code} {word}")
}
