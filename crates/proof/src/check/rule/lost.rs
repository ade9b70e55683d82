//! Every job whose add was acknowledged, and every job whose end was acknowledged,
//! is in the final listing, with its tenant, type and parent. A delete that was not refused excuses
//! its absence, `FinishJob` too (Bedrock removes what has finished), and retention if the run was
//! longer.
//!
//! A tenant whose jobs were never listed is a violation: nothing is known of them.
//!
//! Cannot see: payloads, unless the witnesses write down the origin that they carry (`add_once`);
//! jobs of adds whose answer was lost.

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Account, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut unlisted = BTreeMap::new();
    for account in &ledger.accounts {
        let ended = account.ends.iter().any(|end| end.span.done.is_some());
        if !account.acknowledged && !ended {
            continue;
        }
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
    let finished = account.ends.iter().any(|end| end.how == How::BedrockFinish);
    finished || !account.deletes.is_empty() || ledger.may_be_purged(account, terms)
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
