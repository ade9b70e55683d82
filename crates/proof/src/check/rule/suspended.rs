//! Nothing of a suspended type starts: from the acknowledgement of a suspend until a resume is
//! sent, no job of the type is claimed. A daemon claims a batch as a whole, so a handler may begin
//! up to `claim_ahead_ns` later.
//!
//! Cannot see: times in which a resume is under way, or after one whose answer was lost.

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Ledger, Moment, TypeAccount};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    if ledger.types.iter().all(|of| of.suspends.is_empty()) {
        return;
    }
    for (of, starts) in ledger.types.iter().zip(ledger.starts_by_type()) {
        for (since, to) in suspensions(of) {
            found.judge();
            let from = since.at.saturating_add(terms.slack_ns);
            let first = starts.partition_point(|start| ledger.hold(*start).began.at <= from);
            let within =
                starts[first..].iter().take_while(|start| ledger.hold(**start).began.at < to);
            let breach =
                within.into_iter().find(|start| ledger.hold(**start).not_before(terms) > from);
            let Some(start) = breach else { continue };
            let (account, hold) = (&ledger.accounts[start.account], ledger.hold(*start));
            let evidence = [
                Evidence::new(since, "a suspend of its type was acknowledged"),
                ledger.hold_evidence(account, hold),
            ];
            let what = format!("job {} started although its type was suspended", account.id);
            found.add([account.id], what, evidence);
        }
    }
}

/// From when until when the type was certainly suspended.
fn suspensions(of: &TypeAccount) -> Vec<(Moment, u64)> {
    let suspends = of.suspends.iter().filter(|(_, suspended)| *suspended);
    let certain = suspends.filter_map(|(suspend, _)| {
        let since = suspend.done?;
        // One that overlaps the suspend may have come after it.
        let resumes = of
            .suspends
            .iter()
            .filter(|(span, suspended)| !suspended && span.until() >= suspend.sent.at);
        let to = resumes.map(|(resume, _)| resume.sent.at).min().unwrap_or(u64::MAX);
        (to > since.at).then_some((since, to))
    });
    certain.collect()
}
