//! Requests with one thing wrong in them.

use serde_json::json;
use windlass_proof::history::Flaw;

use super::request::Request;

/// An id that no job ever has.
const NO_JOB: &str = "1";

pub(super) fn of(tenant: &str, type_name: &str, flaw: Flaw) -> Request {
    let path = format!("/v1/{tenant}/jobs/{type_name}");
    let with = |options: serde_json::Value| {
        let mut job = json!({"payload": "invalid"});
        if let (Some(job), Some(options)) = (job.as_object_mut(), options.as_object()) {
            job.extend(options.clone());
        }
        Request::json("POST", path.clone(), &json!({"jobs": [job]}))
    };
    let jobs = json!({"jobs": [{"payload": "invalid"}]});
    match flaw {
        Flaw::Priority => with(json!({"priority": 1001})),
        Flaw::Repeat => with(json!({"repeat": "NOW AND THEN"})),
        Flaw::TwoTimes => with(json!({"delay": "1s", "run_at": "2026-01-01T00:00:00Z"})),
        Flaw::UnknownField => with(json!({"colour": "red"})),
        Flaw::Parent => with(json!({"parent": NO_JOB})),
        Flaw::NoJobs => Request::json("POST", path, &json!({"jobs": []})),
        Flaw::TenantName => Request::json("POST", format!("/v1/-/jobs/{type_name}"), &jobs),
        Flaw::TypeName => Request::json("POST", format!("/v1/{tenant}/jobs/a%7Cb"), &jobs),
        Flaw::Job => {
            let report = json!({"token": 1, "status": 200});
            Request::json("POST", format!("/v1/{tenant}/jobs/{NO_JOB}/finish"), &report)
        }
    }
}
