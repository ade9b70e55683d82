//! What rules ask of the ledger. Where the history leaves something open, the answer is the one
//! that accuses nobody.

use crate::check::Terms;
use crate::history::{JobId, Origin};

use super::account::{Account, AddAccount, Door, End, Hold, How, Span, TypeIndex};
use super::{Ledger, Start};

impl Hold {
    /// The job was not claimed before this. A daemon claims a batch as a whole and runs it job by
    /// job.
    pub(crate) fn not_before(&self, terms: &Terms) -> u64 {
        match self.door {
            Door::Handler => self.asked.at.saturating_sub(terms.claim_ahead_ns),
            Door::Pull | Door::Bedrock => self.asked.at,
        }
    }
}

impl Ledger {
    pub(crate) fn account(&self, id: JobId) -> Option<&Account> {
        self.accounts
            .binary_search_by_key(&id, |account| account.id)
            .ok()
            .map(|n| &self.accounts[n])
    }

    /// The add that made this job, if it is known.
    pub(crate) fn add_of(&self, account: &Account) -> Option<&AddAccount> {
        account.add.map(|(index, _)| &self.adds[index.0])
    }

    /// Whether the form of the job is known: an add with a unique key may have been answered with a
    /// job of another form, unless the payload says that it is its own.
    pub(crate) fn is_form_known(&self, account: &Account) -> bool {
        let derived = matches!(account.origin, Some(Origin::Then { .. } | Origin::Emit { .. }));
        self.add_of(account).map_or(derived, |add| {
            let own = |origin| matches!(origin, Origin::Add { mark, .. } if mark == add.mark);
            add.unique.is_none() || account.origin.is_some_and(own)
        })
    }

    /// Whether the job certainly runs once unless something is wrong or a client asks for more:
    /// not one that repeats, that others have as parent, or of which nothing is known.
    pub(crate) fn runs_once(&self, account: &Account) -> bool {
        !account.is_parent && !self.may_repeat(account)
    }

    /// Whether it repeats, and has no family.
    pub(crate) fn certainly_repeats(&self, account: &Account) -> bool {
        let repeats = self.add_of(account).is_some_and(|add| add.repeats);
        repeats && self.is_form_known(account) && !account.is_parent
    }

    /// Whether it repeats, or its form is not known.
    fn may_repeat(&self, account: &Account) -> bool {
        !self.is_form_known(account) || self.add_of(account).is_some_and(|add| add.repeats)
    }

    /// Until when this holder certainly had the job, with a valid lease; not later than its own
    /// report. At least the moment at which it began.
    pub(crate) fn certain_until(&self, account: &Account, hold: &Hold, terms: &Terms) -> u64 {
        let began = hold.began.at;
        if self.faults.touch(hold, began, began) {
            return began;
        }
        let mut until = match (hold.door, hold.ended) {
            (Door::Handler, Some(ended)) => {
                ended.at.min(began.saturating_add(terms.attempt_timeout_ns))
            }
            (Door::Handler, None) => began,
            (Door::Pull | Door::Bedrock, _) => hold.lease_until,
        };
        let concerns = |end: &&End| {
            // Without tokens, a late report of an earlier holder counts too, and a cancel that was
            // sent before the claim.
            let without = hold.door == Door::Bedrock || end.token.is_none();
            let later = end.span.sent.at >= hold.asked.at && end.token == hold.token;
            later || (without && end.span.until() >= hold.asked.at)
        };
        if let Some(end) = account.ends.iter().find(concerns) {
            until = until.min(end.span.sent.at);
        }
        // One that was sent before the claim was answered may come after the claim as well.
        let crosses = |rerun: &&Span| rerun.until() >= hold.asked.at;
        let rerun = account.reruns.iter().find(crosses).map(|rerun| rerun.sent.at);
        let fault = self.faults.next_after(hold, began);
        let cuts = rerun.into_iter().chain(fault);
        cuts.fold(until, u64::min).max(began)
    }

    /// Whether the holder may have lost its lease before it began: a daemon runs what it has
    /// claimed until it notices that a fault, a cancel or a retry has taken the job away.
    pub(crate) fn may_be_stale(&self, account: &Account, hold: &Hold, terms: &Terms) -> bool {
        let to = hold.began.at;
        let from = hold.not_before(terms);
        if hold.door != Door::Handler {
            return self.faults.touch(hold, from, to);
        }
        let cancelled = |end: &End| end.how == How::Cancel && end.span.may_touch(from, to);
        self.faults.touch(hold, from, to)
            || account.may_have_rerun(from, to)
            || account.ends.iter().any(cancelled)
    }

    /// Whether the job may never have entered for good: it had a holder, but a fault afterwards may
    /// have undone the commit that made it, together with its cause. Only what takes unsynced
    /// commits away does that.
    pub(crate) fn may_be_undone(&self, account: &Account) -> bool {
        let first = account.holds.first().map_or(u64::MAX, |hold| hold.asked.at);
        account.seen.is_none() && self.faults.may_undo(first, self.end_at)
    }

    /// Whether an add with a key may have been tried in the store, without an answer from it, and
    /// then have gone into a journal, from which it reaches the store later.
    pub(crate) fn may_be_tried_twice(&self, add: &AddAccount) -> bool {
        let (from, to) = (add.span.sent.at, add.span.until().min(self.end_at));
        add.key.is_some() && self.faults.may_cut_off(add.via, from, to)
    }

    /// The last moment at which an add may be decided.
    pub(crate) fn decided_until(&self, add: &AddAccount) -> u64 {
        if self.may_be_tried_twice(add) { self.end_at } else { add.span.until().min(self.end_at) }
    }

    /// All holds of all jobs, by type, each in the order of their begin.
    pub(crate) fn starts_by_type(&self) -> Vec<Vec<Start>> {
        let mut starts: Vec<Vec<Start>> = self.types.iter().map(|_| Vec::new()).collect();
        for (index, account) in self.accounts.iter().enumerate() {
            let Some(TypeIndex(of)) = account.of else { continue };
            let holds = 0..account.holds.len();
            starts[of].extend(holds.map(|hold| Start { account: index, hold }));
        }
        for of_type in &mut starts {
            of_type.sort_by_key(|start| self.hold(*start).began);
        }
        starts
    }

    pub(crate) fn hold(&self, start: Start) -> &Hold {
        &self.accounts[start.account].holds[start.hold]
    }

    /// Whether the final listing should have this tenant's jobs.
    pub(crate) fn is_listed(&self, account: &Account) -> bool {
        account.of.is_some_and(|of| self.listed.contains(&self.types[of.0].tenant))
    }

    /// Whether the job may have been removed because its retention was over.
    pub(crate) fn may_be_purged(&self, account: &Account, terms: &Terms) -> bool {
        match (account.last_active_at(), terms.retention_ns) {
            (Some(active_at), Some(retention_ns)) => self.may_be_over(active_at, retention_ns),
            (None, _) => self.add_of(account).is_some_and(|add| {
                let from = add.span.sent.at;
                self.may_be_repeated(add) && self.may_be_over(from, terms.repeated_retention_ns)
            }),
            (Some(_), None) => false,
        }
    }

    /// Whether this much time may have passed until the end, by the clock.
    fn may_be_over(&self, from: u64, duration_ns: u64) -> bool {
        let stepped = self.faults.clock_moved_ns(from, self.end_at);
        (self.end_at - from).saturating_add(stepped) >= duration_ns
    }

    /// Whether the jobs of an add may have entered as cancelled, because another had its key.
    fn may_be_repeated(&self, add: &AddAccount) -> bool {
        let same = |other: &&AddAccount| other.tenant == add.tenant && other.key == add.key;
        let others = self.adds.iter().filter(|other| !other.refused).filter(same);
        self.may_be_tried_twice(add) || (add.key.is_some() && others.count() > 1)
    }
}
