//! One job.

use windlass_proof::history::{JobId, Plan, State};
use windlass_proof::workload::payload;

/// Tenant and type.
pub(crate) type TypeKey = (String, String);

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) key: TypeKey,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    pub(crate) status: Option<u16>,
    pub(crate) result: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(super) priority: u16,
    pub(super) run_at: u64,
    pub(super) expires_at: Option<u64>,
    pub(super) token: u64,
    pub(super) lease_until: u64,
    pub(super) handled: bool,
    pub(super) unique: Option<String>,
    pub(super) then: Option<String>,
    pub(super) repeats: bool,
    pub(crate) parent: Option<JobId>,
    /// It has waited for children.
    pub(super) resumed: bool,
}

impl Job {
    pub(super) fn new(key: TypeKey, payload: Vec<u8>, now: u64) -> Job {
        Job {
            key,
            state: State::Queued,
            attempt: 0,
            status: None,
            result: None,
            payload,
            priority: 500,
            run_at: now,
            expires_at: None,
            token: 0,
            lease_until: 0,
            handled: false,
            unique: None,
            then: None,
            repeats: false,
            parent: None,
            resumed: false,
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        payload::read(&self.payload).1
    }
}
