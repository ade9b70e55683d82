//! The status counts exactly the jobs that are listed, by type and state, and no job is listed
//! twice. Both are read at the end, when nothing runs and nothing is added.
//!
//! Cannot see: types that the status does not mention; tenants that were not listed completely.

use std::collections::HashMap;

use crate::check::{Evidence, Findings, Terms};
use crate::history::State;
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger, _: &Terms, found: &mut Findings) {
    let mut listed: HashMap<(usize, State), u64> = HashMap::new();
    for account in &ledger.accounts {
        let (Some(of), Some(seen)) = (account.of, account.seen()) else { continue };
        *listed.entry((of.0, seen.state)).or_default() += 1;
        if let Some(again) = account.seen_again {
            let again = Evidence::new(again, format!("job {} is listed again", account.id));
            let evidence = ledger.seen_evidence(account).into_iter().chain([again]);
            found.add([account.id], format!("job {} is listed twice", account.id), evidence);
        }
    }
    for (moment, of, state, count) in &ledger.counted {
        let jobs = listed.get(&(of.0, *state)).copied().unwrap_or(0);
        let of = &ledger.types[of.0];
        if !ledger.listed.contains(&of.tenant) {
            continue;
        }
        found.judge();
        if jobs == *count {
            continue;
        }
        let (tenant, name) = (ledger.names.text(of.tenant), ledger.names.text(of.name));
        let what = format!("{tenant}/{name} has {jobs} jobs that are {state:?}, counted {count}");
        found.add([], what, [Evidence::new(*moment, format!("the status says {count}"))]);
    }
}
