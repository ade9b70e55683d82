//! The requests to a worker, with jobd's answers.

use windlass_core::launch::SignalTo;

use super::{STOPS, Worker, manual};
use crate::memory_usage;
use crate::wire::check::{self, Field, Kind};
use crate::wire::{Json, Object};

const TARGET: Field = Field::required("target", &[Kind::String]);
const CONCURRENCY: Field = Field::required("concurrency", &[Kind::Integer]);

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    Client,
    /// The master. It may not know yet which targets were removed, so those are skipped.
    Master,
}

pub(super) async fn answer(
    worker: &Worker,
    requester: Requester,
    kind: &str,
    data: Json,
) -> Result<Json, String> {
    match kind {
        "poll" => {
            let targets = targets(worker, requester, &data)?;
            if worker.state().queue.is_closed() {
                // The caller can find another worker.
                return Err(STOPS.to_owned());
            }
            worker.poll(targets.as_deref());
            done()
        }
        "pause" => {
            let targets = targets(worker, requester, &data)?;
            worker.state().queue.set_paused(targets.as_deref(), true);
            done()
        }
        "continue" => {
            let targets = targets(worker, requester, &data)?;
            worker.state().queue.set_paused(targets.as_deref(), false);
            worker.wake_start_and_fetch();
            done()
        }
        "status" => Ok(status(worker)),
        "add-target" => {
            let (target, concurrency) = target_and_concurrency(&data)?;
            worker.state().queue.add(target, concurrency)?;
            worker.targets_changed();
            done()
        }
        "remove-target" => {
            check::fields(&data, &[TARGET])?;
            worker.state().queue.remove(text(&data, "target"))?;
            worker.targets_changed();
            done()
        }
        "set-target-concurrency" => {
            let (target, concurrency) = target_and_concurrency(&data)?;
            worker.state().queue.set_concurrency(target, concurrency)?;
            worker.wake_start_and_fetch();
            done()
        }
        "run-manual" => manual::run(worker, &data).await,
        "send-signal" => Ok(send_signals(worker, &data)),
        _ => Err(format!("unknown request type: '{kind}'")),
    }
}

fn done() -> Result<Json, String> {
    Ok("ok".into())
}

/// The targets of a request; `None` means all.
fn targets(
    worker: &Worker,
    requester: Requester,
    data: &Json,
) -> Result<Option<Vec<String>>, String> {
    let Some(mut targets) = check::targets(data)? else { return Ok(None) };
    let state = worker.state();
    match requester {
        Requester::Master => targets.retain(|target| state.queue.has(target)),
        Requester::Client => {
            if let Some(unknown) = targets.iter().find(|target| !state.queue.has(target)) {
                return Err(format!("invalid target '{unknown}'"));
            }
        }
    }
    Ok(Some(targets))
}

fn target_and_concurrency(data: &Json) -> Result<(&str, u32), String> {
    check::fields(data, &[TARGET, CONCURRENCY])?;
    let concurrency = data.get("concurrency").and_then(Json::as_f64).unwrap_or(0.0);
    if concurrency <= 0.0 {
        return Err("Invalid concurrency value.".to_owned());
    }
    // Larger numbers saturate.
    Ok((text(data, "target"), concurrency as u32))
}

fn text<'a>(data: &'a Json, name: &str) -> &'a str {
    data.get(name).and_then(Json::as_str).unwrap_or_default()
}

fn status(worker: &Worker) -> Json {
    let state = worker.state();
    let targets = state.queue.statuses().into_iter().map(|seen| {
        let target = Json::from([
            ("paused", seen.paused.into()),
            ("concurrency", seen.concurrency.into()),
            ("length", seen.length.into()),
        ]);
        (seen.name, target)
    });
    let targets: Object = targets.collect();
    let awaited = state.awaited();
    drop(state);
    Json::from([
        ("targets", targets.into()),
        ("jobPromisesCount", awaited.into()),
        ("memoryUsage", memory_usage::read()),
    ])
}

/// A list is read as an object with its indexes as names.
fn send_signals(worker: &Worker, data: &Json) -> Json {
    let state = worker.state();
    let send = |id: &str, signal: &Json| {
        let signal = match signal {
            Json::Number(_) => signal.as_i64().map(SignalTo::Number),
            Json::String(name) => Some(SignalTo::Name(name.clone())),
            _ => None,
        };
        let id = id.parse().ok();
        id.zip(signal).is_some_and(|(id, signal)| state.signal(id, signal))
    };
    let sent: Object = match data.get("jobs") {
        Some(Json::Object(jobs)) => {
            jobs.iter().map(|(id, signal)| (id.to_owned(), send(id, signal))).collect()
        }
        Some(Json::Array(jobs)) => {
            let jobs = jobs.iter().enumerate().map(|(index, signal)| (index.to_string(), signal));
            jobs.map(|(id, signal)| (id.clone(), send(&id, signal))).collect()
        }
        _ => Object::new(),
    };
    sent.into()
}
