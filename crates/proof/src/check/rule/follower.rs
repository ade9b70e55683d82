//! What an attempt leaves behind enters with its end, once: the job that follows it (`then`, after
//! 2xx), and the jobs that it emitted (after 2xx and 4xx). Recognised by the origin that payloads
//! carry, in runs, claims and the final listing.
//!
//! Exact for jobs that run once and were not retried. For others, there are not more followers than
//! attempts.
//!
//! A power cut may undo the end of an attempt and its followers together, even if one of these has
//! already run. So jobs that are not listed at the end do not count if a fault came after them.
//!
//! Cannot see: followers whose payloads nobody read; whether one is missing, if jobs of unknown
//! origin were deleted, or if ended jobs are purged during the run.

use std::collections::HashSet;

use crate::check::{Evidence, Findings, Terms};
use crate::history::{JobId, Origin, Seen, State};
use crate::ledger::{Account, Hold, Ledger, ends_job};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let blind = blind_tenants(ledger);
    for account in &ledger.accounts {
        let tenant = account.of.map(|of| ledger.types[of.0].tenant);
        let all_known = terms.retention_ns.is_none()
            && ledger.is_listed(account)
            && tenant.is_some_and(|tenant| !blind.contains(&tenant));
        then(ledger, account, all_known, found);
        emits(ledger, account, all_known, found);
    }
}

/// Tenants with deleted jobs whose origin nobody knows: any of these may be what is missing.
fn blind_tenants(ledger: &Ledger) -> HashSet<crate::ledger::Name> {
    let gone = ledger.accounts.iter().filter(|account| {
        let unknown = account.origin.is_none() && !account.acknowledged;
        unknown && account.seen.is_none() && !account.deletes.is_empty()
    });
    // A delete does not say of which tenant the job was, unless something else does.
    let all = ledger.types.iter().map(|of| of.tenant);
    if gone.count() == 0 { HashSet::new() } else { all.collect() }
}

fn then(ledger: &Ledger, account: &Account, all_known: bool, found: &mut Findings) {
    let followers = jobs_of(ledger, Origin::Then { of: account.id });
    let follows = ledger.add_of(account).is_some_and(|add| add.follows);
    if !ledger.is_form_known(account) || (!follows && followers.is_empty()) {
        return;
    }
    let most = match (follows, is_simple(ledger, account)) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => account.holds.len().max(1),
    };
    if followers.len() > most {
        let what = format!("job {} is followed by {} jobs", account.id, followers.len());
        report(ledger, account, &followers, what, found);
        return;
    }
    let Some(seen) = account.seen().filter(|_| is_simple(ledger, account)) else { return };
    found.judge();
    let none = !ledger.origins.contains_key(&Origin::Then { of: account.id });
    if seen.state == State::Finished && none && all_known {
        let what = format!("job {} finished, and nothing follows it", account.id);
        report(ledger, account, &followers, what, found);
    }
    if seen.state != State::Finished && !followers.is_empty() {
        let what = format!("job {} did not finish, and yet something follows it", account.id);
        report(ledger, account, &followers, what, found);
    }
}

fn emits(ledger: &Ledger, account: &Account, all_known: bool, found: &mut Findings) {
    let most = account.holds.iter().map(|hold| hold.emitted).max().unwrap_or(0);
    if most == 0 || !is_simple(ledger, account) {
        return;
    }
    let good = |hold: &&Hold| hold.status.is_some_and(ends_job);
    let least = account.holds.iter().filter(good).map(|hold| hold.emitted).min().unwrap_or(0);
    for index in 0..most {
        found.judge();
        let emitted = jobs_of(ledger, Origin::Emit { of: account.id, index });
        let what = match account.seen() {
            _ if emitted.len() > 1 => "entered more than once",
            Some(seen) if ended_by_run(seen) => {
                let expires = ledger.add_of(account).is_some_and(|add| add.expires_ns.is_some());
                if expires && seen.state == State::Failed {
                    continue;
                }
                let origin = Origin::Emit { of: account.id, index };
                let none = !ledger.origins.contains_key(&origin);
                if !none || index >= least || !all_known {
                    continue;
                }
                "is missing"
            }
            Some(_) if !emitted.is_empty() => "entered without the end of its attempt",
            _ => continue,
        };
        let what = format!("job number {index} that job {} emitted {what}", account.id);
        report(ledger, account, &emitted, what, found);
    }
}

/// Ended with a status after which its emitted jobs enter.
fn ended_by_run(seen: &Seen) -> bool {
    let ended = matches!(seen.state, State::Finished | State::Failed);
    ended && seen.status.is_none_or(ends_job)
}

fn is_simple(ledger: &Ledger, account: &Account) -> bool {
    ledger.runs_once(account) && account.reruns.is_empty()
}

/// Jobs of this origin, without those whose entry may have been undone with the end of their cause.
fn jobs_of(ledger: &Ledger, origin: Origin) -> Vec<JobId> {
    let ids = ledger.origins.get(&origin).into_iter().flatten().copied();
    ids.filter(|id| !ledger.account(*id).is_some_and(|job| ledger.may_be_undone(job))).collect()
}

fn report(
    ledger: &Ledger,
    account: &Account,
    others: &[JobId],
    what: String,
    found: &mut Findings,
) {
    let own = ledger.add_evidence(account).into_iter().chain(ledger.seen_evidence(account));
    let runs = account.holds.iter().map(|hold| ledger.hold_evidence(account, hold));
    let others_evidence = others.iter().filter_map(|id| of_other(ledger, *id));
    let evidence: Vec<Evidence> = own.chain(runs).chain(others_evidence).collect();
    found.add([account.id].into_iter().chain(others.iter().copied()), what, evidence);
}

fn of_other(ledger: &Ledger, id: JobId) -> Option<Evidence> {
    let account = ledger.account(id)?;
    let run = account.holds.first().map(|hold| ledger.hold_evidence(account, hold));
    run.or_else(|| ledger.seen_evidence(account))
}
