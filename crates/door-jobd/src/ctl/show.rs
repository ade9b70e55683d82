//! Formats answers. Pure; works for an answer of any shape.

use super::command::{Command, Mode};
use super::table::{one_line, table};
use crate::wire::{Json, Object};

/// The output of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// Logged as a warning before the text.
    pub(crate) warnings: Vec<String>,
    /// Whether part of the request failed.
    pub(crate) failed: bool,
}

pub(crate) fn show(command: Command, data: &Json) -> Shown {
    match command {
        Command::ListTargets => plain(targets(data)),
        Command::ListWorkers => workers(data),
        Command::MemoryUsage(mode) => plain(memory(mode, data)),
        Command::RunManual(_) => manual(data),
        Command::SendSignal(_) => signals(data),
        Command::ForTargets(_) | Command::SetConcurrency(_) | Command::RemoveTarget => {
            plain(data.js_string())
        }
    }
}

fn plain(text: String) -> Shown {
    Shown { text, ..Shown::default() }
}

/// The cells of a target after its name.
fn target_cells(state: &Json) -> [String; 3] {
    let paused = state.get("paused").is_some_and(Json::is_truthy);
    let paused = if paused { "yes" } else { "no" };
    [cell(state.get("concurrency")), cell(state.get("length")), paused.to_owned()]
}

fn targets(data: &Json) -> String {
    let row = |(name, state): (&str, &Json)| {
        let mut row = vec![one_line(name)];
        row.extend(target_cells(state));
        row
    };
    let rows: Vec<_> = entries(data.get("targets")).map(row).collect();
    table(&["target", "concurrency", "length", "paused"], &rows)
}

fn memory(mode: Mode, data: &Json) -> String {
    let mut rows: Vec<_> = entries(data.get("memoryUsage"))
        .map(|(what, value)| vec![one_line(what), cell(Some(value))])
        .collect();
    if mode == Mode::Worker {
        rows.push(vec!["pendingJobPromises".to_owned(), cell(data.get("jobPromisesCount"))]);
    }
    table(&["what", "value"], &rows)
}

fn workers(data: &Json) -> Shown {
    let (mut rows, mut warnings) = (Vec::new(), Vec::new());
    for worker in data.get("workers").and_then(Json::as_array).unwrap_or_default() {
        let (name, address) = (cell(worker.get("name")), cell(worker.get("remoteAddr")));
        let mut lines: [Vec<String>; 4] = Default::default();
        if let Some(status) = worker.get("workerStatus") {
            for (target, state) in entries(status.get("targets")) {
                lines[0].push(one_line(target));
                for (line, cell) in lines[1..].iter_mut().zip(target_cells(state)) {
                    line.push(cell);
                }
            }
        } else {
            let known = worker.get("targets").and_then(Json::as_array).unwrap_or_default();
            lines[0].extend(known.iter().map(|target| cell(Some(target))));
            let error = cell(worker.get("workerStatusError"));
            warnings.push(format!("{name} ({address}): {error}"));
        }
        let mut row = vec![format!("{name}\n({address})")];
        row.extend(lines.map(|lines| lines.join("\n")));
        rows.push(row);
    }
    let text = table(&["worker", "targets", "concurrency", "length", "paused"], &rows);
    Shown { text, warnings, failed: false }
}

/// How jobs ended, then what they wrote.
fn manual(data: &Json) -> Shown {
    let (mut rows, mut output, mut failed) = (Vec::new(), String::new(), false);
    for (id, end) in entries(data.get("jobs")) {
        let id = one_line(id);
        failed |= end.get("result").and_then(Json::as_str) != Some("ok");
        let cells = ["result", "code", "signal"].map(|name| cell(end.get(name)));
        let mut row = vec![id.clone()];
        row.extend(cells);
        row.push(String::new());
        rows.push(row);
        for stream in ["stdout", "stderr"] {
            let text = end.get(stream).and_then(Json::as_str).unwrap_or_default();
            if !text.is_empty() {
                output += &format!("\n\njob {id} {stream}:\n{}", text.trim_end_matches('\n'));
            }
        }
    }
    for (id, error) in entries(data.get("errors")) {
        failed = true;
        let mut row = vec![one_line(id)];
        row.extend([String::new(), String::new(), String::new(), cell(Some(error))]);
        rows.push(row);
    }
    let text = table(&["job", "result", "code", "signal", "error"], &rows) + &output;
    Shown { text, failed, ..Shown::default() }
}

fn signals(data: &Json) -> Shown {
    let (mut rows, mut failed) = (Vec::new(), false);
    for (id, sent) in entries(Some(data)).filter(|(name, _)| *name != "errors") {
        failed |= !sent.is_truthy();
        let sent = if sent.is_truthy() { "yes" } else { "no" };
        rows.push(vec![one_line(id), sent.to_owned(), String::new()]);
    }
    for (id, error) in entries(data.get("errors")) {
        failed = true;
        rows.push(vec![one_line(id), String::new(), cell(Some(error))]);
    }
    let text = table(&["job", "sent", "error"], &rows);
    Shown { text, failed, ..Shown::default() }
}

fn entries(value: Option<&Json>) -> impl Iterator<Item = (&str, &Json)> {
    value.and_then(Json::as_object).into_iter().flat_map(Object::iter)
}

/// Empty for absent values.
fn cell(value: Option<&Json>) -> String {
    value
        .filter(|value| !value.is_null())
        .map(|value| one_line(&value.js_string()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: Command, data: &str) -> Shown {
        show(command, &serde_json::from_str(data).unwrap())
    }

    fn check(command: Command, data: &str, lines: &[&str]) {
        let shown = shown(command, data);
        assert_eq!(shown.text.split('\n').collect::<Vec<_>>(), lines);
    }

    #[test]
    fn targets_of_a_worker() {
        check(
            Command::ListTargets,
            r#"{"targets":{"low":{"paused":false,"concurrency":2,"length":0},
                "1/high":{"paused":true,"concurrency":3,"length":0}},"jobPromisesCount":0}"#,
            &[
                "TARGET | CONCURRENCY | LENGTH | PAUSED",
                "------ | ----------- | ------ | ------",
                "low    | 2           | 0      | no    ",
                "1/high | 3           | 0      | yes   ",
            ],
        );
    }

    #[test]
    fn memory_of_a_worker_and_of_a_master() {
        let data = r#"{"memoryUsage":{"rss":72421376,"heapTotal":1},"jobPromisesCount":4}"#;
        let lines = [
            "WHAT               | VALUE   ",
            "------------------ | --------",
            "rss                | 72421376",
            "heapTotal          | 1       ",
            "pendingJobPromises | 4       ",
        ];
        check(Command::MemoryUsage(Mode::Worker), data, &lines);
        let lines = [
            "WHAT      | VALUE   ",
            "--------- | --------",
            "rss       | 72421376",
            "heapTotal | 1       ",
        ];
        check(Command::MemoryUsage(Mode::Master), data, &lines);
    }

    #[test]
    fn workers_with_a_line_for_each_target_and_those_that_do_not_answer() {
        let data = r#"{"workers":[
            {"remoteAddr":"127.0.0.1","remotePort":1,"targets":["a","b"],"name":"srv-1",
             "workerStatus":{"targets":{"a":{"paused":false,"concurrency":2,"length":0},
                                        "b":{"paused":false,"concurrency":3,"length":0}}}},
            {"remoteAddr":"127.0.0.1","remotePort":2,"targets":["a"],"name":"srv-2-long-name",
             "workerStatus":{"targets":{"a":{"paused":false,"concurrency":2,"length":0}}}},
            {"remoteAddr":"127.0.0.1","remotePort":3,"targets":["c","d"],"name":"mute",
             "workerStatusError":"Socket is closed"},
            {"remoteAddr":"127.0.0.1","remotePort":4,"targets":null,"name":"all",
             "workerStatusError":"Socket is closed"}]}"#;
        let lines = [
            "WORKER          | TARGETS | CONCURRENCY | LENGTH | PAUSED",
            "--------------- | ------- | ----------- | ------ | ------",
            "srv-1           | a       | 2           | 0      | no    ",
            "(127.0.0.1)     | b       | 3           | 0      | no    ",
            "srv-2-long-name | a       | 2           | 0      | no    ",
            "(127.0.0.1)     |         |             |        |       ",
            "mute            | c       |             |        |       ",
            "(127.0.0.1)     | d       |             |        |       ",
            "all             |         |             |        |       ",
            "(127.0.0.1)     |         |             |        |       ",
        ];
        check(Command::ListWorkers, data, &lines);
        let warnings = shown(Command::ListWorkers, data).warnings;
        let mute = "mute (127.0.0.1): Socket is closed";
        assert_eq!(warnings, [mute, "all (127.0.0.1): Socket is closed"]);
    }

    #[test]
    fn ends_of_manual_jobs_with_their_output() {
        let command = Command::RunManual(Mode::Worker);
        let data = r#"{"jobs":{
            "1":{"result":"ok","code":0,"signal":null,"stdout":"out\n","stderr":"err\n"},
            "3":{"result":"fail","code":null,"signal":"SIGKILL","stdout":"","stderr":""}},
            "errors":{"4":"job 4 not found"}}"#;
        let lines = [
            "JOB | RESULT | CODE | SIGNAL  | ERROR          ",
            "--- | ------ | ---- | ------- | ---------------",
            "1   | ok     | 0    |         |                ",
            "3   | fail   |      | SIGKILL |                ",
            "4   |        |      |         | job 4 not found",
            "",
            "job 1 stdout:",
            "out",
            "",
            "job 1 stderr:",
            "err",
        ];
        check(command, data, &lines);
        assert!(shown(command, data).failed);
        assert!(shown(command, r#"{"errors":{"4":"job 4 not found"}}"#).failed);
        assert!(!shown(command, r#"{"jobs":{"1":{"result":"ok"}}}"#).failed);
    }

    #[test]
    fn signals_that_were_sent() {
        let command = Command::SendSignal(Mode::Master);
        let data = r#"{"5":true,"7":false,"errors":{"9":"worker serving target 'x' not found"}}"#;
        let lines = [
            "JOB | SENT | ERROR                              ",
            "--- | ---- | -----------------------------------",
            "5   | yes  |                                    ",
            "7   | no   |                                    ",
            "9   |      | worker serving target 'x' not found",
        ];
        check(command, data, &lines);
        assert!(shown(command, data).failed);
        assert!(!shown(command, r#"{"5":true}"#).failed);
    }

    #[test]
    fn actions_print_what_was_answered_and_nothing_breaks_on_odd_answers() {
        assert_eq!(shown(Command::ForTargets("poll"), r#""ok""#), plain("ok".to_owned()));
        for command in [Command::ListTargets, Command::ListWorkers, Command::RemoveTarget] {
            for data in ["null", "5", "[]", r#"{"targets":5,"workers":[1]}"#] {
                shown(command, data);
            }
        }
    }
}
