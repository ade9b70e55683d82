//! `send-signal` for several workers: the master does not know which worker has a job, so it asks
//! all candidates; one delivery is enough. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use super::manual::{read_jobs, unserved};
use super::registry::{Registry, Worker};
use crate::wire::check::{Field, Kind};
use crate::wire::{Json, Object};

const JOB: [Field; 3] = [
    Field::required("id", &[Kind::Integer]),
    Field::required("signal", &[Kind::Integer]),
    Field::required("target", &[Kind::String]),
];

/// One request to one worker.
#[derive(Debug)]
pub(crate) struct Call<P> {
    pub(crate) worker: Arc<Worker<P>>,
    /// Signals by id.
    pub(crate) signals: Vec<(String, Json)>,
}

/// The result for each job so far, in the order of the request.
#[derive(Debug)]
pub(crate) struct SignalResults {
    jobs: Vec<(String, State)>,
    positions: HashMap<String, usize>,
}

#[derive(Debug)]
enum State {
    /// No worker has delivered it yet.
    No,
    Yes,
    /// A worker that may have the job did not answer.
    Unknown(String),
}

pub(crate) fn plan<P>(
    registry: &Registry<P>,
    data: &Json,
) -> Result<(Vec<Call<P>>, SignalResults), String> {
    let jobs = read_jobs(data, &JOB)?;
    // The last signal given for a job counts.
    let mut last = HashMap::new();
    let mut order = Vec::new();
    for job in jobs {
        let id = job.id.js_string();
        if last.insert(id.clone(), job).is_none() {
            order.push(id);
        }
    }
    let mut calls = Vec::<Call<P>>::new();
    let (mut serving, mut positions) = (HashMap::new(), HashMap::new());
    let mut sent = SignalResults { jobs: Vec::new(), positions: HashMap::new() };
    for id in order {
        let Some(job) = last.get(&id) else { continue };
        let fitting: &Vec<_> =
            serving.entry(job.target).or_insert_with(|| registry.serving(job.target));
        let signal = job.job.get("signal").cloned().unwrap_or_default();
        for worker in fitting {
            let position = *positions.entry(worker.id).or_insert_with(|| {
                calls.push(Call { worker: Arc::clone(worker), signals: Vec::new() });
                calls.len() - 1
            });
            calls[position].signals.push((id.clone(), signal.clone()));
        }
        let state =
            if fitting.is_empty() { State::Unknown(unserved(job.target)) } else { State::No };
        sent.positions.insert(id.clone(), sent.jobs.len());
        sent.jobs.push((id, state));
    }
    Ok((calls, sent))
}

impl SignalResults {
    /// Adds the answer of one worker.
    pub(crate) fn take<P>(&mut self, call: &Call<P>, answer: &Result<Json, String>) {
        for (id, _) in &call.signals {
            let Some((_, state)) =
                self.positions.get(id).and_then(|position| self.jobs.get_mut(*position))
            else {
                continue;
            };
            match answer {
                Ok(answer) if answer.get(id).is_some_and(Json::is_truthy) => *state = State::Yes,
                Ok(_) => {}
                Err(_) if matches!(state, State::Yes) => {}
                Err(error) => *state = State::Unknown(error.clone()),
            }
        }
    }

    /// Whether each job got its signal, or an error if that is unknown.
    pub(crate) fn into_data(self) -> Json {
        let (mut data, mut errors) = (Vec::new(), Vec::new());
        for (id, state) in self.jobs {
            match state {
                State::No => data.push((id, Json::from(false))),
                State::Yes => data.push((id, Json::from(true))),
                State::Unknown(error) => errors.push((id, Json::from(error))),
            }
        }
        if !errors.is_empty() {
            data.push(("errors".to_owned(), errors.into_iter().collect::<Object>().into()));
        }
        data.into_iter().collect::<Object>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::fixture::registry;
    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    /// Checks the answer to a request if the two workers answer this.
    fn check(data: &str, answers: [Result<&str, &str>; 2], expected: &str) {
        let (calls, mut sent) = plan(&registry(), &json(data)).unwrap();
        for call in &calls {
            let position = if call.worker.id == 1 { 0 } else { 1 };
            sent.take(call, &answers[position].map(json).map_err(str::to_owned));
        }
        assert_eq!(sent.into_data().to_string(), expected);
    }

    const TWO: &str =
        r#"{"jobs":[{"id":9,"signal":15,"target":"a"},{"id":5,"signal":9,"target":"a"}]}"#;

    #[test]
    fn all_workers_that_may_have_the_job_are_asked() {
        let (calls, _) = plan(&registry(), &json(TWO)).unwrap();
        let seen: Vec<_> = calls.iter().map(|call| (call.worker.id, &call.signals)).collect();
        let signals = vec![("9".to_owned(), 15.into()), ("5".to_owned(), 9.into())];
        assert_eq!(seen, [(1, &signals), (2, &signals)]);
    }

    #[test]
    fn one_that_delivered_is_enough() {
        let (none, nine) = (r#"{"9":false,"5":false}"#, r#"{"9":true,"5":false}"#);
        check(TWO, [Ok(none), Ok(none)], r#"{"5":false,"9":false}"#);
        check(TWO, [Ok(none), Ok(nine)], r#"{"5":false,"9":true}"#);
        check(TWO, [Ok(nine), Ok(none)], r#"{"5":false,"9":true}"#);
        check(TWO, [Ok("{}"), Ok("7")], r#"{"5":false,"9":false}"#);
    }

    #[test]
    fn a_worker_that_fails_leaves_only_its_own_answers_open() {
        let nine = r#"{"9":true,"5":false}"#;
        let expected = r#"{"9":true,"errors":{"5":"Socket is closed"}}"#;
        check(TWO, [Ok(nine), Err("Socket is closed")], expected);
        check(TWO, [Err("Socket is closed"), Ok(nine)], expected);
    }

    #[test]
    fn unserved_targets_are_errors_and_the_last_signal_of_a_job_counts() {
        let data = r#"{"jobs":[{"id":1,"signal":2,"target":"b"},{"id":2,"signal":2,"target":"z"},
            {"id":1,"signal":9,"target":"b"}]}"#;
        let expected = r#"{"1":true,"errors":{"2":"worker serving target 'z' not found"}}"#;
        check(data, [Ok("{}"), Ok(r#"{"1":true}"#)], expected);
        let (calls, _) = plan(&registry(), &json(data)).unwrap();
        assert_eq!(calls[0].signals, [("1".to_owned(), 9.into())]);
        check(r#"{"jobs":[]}"#, [Ok("{}"), Ok("{}")], "{}");
    }

    #[test]
    fn bad_jobs_are_refused_as_a_whole() {
        for (data, error) in [
            ("{}", "jobs must be array"),
            (r#"{"jobs":{"5":9}}"#, "jobs must be array"),
            (r#"{"jobs":[1]}"#, "data is not an object"),
            (r#"{"jobs":[{"signal":9,"target":"a"}]}"#, "missing required field id"),
            (r#"{"jobs":[{"id":1,"target":"a"}]}"#, "missing required field signal"),
            (r#"{"jobs":[{"id":1,"signal":9}]}"#, "missing required field target"),
            (r#"{"jobs":[{"id":1,"signal":"SIGTERM","target":"a"}]}"#, "'signal' must be integer"),
            (r#"{"jobs":[{"id":1,"signal":9,"target":null}]}"#, "'target' must be string"),
        ] {
            assert_eq!(plan(&registry(), &json(data)).unwrap_err(), error, "{data}");
        }
    }
}
