//! Every job whose add was acknowledged, and every job whose end was acknowledged,
//! is in the final listing, with its tenant, type and parent. A delete that was not refused excuses
//! its absence, and retention if the run was longer.
//!
//! A tenant whose jobs were never listed is a violation: nothing is known of them.
//!
//! Cannot see: payloads, unless the witnesses write down the origin that they carry (`add_once`);
//! jobs of adds whose answer was lost.

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::history::JobId;
use crate::ledger::{Account, End, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut unlisted = BTreeMap::new();
    for account in &ledger.accounts {
        // An end that was only seen was never acknowledged.
        let ended = |end: &End| end.span.done.is_some() && !matches!(end.how, How::Looked(_));
        let ended = account.ends.iter().any(ended);
        if !account.acknowledged && !ended {
            continue;
        }
        found.judge();
        match account.seen() {
            Some(_) => differs(ledger, account, found),
            None if !ledger.is_listed(account) => {
                let tenant = account.of.map(|of| ledger.types[of.0].tenant);
                unlisted.entry(tenant).or_insert(account);
            }
            None if !may_be_gone(ledger, account, terms) => {
                let end = account.ends.iter().find(|end| end.span.done.is_some());
                let evidence = ledger.add_evidence(account).into_iter();
                let evidence = evidence.chain(end.map(|end| ledger.end_evidence(account, end)));
                let what = format!("job {} is not there at the end", account.id);
                found.add([account.id], what, evidence);
            }
            None => {}
        }
    }
    for (tenant, account) in unlisted {
        let tenant = tenant.map_or("?", |tenant| ledger.names.text(tenant));
        let what = format!("tenant {tenant} has acknowledged jobs, but was never listed");
        found.add([account.id], what, ledger.add_evidence(account));
    }
}

fn may_be_gone(ledger: &Ledger, account: &Account, terms: &Terms) -> bool {
    !account.deletes.is_empty() || ledger.may_be_purged(account, terms)
}

/// Whether it may have been detached from its parent: a Bedrock worker that reports a parent has
/// seen its children that have ended; a child whose parent is gone is none any more; nor is one
/// that a Bedrock worker reports when its parent has ended, such as after a retry.
fn may_be_detached(ledger: &Ledger, child: &Account, parent: JobId) -> bool {
    ledger.account(parent).is_some_and(|parent| {
        let reported = parent.ends.iter().any(|end| end.how.is_of_bedrock());
        let mut reports = child.ends.iter().filter(|end| end.how.is_of_bedrock());
        let has_ended = |until: u64| parent.ends.iter().any(|end| end.span.sent.at <= until);
        reported || !parent.deletes.is_empty() || reports.any(|end| has_ended(end.span.until()))
    })
}

/// The job is there, but not as it was added.
fn differs(ledger: &Ledger, account: &Account, found: &mut Findings) {
    let (Some((moment, seen)), Some(of)) = (account.seen.as_deref(), account.of) else { return };
    let of = &ledger.types[of.0];
    let (tenant, name) = (ledger.names.text(of.tenant), ledger.names.text(of.name));
    let mut wrong = Vec::new();
    if (seen.tenant.as_str(), seen.type_name.as_str()) != (tenant, name) {
        wrong.push(format!("it was added to {tenant}/{name}"));
    }
    // A key or a unique key returns jobs of other adds.
    let own = ledger.add_of(account).filter(|add| add.unique.is_none() && add.key.is_none());
    if let Some(add) = own
        && add.parent != seen.parent
        && !(seen.parent.is_none()
            && add.parent.is_some_and(|id| may_be_detached(ledger, account, id)))
    {
        wrong.push(format!("its parent was {:?}", add.parent.map(|id| id.0)));
    }
    for wrong in wrong {
        let parent = seen.parent.map(|id| id.0);
        let listed = format!("listed in {}/{}, parent {parent:?}", seen.tenant, seen.type_name);
        let evidence = ledger.add_evidence(account).into_iter();
        let evidence = evidence.chain([Evidence::new(*moment, listed)]);
        let what = format!("job {} is not as it was added: {wrong}", account.id);
        found.add([account.id], what, evidence);
    }
}
