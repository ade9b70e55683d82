//! `Query`: SQL on the jobs of the door's tenant, for people and tools that inspect or repair the
//! queue. Only SQL stores support it.

use std::time::Duration;

use windlass_core::key::Right;
use windlass_core::store::sql::{SqlAnswer, SqlValue};

use crate::execute::Reply;
use crate::wire::json::{Object, array, quoted};
use crate::wire::{Request, Response};

use super::{Bedrock, Refusal};

/// Longest statement.
const SQL_BYTES_MAX: usize = 1024 * 1024;
/// Default time limit of a statement, unless `processTimeout` is given.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Words of SQL without which a statement changes nothing.
const WRITES: [&[u8]; 4] = [b"insert", b"update", b"delete", b"replace"];

/// One of these words in a text or a name counts, too: an entry too many does no harm.
pub(super) fn needs(request: &Request) -> Right {
    let text = statement(request).as_bytes();
    if text.len() > SQL_BYTES_MAX {
        return Right::Read;
    }
    let has = |word: &[u8]| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    if WRITES.iter().any(|word| has(word)) { Right::Manage } else { Right::Read }
}

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let text = statement(request);
    if text.is_empty() || text.len() > SQL_BYTES_MAX {
        return Err((402, "Missing query").into());
    }
    if !text.ends_with(';') {
        return Err((502, "Query Missing Semicolon").into());
    }
    let nowhere = request.header("nowhere") == Some("true");
    let patience = request.header("processTimeout").and_then(|ms| ms.parse().ok());
    let patience = patience.map_or(PATIENCE, Duration::from_millis).min(PATIENCE_MAX);
    let answer = door.engine.query(&door.tenant, text.to_owned(), nowhere, patience).await?;
    Ok(response(request, answer).into())
}

/// The SQL: after the verb in the method line, or in a header.
fn statement(request: &Request) -> &str {
    let line = request.method_line();
    let in_line = line.split_once(':').map(|(_, sql)| sql.trim()).filter(|sql| !sql.is_empty());
    in_line.unwrap_or_else(|| request.header("query").unwrap_or_default().trim())
}

fn response(request: &Request, answer: SqlAnswer) -> Response {
    match answer {
        SqlAnswer::Rows { columns, rows } => Response::text(table(request, &columns, &rows)),
        SqlAnswer::Wrote { last_id: Some(id), .. } => {
            Response::ok().with_header("lastInsertRowID", id.to_string())
        }
        SqlAnswer::Wrote { last_id: None, .. } => Response::ok(),
        SqlAnswer::Bad(message) => {
            let first_line = message.lines().next().unwrap_or_default().to_owned();
            Response::error(402, "Bad query").with_header("error", first_line).with_body(message)
        }
        SqlAnswer::Aborted => Response::error(502, "Query aborted"),
        SqlAnswer::Failed(why) => Response::error(502, "Query failed").with_header("error", why),
        SqlAnswer::TimedOut => Response::error(555, "Timeout processing command"),
    }
}

/// Rows in one of three forms.
fn table(request: &Request, columns: &[String], rows: &[Vec<SqlValue>]) -> String {
    let is = |name, value: &str| {
        request.header(name).is_some_and(|given| given.eq_ignore_ascii_case(value))
    };
    if is("Format", "json") {
        return headers_and_rows(columns, rows);
    }
    let flags = request.header("ReadDBFlags").unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag.eq_ignore_ascii_case("-json")) {
        return shell_json(columns, rows);
    }
    list(columns, rows)
}

fn list(columns: &[String], rows: &[Vec<SqlValue>]) -> String {
    let mut out = columns.join("|");
    out.push('\n');
    for row in rows {
        let values: Vec<String> = row.iter().map(plain).collect();
        out.push_str(&values.join("|"));
        out.push('\n');
    }
    out
}

fn headers_and_rows(columns: &[String], rows: &[Vec<SqlValue>]) -> String {
    let headers = array(columns.iter().map(|column| quoted(column)));
    let row = |row: &Vec<SqlValue>| array(row.iter().map(|value| json_by_look(&plain(value))));
    let rows = array(rows.iter().map(row));
    Object::new().raw("headers", headers).raw("rows", rows).compose()
}

fn json_by_look(text: &str) -> String {
    crate::wire::json::text(text)
}

/// As the SQLite shell writes it: nothing at all if there are no rows.
fn shell_json(columns: &[String], rows: &[Vec<SqlValue>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let row = |row: &Vec<SqlValue>| {
        let members: Vec<String> = columns
            .iter()
            .zip(row)
            .map(|(column, value)| format!("{}:{}", shell_quoted(column), shell_value(value)))
            .collect();
        format!("{{{}}}", members.join(","))
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("[{}]\n", rows.join(",\n"))
}

fn shell_value(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "null".into(),
        SqlValue::Integer(_) | SqlValue::Real(_) => plain(value),
        SqlValue::Text(_) | SqlValue::Blob(_) => shell_quoted(&plain(value)),
    }
}

fn shell_quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn plain(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => String::new(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            format!("{number:.1}")
        }
        SqlValue::Real(number) => number.to_string(),
        SqlValue::Text(text) => text.clone(),
        SqlValue::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<String> {
        ["a", "b", "c"].map(String::from).into()
    }

    fn row() -> Vec<SqlValue> {
        vec![SqlValue::Integer(1), SqlValue::Text("x/y".into()), SqlValue::Null]
    }

    #[test]
    fn rows_come_in_three_forms() {
        assert_eq!(list(&columns(), &[row()]), "a|b|c\n1|x/y|\n");
        assert_eq!(shell_json(&columns(), &[row()]), "[{\"a\":1,\"b\":\"x/y\",\"c\":null}]\n");
        let both = headers_and_rows(&columns(), &[row()]);
        assert_eq!(both, r#"{"headers":["a","b","c"],"rows":[[1,"x\/y",""]]}"#);
    }

    #[test]
    fn no_rows_are_a_head_line_or_nothing() {
        assert_eq!(list(&columns(), &[]), "a|b|c\n");
        assert_eq!(shell_json(&columns(), &[]), "");
        assert_eq!(headers_and_rows(&columns(), &[]), r#"{"headers":["a","b","c"],"rows":[]}"#);
    }
}
