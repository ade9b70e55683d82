//! Events, as their witnesses write them down.
//!
//! The order of writing matters where a witness may be killed. A client writes `Sent` before it
//! sends and `Answered` after the answer has arrived. A handler writes `Began` before it does
//! anything and `Ended` after it has done everything. So what is missing at the end of a file has
//! not happened, or its outcome is unknown.

use serde::{Deserialize, Serialize};

use super::fault::{FaultKind, Target};
use super::id::{JobId, Token};
use super::operation::Operation;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A client or worker is about to send a request.
    Sent {
        /// Unique in the history.
        op: u64,
        who: String,
        /// The daemon that it is sent to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<String>,
        what: Operation,
    },
    Answered {
        op: u64,
        answer: Answer,
    },
    /// A handler began a run.
    Began(Began),
    /// It ended that run.
    Ended(Ended),
    FaultBegan {
        /// Unique in the history.
        fault: u64,
        kind: FaultKind,
        target: Target,
    },
    FaultEnded {
        fault: u64,
    },
    Daemon {
        daemon: String,
        what: DaemonEvent,
    },
    /// At the end, when all is quiet: a job as the daemon lists it.
    Seen(Seen),
    /// A witness has read the payload of a job.
    Read {
        job: JobId,
        body: Body,
    },
    /// All jobs of this tenant have been listed.
    Listed {
        tenant: String,
    },
    /// At the end: how many jobs the status reports in one state.
    Counted {
        tenant: String,
        #[serde(rename = "type")]
        type_name: String,
        state: State,
        count: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    Done(Outcome),
    /// Certainly without an effect.
    Refused {
        status: u16,
    },
    /// It may have had an effect: the connection was lost, or no answer came in time.
    Unknown {
        why: String,
    },
}

/// What an answer brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    Nothing,
    /// Of an add, in the order of its jobs.
    Ids(Vec<JobId>),
    /// Of a claim or `GetJob`.
    Jobs(Vec<Claimed>),
}

/// A job that a worker got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claimed {
    pub job: JobId,
    #[serde(rename = "type")]
    pub type_name: String,
    pub attempt: u32,
    /// `None` from Bedrock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// `None`: until it is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
    /// It runs again because its children have ended.
    #[serde(default)]
    pub resumed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// A run of a handler. Contexts run one job at a time, so the context and the job name it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Began {
    pub job: JobId,
    pub tenant: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub attempt: u32,
    pub daemon: String,
    /// Unique in the history, for example with the process's id and start time.
    pub context: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    pub job: JobId,
    pub context: String,
    pub status: u16,
    /// Jobs that it emitted.
    #[serde(default)]
    pub emitted: u32,
    /// Jobs that it emitted below its own job.
    #[serde(default)]
    pub children: u32,
    /// Its result data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DaemonEvent {
    Started,
    Ready,
    Exited { code: Option<i32>, signal: Option<i32> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    pub job: JobId,
    pub tenant: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub state: State,
    pub attempts: u32,
    /// The status of its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Its result data; `None` also if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What a payload is, as its reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Body {
    Empty,
    /// As an add made it, by its checksum.
    Intact(Origin),
    /// Anything else: a result, what a report left, or what damage left.
    Other,
}

/// Where a job comes from, as its payload says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// Job number `index` (from 0) of an add with this mark.
    Add { mark: u64, index: u32 },
    /// It follows that job (`then`).
    Then { of: JobId },
    /// Number `index` (from 0) of what an attempt of that job emitted.
    Emit { of: JobId, index: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Queued,
    Running,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

impl State {
    pub fn is_ended(self) -> bool {
        matches!(self, State::Finished | State::Failed | State::Cancelled)
    }
}
