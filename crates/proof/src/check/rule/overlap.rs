//! Two holders never have a job at the same time with valid leases. A holder certainly has the job
//! until it reports, its lease may end, a client cancels or retries the job, or a fault touches it;
//! a handler also until it says that its run has ended.
//!
//! Cannot see: the time between a handler's claim and its begin; runs of handlers that do not say
//! when they end; overlaps after a fault, even if the fault did not cost the lease.

use crate::check::{Findings, Terms};
use crate::ledger::{Hold, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        let mut longest: Option<(u64, &Hold)> = None;
        for hold in &account.holds {
            if ledger.may_be_stale(account, hold, terms) {
                continue;
            }
            if longest.is_some() {
                found.judge();
            }
            if let Some((until, other)) = longest
                && terms.before(hold.began.at, until)
            {
                let evidence =
                    [ledger.hold_evidence(account, other), ledger.hold_evidence(account, hold)];
                let what = format!("job {} had two owners at the same time", account.id);
                found.add([account.id], what, evidence);
            }
            let until = ledger.certain_until(account, hold, terms);
            if longest.is_none_or(|(longest, _)| until > longest) {
                longest = Some((until, hold));
            }
        }
    }
}
