//! What clients and workers ask of Windlass, as plain data. The workload generator makes these,
//! drivers send them through a door, and the checker reads them in a history.

use serde::{Deserialize, Serialize};

use super::event::State;
use super::id::{JobId, Token};

/// Status of an attempt that went well, where a plan names none.
const STATUS_OK: u16 = 200;

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    Add(Box<Add>),
    Cancel {
        tenant: String,
        job: JobId,
    },
    /// An ended job runs again.
    Retry {
        tenant: String,
        job: JobId,
    },
    Delete {
        tenant: String,
        job: JobId,
    },
    Suspend {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
    },
    Resume {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
    },
    /// The handler of a type changes; the driver knows what version `version` is.
    SetHandler {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
        version: u32,
    },
    RemoveHandler {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
    },
    /// Replaces both limits of a type; `None` means no limit. `rate` is in starts per second.
    SetLimits {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
        concurrency: Option<u32>,
        rate: Option<f64>,
    },
    /// A pull worker asks for jobs.
    Claim {
        tenant: String,
        types: Vec<String>,
        limit: u32,
        lease_ns: u64,
    },
    Renew {
        tenant: String,
        job: JobId,
        token: Token,
        lease_ns: u64,
    },
    Finish {
        tenant: String,
        job: JobId,
        token: Token,
        status: u16,
        /// Result data. If it differs in every finish of a run, the checker can tell whose result
        /// a job has.
        data: Option<String>,
    },
    Release {
        tenant: String,
        job: JobId,
        token: Token,
    },
    Progress {
        tenant: String,
        job: JobId,
        token: Token,
        percent: u8,
    },
    /// A client looks at a job, and sees that it has ended.
    Look {
        tenant: String,
        job: JobId,
        state: State,
    },
    /// A Bedrock worker asks for a job.
    GetJob {
        tenant: String,
        types: Vec<String>,
    },
    /// A Bedrock worker asks for several jobs.
    GetJobs {
        tenant: String,
        types: Vec<String>,
        limit: u32,
    },
    /// New data of a job, which keeps its origin.
    UpdateJob {
        tenant: String,
        job: JobId,
        data: String,
    },
    FinishJob {
        tenant: String,
        job: JobId,
        data: Option<String>,
    },
    RetryJob {
        tenant: String,
        job: JobId,
        data: Option<String>,
    },
    FailJob {
        tenant: String,
        job: JobId,
    },
    /// Also acknowledged if the job is in a state that cannot be cancelled.
    CancelJob {
        tenant: String,
        job: JobId,
    },
    DeleteJob {
        tenant: String,
        job: JobId,
    },
    /// Also acknowledged for jobs that do not exist.
    RequeueJobs {
        tenant: String,
        jobs: Vec<JobId>,
    },
    /// A request with one thing wrong in it, which must be refused.
    Invalid {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
        flaw: Flaw,
    },
}

/// An add of `count` jobs of one form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    pub tenant: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub count: u32,
    /// The number that the payloads carry (see [`super::Origin`]). A request that is sent again
    /// keeps its mark.
    pub mark: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// By `CreateJob` or `CreateJobs`, and not over HTTP.
    #[serde(default)]
    pub bedrock: bool,
    #[serde(default)]
    pub form: Form,
}

/// The options of an add, and what its handler or worker is to do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Form {
    pub payload_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// It fails if it has not ended after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_ns: Option<u64>,
    /// Of Bedrock: handed out again if it is not reported for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    pub plan: Plan,
}

/// What an attempt does; part of the payload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The status of each attempt; the last one holds for all later attempts, and none means 200.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
    /// Jobs that a handler emits in each attempt.
    pub emits: u32,
    /// Jobs that the first attempt adds below its own job.
    #[serde(skip_serializing_if = "is_zero")]
    pub children: u32,
    /// Whether each attempt reports its progress.
    #[serde(skip_serializing_if = "is_false")]
    pub progress: bool,
    pub run_ms: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Plan {
    /// The status with which attempt number `attempt` (1 is the first) ends.
    pub fn status(&self, attempt: u32) -> u16 {
        let index = (attempt.max(1) - 1) as usize;
        self.statuses.get(index).or(self.statuses.last()).copied().unwrap_or(STATUS_OK)
    }
}

/// What is wrong with an invalid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// An add with a priority above the highest.
    Priority,
    TenantName,
    TypeName,
    /// An add with a repeat that cannot be read.
    Repeat,
    /// An add with both `run_at` and `delay`.
    TwoTimes,
    /// An add with an empty list of jobs.
    NoJobs,
    UnknownField,
    /// An add below a parent that never existed.
    Parent,
    /// A finish of a job that never existed.
    Job,
}

impl Flaw {
    pub const ALL: [Flaw; 9] = [
        Flaw::Priority,
        Flaw::TenantName,
        Flaw::TypeName,
        Flaw::Repeat,
        Flaw::TwoTimes,
        Flaw::NoJobs,
        Flaw::UnknownField,
        Flaw::Parent,
        Flaw::Job,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_keeps_its_last_status() {
        let plan = Plan { statuses: vec![500, 100, 200], ..Plan::default() };
        assert_eq!([0, 1, 2, 3, 9].map(|attempt| plan.status(attempt)), [500, 500, 100, 200, 200]);
        assert_eq!(Plan::default().status(1), 200);
    }
}
