//! The operations of the model test.

use std::sync::Arc;

use bytes::Bytes;

use windlass_core::handler::{HandlerSpec, TypeSettings};
use windlass_core::job::{Progress, Token};
use windlass_core::store::{
    Add, Claim, Durability, EndRequest, GiveUp, Insert, JournalId, LeaseRef, List, NamedLook,
    Renew, Requeue, Settlement, SysidReserve,
};
use windlass_core::{HandlerId, JobId, NewJob, Sysid, Tenant, TypeKey};

use super::decide::{DecidePlan, TakePlan};

#[derive(Debug)]
pub(super) enum Op {
    Insert(Insert),
    Add(Add),
    /// Puts the pieces and inserts the job.
    InsertLarge(NewJob, Vec<Bytes>),
    Claim(Claim),
    /// On the beat of a granted sysid.
    ClaimOnBeat {
        nth: usize,
        claim: Claim,
    },
    Renew(Renew),
    Settle(Arc<[Settlement]>, Durability),
    Progress(Vec<(LeaseRef, Progress)>),
    LeaseExpired(usize),
    Cancel(EndRequest),
    Rerun(Tenant, JobId),
    Requeue(Requeue),
    Delete(Tenant, JobId),
    Decide(DecidePlan),
    Take(TakePlan),
    GiveUp(GiveUp),
    Purge(usize),
    HandlerPut(HandlerId, TypeKey, HandlerSpec),
    HandlerDelete(TypeKey),
    Suspend(TypeKey, bool),
    SettingsPut(TypeKey, TypeSettings),
    SysidReserve(SysidReserve),
    SysidRenew {
        nth: usize,
        id_newest: Option<JobId>,
    },
    SysidRelease {
        nth: usize,
    },
    BootNext,
    /// A daemon looks at the types that changed since its last look.
    LookAtChanged,
    Flush,
    /// The store loses what was not synced.
    Undo,
    /// By so many milliseconds, forwards or backwards.
    SetClock(i64),
    Read(Read),
}

#[derive(Debug)]
pub(super) enum Read {
    Job(Tenant, JobId),
    Piece(JobId, u32),
    List(List),
    Waiting,
    /// Open types with a handler: the first of each tenant, and the next of each.
    Ring,
    Named(NamedLook),
    Stats(Option<Tenant>),
    Handler(TypeKey, Option<HandlerId>),
    Handlers(Tenant),
    Settings(TypeKey),
    Idempotency(Tenant, String),
    Journal(JournalId),
    Sysids,
    LeaseMine(Sysid, Option<JobId>),
    LeaseClaimed(Vec<Token>),
    Unhandled(Vec<TypeKey>),
}
