//! The operations of the model test.

use std::sync::Arc;

use bytes::Bytes;

use windlass_core::handler::{HandlerSpec, TypeSettings};
use windlass_core::job::Progress;
use windlass_core::store::{
    Add, Claim, Durability, EndRequest, GiveUp, Insert, JournalId, LeaseRef, List, Renew, Requeue,
    Settlement, SysidReserve,
};
use windlass_core::{HandlerId, JobId, NewJob, Sysid, Tenant, Timestamp, TypeKey};

use super::decide::{DecidePlan, TakePlan};

#[derive(Debug)]
pub(super) enum Op {
    Insert(Insert),
    Add(Add),
    /// Puts the pieces and inserts the job.
    InsertLarge(NewJob, Vec<Bytes>),
    Claim(Claim),
    /// On the beat of a number that was granted.
    ClaimOnBeat {
        nth: usize,
        claim: Claim,
    },
    Renew(Renew),
    Settle(Arc<[Settlement]>, Durability),
    Progress(LeaseRef, Progress),
    LeaseExpired(Timestamp, usize),
    Cancel(EndRequest),
    Rerun(Tenant, JobId, Timestamp),
    Requeue(Requeue),
    /// It names no time, so the store hears this one first.
    Delete(Tenant, JobId, Timestamp),
    Decide(DecidePlan),
    Take(TakePlan),
    GiveUp(GiveUp),
    Purge(Timestamp, usize),
    HandlerPut(HandlerId, TypeKey, HandlerSpec, Timestamp),
    HandlerDelete(TypeKey),
    Suspend(TypeKey, bool),
    SettingsPut(TypeKey, TypeSettings),
    SysidReserve(SysidReserve),
    SysidRenew {
        nth: usize,
        now: Timestamp,
        id_newest: Option<JobId>,
    },
    SysidRelease {
        nth: usize,
    },
    Flush,
    Read(Read),
}

#[derive(Debug)]
pub(super) enum Read {
    Job(Tenant, JobId),
    Piece(JobId, u32),
    List(List),
    Waiting(Timestamp),
    Stats(Option<Tenant>, Timestamp),
    Handler(TypeKey, Option<HandlerId>),
    Handlers(Tenant),
    Settings(TypeKey),
    Idempotency(Tenant, String, Timestamp),
    Journal(JournalId),
    Sysids(Timestamp),
    LeaseMine(Sysid, Option<JobId>),
}
