//! The ledger: a history, sorted by what it is about. Built in one pass; its size depends on the
//! number of jobs, attempts and requests, and not on how much was written about each.
//!
//! | module | owns |
//! |---|---|
//! | `account` | the record of one job, add, type, fault |
//! | `fold` | events into the ledger |
//! | `request` | what an answered request changes in it |
//! | `fault` | which faults may have touched what |
//! | `question` | what rules ask: how long a holder certainly had a job, and the like |
//! | `name` | names as numbers |

mod account;
mod fault;
mod fold;
mod name;
mod question;
mod request;

use std::collections::{HashMap, HashSet};

use crate::history::{JobId, Origin, State};

pub(crate) use account::{
    Account, AddAccount, Door, End, Hold, How, Limits, Moment, Span, TypeAccount, TypeIndex,
    ends_job,
};
pub(crate) use fault::{Faults, Intervals};
pub(crate) use fold::Folding;
pub(crate) use name::{Name, Names};

/// A whole history, ready for the rules.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) names: Names,
    /// In the order of their ids.
    pub(crate) accounts: Vec<Account>,
    pub(crate) adds: Vec<AddAccount>,
    pub(crate) types: Vec<TypeAccount>,
    pub(crate) faults: Faults,
    pub(crate) fault_count: u64,
    /// The jobs that name this origin, each once, in the order in which they were noticed.
    pub(crate) origins: HashMap<Origin, Vec<JobId>>,
    /// By tenant: when a claim whose answer was lost may have kept jobs from others.
    pub(crate) lost_claims: HashMap<Name, Intervals>,
    pub(crate) listed: HashSet<Name>,
    pub(crate) counted: Vec<(Moment, TypeIndex, State, u64)>,
    /// Invalid requests that were not refused.
    pub(crate) accepted_flaws: Vec<(Moment, String)>,
    /// What is wrong with the history itself.
    pub(crate) oddities: Vec<(Moment, String)>,
    pub(crate) end_at: u64,
    pub(crate) events: u64,
}

/// One hold of one job, by index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) account: usize,
    pub(crate) hold: usize,
}
