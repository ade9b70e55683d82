//! What happens to a task when its program has ended: the rules and all messages.

use std::time::Duration;

use serde_json::{Map, Value};
use windlass_core::launch::Launched;

use crate::status;

/// The status and output of an ended task. Output that the plugin did not provide is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: i32,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
}

impl Verdict {
    /// The plugin was never started.
    pub(crate) fn unable_to_start(why: impl Into<String>) -> Self {
        Self { stdout: Some("Unable to start".into()), ..Self::failed(why) }
    }

    /// A failure without output.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { status: status::FAILED, stdout: None, stderr: Some(why.into()) }
    }

    /// A failure that shows the plugin's unusable result.
    fn refused(given: &Reply, what: &str, see: &str) -> Self {
        let why = format!("{what} (see stdout for {see}any stdout or stderr it may have set)");
        Self { stdout: Some(given.to_text()), ..Self::failed(why) }
    }
}

/// Why a program was killed before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The task was cancelled.
    Cancelled,
    /// The node stops.
    Stopped,
    /// The node could not renew its lease, so others may treat it as dead.
    Fenced,
    TimeLimit(Duration),
}

impl StopReason {
    fn status(self) -> i32 {
        match self {
            Self::Cancelled => status::CANCELLED,
            Self::Stopped | Self::Fenced => status::ORPHANED,
            Self::TimeLimit(_) => status::FAILED,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Cancelled => "the task was cancelled while it ran".into(),
            Self::Stopped => "the node was stopped while the task ran".into(),
            Self::Fenced => "the node could not renew its lease in time, so that everything that \
                             it ran was ended"
                .into(),
            Self::TimeLimit(limit) => {
                format!("the plugin was ended after its time limit of {} s", limit.as_secs_f64())
            }
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    /// The signal's name, such as `SIGKILL`.
    Signal(String),
    NotStarted(String),
    /// It was started, but its end is unknown.
    Unknown,
}

impl Exit {
    pub(crate) fn of(launched: &Launched) -> Self {
        match (&launched.failure, launched.code, &launched.signal) {
            (Some(why), _, _) => Self::NotStarted(why.clone()),
            (None, Some(code), _) => Self::Code(code),
            (None, None, Some(signal)) => Self::Signal(signal.clone()),
            (None, None, None) => Self::Unknown,
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        *self == Self::Code(0)
    }

    /// The field `cmdExit` of a task.
    pub(crate) fn number(&self) -> i32 {
        match self {
            Self::Code(code) => *code,
            Self::Signal(_) => -1,
            Self::Unknown => -2,
            Self::NotStarted(_) => -3,
        }
    }

    /// The field `cmdErr` of a task, with the original's text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Code(0) => "<nil>".into(),
            Self::Code(code) => format!("exit status {code}"),
            Self::Signal(name) => format!("signal: {}", signal_words(name)),
            Self::Unknown => "the end of the plugin could not be learnt".into(),
            Self::NotStarted(why) => why.clone(),
        }
    }
}

fn signal_words(name: &str) -> String {
    let words = match name {
        "SIGHUP" => "hangup",
        "SIGINT" => "interrupt",
        "SIGQUIT" => "quit",
        "SIGILL" => "illegal instruction",
        "SIGTRAP" => "trace/breakpoint trap",
        "SIGABRT" => "aborted",
        "SIGBUS" => "bus error",
        "SIGFPE" => "floating point exception",
        "SIGKILL" => "killed",
        "SIGUSR1" => "user defined signal 1",
        "SIGSEGV" => "segmentation fault",
        "SIGUSR2" => "user defined signal 2",
        "SIGPIPE" => "broken pipe",
        "SIGALRM" => "alarm clock",
        "SIGTERM" => "terminated",
        other => return other.trim_start_matches("SIG").to_ascii_lowercase(),
    };
    words.to_owned()
}

/// The three fields of a result; other fields are ignored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply(Map<String, Value>);

impl Reply {
    pub(crate) fn new(mut given: Map<String, Value>) -> Self {
        let fields = ["status", "stdout", "stderr"];
        let kept =
            fields.into_iter().filter_map(|name| Some((name.to_owned(), given.remove(name)?)));
        Self(kept.collect())
    }

    pub(super) fn to_text(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// Values that are not text are kept as JSON.
    fn output(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        }
    }

    /// An integer in the range of a status.
    fn status(&self) -> Option<i32> {
        let number = self.0.get("status")?.as_number()?;
        match number.as_i64() {
            Some(whole) => i32::try_from(whole).ok(),
            None => {
                let whole = number.as_f64().filter(|number| number.fract() == 0.0)?;
                let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole);
                #[expect(clippy::cast_possible_truncation, reason = "it was seen to fit")]
                fits.then_some(whole as i32)
            }
        }
    }
}

/// The result of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PluginAnswer {
    Reply(Reply),
    /// Its file is missing or unreadable.
    Unreadable(String),
    /// Its file contains this text instead.
    NotJson(String),
    /// Its file is larger than this many bytes.
    TooLarge(u64),
    /// It wrote nothing to `results`.
    NoResult,
}

/// The end of a task whose plugin exited by itself. `said` is what the program wrote to its own
/// standard error: not the task's output, but the only trace of a program that crashed.
pub(crate) fn judge(answer: PluginAnswer, exit: &Exit, said: &str) -> Verdict {
    let mut reply = match answer {
        PluginAnswer::Reply(reply) => reply,
        PluginAnswer::Unreadable(why) => {
            let why = format!("could not read task plugin response file: {why}");
            return Verdict::failed(with_words(why, said));
        }
        PluginAnswer::NotJson(text) => {
            let why = "plugin saved non-json in response file (see stdout for any content it may \
                       have set)";
            return Verdict { stdout: Some(text), ..Verdict::failed(why) };
        }
        PluginAnswer::TooLarge(max) => {
            return Verdict::failed(format!(
                "could not read task plugin response file: it has more than {max} bytes"
            ));
        }
        PluginAnswer::NoResult => {
            let why = "plugin did not create a document in 'results'".to_owned();
            return Verdict::failed(with_words(why, said));
        }
    };
    match reply.status() {
        None => Verdict::refused(&reply, "plugin returned unknown type for status", "status and "),
        Some(..=0) => {
            Verdict::refused(&reply, "plugin returned non-positive status", "status and ")
        }
        Some(status::SUCCEEDED) if !exit.is_clean() => unclean(&reply),
        Some(status) => {
            Verdict { status, stdout: reply.output("stdout"), stderr: reply.output("stderr") }
        }
    }
}

fn with_words(why: String, said: &str) -> String {
    if said.is_empty() { why } else { format!("{why}\nits own standard error: {said}") }
}

fn unclean(reply: &Reply) -> Verdict {
    Verdict::refused(reply, "plugin returned status:1 but did not exit cleanly", "")
}

/// The outcome of a task whose plugin ends it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandedOff {
    /// It did; its status counts.
    Done(i32),
    /// It did not, or not correctly, so this is the task's end.
    Corrected(Verdict),
}

/// `task` is the current content of the task.
pub(crate) fn judge_handoff(task: &Reply, exit: &Exit) -> HandedOff {
    HandedOff::Corrected(match task.status() {
        None => Verdict::refused(task, "plugin returned unknown type for status", "status and "),
        Some(status::RUNNING) => Verdict::refused(task, "plugin did not update status", ""),
        Some(..=-1) => Verdict::refused(task, "plugin returned negative status", "status and "),
        Some(status::SUCCEEDED) if !exit.is_clean() => unclean(task),
        Some(status) => return HandedOff::Done(status),
    })
}

/// The end of a task whose program was killed. Output provided before that is kept.
pub(crate) fn cut_short(why: StopReason, answer: PluginAnswer) -> Verdict {
    let mut verdict = match answer {
        PluginAnswer::Reply(mut reply) => {
            Verdict { status: 0, stdout: reply.output("stdout"), stderr: reply.output("stderr") }
        }
        _ => Verdict { status: 0, stdout: None, stderr: None },
    };
    verdict.status = why.status();
    let said = verdict.stderr.take().filter(|said| !said.is_empty());
    verdict.stderr = Some(match said {
        Some(said) => format!("{}\n{said}", why.text()),
        None => why.text(),
    });
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(value: &Value) -> Reply {
        Reply::new(value.as_object().unwrap().clone())
    }

    fn judged(value: &Value, code: i32) -> (i32, Value, Value) {
        shown(judge(PluginAnswer::Reply(reply(value)), &Exit::Code(code), "noise"))
    }

    fn shown(verdict: Verdict) -> (i32, Value, Value) {
        (verdict.status, json!(verdict.stdout), json!(verdict.stderr))
    }

    const UNKNOWN: &str = "plugin returned unknown type for status (see stdout for status and any \
                           stdout or stderr it may have set)";
    const NON_POSITIVE: &str = "plugin returned non-positive status (see stdout for status and any \
                                stdout or stderr it may have set)";
    const UNCLEAN: &str = "plugin returned status:1 but did not exit cleanly (see stdout for any \
                           stdout or stderr it may have set)";

    #[test]
    fn a_result_stands_as_the_plugin_gave_it() {
        for (given, code, expected) in [
            (json!({"status": 1, "stdout": "o", "stderr": "e"}), 0, (1, json!("o"), json!("e"))),
            (json!({"status": 1}), 0, (1, json!(null), json!(null))),
            (json!({"status": 1.0, "stdout": null}), 0, (1, json!(null), json!(null))),
            (json!({"status": 1, "stdout": "", "noise": 7}), 0, (1, json!(""), json!(null))),
            (json!({"status": 2, "stdout": "o"}), 0, (2, json!("o"), json!(null))),
            // It has already failed, whatever else it does.
            (json!({"status": 44, "stderr": "e"}), 3, (44, json!(null), json!("e"))),
            (json!({"status": 1, "stdout": [1, "a"]}), 0, (1, json!("[1,\"a\"]"), json!(null))),
        ] {
            assert_eq!(judged(&given, code), expected, "{given} {code}");
        }
    }

    #[test]
    fn a_result_that_cannot_be_is_a_failure_that_shows_it() {
        for (given, code, message) in [
            (json!({"status": 1, "stdout": "o", "stderr": "e"}), 3, UNCLEAN),
            (json!({"stdout": "o"}), 0, UNKNOWN),
            (json!({"status": "fizz"}), 0, UNKNOWN),
            (json!({"status": "1"}), 0, UNKNOWN),
            (json!({"status": 1.5}), 0, UNKNOWN),
            (json!({"status": true}), 0, UNKNOWN),
            (json!({"status": null}), 0, UNKNOWN),
            (json!({"status": 3_000_000_000_u64}), 0, UNKNOWN),
            (json!({"status": 1e300}), 0, UNKNOWN),
            (json!({"status": {"$numberDouble": "Infinity"}}), 0, UNKNOWN),
            (json!({"status": 0}), 0, NON_POSITIVE),
            (json!({"status": -1, "stdout": "o"}), 0, NON_POSITIVE),
            (json!({"status": -1}), 5, NON_POSITIVE),
        ] {
            let (status, stdout, stderr) = judged(&given, code);
            assert_eq!((status, &stderr), (2, &json!(message)), "{given}");
            let shown: Value = serde_json::from_str(stdout.as_str().unwrap()).unwrap();
            assert_eq!(shown, given);
        }
    }

    #[test]
    fn without_a_result_it_is_a_failure_too() {
        let at = Exit::Code(0);
        for (answer, stdout, stderr) in [
            (
                PluginAnswer::Unreadable("no such file".into()),
                json!(null),
                "could not read task plugin response file: no such file",
            ),
            (
                PluginAnswer::NotJson("text".into()),
                json!("text"),
                "plugin saved non-json in response file (see stdout for any content it may have \
                 set)",
            ),
            (
                PluginAnswer::TooLarge(9),
                json!(null),
                "could not read task plugin response file: it has more than 9 bytes",
            ),
            (PluginAnswer::NoResult, json!(null), "plugin did not create a document in 'results'"),
        ] {
            assert_eq!(shown(judge(answer, &at, "")), (2, stdout, json!(stderr)));
        }
        let broken = shown(judge(PluginAnswer::NoResult, &at, "no disk\n"));
        let why =
            "plugin did not create a document in 'results'\nits own standard error: no disk\n";
        assert_eq!(broken.2, json!(why));
        let unable = shown(Verdict::unable_to_start("why"));
        assert_eq!(unable, (2, json!("Unable to start"), json!("why")));
    }

    #[test]
    fn a_handoff_is_done_when_the_plugin_has_ended_the_task() {
        let done = |value: &Value, code| judge_handoff(&reply(value), &Exit::Code(code));
        assert_eq!(done(&json!({"status": 1}), 0), HandedOff::Done(1));
        assert_eq!(done(&json!({"status": 7}), 0), HandedOff::Done(7));
        assert_eq!(done(&json!({"status": 7}), 3), HandedOff::Done(7));
        for (given, code, message) in [
            (
                json!({"status": 0, "stdout": null}),
                0,
                "plugin did not update status (see stdout for any stdout or stderr it may have \
                 set)",
            ),
            (
                json!({"status": -1}),
                0,
                "plugin returned negative status (see stdout for status and any stdout or stderr \
                 it may have set)",
            ),
            (json!({"stdout": "o"}), 0, UNKNOWN),
            (json!({"status": 1.5}), 0, UNKNOWN),
            (json!({"status": 1, "stdout": "o"}), 3, UNCLEAN),
        ] {
            let HandedOff::Corrected(verdict) = done(&given, code) else { panic!("{given}") };
            assert_eq!((verdict.status, verdict.stderr.as_deref()), (2, Some(message)), "{given}");
            let shown: Value = serde_json::from_str(&verdict.stdout.unwrap()).unwrap();
            assert_eq!(shown, given);
        }
    }

    #[test]
    fn what_was_cut_short_says_why_and_keeps_what_there_is() {
        let given = json!({"status": 1, "stdout": "o", "stderr": "e"});
        for (why, status, text) in [
            (StopReason::Cancelled, -5, "the task was cancelled while it ran\ne"),
            (StopReason::Stopped, -6, "the node was stopped while the task ran\ne"),
            (
                StopReason::TimeLimit(Duration::from_millis(1500)),
                2,
                "the plugin was ended after its time limit of 1.5 s\ne",
            ),
        ] {
            let cut = cut_short(why, PluginAnswer::Reply(reply(&given)));
            assert_eq!(shown(cut), (status, json!("o"), json!(text)));
        }
        let cut = cut_short(StopReason::Fenced, PluginAnswer::NoResult);
        assert_eq!((cut.status, cut.stdout), (-6, None));
        assert!(cut.stderr.unwrap().contains("lease"));
        let silent = PluginAnswer::Reply(reply(&json!({"stderr": ""})));
        let stderr = cut_short(StopReason::Cancelled, silent).stderr;
        assert_eq!(stderr.as_deref(), Some("the task was cancelled while it ran"));
    }

    #[test]
    fn an_exit_is_told_in_the_words_of_the_original() {
        let launched = |code, signal: Option<&str>, failure: Option<&str>| Launched {
            code,
            signal: signal.map(str::to_owned),
            failure: failure.map(str::to_owned),
            ..Launched::default()
        };
        for (launched, number, text) in [
            (launched(Some(0), None, None), 0, "<nil>"),
            (launched(Some(3), None, None), 3, "exit status 3"),
            (launched(None, Some("SIGKILL"), None), -1, "signal: killed"),
            (launched(None, Some("SIGTERM"), None), -1, "signal: terminated"),
            (launched(None, Some("SIG40"), None), -1, "signal: 40"),
            (launched(None, None, None), -2, "the end of the plugin could not be learnt"),
            (launched(None, None, Some("spawn /x ENOENT")), -3, "spawn /x ENOENT"),
        ] {
            let exit = Exit::of(&launched);
            assert_eq!((exit.number(), exit.text().as_str()), (number, text));
            assert_eq!(exit.is_clean(), number == 0);
        }
    }
}
