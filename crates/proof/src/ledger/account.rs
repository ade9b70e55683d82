//! What the ledger has about one job, one add, one type.

use crate::history::{Body, FaultKind, JobId, Origin, Record, Seen, State, Target, Token};

use super::name::Name;

/// When something was written down, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) at: u64,
    pub(crate) source: u32,
    pub(crate) line: u32,
}

impl Moment {
    pub(crate) fn of(record: &Record) -> Moment {
        Moment { at: record.at, source: record.source, line: record.line }
    }
}

/// A request that was not refused: it took effect at some time in this span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) sent: Moment,
    /// The acknowledgement; `None` if it is unknown whether there was an effect.
    pub(crate) done: Option<Moment>,
}

impl Span {
    /// The last moment at which it may take effect.
    pub(crate) fn until(&self) -> u64 {
        self.done.map_or(u64::MAX, |done| done.at)
    }

    /// Whether it may have taken effect between these times.
    pub(crate) fn may_touch(&self, from: u64, to: u64) -> bool {
        self.sent.at <= to && self.until() >= from
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeIndex(pub(crate) usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddIndex(pub(crate) usize);

/// Everything about one job.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) id: JobId,
    pub(crate) of: Option<TypeIndex>,
    /// The first acknowledged add that returned its id, and its position there; or the add that
    /// its payload names.
    pub(crate) add: Option<(AddIndex, u32)>,
    /// That add was acknowledged with this id.
    pub(crate) acknowledged: bool,
    pub(crate) origin: Option<Origin>,
    /// In the order of their begin.
    pub(crate) holds: Vec<Hold>,
    /// Reports and cancels that were not refused, in the order in which they were sent.
    pub(crate) ends: Vec<End>,
    /// Result data of finishes that were refused.
    pub(crate) refused: Vec<(Moment, Box<str>)>,
    /// Renewals and reports of progress that were acknowledged, with their tokens.
    pub(crate) touches: Vec<(Token, Span)>,
    pub(crate) reruns: Vec<Span>,
    pub(crate) deletes: Vec<Span>,
    /// What witnesses found in its payload.
    pub(crate) readings: Vec<(Moment, Body)>,
    /// When the first request was sent that may have replaced its payload.
    pub(crate) rewritten_at: Option<u64>,
    /// An add that was not refused named it as parent.
    pub(crate) is_parent: bool,
    pub(crate) seen: Option<Box<(Moment, Seen)>>,
    /// A second listing of the same job.
    pub(crate) seen_again: Option<Moment>,
}

impl Account {
    pub(crate) fn new(id: JobId) -> Account {
        Account {
            id,
            of: None,
            add: None,
            acknowledged: false,
            origin: None,
            holds: Vec::new(),
            ends: Vec::new(),
            refused: Vec::new(),
            touches: Vec::new(),
            reruns: Vec::new(),
            deletes: Vec::new(),
            readings: Vec::new(),
            rewritten_at: None,
            is_parent: false,
            seen: None,
            seen_again: None,
        }
    }

    pub(crate) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref().map(|seen| &seen.1)
    }

    /// Whether a client's retry may have revived it between these times.
    pub(crate) fn may_have_rerun(&self, from: u64, to: u64) -> bool {
        self.reruns.iter().any(|rerun| rerun.may_touch(from, to))
    }

    /// The last time at which it is known to have been at work, or to have been ended.
    pub(crate) fn last_active_at(&self) -> Option<u64> {
        let hold = self.holds.iter().map(|hold| hold.ended.unwrap_or(hold.began).at).max();
        let end = self.ends.iter().map(|end| end.span.done.unwrap_or(end.span.sent).at).max();
        hold.max(end)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// A run of a handler, in a context of a daemon.
    Handler,
    /// A claim of a pull worker.
    Pull,
    /// `GetJob` of a Bedrock worker.
    Bedrock,
}

/// One attempt, seen from outside: a holder had the job.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) door: Door,
    /// The worker or context.
    pub(crate) by: Name,
    pub(crate) daemon: Option<Name>,
    /// Consumers with the same choice of types: those who claim the same list, or one daemon.
    pub(crate) line: Name,
    pub(crate) token: Option<Token>,
    pub(crate) attempt: u32,
    /// Not claimed before this, by a worker. Of a handler: its begin, although the claim was
    /// earlier.
    pub(crate) asked: Moment,
    /// Claimed before this.
    pub(crate) began: Moment,
    /// The lease did not end by itself before this.
    pub(crate) lease_until: u64,
    /// Bedrock's `retryAfter`: the job stays queued and counts as nobody's.
    pub(crate) lent: bool,
    /// Written by a handler at the end of its run.
    pub(crate) ended: Option<Moment>,
    pub(crate) status: Option<u16>,
    pub(crate) emitted: u32,
    /// Result data of a handler.
    pub(crate) data: Option<Box<str>>,
}

/// A report or a cancel that was not refused.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) span: Span,
    pub(crate) how: How,
    pub(crate) token: Option<Token>,
    pub(crate) by: Name,
    pub(crate) via: Option<Name>,
    pub(crate) data: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Finish(u16),
    Release,
    Cancel,
    BedrockFinish,
    BedrockRetry,
    BedrockFail,
    /// May have had no effect.
    BedrockCancel,
    /// Not an end by itself: a client saw the job in this state, in which it had ended.
    Looked(State),
}

impl How {
    /// Whether the job has ended then, unless it repeats or waits for children.
    pub(crate) fn is_final(self) -> bool {
        match self {
            How::Finish(status) => ends_job(status),
            How::Release | How::BedrockRetry | How::BedrockCancel => false,
            How::Cancel | How::BedrockFinish | How::BedrockFail | How::Looked(_) => true,
        }
    }

    pub(crate) fn is_of_bedrock(self) -> bool {
        matches!(self, How::BedrockFinish | How::BedrockRetry | How::BedrockFail)
    }
}

/// Whether an attempt with this status is the last one; others are retried while attempts are left.
pub(crate) fn ends_job(status: u16) -> bool {
    matches!(status / 100, 2 | 4)
}

/// One add of one or more jobs.
#[derive(Debug)]
pub(crate) struct AddAccount {
    pub(crate) span: Span,
    pub(crate) refused: bool,
    pub(crate) tenant: Name,
    pub(crate) of: TypeIndex,
    pub(crate) via: Option<Name>,
    pub(crate) mark: u64,
    pub(crate) key: Option<Name>,
    pub(crate) count: u32,
    pub(crate) ids: Vec<JobId>,
    pub(crate) bedrock: bool,
    pub(crate) payload_bytes: u64,
    pub(crate) priority: Option<u16>,
    pub(crate) delay_ns: u64,
    pub(crate) expires_ns: Option<u64>,
    pub(crate) unique: Option<Name>,
    pub(crate) parent: Option<JobId>,
    pub(crate) follows: bool,
    pub(crate) repeats: bool,
}

impl AddAccount {
    /// Runs once, as soon as possible, and is decided by the journal alone.
    pub(crate) fn is_plain(&self) -> bool {
        let alone = self.unique.is_none() && self.parent.is_none() && self.key.is_none();
        alone && self.delay_ns == 0 && self.expires_ns.is_none() && !self.repeats
    }
}

/// One tenant's type.
#[derive(Debug)]
pub(crate) struct TypeAccount {
    pub(crate) tenant: Name,
    pub(crate) name: Name,
    pub(crate) limits: Vec<Limits>,
    /// Suspends, resumes, and changes of its handler or limits.
    pub(crate) changes: Vec<Span>,
    /// Suspends (`true`) and resumes.
    pub(crate) suspends: Vec<(Span, bool)>,
    /// May be suspended at the end: the last moment at which a suspend may have taken effect.
    pub(crate) suspended: Option<u64>,
    /// Daemons run its jobs, at some time.
    pub(crate) has_handler: bool,
}

/// A change of limits that was not refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) span: Span,
    pub(crate) concurrency: Option<u32>,
    pub(crate) rate: Option<f64>,
}

#[derive(Debug, Clone)]
pub(crate) struct FaultAccount {
    pub(crate) kind: FaultKind,
    pub(crate) target: Target,
    pub(crate) began: Moment,
    pub(crate) ended: Option<Moment>,
}
