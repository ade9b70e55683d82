//! Events into the ledger, one after the other, in the order of time.

use std::collections::{HashMap, HashSet};

use crate::check::Terms;
use crate::history::{Answer, Began, Ended, Event, JobId, Operation, Origin, Record};

use super::account::{
    Account, AddAccount, AddIndex, Door, FaultAccount, Hold, Moment, TypeAccount, TypeIndex,
};
use super::fault::Faults;
use super::name::{Name, Names};
use super::{Ledger, Span};

/// Complaints about the history itself that are kept.
const ODDITIES_MAX: usize = 100;

/// A ledger that grows.
pub(crate) struct Folding {
    pub(super) ledger: Ledger,
    pub(super) jobs: HashMap<JobId, usize>,
    type_indexes: HashMap<(Name, Name), TypeIndex>,
    /// Requests without an answer yet.
    open: HashMap<u64, Request>,
    /// The first add with each mark.
    pub(super) marks: HashMap<u64, AddIndex>,
    faults: HashMap<u64, FaultAccount>,
}

/// A request that was sent.
pub(super) struct Request {
    pub(super) sent: Moment,
    pub(super) who: Name,
    pub(super) via: Option<Name>,
    pub(super) what: Operation,
}

impl Folding {
    pub(crate) fn new() -> Folding {
        let ledger = Ledger {
            names: Names::default(),
            accounts: Vec::new(),
            adds: Vec::new(),
            types: Vec::new(),
            faults: Faults::default(),
            fault_count: 0,
            origins: HashMap::new(),
            lost_claims: HashMap::new(),
            listed: HashSet::new(),
            counted: Vec::new(),
            accepted_flaws: Vec::new(),
            oddities: Vec::new(),
            end_at: 0,
            events: 0,
        };
        Folding {
            ledger,
            jobs: HashMap::new(),
            type_indexes: HashMap::new(),
            open: HashMap::new(),
            marks: HashMap::new(),
            faults: HashMap::new(),
        }
    }

    pub(crate) fn record(&mut self, record: Record) {
        let moment = Moment::of(&record);
        self.ledger.events += 1;
        if moment.at < self.ledger.end_at {
            self.odd(moment, "an event earlier than the one before it".into());
        }
        self.ledger.end_at = self.ledger.end_at.max(moment.at);
        match record.event {
            Event::Sent { op, who, via, what } => {
                let who = self.name(&who);
                let via = via.map(|via| self.name(&via));
                let request = Request { sent: moment, who, via, what };
                if self.open.insert(op, request).is_some() {
                    self.odd(moment, format!("operation {op} was sent twice"));
                }
            }
            Event::Answered { op, answer } => match self.open.remove(&op) {
                Some(request) => self.answered(request, Some(moment), answer),
                None => self.odd(moment, format!("operation {op} was answered, but not sent")),
            },
            Event::Began(began) => self.began(moment, &began),
            Event::Ended(ended) => self.ended(moment, &ended),
            Event::FaultBegan { fault, kind, target } => {
                let account = FaultAccount { kind, target, began: moment, ended: None };
                if self.faults.insert(fault, account).is_some() {
                    self.odd(moment, format!("fault {fault} began twice"));
                }
            }
            Event::FaultEnded { fault } => match self.faults.get_mut(&fault) {
                Some(account) => account.ended = Some(moment),
                None => self.odd(moment, format!("fault {fault} ended, but did not begin")),
            },
            Event::Daemon { .. } => {}
            Event::Seen(seen) => {
                self.of_type(seen.job, &seen.tenant, &seen.type_name);
                self.note_origin(seen.job, seen.origin);
                if let Some(parent) = seen.parent {
                    self.account(parent).is_parent = true;
                }
                let account = self.account(seen.job);
                match account.seen {
                    None => account.seen = Some(Box::new((moment, seen))),
                    Some(_) => account.seen_again = Some(moment),
                }
            }
            Event::Read { job, body } => self.account(job).readings.push((moment, body)),
            Event::Listed { tenant } => {
                let tenant = self.name(&tenant);
                self.ledger.listed.insert(tenant);
            }
            Event::Counted { tenant, type_name, state, count } => {
                let of = self.type_index(&tenant, &type_name);
                self.ledger.counted.push((moment, of, state, count));
            }
        }
    }

    /// Closes the history: what was not answered is unknown.
    pub(crate) fn finish(mut self, terms: &Terms) -> Ledger {
        let mut open: Vec<(u64, Request)> = self.open.drain().collect();
        open.sort_by_key(|(op, request)| (request.sent, *op));
        for (_, request) in open {
            self.answered(request, None, Answer::Unknown { why: "the history ends".into() });
        }
        let mut faults: Vec<FaultAccount> = self.faults.into_values().collect();
        faults.sort_by_key(|fault| fault.began);
        let mut ledger = self.ledger;
        ledger.fault_count = faults.len() as u64;
        ledger.faults = Faults::new(faults.into_iter(), &mut ledger.names, terms.lease_ns);
        for claims in ledger.lost_claims.values_mut() {
            // The daemon that got the request may be slow, and its lease has to end too.
            claims.extend_ends(terms.lease_ns.saturating_mul(2));
            claims.sort();
        }
        ledger.accounts.sort_unstable_by_key(|account| account.id);
        for account in &mut ledger.accounts {
            account.holds.sort_by_key(|hold| hold.began);
            account.ends.sort_by_key(|end| end.span.sent);
            account.reruns.sort_by_key(|rerun| rerun.sent);
            // A job that only its payload describes; a unique key returns jobs of other adds.
            let sure = account.add.is_some_and(|(add, _)| ledger.adds[add.0].unique.is_none());
            if let (false, Some(Origin::Add { mark, index })) = (sure, account.origin) {
                account.add = self.marks.get(&mark).map(|add| (*add, index));
            }
        }
        ledger
    }

    pub(super) fn name(&mut self, text: &str) -> Name {
        self.ledger.names.of(text)
    }

    pub(super) fn account(&mut self, id: JobId) -> &mut Account {
        let accounts = &mut self.ledger.accounts;
        let index = *self.jobs.entry(id).or_insert_with(|| {
            accounts.push(Account::new(id));
            accounts.len() - 1
        });
        &mut accounts[index]
    }

    pub(super) fn type_index(&mut self, tenant: &str, name: &str) -> TypeIndex {
        let key = (self.name(tenant), self.name(name));
        let types = &mut self.ledger.types;
        *self.type_indexes.entry(key).or_insert_with(|| {
            types.push(TypeAccount {
                tenant: key.0,
                name: key.1,
                limits: Vec::new(),
                changes: Vec::new(),
                suspends: Vec::new(),
                suspended: None,
                has_handler: false,
            });
            TypeIndex(types.len() - 1)
        })
    }

    /// Notes the type of a job. The first mention counts; a listing that differs is found by a
    /// rule.
    pub(super) fn of_type(&mut self, id: JobId, tenant: &str, name: &str) -> TypeIndex {
        let of = self.type_index(tenant, name);
        *self.account(id).of.get_or_insert(of)
    }

    pub(super) fn note_origin(&mut self, id: JobId, origin: Option<Origin>) {
        // Data that a Bedrock worker reports replaces the payload of its own job.
        let own = Origin::Then { of: id };
        let Some(origin) = origin.filter(|origin| *origin != own) else { return };
        let account = self.account(id);
        let before = account.origin.replace(origin);
        if before != Some(origin) {
            self.ledger.origins.entry(origin).or_default().push(id);
        }
    }

    pub(super) fn add(&mut self, add: AddAccount) -> AddIndex {
        let index = AddIndex(self.ledger.adds.len());
        self.marks.entry(add.mark).or_insert(index);
        self.ledger.adds.push(add);
        index
    }

    pub(super) fn odd(&mut self, moment: Moment, what: String) {
        if self.ledger.oddities.len() < ODDITIES_MAX {
            self.ledger.oddities.push((moment, what));
        }
    }

    fn began(&mut self, moment: Moment, began: &Began) {
        let of = self.of_type(began.job, &began.tenant, &began.type_name);
        self.ledger.types[of.0].has_handler = true;
        self.note_origin(began.job, began.origin);
        let (by, daemon) = (self.name(&began.context), self.name(&began.daemon));
        let hold = Hold {
            door: Door::Handler,
            by,
            daemon: Some(daemon),
            line: daemon,
            token: began.token,
            attempt: began.attempt,
            asked: moment,
            began: moment,
            lease_until: u64::MAX,
            lent: false,
            ended: None,
            status: None,
            emitted: 0,
            data: None,
        };
        self.account(began.job).holds.push(hold);
    }

    fn ended(&mut self, moment: Moment, ended: &Ended) {
        let by = self.name(&ended.context);
        let account = self.account(ended.job);
        account.is_parent |= ended.children > 0;
        let holds = &mut account.holds;
        let open = |hold: &&mut Hold| hold.by == by && hold.ended.is_none();
        match holds.iter_mut().rev().find(open) {
            Some(hold) => {
                hold.ended = Some(moment);
                hold.status = Some(ended.status);
                hold.emitted = ended.emitted;
                hold.data = ended.data.as_deref().map(Into::into);
            }
            None => {
                let what =
                    format!("{} ended job {}, but did not begin it", ended.context, ended.job);
                self.odd(moment, what);
            }
        }
    }
}

impl Request {
    /// The span of this request if it was not refused.
    pub(super) fn span(&self, answered: Option<Moment>, answer: &Answer) -> Option<Span> {
        let done = match answer {
            Answer::Done(_) => answered,
            Answer::Refused { .. } => return None,
            Answer::Unknown { .. } => None,
        };
        Some(Span { sent: self.sent, done })
    }
}
