//! The payload of an acknowledged job is that of its add, wherever it is read: in claims, by
//! handlers and in the final listing. Payloads have a checksum, so a damaged one is recognised.
//!
//! Bedrock's UpdateJob and reports may replace the payload; what is read after one was sent proves
//! nothing, unless it was refused.
//!
//! Cannot see: payloads that nobody read; jobs that may be those of another add, because of a
//! unique key; what Bedrock makes of a job without a payload.

use crate::check::{Evidence, Findings, Terms};
use crate::history::{Body, Origin};
use crate::ledger::{Account, Ledger};

pub(super) fn check(ledger: &Ledger, _: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.acknowledged) {
        let Some(expected) = expected(ledger, account) else { continue };
        let replaced_at = account.rewritten_at.unwrap_or(u64::MAX);
        for (moment, body) in account.readings.iter().filter(|(read, _)| read.at < replaced_at) {
            found.judge();
            if *body == expected {
                continue;
            }
            let what = format!("the payload of job {} is not that of its add", account.id);
            let read = Evidence::new(*moment, format!("read as {body:?}, not {expected:?}"));
            let evidence = ledger.add_evidence(account).into_iter().chain([read]);
            found.add([account.id], what, evidence);
        }
    }
}

fn expected(ledger: &Ledger, account: &Account) -> Option<Body> {
    let (_, index) = account.add?;
    let add = ledger.add_of(account).filter(|add| add.unique.is_none())?;
    match (add.payload_bytes, add.bedrock) {
        (0, true) => None,
        (0, false) => Some(Body::Empty),
        _ => Some(Body::Intact(Origin::Add { mark: add.mark, index })),
    }
}
