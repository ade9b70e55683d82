//! `CreateJobs`: several jobs from one JSON array, all or none of them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use windlass_core::edit::FamilyView;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::{JobId, Tenant};

use crate::execute::Reply;
use crate::wire::json::{Object, array};
use crate::wire::{Request, Response};

use super::create::{self, CreateRequest};
use super::{Bedrock, Refusal};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let jobs = parse(request.header("jobs").unwrap_or_default())?;
    let mock = request.header("mockRequest").is_some();
    let mut all_wanted = Vec::with_capacity(jobs.len());
    for job in &jobs {
        all_wanted.push(CreateRequest::new(&|name| text(job, name), mock)?);
    }
    create::match_parents(door, &mut all_wanted).await?;
    let ids = decide(door, all_wanted).await?;
    let ids = array(ids.into_iter().map(|id| id.to_string()));
    Ok(Response::json(Object::new().raw("jobIDs", ids)).into())
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn parse(text: &str) -> Result<Vec<Fields<'_>>, Refusal> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| (401, "Invalid JSON"))?;
    if elements.is_empty() || elements.len() > BATCH_JOBS_MAX {
        return Err((401, "Invalid JSON").into());
    }
    let mut jobs = Vec::with_capacity(elements.len());
    for element in elements {
        let fields: Fields<'_> =
            serde_json::from_str(element.get()).map_err(|_| (401, "Invalid JSON"))?;
        if fields.is_empty() {
            return Err((401, "Invalid JSON").into());
        }
        if !element.get().contains("name") {
            return Err((402, "Missing name").into());
        }
        jobs.push(fields);
    }
    Ok(jobs)
}

/// A string as its text, anything else as its JSON. `null` counts as absent, but is invalid as
/// data.
fn text(job: &Fields<'_>, name: &str) -> Option<String> {
    match job.get(name)?.get() {
        "null" if name != "data" => None,
        raw if raw.starts_with('"') => serde_json::from_str(raw).ok(),
        raw => Some(raw.to_owned()),
    }
}

async fn decide(door: &Bedrock, all_wanted: Vec<CreateRequest>) -> Result<Vec<JobId>, Refusal> {
    let tenant: Tenant = door.tenant.clone();
    let mut new = Vec::with_capacity(all_wanted.len());
    for _ in &all_wanted {
        new.push(door.engine.make_id()?);
    }
    let targets = all_wanted.iter().map(CreateRequest::target).collect();
    let create = move |index: usize, seen: &FamilyView, now| {
        create::decision(&all_wanted[index], seen, &tenant, new[index], now)
    };
    let decided = door.decide(targets, create).await?;
    Ok(decided.ids.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_array_of_filled_objects_is_invalid() {
        let invalid =
            ["", "{}", "[]", "[{}]", "[1]", r#"[{"name":"a"}] x"#, r#"[{"name":"a"},{}]"#];
        for text in invalid {
            assert_eq!(parse(text).unwrap_err(), (401, "Invalid JSON").into(), "{text}");
        }
        assert_eq!(parse(r#"[{"data":{}}]"#).unwrap_err(), (402, "Missing name").into());
    }

    #[test]
    fn values_of_every_kind_become_texts() {
        let jobs = parse(r#"[{"name":"a\n","data":{"x": 1},"jobPriority":750,"y":null}]"#).unwrap();
        let value = |name: &str| text(&jobs[0], name);
        assert_eq!(value("name").as_deref(), Some("a\n"));
        assert_eq!(value("data").as_deref(), Some(r#"{"x": 1}"#));
        assert_eq!(value("jobPriority").as_deref(), Some("750"));
        assert_eq!((value("y"), value("z")), (None, None));
        let none = parse(r#"[{"name":"a","data":null}]"#).unwrap();
        assert_eq!(text(&none[0], "data").as_deref(), Some("null"), "which no job may have");
    }
}
