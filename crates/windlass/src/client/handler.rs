//! `windlass handler …`.

use anyhow::bail;
use serde_json::{Map, Value};

use windlass_core::Lang;

use super::http::{Daemon, type_name};
use super::{Show, cell, cell_if_there, items, load, when};
use crate::cli::{Handler, HandlerGet, HandlerSet};
use crate::output::{self, Table, long, text};
use crate::source;
use crate::{Usage, output::plain};

pub(super) async fn run(daemon: &Daemon, show: Show, command: Handler) -> anyhow::Result<()> {
    match command {
        Handler::Set(set) => put(daemon, show, &set).await,
        Handler::Get(wanted) => get(daemon, show, &wanted).await,
        Handler::List => list(daemon, show).await,
        Handler::Rm { name } => {
            let answer = daemon.delete(&daemon.path(&["handlers", type_name(&name)?])).await?;
            show.answer(&answer, || format!("the handler of {} was removed\n", plain(&name)))
        }
    }
}

async fn put(daemon: &Daemon, show: Show, set: &HandlerSet) -> anyhow::Result<()> {
    let path = daemon.path(&["handlers", type_name(&set.name)?]);
    let answer = daemon.put(&path, &wire(set)?).await?;
    warn(&answer);
    show.answer(&answer, || {
        format!("{} has a new handler, version {}\n", plain(&set.name), cell(&answer["id"]))
    })
}

/// Shows what jobs of a new handler will fail for.
pub(super) fn warn(answer: &Value) {
    for warning in items(answer, "warnings") {
        output::note(&format!("warning: {}\n", plain(&cell(warning))));
    }
}

/// The handler in wire form: the file's options, overridden by flags.
fn wire(set: &HandlerSet) -> anyhow::Result<Value> {
    let (lang, mut handler) = match (&set.body, &set.file) {
        (None, Some(file)) => load::file(file, set.lang.as_deref())?,
        (body, _) => {
            let Some(name) = &set.lang else {
                let known = Lang::ALL.map(Lang::as_str).join(", ");
                bail!(Usage(format!("--body needs --lang, one of {known}")));
            };
            let lang = load::lang(name)?;
            (lang, load::from_text(lang, body.clone().unwrap_or_default(), "--body")?)
        }
    };
    let scripts =
        [("before", &set.before), ("beforeEach", &set.before_each), ("afterEach", &set.after_each)];
    for (name, file) in scripts {
        if let Some(file) = file {
            handler.insert(name.into(), load::script(lang, file)?.into());
        }
    }
    put_if_given(&mut handler, "eid", &set.eid);
    let options = load::group(&mut handler, "options");
    add_options(set, options)?;
    if options.is_empty() {
        handler.remove("options");
    }
    Ok(Value::Object(handler))
}

fn add_options(set: &HandlerSet, options: &mut Map<String, Value>) -> anyhow::Result<()> {
    put_if_given(options, "timeout", &set.timeout);
    put_if_given(options, "batch", &set.batch);
    put_if_given(options, "contexts", &set.contexts);
    put_if_given(options, "context_jobs", &set.context_jobs);
    put_if_given(options, "idle", &set.idle);
    put_if_given(options, "memory", &set.memory);
    put_if_given(options, "cpu", &set.cpu);
    put_if_given(options, "processes", &set.processes);
    put_if_given(options, "file_size", &set.file_size);
    put_if_given(options, "scratch", &set.scratch);
    if let Some(text) = &set.network {
        let network = source::network(text).map_err(|why| Usage(format!("--network: {why}")))?;
        options.insert("network".into(), network);
    }
    load::environment(&set.env, options)?;
    if !set.secret.is_empty() {
        options.insert("secrets".into(), set.secret.clone().into());
    }
    let retry = load::group(options, "retry");
    put_if_given(retry, "delay", &set.retry_delay);
    put_if_given(retry, "factor", &set.retry_factor);
    put_if_given(retry, "delay_max", &set.retry_delay_max);
    put_if_given(retry, "attempts", &set.retry_attempts);
    put_if_given(retry, "age", &set.retry_age);
    if retry.is_empty() {
        options.remove("retry");
    }
    Ok(())
}

fn put_if_given<T: Clone + Into<Value>>(
    map: &mut Map<String, Value>,
    name: &str,
    value: &Option<T>,
) {
    if let Some(value) = value {
        map.insert(name.into(), value.clone().into());
    }
}

async fn get(daemon: &Daemon, show: Show, wanted: &HandlerGet) -> anyhow::Result<()> {
    let path = daemon.path(&["handlers", type_name(&wanted.name)?]);
    let version = wanted.handler_version.as_deref().map(|id| ("version", id));
    let handler = daemon.get(&path, version.as_slice()).await?;
    show.answer(&handler, || {
        let mut options = Vec::new();
        flatten("", &handler["options"], &mut options);
        let mut shown = output::pairs(&[
            ("type", Some(wanted.name.clone())),
            ("lang", cell_if_there(&handler["lang"])),
            ("version", cell_if_there(&handler["id"])),
            ("created", when::absolute_and_relative(&handler["created_at"], when::now())),
            ("eid", cell_if_there(&handler["eid"])),
            ("options", (!options.is_empty()).then(|| options.join(" "))),
        ]);
        for name in ["before", "beforeEach", "body", "afterEach"] {
            if let Some(source) = handler[name].as_str() {
                shown.push_str(&format!("\n--- {name}\n{}\n", source.trim_matches('\n')));
            }
        }
        shown
    })
}

/// `timeout=5s retry.attempts=3`: only the options that are set.
fn flatten(prefix: &str, value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, value) in map {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(&format!("{prefix}{dot}{name}"), value, into);
            }
        }
        other => into.push(format!("{prefix}={}", cell(other))),
    }
}

async fn list(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let answer = daemon.get(&daemon.path(&["handlers"]), &[]).await?;
    let now = when::now();
    let mut table =
        Table::new(&[long("TYPE"), text("LANG"), text("VERSION"), text("CREATED"), long("BODY")]);
    for handler in items(&answer, "handlers") {
        let body = handler["body"].as_str().unwrap_or_default();
        table.row(vec![
            cell(&handler["type"]),
            cell(&handler["lang"]),
            cell(&handler["id"]),
            when::ago(&handler["created_at"], now),
            first_line(body).to_owned(),
        ]);
    }
    let empty = format!("{} has no handlers; set one with `windlass handler set`", daemon.tenant());
    show.table(&answer, table, &empty)
}

/// The first line with content.
fn first_line(body: &str) -> &str {
    let mut lines = body.lines().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.starts_with("#!")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Action, Cli};
    use clap::Parser;
    use serde_json::json;

    fn set(arguments: &[&str]) -> HandlerSet {
        let line = ["windlass", "handler", "set", "t"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).unwrap();
        let Action::Handler(Handler::Set(set)) = cli.command else { panic!("another command") };
        *set
    }

    #[test]
    fn a_body_on_the_command_line_names_its_language() {
        for arguments in [&["--body", "x"][..], &["--body", "x", "--lang", "perl"]] {
            assert!(wire(&set(arguments)).unwrap_err().is::<Usage>(), "{arguments:?}");
        }
    }

    #[test]
    fn flags_win_over_the_comment_of_the_source() {
        let body =
            "# windlass: timeout=1s batch=3 retry.delay=1s env.A=1 env.B=2 network=none\ntrue\n";
        let flags = ["--timeout", "2s", "--env", "B=3", "--retry-attempts", "4"];
        let handler = wire(&set(&[&["--lang", "sh", "--body", body], &flags[..]].concat()));
        let options = json!({
            "timeout": "2s",
            "batch": 3,
            "env": { "A": "1", "B": "3" },
            "network": "none",
            "retry": { "delay": "1s", "attempts": 4 },
        });
        assert_eq!(handler.unwrap()["options"], options);
    }

    #[test]
    fn only_what_was_given_is_sent() {
        let plain = wire(&set(&["--body", " http://x ", "--lang", "http"])).unwrap();
        assert_eq!(plain, json!({ "lang": "http", "body": "http://x" }));
        let full = ["--body", "true", "--lang", "sh", "--timeout", "5s", "--env", "A=b=c"];
        let retry = ["--retry-attempts", "3", "--retry-factor", "1.5", "--batch", "2"];
        let walls = ["--scratch", "64MB", "--network", "10.1.2.0/24:5432, db.internal"];
        let full = wire(&set(&[&full[..], &retry[..], &walls[..]].concat())).unwrap();
        let options = json!({
            "timeout": "5s",
            "batch": 2,
            "env": { "A": "b=c" },
            "retry": { "attempts": 3, "factor": 1.5 },
            "scratch": "64MB",
            "network": ["10.1.2.0/24:5432", "db.internal"],
        });
        assert_eq!(full, json!({ "lang": "sh", "body": "true", "options": options }));
    }
}
