//! One case in several languages: its handler's source in each, and a daemon that runs it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};

use super::api::{Tenant, text};
use super::daemon::{Config, Daemon};
use windlass_test_kit::wait::until_seen as until;

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Generates one named test per language of each case: `fn name(t) { node: "source", python:
/// "source", } { what is checked }`. A source is the body, or an object with the handler's fields;
/// `t` is the [`Case`].
macro_rules! in_every_language {
    ($(
        $(#[$note:meta])*
        fn $name:ident($t:ident) { $($lang:ident: $source:expr),+ $(,)? } $check:block
    )+) => {
        $(
            $(#[$note])*
            mod $name {
                use super::*;

                fn check($t: &Case) $check

                $(
                    #[test]
                    fn $lang() {
                        check(&Case::new(stringify!($lang), $source));
                    }
                )+
            }
        )+
    };
}
pub(crate) use in_every_language;

/// A handler in one language.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) lang: &'static str,
    fields: Map<String, Value>,
}

impl Case {
    pub(crate) fn new(lang: &'static str, source: impl Into<Value>) -> Case {
        let mut fields = match source.into() {
            Value::Object(fields) => fields,
            body => Map::from_iter([("body".to_owned(), body)]),
        };
        for value in fields.values_mut() {
            if let Value::String(source) = value {
                *source = dedent(source);
            }
        }
        fields.insert("lang".to_owned(), json!(lang));
        Case { lang, fields }
    }

    /// A body that is a list: several sources of one kind.
    pub(crate) fn sources(&self) -> Vec<String> {
        let list = self.fields["body"].as_array().expect("the body is a list");
        list.iter().map(text).collect()
    }

    /// The same body, but only for the job with this payload; the others do nothing.
    pub(crate) fn only_for(&self, payload: &str) -> Case {
        let body = text(&self.fields["body"]);
        let body = match self.lang {
            "node" => format!("if (payload === '{payload}') {{\n{body}\n}}"),
            "php" => format!("if ($payload === '{payload}') {{\n{body}\n}}"),
            "python" => format!("if payload == '{payload}':\n    {}", body.replace('\n', "\n    ")),
            _ => format!("if [ \"$(cat)\" = '{payload}' ]; then\n{body}\nfi"),
        };
        let mut case = self.clone();
        case.fields.insert("body".to_owned(), json!(body));
        case
    }

    /// The handler's JSON form with these options.
    pub(crate) fn handler(&self, options: &Value) -> Value {
        let mut fields = self.fields.clone();
        fields.insert("options".to_owned(), options.clone());
        Value::Object(fields)
    }

    /// A daemon that tries every job once.
    pub(crate) fn stage(&self) -> Stage {
        self.stage_with(Config::new())
    }

    pub(crate) fn stage_with(&self, config: Config) -> Stage {
        let config = config.set("retry.attempts", "1");
        let mut command = config.command();
        self.stage_started(config, &mut command)
    }

    /// A daemon started by a command of the test. It finds the interpreters of the system, not the
    /// wrappers of version managers, which start processes and set variables of their own.
    pub(crate) fn stage_started(&self, config: Config, command: &mut Command) -> Stage {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("stage-{}-{number}", std::process::id());
        let path = command.get_envs().any(|(name, _)| name == "PATH");
        let command = if path { command } else { command.env("PATH", SYSTEM_PATH) };
        let daemon = Daemon::start_command(config, command);
        Stage { tenant: daemon.tenant("a"), daemon, case: self.clone(), mark }
    }
}

/// A daemon with a case's handler.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    pub(crate) tenant: Tenant,
    case: Case,
    /// A value in the environment of every process of the handler, to find them by.
    mark: String,
}

impl Stage {
    /// The handler's JSON form with these options, and with the mark.
    pub(crate) fn handler(&self, mut options: Value) -> Value {
        let env = options.as_object_mut().expect("options are an object").entry("env");
        env.or_insert_with(|| json!({}))["STAGE_MARK"] = json!(self.mark);
        self.case.handler(&options)
    }

    /// Sets the case's handler for a type of tenant `a`.
    #[track_caller]
    pub(crate) fn set(&self, kind: &str, options: Value) -> String {
        self.tenant.handler(kind, &self.handler(options))
    }

    /// Starts the daemon again after its end.
    pub(crate) fn restarted(&mut self) {
        self.daemon.restart();
        self.tenant = self.daemon.tenant(&self.tenant.name);
    }

    /// Adds jobs so that all of them are there when picking begins.
    #[track_caller]
    pub(crate) fn batch<S: AsRef<str>>(&self, kind: &str, payloads: &[S]) -> Vec<String> {
        self.daemon.stop_picking();
        let before = self.tenant.type_row(kind)["ready"].as_u64().unwrap_or(0);
        let ids = self.tenant.add(kind, payloads);
        let wanted = before + ids.len() as u64;
        let row = || self.tenant.type_row(kind);
        until("all are in the store", row, |row| row["ready"] == wanted);
        self.daemon.start_picking();
        ids
    }

    /// The job once it has ended.
    #[track_caller]
    pub(crate) fn end(&self, id: &str) -> Value {
        self.tenant.until_end(id)
    }

    /// Adds one job; returns it once it has ended.
    #[track_caller]
    pub(crate) fn run(&self, kind: &str, payload: &str) -> Value {
        let id = self.add(kind, payload);
        self.end(&id)
    }

    /// Adds one job with any text as its payload.
    #[track_caller]
    pub(crate) fn add(&self, kind: &str, payload: &str) -> String {
        let body = json!({"jobs": [{"payload": payload}]});
        let answer = self.tenant.post_json(&format!("jobs/{kind}"), &body).expect(201).json();
        text(&answer["ids"][0])
    }

    /// `run` with any bytes as the payload.
    #[track_caller]
    pub(crate) fn run_bytes(&self, kind: &str, payload: &[u8]) -> Value {
        self.end(&self.add_bytes(kind, payload))
    }

    /// Adds one job with any bytes as its payload.
    #[track_caller]
    pub(crate) fn add_bytes(&self, kind: &str, payload: &[u8]) -> String {
        let headers = [("Content-Type", "application/octet-stream")];
        let path = self.tenant.path(&format!("jobs/{kind}"));
        let answer = self.daemon.call("POST", &path, &headers, payload).expect(201).json();
        text(&answer["ids"][0])
    }

    /// Adds one job, which must succeed; returns its result data.
    #[track_caller]
    pub(crate) fn data(&self, kind: &str, payload: &str) -> Value {
        let job = self.run(kind, payload);
        self.succeeded(&job);
        job["result"].clone()
    }

    #[track_caller]
    pub(crate) fn succeeded(&self, job: &Value) {
        let seen = (&job["state"], &job["code"], &job["attempt"]);
        let wanted = (&json!("finished"), &json!("ok"), &json!(1));
        assert_eq!(seen, wanted, "{job}\n{}", self.log_of(job));
    }

    /// The job ended as an error that cost one attempt, and its log contains `word`.
    #[track_caller]
    pub(crate) fn failed(&self, job: &Value, word: &str) {
        let log = self.log_of(job);
        let seen = (&job["state"], &job["code"], &job["attempt"]);
        let wanted = (&json!("failed"), &json!("error"), &json!(1));
        assert_eq!(seen, wanted, "{job}\n{log}");
        assert!(log.contains(word), "{word:?} in the log:\n{log}");
    }

    #[track_caller]
    pub(crate) fn log_of(&self, job: &Value) -> String {
        self.tenant.log(&text(&job["id"]))
    }

    /// The lines that its code wrote to standard output, from the job's log.
    #[track_caller]
    pub(crate) fn printed(&self, id: &str) -> Vec<String> {
        let log = self.tenant.log(id);
        let own = |line: &&str| {
            !["--- attempt ", "[stderr] ", "[windlass] "].iter().any(|head| line.starts_with(head))
        };
        log.lines().filter(own).map(str::to_owned).collect()
    }

    /// All living processes of the handler: ids, as it sees them itself, and command lines. Its
    /// first process has the number of the outer process of its cell.
    pub(crate) fn processes(&self) -> BTreeMap<u32, String> {
        let mark = format!("STAGE_MARK={}", self.mark);
        let entries = fs::read_dir("/proc").expect("there is a /proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let read =
            |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let own = |pid: &u32| {
            // An ended process, reaped or not, has no environment.
            read(*pid, "environ").split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        let inside = |pid| {
            let status = String::from_utf8_lossy(&read(pid, "status")).into_owned();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok())
        };
        let named = |pid| {
            let words = String::from_utf8_lossy(&read(pid, "cmdline")).replace('\0', " ");
            (inside(pid).unwrap_or(pid), words)
        };
        pids.filter(own).map(named).collect()
    }

    #[track_caller]
    pub(crate) fn until_no_process(&self) {
        self.until_processes(0);
    }

    #[track_caller]
    pub(crate) fn until_processes(&self, count: usize) -> Vec<u32> {
        let what = format!("{count} processes of the handler live");
        let found = until(&what, || self.processes(), |found| found.len() == count);
        found.into_keys().collect()
    }
}

/// A killed daemon has left its handlers' processes to the next one, which never comes.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for pid in self.processes().into_keys() {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            }
        }
    }
}

/// Removes the common indentation of all lines.
fn dedent(source: &str) -> String {
    let lines = || source.lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = lines().map(indent).min().unwrap_or(0);
    let cut: Vec<&str> = lines().map(|line| &line[common..]).collect();
    cut.join("\n")
}
