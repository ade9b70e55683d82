//! `windlass handler …`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use windlass_core::Lang;
use windlass_core::limit::HANDLER_BYTES_MAX;

use super::http::{Daemon, type_name};
use super::{Show, cell, cell_if_there, items, when};
use crate::cli::{Handler, HandlerGet, HandlerSet, Run};
use crate::output::{self, Table, long, text};
use crate::{Usage, output::plain};

/// Stands for standard input in place of a file.
const STANDARD_INPUT: &str = "-";

pub(super) async fn run(daemon: &Daemon, show: Show, command: Handler) -> anyhow::Result<()> {
    match command {
        Handler::Set(set) => put(daemon, show, &set).await,
        Handler::Get(wanted) => get(daemon, show, &wanted).await,
        Handler::List => list(daemon, show).await,
        Handler::Rm { name } => {
            let answer = daemon.delete(&daemon.path(&["handlers", type_name(&name)?])).await?;
            show.answer(&answer, || format!("{} has no handler any more\n", plain(&name)))
        }
    }
}

async fn put(daemon: &Daemon, show: Show, set: &HandlerSet) -> anyhow::Result<()> {
    let path = daemon.path(&["handlers", type_name(&set.name)?]);
    let answer = daemon.put(&path, &wire(set)?).await?;
    show.answer(&answer, || {
        format!("{} has a new handler, version {}\n", plain(&set.name), cell(&answer["id"]))
    })
}

/// A handler that is tried once on each payload.
pub(crate) fn trial(run: &Run) -> anyhow::Result<Value> {
    let lang = lang(run.lang.as_deref(), Some(&run.file))?;
    let mut options = Map::new();
    put_if_given(&mut options, "timeout", &run.timeout);
    options.insert("env".into(), Value::Object(environment(&run.env)?));
    options.insert("retry".into(), json!({ "attempts": 1 }));
    Ok(json!({ "lang": lang.as_str(), "body": body(lang, source(&run.file)?), "options": options }))
}

/// The handler as the daemon takes it; what was not given is left out.
fn wire(set: &HandlerSet) -> anyhow::Result<Value> {
    let lang = lang(set.lang.as_deref(), set.file.as_deref())?;
    let text = match (&set.body, &set.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => source(file)?,
        (None, None) => unreachable!("the command line asks for one of them"),
    };
    let mut handler = Map::new();
    handler.insert("lang".into(), lang.as_str().into());
    handler.insert("body".into(), body(lang, text).into());
    let scripts =
        [("before", &set.before), ("beforeEach", &set.before_each), ("afterEach", &set.after_each)];
    for (name, file) in scripts {
        if let Some(file) = file {
            handler.insert(name.into(), source(file)?.into());
        }
    }
    put_if_given(&mut handler, "eid", &set.eid);
    let options = options(set)?;
    if !options.is_empty() {
        handler.insert("options".into(), Value::Object(options));
    }
    Ok(Value::Object(handler))
}

/// A URL or a command line in a file ends with the newline of its editor.
fn body(lang: Lang, text: String) -> String {
    if matches!(lang, Lang::Http | Lang::Exec) { text.trim().to_owned() } else { text }
}

fn options(set: &HandlerSet) -> anyhow::Result<Map<String, Value>> {
    let mut retry = Map::new();
    put_if_given(&mut retry, "delay", &set.retry_delay);
    put_if_given(&mut retry, "factor", &set.retry_factor);
    put_if_given(&mut retry, "delay_max", &set.retry_delay_max);
    put_if_given(&mut retry, "attempts", &set.retry_attempts);
    put_if_given(&mut retry, "age", &set.retry_age);
    let env = environment(&set.env)?;
    let mut options = Map::new();
    put_if_given(&mut options, "timeout", &set.timeout);
    put_if_given(&mut options, "batch", &set.batch);
    put_if_given(&mut options, "contexts", &set.contexts);
    put_if_given(&mut options, "context_jobs", &set.context_jobs);
    put_if_given(&mut options, "idle", &set.idle);
    for (name, map) in [("env", env), ("retry", retry)] {
        if !map.is_empty() {
            options.insert(name.into(), Value::Object(map));
        }
    }
    Ok(options)
}

fn environment(pairs: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut env = Map::new();
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            bail!(Usage(format!("--env takes NAME=VALUE, not '{}'", plain(pair))));
        };
        env.insert(name.into(), value.into());
    }
    Ok(env)
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

/// The language that was named, or that the ending of the file stands for.
fn lang(named: Option<&str>, file: Option<&Path>) -> anyhow::Result<Lang> {
    if let Some(name) = named {
        return Lang::parse(name).map_err(|why| Usage(format!("--lang: {}", why.reason)).into());
    }
    let ending = file.and_then(Path::extension).and_then(|ending| ending.to_str());
    match ending {
        Some("js" | "cjs" | "mjs") => Ok(Lang::Node),
        Some("py") => Ok(Lang::Python),
        Some("php") => Ok(Lang::Php),
        Some("sh") => Ok(Lang::Sh),
        _ => {
            let known: Vec<_> = Lang::ALL.iter().map(|lang| lang.as_str()).collect();
            let known = known.join(", ");
            bail!(Usage(format!("name the language with --lang: one of {known}")))
        }
    }
}

fn source(file: &Path) -> anyhow::Result<String> {
    let mut source = String::new();
    let bound = HANDLER_BYTES_MAX as u64 + 1;
    let read = if file == Path::new(STANDARD_INPUT) {
        std::io::stdin().lock().take(bound).read_to_string(&mut source)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(bound).read_to_string(&mut source))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    if source.len() > HANDLER_BYTES_MAX {
        bail!("{} has more than {HANDLER_BYTES_MAX} bytes", file.display());
    }
    Ok(source)
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
            ("created", when::both(&handler["created_at"], when::now())),
            ("eid", cell_if_there(&handler["eid"])),
            ("options", (!options.is_empty()).then(|| options.join(" "))),
        ]);
        for name in ["before", "beforeEach", "body", "afterEach"] {
            if let Some(source) = handler[name].as_str() {
                shown.push_str(&format!("\n--- {name}\n{}\n", source.trim_end_matches('\n')));
            }
        }
        shown
    })
}

/// `timeout=5s retry.attempts=3`: what is set, and nothing else.
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
            body.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    let empty = format!("{} has no handlers; set one with `windlass handler set`", daemon.tenant());
    show.table(&answer, table, &empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Action, Cli};
    use clap::Parser;

    fn set(arguments: &[&str]) -> HandlerSet {
        let line = ["windlass", "handler", "set", "t"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).unwrap();
        let Action::Handler(Handler::Set(set)) = cli.command else { panic!("another command") };
        *set
    }

    fn lang_of(arguments: &[&str]) -> anyhow::Result<Lang> {
        let set = set(arguments);
        lang(set.lang.as_deref(), set.file.as_deref())
    }

    #[test]
    fn the_language_follows_from_the_ending() {
        for (file, expected) in
            [("a.js", Lang::Node), ("a.py", Lang::Python), ("a.php", Lang::Php), ("a.sh", Lang::Sh)]
        {
            assert_eq!(lang_of(&[file]).unwrap(), expected);
        }
        assert_eq!(lang_of(&["a.js", "--lang", "sh"]).unwrap(), Lang::Sh);
        for arguments in [&["a.txt"][..], &["-"], &["--body", "x"], &["a.js", "--lang", "perl"]] {
            assert!(lang_of(arguments).unwrap_err().is::<Usage>(), "{arguments:?}");
        }
    }

    #[test]
    fn only_what_was_given_is_sent() {
        let plain = wire(&set(&["--body", " http://x ", "--lang", "http"])).unwrap();
        assert_eq!(plain, json!({ "lang": "http", "body": "http://x" }));
        let full = ["--body", "true", "--lang", "sh", "--timeout", "5s", "--env", "A=b=c"];
        let retry = ["--retry-attempts", "3", "--retry-factor", "1.5", "--batch", "2"];
        let full = wire(&set(&[&full[..], &retry[..]].concat())).unwrap();
        let options = json!({
            "timeout": "5s",
            "batch": 2,
            "env": { "A": "b=c" },
            "retry": { "attempts": 3, "factor": 1.5 },
        });
        assert_eq!(full, json!({ "lang": "sh", "body": "true", "options": options }));
    }
}
