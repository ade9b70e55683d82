//! Turns a command and its arguments into one request. Pure.

use super::signal;
use crate::wire::{Json, Object};

/// The kind of peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Worker,
    Master,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    ListTargets,
    ListWorkers,
    MemoryUsage(Mode),
    /// For these targets: poll, poke, pause or continue.
    ForTargets(&'static str),
    SetConcurrency(&'static str),
    RemoveTarget,
    RunManual(Mode),
    SendSignal(Mode),
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) kind: &'static str,
    pub(crate) data: Option<Json>,
}

impl Command {
    pub(crate) fn find(mode: Mode, name: &str) -> Option<Command> {
        let command = match (mode, name) {
            (Mode::Worker, "list-targets") => Command::ListTargets,
            (Mode::Worker, "poll") => Command::ForTargets("poll"),
            (Mode::Worker, "set-target-concurrency") => {
                Command::SetConcurrency("set-target-concurrency")
            }
            (Mode::Worker, "add-target") => Command::SetConcurrency("add-target"),
            (Mode::Worker, "remove-target") => Command::RemoveTarget,
            (Mode::Master, "list-workers") => Command::ListWorkers,
            (Mode::Master, "poke") => Command::ForTargets("poke"),
            (_, "pause") => Command::ForTargets("pause"),
            (_, "continue") => Command::ForTargets("continue"),
            (_, "memory-usage") => Command::MemoryUsage(mode),
            (_, "run-manual") => Command::RunManual(mode),
            (_, "send-signal") => Command::SendSignal(mode),
            _ => return None,
        };
        Some(command)
    }

    /// The request, or why the arguments are invalid.
    pub(crate) fn ask(self, args: &[String]) -> Result<Request, String> {
        match self {
            Command::ListTargets | Command::MemoryUsage(_) => {
                Ok(Request { kind: "status", data: None })
            }
            Command::ListWorkers => {
                Ok(Request { kind: "status", data: data("poll_workers", true) })
            }
            Command::ForTargets(_) if args.is_empty() => Err("No targets specified.".to_owned()),
            Command::ForTargets(kind) => Ok(Request { kind, data: data("targets", args.to_vec()) }),
            Command::SetConcurrency(kind) => {
                let [target, concurrency] = args else { return Err(wrong_count()) };
                let concurrency = whole(concurrency).ok_or("'concurrency' must be a number.")?;
                let pairs = [("target", Json::from(target)), ("concurrency", concurrency)];
                Ok(Request { kind, data: Some(Json::from(pairs)) })
            }
            Command::RemoveTarget => {
                let [target] = args else { return Err(wrong_count()) };
                Ok(Request { kind: "remove-target", data: data("target", target) })
            }
            Command::RunManual(mode) => run_manual(mode, args),
            Command::SendSignal(mode) => send_signal(mode, args),
        }
    }

    /// Whether the answer may take any time, because it waits for jobs.
    pub(crate) fn is_patient(self) -> bool {
        matches!(self, Command::RunManual(_))
    }
}

fn run_manual(mode: Mode, args: &[String]) -> Result<Request, String> {
    let data = match mode {
        Mode::Worker => data("ids", ids(args)?),
        Mode::Master => {
            let [target, rest @ ..] = args else { return Err(wrong_count()) };
            let job = |id| Json::from([("id", id), ("target", Json::from(target))]);
            let jobs: Vec<Json> = ids(rest)?.into_iter().map(job).collect();
            data("jobs", jobs)
        }
    };
    Ok(Request { kind: "run-manual", data })
}

fn send_signal(mode: Mode, args: &[String]) -> Result<Request, String> {
    let [name, rest @ ..] = args else { return Err(wrong_count()) };
    let signal = signal::number(name).ok_or_else(|| format!("Unknown signal: '{name}'."))?;
    let data = match mode {
        Mode::Worker => {
            let pairs = ids(rest)?.into_iter().map(|id| (id.js_string(), signal));
            data("jobs", pairs.collect::<Object>())
        }
        Mode::Master => {
            let [target, rest @ ..] = rest else { return Err(wrong_count()) };
            let job =
                |id| Json::from([("id", id), ("signal", signal.into()), ("target", target.into())]);
            let jobs: Vec<Json> = ids(rest)?.into_iter().map(job).collect();
            data("jobs", jobs)
        }
    };
    Ok(Request { kind: "send-signal", data })
}

fn data(name: &str, value: impl Into<Json>) -> Option<Json> {
    Some(Json::from([(name, value.into())]))
}

fn ids(args: &[String]) -> Result<Vec<Json>, String> {
    if args.is_empty() {
        return Err("No jobs specified.".to_owned());
    }
    let id = |text: &String| {
        text.parse::<u64>().map(Json::from).map_err(|_| format!("Invalid job id: '{text}'."))
    };
    args.iter().map(id).collect()
}

/// A number, truncated to an integer.
fn whole(text: &str) -> Option<Json> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(number.trunc().into())
}

fn wrong_count() -> String {
    "Invalid number of arguments.".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mode: Mode, line: &str) -> Result<Request, String> {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        let args: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        Command::find(mode, &name).unwrap().ask(&args)
    }

    fn check(mode: Mode, line: &str, kind: &str, data: &str) {
        let asked = ask(mode, line).unwrap();
        let text = asked.data.map(|data| data.to_string()).unwrap_or_default();
        assert_eq!((asked.kind, text.as_str()), (kind, data), "{line}");
    }

    #[test]
    fn commands_of_a_worker_become_requests() {
        let worker = Mode::Worker;
        check(worker, "list-targets", "status", "");
        check(worker, "memory-usage", "status", "");
        check(worker, "poll a b", "poll", r#"{"targets":["a","b"]}"#);
        check(worker, "pause a", "pause", r#"{"targets":["a"]}"#);
        check(worker, "continue a", "continue", r#"{"targets":["a"]}"#);
        let set = r#"{"target":"low","concurrency":2}"#;
        check(worker, "set-target-concurrency low 2", "set-target-concurrency", set);
        check(worker, "add-target low 2.9", "add-target", set);
        check(worker, "remove-target low", "remove-target", r#"{"target":"low"}"#);
        check(worker, "run-manual 7 8", "run-manual", r#"{"ids":[7,8]}"#);
        check(worker, "send-signal SIGTERM 9 7", "send-signal", r#"{"jobs":{"7":15,"9":15}}"#);
    }

    #[test]
    fn commands_of_a_master_become_requests() {
        let master = Mode::Master;
        check(master, "list-workers", "status", r#"{"poll_workers":true}"#);
        check(master, "memory-usage", "status", "");
        check(master, "poke a b", "poke", r#"{"targets":["a","b"]}"#);
        check(master, "pause a", "pause", r#"{"targets":["a"]}"#);
        let run = r#"{"jobs":[{"id":7,"target":"low"},{"id":8,"target":"low"}]}"#;
        check(master, "run-manual low 7 8", "run-manual", run);
        let signal = r#"{"jobs":[{"id":7,"signal":9,"target":"low"}]}"#;
        check(master, "send-signal 9 low 7", "send-signal", signal);
    }

    #[test]
    fn a_command_belongs_to_its_mode() {
        let names = ["list-targets", "poll", "set-target-concurrency", "add-target"];
        for name in names.into_iter().chain(["remove-target", "bogus", ""]) {
            assert_eq!(Command::find(Mode::Master, name), None, "{name}");
        }
        for name in ["list-workers", "poke", "POLL", "toString"] {
            assert_eq!(Command::find(Mode::Worker, name), None, "{name}");
        }
    }

    #[test]
    fn bad_arguments_are_told() {
        for (mode, line, error) in [
            (Mode::Worker, "poll", "No targets specified."),
            (Mode::Worker, "pause", "No targets specified."),
            (Mode::Master, "poke", "No targets specified."),
            (Mode::Worker, "set-target-concurrency low", "Invalid number of arguments."),
            (Mode::Worker, "set-target-concurrency low 1 2", "Invalid number of arguments."),
            (Mode::Worker, "set-target-concurrency low x", "'concurrency' must be a number."),
            (Mode::Worker, "add-target low inf", "'concurrency' must be a number."),
            (Mode::Worker, "remove-target", "Invalid number of arguments."),
            (Mode::Worker, "run-manual", "No jobs specified."),
            (Mode::Worker, "run-manual 1 x", "Invalid job id: 'x'."),
            (Mode::Master, "run-manual", "Invalid number of arguments."),
            (Mode::Master, "run-manual low", "No jobs specified."),
            (Mode::Worker, "send-signal", "Invalid number of arguments."),
            (Mode::Worker, "send-signal 9", "No jobs specified."),
            (Mode::Worker, "send-signal SIGNONE 1", "Unknown signal: 'SIGNONE'."),
            (Mode::Master, "send-signal 9", "Invalid number of arguments."),
            (Mode::Master, "send-signal 9 low", "No jobs specified."),
        ] {
            assert_eq!(ask(mode, line).unwrap_err(), error, "{line}");
        }
    }
}
