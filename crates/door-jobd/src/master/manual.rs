//! `run-manual` for several workers: assigns jobs to workers, and merges their answers. Pure. If a
//! worker fails, each of its jobs gets an error; other jobs are not affected.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::registry::{Registry, Worker};
use crate::wire::check::{self, Field, Kind};
use crate::wire::{Json, Object};

const JOB: [Field; 2] =
    [Field::required("id", &[Kind::Integer]), Field::required("target", &[Kind::String])];

/// One request to one worker.
#[derive(Debug)]
pub(crate) struct Call<P> {
    pub(crate) worker: Arc<Worker<P>>,
    pub(crate) ids: Vec<Json>,
}

/// The merged answer so far.
#[derive(Debug, Default)]
pub(crate) struct MergedAnswer {
    jobs: Vec<(String, Json)>,
    errors: Vec<(String, Json)>,
}

/// Assigns every job to a worker. `choose` gets a count and returns an index below it.
pub(crate) fn plan<P>(
    registry: &Registry<P>,
    data: &Json,
    choose: impl Fn(usize) -> usize,
) -> Result<(Vec<Call<P>>, MergedAnswer), String> {
    let jobs = read_jobs(data, &JOB)?;
    let (mut calls, mut ends) = (Vec::<Call<P>>::new(), MergedAnswer::default());
    let mut runners = HashMap::new();
    let mut positions = HashMap::new();
    // A job named twice runs once: a second request would be refused and damage its row.
    let mut seen = HashSet::new();
    for job in jobs {
        let (id, target) = (job.id, job.target);
        if !seen.insert(id.js_string()) {
            continue;
        }
        let fitting: &Vec<_> = runners.entry(target).or_insert_with(|| registry.runners(target));
        let chosen = if fitting.is_empty() { None } else { fitting.get(choose(fitting.len())) };
        let Some(worker) = chosen else {
            ends.errors.push((id.js_string(), unserved(target).into()));
            continue;
        };
        let position = *positions.entry(worker.id).or_insert_with(|| {
            calls.push(Call { worker: Arc::clone(worker), ids: Vec::new() });
            calls.len() - 1
        });
        calls[position].ids.push(id.clone());
    }
    Ok((calls, ends))
}

impl MergedAnswer {
    /// Adds the answer of one worker.
    pub(crate) fn take<P>(&mut self, call: &Call<P>, answer: Result<Json, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let ids = call.ids.iter().map(Json::js_string);
                self.errors.extend(ids.map(|id| (id, Json::from(&error))));
                return;
            }
        };
        for id in &call.ids {
            let id = id.js_string();
            let found = |part: &str| answer.get(part).and_then(|part| part.get(&id)).cloned();
            if let Some(end) = found("jobs") {
                self.jobs.push((id, end));
            } else {
                let name = &call.worker.name;
                let silent = || format!("worker '{name}' did not say how job {id} ended").into();
                let error = found("errors").unwrap_or_else(silent);
                self.errors.push((id, error));
            }
        }
    }

    /// Jobs and errors; empty parts are omitted.
    pub(crate) fn into_data(self) -> Json {
        let mut data = Object::new();
        for (name, part) in [("jobs", self.jobs), ("errors", self.errors)] {
            if !part.is_empty() {
                data.insert(name, part.into_iter().collect::<Object>());
            }
        }
        data.into()
    }
}

/// A job that a client named.
pub(super) struct NamedJob<'a> {
    pub(super) id: &'a Json,
    pub(super) target: &'a str,
    pub(super) job: &'a Json,
}

/// The `jobs` of a request, all checked in advance.
pub(super) fn read_jobs<'a>(data: &'a Json, fields: &[Field]) -> Result<Vec<NamedJob<'a>>, String> {
    let jobs = data.get("jobs").and_then(Json::as_array).ok_or("jobs must be array")?;
    let read = |job: &'a Json| {
        check::fields(job, fields)?;
        let id = job.get("id").ok_or("missing required field id")?;
        let target = job.get("target").and_then(Json::as_str);
        Ok(NamedJob { id, target: target.ok_or("missing required field target")?, job })
    };
    jobs.iter().map(read).collect()
}

pub(super) fn unserved(target: &str) -> String {
    format!("worker serving target '{target}' not found")
}

#[cfg(test)]
mod tests {
    use super::super::registry::fixture::{registry, registry_without_targets};
    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn refused(data: &str, error: &str) {
        assert_eq!(plan(&registry(), &json(data), |_| 0).unwrap_err(), error, "{data}");
    }

    #[test]
    fn bad_jobs_are_refused_as_a_whole() {
        for data in ["{}", "5", r#"{"jobs":null}"#, r#"{"jobs":{"id":1}}"#] {
            refused(data, "jobs must be array");
        }
        for job in ["5", "null", "\"x\""] {
            refused(&format!(r#"{{"jobs":[{job}]}}"#), "data is not an object");
        }
        refused(r#"{"jobs":[{"id":1,"target":"a"},[]]}"#, "missing required field id");
        refused(r#"{"jobs":[{"id":1}]}"#, "missing required field target");
        refused(r#"{"jobs":[{"id":"1","target":"a"}]}"#, "'id' must be integer");
        refused(r#"{"jobs":[{"id":1.5,"target":"a"}]}"#, "'id' must be integer");
        refused(r#"{"jobs":[{"id":1,"target":5}]}"#, "'target' must be string");
    }

    #[test]
    fn each_job_goes_once_to_one_worker_and_each_worker_gets_one_request() {
        let data = json(
            r#"{"jobs":[{"id":1,"target":"a"},{"id":2,"target":"b"},{"id":3,"target":"a"},
                {"id":1,"target":"a"},{"id":2.0,"target":"b"},{"id":9,"target":"z"}]}"#,
        );
        let (calls, ends) = plan(&registry(), &data, |_| 0).unwrap();
        let seen: Vec<_> = calls.iter().map(|call| (call.worker.id, call.ids.clone())).collect();
        assert_eq!(seen, [(1, vec![1.into(), 3.into()]), (2, vec![2.into()])]);
        let text = r#"{"errors":{"9":"worker serving target 'z' not found"}}"#;
        assert_eq!(ends.into_data().to_string(), text);
        let (calls, _) = plan(&registry(), &data, |count| count - 1).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].ids, [1.into(), 2.into(), 3.into()]);
    }

    #[test]
    fn a_job_is_not_given_to_a_worker_that_names_no_targets() {
        let data = json(r#"{"jobs":[{"id":1,"target":"a"}]}"#);
        let (calls, ends) = plan(&registry_without_targets(), &data, |_| 0).unwrap();
        assert!(calls.is_empty(), "it may never answer");
        let text = r#"{"errors":{"1":"worker serving target 'a' not found"}}"#;
        assert_eq!(ends.into_data().to_string(), text);
    }

    #[test]
    fn no_jobs_are_an_empty_answer() {
        let (calls, ends) = plan(&registry(), &json(r#"{"jobs":[]}"#), |_| 0).unwrap();
        assert!(calls.is_empty());
        assert_eq!(ends.into_data().to_string(), "{}");
    }

    #[test]
    fn a_failing_worker_costs_only_its_own_jobs() {
        let data = json(
            r#"{"jobs":[{"id":4,"target":"b"},{"id":30,"target":"a"},{"id":3,"target":"b"},
                {"id":5,"target":"b"}]}"#,
        );
        let (calls, mut ends) = plan(&registry(), &data, |_| 0).unwrap();
        let answer =
            r#"{"jobs":{"4":{"result":"ok","code":0},"77":{}},"errors":{"3":"job 3 not found"}}"#;
        ends.take(&calls[0], Ok(json(answer)));
        ends.take(&calls[1], Err("Socket is closed".to_owned()));
        assert_eq!(
            ends.into_data().to_string(),
            concat!(
                r#"{"jobs":{"4":{"result":"ok","code":0}},"errors":{"3":"job 3 not found","#,
                r#""5":"worker 'w2' did not say how job 5 ended","30":"Socket is closed"}}"#
            )
        );
    }

    #[test]
    fn an_answer_of_any_shape_is_taken() {
        let data = json(r#"{"jobs":[{"id":1,"target":"b"}]}"#);
        for answer in ["null", "5", "[]", r#"{"jobs":5,"errors":[1]}"#] {
            let (calls, mut ends) = plan(&registry(), &data, |_| 0).unwrap();
            ends.take(&calls[0], Ok(json(answer)));
            let text = r#"{"errors":{"1":"worker 'w2' did not say how job 1 ended"}}"#;
            assert_eq!(ends.into_data().to_string(), text);
        }
    }
}
