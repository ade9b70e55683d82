//! A refused request has no effect, and a request that must be refused is. Found are: an invalid
//! request that was accepted; jobs with the mark of an add that was refused every time it was sent;
//! a job whose result is that of a refused finish.
//!
//! Refused retries and deletes are covered by `extra_run`, `after_end` and `lost`, which accept
//! only others as reasons.
//!
//! Cannot see: an effect of a refused cancel, suspend or change of settings.

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::history::Origin;
use crate::ledger::{AddAccount, Ledger};

pub(super) fn check(ledger: &Ledger, _: &Terms, found: &mut Findings) {
    for (moment, flaw) in &ledger.accepted_flaws {
        let what = format!("an invalid request was accepted: {flaw}");
        found.add([], what, [Evidence::new(*moment, "acknowledged")]);
    }
    adds(ledger, found);
    results(ledger, found);
}

fn adds(ledger: &Ledger, found: &mut Findings) {
    let mut marks: BTreeMap<u64, &AddAccount> = BTreeMap::new();
    for add in &ledger.adds {
        let kept = marks.entry(add.mark).or_insert(add);
        if !add.refused {
            *kept = add;
        }
    }
    for (mark, add) in marks.into_iter().filter(|(_, add)| add.refused) {
        found.judge();
        for index in 0..add.count {
            let Some(ids) = ledger.origins.get(&Origin::Add { mark, index }) else { continue };
            let accounts = ids.iter().filter_map(|id| ledger.account(*id));
            let jobs = accounts.filter_map(|account| {
                let run = account.holds.first().map(|hold| ledger.hold_evidence(account, hold));
                run.or_else(|| ledger.seen_evidence(account))
            });
            let sent = Evidence::new(add.span.sent, "sent, and refused");
            let evidence: Vec<Evidence> = [sent].into_iter().chain(jobs).collect();
            found.add(ids.iter().copied(), "a refused add has added a job", evidence);
        }
    }
}

fn results(ledger: &Ledger, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| !account.refused.is_empty()) {
        let Some(result) = account.seen().and_then(|seen| seen.result.as_deref()) else { continue };
        found.judge();
        if account.ends.iter().any(|end| end.data.as_deref() == Some(result)) {
            continue;
        }
        let refused = account.refused.iter().find(|(_, data)| **data == *result);
        if let Some((moment, data)) = refused {
            let sent = Evidence::new(*moment, format!("finish with '{data}' sent, and refused"));
            let evidence = ledger.seen_evidence(account).into_iter().chain([sent]);
            let what = format!("job {} has the result of a refused finish", account.id);
            found.add([account.id], what, evidence);
        }
    }
}
