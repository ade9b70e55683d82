//! Leases that last as long as a daemon's sysid: one beat renews them all.

use windlass_core::job::Boot;
use windlass_core::store::{
    Claim, Claimed, Error, Hold, LeaseRef, Pick, Settled, Settlement, SysidGrant, SysidRenew,
    SysidReserve,
};
use windlass_core::{JobId, Lease, NewJob, State, Timestamp, TypeKey};

use crate::Harness;
use crate::fixture::{
    FINISHED, LEASE, NOW, Subject, acme, after, again, claim_of, globex, id, job, job_of, key,
    lease_ref, numbers, pick, priority, release, settlement, sysid, token,
};
use crate::kin::put;

/// A store on which daemon 7 holds its sysid.
async fn with_daemon(harness: &dyn Harness) -> (Subject, SysidGrant) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store, 7, NOW).await;
    (store, grant)
}

async fn granted(store: &Subject, number: u16, now: Timestamp) -> SysidGrant {
    let reserve = SysidReserve { wanted: Some(sysid(number)), lease: LEASE };
    store.at(now).sysid_reserve(reserve).await.unwrap()
}

async fn beat(store: &Subject, grant: SysidGrant, now: Timestamp) {
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: None };
    store.at(now).sysid_renew(renew).await.unwrap();
}

fn on_beat(grant: SysidGrant, limit: u32) -> Claim {
    let (owner, hold) = (grant.sysid, Hold::Beat(grant.boot));
    Claim { owner, hold, ..claim_of(vec![pick("t", limit)]) }
}

async fn claim(store: &Subject, grant: SysidGrant, limit: u32) -> Vec<Claimed> {
    store.job_claim(on_beat(grant, limit)).await.unwrap().jobs
}

async fn expires_at(store: &Subject, number: i64) -> Timestamp {
    store.get(number).await.lease.expect("a lease").expires_at
}

async fn expired(store: &Subject, now: Timestamp) -> Vec<i64> {
    numbers(&store.at(now).lease_expired(100).await.unwrap())
}

pub async fn a_lease_on_the_beat_lasts_as_long_as_its_owners_number(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let claimed = claim(&store, grant, 1).await.remove(0);
    let token = lease_ref(&claimed).token;
    let lease = Lease { owner: sysid(7), token, expires_at: NOW + LEASE, on_beat: true };
    assert_eq!(claimed.job.lease, Some(lease));
    assert_eq!(store.get(1).await, claimed.job);

    beat(&store, grant, after(8)).await;
    assert_eq!(expires_at(&store, 1).await, after(18));
    assert!(expired(&store, after(17)).await.is_empty());
    assert_eq!(expired(&store, after(18)).await, [1]);
}

pub async fn a_beat_moves_no_lease_with_an_expiry_of_its_own(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    store.claim_one("t", NOW).await;
    beat(&store, grant, after(8)).await;
    assert_eq!(expires_at(&store, 1).await, NOW + LEASE);
    assert_eq!(store.lease_mine(sysid(7), None, 10).await.unwrap(), []);
}

pub async fn a_released_number_ends_its_leases(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    claim(&store, grant, 1).await;
    store.sysid_release(grant.sysid, grant.boot).await.unwrap();
    assert_eq!(expired(&store, NOW).await, [1]);
}

pub async fn a_number_given_to_another_leaves_the_leases_as_they_were(harness: &dyn Harness) {
    let (store, dead) = with_daemon(harness).await;
    store.add([job(1)]).await;
    claim(&store, dead, 1).await;
    let next = granted(&store, 7, after(20)).await;
    assert_eq!(
        store.lease_mine(sysid(7), None, 10).await.unwrap(),
        [],
        "they are not the new one's"
    );
    beat(&store, next, after(25)).await;
    assert_eq!(expires_at(&store, 1).await, NOW + LEASE);
    assert_eq!(expired(&store, after(25)).await, [1]);
}

pub async fn a_claim_on_a_foreign_beat_takes_nothing(harness: &dyn Harness) {
    let (store, dead) = with_daemon(harness).await;
    store.add([job(1)]).await;
    granted(&store, 7, after(20)).await;
    let unknown = SysidGrant { sysid: sysid(8), boot: Boot(1) };
    for grant in [dead, unknown] {
        let refused = store.job_claim(on_beat(grant, 1)).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    assert_eq!(store.get(1).await.state, State::Queued);
}

pub async fn a_lease_on_the_beat_is_broken_only_when_the_number_has_run_out(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let claimed = claim(&store, grant, 1).await.remove(0);
    beat(&store, grant, after(5)).await;
    let breaking =
        || Settlement { only_if_expired: true, ..settlement(&claimed, again(after(20))) };
    assert_eq!(store.at(after(14)).settle(breaking()).await, Settled::Stale);
    assert_eq!(store.at(after(15)).settle(breaking()).await, Settled::Done);
    assert_eq!(store.get(1).await.lease, None);
}

pub async fn a_renewed_lease_leaves_the_beat(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let claimed = claim(&store, grant, 1).await.remove(0);
    assert_eq!(store.renew(vec![lease_ref(&claimed)], after(60)).await, []);
    beat(&store, grant, after(8)).await;
    assert_eq!(expires_at(&store, 1).await, after(60));
    assert_eq!(store.lease_mine(sysid(7), None, 10).await.unwrap(), []);
}

pub async fn a_decision_keeps_a_lease_on_the_beat(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let claimed = claim(&store, grant, 1).await.remove(0);
    let mut job = claimed.job.clone();
    job.timeout = Some(LEASE);
    store.edit(vec![put(job)]).await;
    beat(&store, grant, after(8)).await;
    assert_eq!(expires_at(&store, 1).await, after(18));
    assert_eq!(store.lease_mine(sysid(7), None, 10).await.unwrap(), [lease_ref(&claimed)]);
}

pub async fn a_daemon_finds_all_that_it_holds_in_pages(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    let other = granted(&store, 8, NOW).await;
    store.add((1..=6).map(job)).await;
    let mine = claim(&store, grant, 4).await;
    claim(&store, other, 1).await;
    store.claim_one("t", NOW).await;
    let held: Vec<LeaseRef> = mine.iter().map(lease_ref).collect();
    let page = |after: Option<JobId>| store.lease_mine(sysid(7), after, 3);
    assert_eq!(page(None).await.unwrap(), held[..3]);
    assert_eq!(page(Some(id(3))).await.unwrap(), held[3..]);
    assert_eq!(page(Some(id(4))).await.unwrap(), []);
    assert!(held.iter().all(|lease| lease.tenant == acme()) && key("t").tenant == acme());
}

pub async fn a_claim_is_found_by_its_token(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add((1..=6).map(job)).await;
    let for_worker = store.claim("t", 3, NOW).await;
    store.claim("t", 1, NOW).await;
    let on_beat = claim(&store, grant, 1).await.remove(0);
    store.settle(settlement(&for_worker[1], FINISHED)).await;
    let held = [&for_worker[0], &for_worker[2], &on_beat].map(lease_ref);
    let tokens = vec![held[0].token, held[2].token, token()];
    assert_eq!(store.lease_claimed(tokens.clone(), 10).await.unwrap(), held);
    assert_eq!(store.lease_claimed(tokens, 2).await.unwrap(), held[..2]);
    assert_eq!(store.lease_claimed(Vec::new(), 10).await.unwrap(), []);
}

pub async fn what_has_ended_is_not_held(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed = claim(&store, grant, 4).await;
    store.settle(settlement(&claimed[0], FINISHED)).await;
    store.settle(settlement(&claimed[1], release(NOW))).await;
    store.cancel(3, NOW).await;
    let held = store.lease_mine(sysid(7), None, 10).await.unwrap();
    assert_eq!(held, [lease_ref(&claimed[3])]);
}

pub async fn a_late_release_leaves_the_next_owners_leases(harness: &dyn Harness) {
    let (store, dead) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let next = granted(&store, 7, after(20)).await;
    let claimed = claim(&store, next, 1).await.remove(0);
    store.sysid_release(dead.sysid, dead.boot).await.unwrap();
    assert_eq!(expires_at(&store, 1).await, after(20) + LEASE);
    assert!(expired(&store, after(20)).await.is_empty());
    assert_eq!(store.lease_mine(sysid(7), None, 10).await.unwrap(), [lease_ref(&claimed)]);
}

pub async fn a_claim_on_the_beat_of_a_number_that_was_given_back_takes_nothing(
    harness: &dyn Harness,
) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    store.sysid_release(grant.sysid, grant.boot).await.unwrap();
    let refused = store.job_claim(on_beat(grant, 1)).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(store.get(1).await.state, State::Queued);
}

/// Another daemon may already break leases on it.
pub async fn a_claim_on_the_beat_of_a_number_that_has_run_out_takes_nothing(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let refused = store.at(after(10)).job_claim(on_beat(grant, 1)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(store.get(1).await.state, State::Queued);
    beat(&store, grant, after(11)).await;
    assert_eq!(claim(&store, grant, 1).await.len(), 1);
}

/// A late beat makes them valid again, unless they were broken in the meantime.
pub async fn a_beat_that_is_late_prolongs_leases_that_ran_out(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    store.add([job(1)]).await;
    let claimed = claim(&store, grant, 1).await.remove(0);
    assert_eq!(expired(&store, after(30)).await, [1]);
    beat(&store, grant, after(30)).await;
    assert!(expired(&store, after(39)).await.is_empty());
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
}

pub async fn what_a_daemon_holds_comes_in_the_order_of_ids(harness: &dyn Harness) {
    let (store, grant) = with_daemon(harness).await;
    let theirs = TypeKey { tenant: globex(), ..key("t") };
    let urgent = |number: i64| NewJob { priority: priority(number * 100), ..job(number) };
    store.add((1..=6).map(urgent)).await;
    store.add([NewJob { key: theirs.clone(), ..job(4711) }, job_of("other", 7)]).await;
    let of_all = |limit| {
        let theirs = Pick { key: theirs.clone(), limit, floor: None };
        let picks = vec![theirs, pick("other", limit), pick("t", limit)];
        store.job_claim(Claim { picks, ..on_beat(grant, 0) })
    };
    let mut held: Vec<LeaseRef> = Vec::new();
    for limit in [2, 9] {
        held.extend(of_all(limit).await.unwrap().jobs.iter().map(lease_ref));
    }
    held.sort_by_key(|lease| lease.id);
    let (mut found, mut last) = (Vec::new(), None);
    for _ in 0..held.len() {
        let page = store.lease_mine(sysid(7), last, 3).await.unwrap();
        assert!(page.len() <= 3);
        last = page.last().map(|lease| lease.id).or(last);
        found.extend(page);
    }
    assert_eq!(found, held);
    assert_eq!(found.last().map(|lease| lease.tenant.clone()), Some(globex()));
}

pub async fn leases_of_all_kinds_run_out_in_one_order(harness: &dyn Harness) {
    let (store, early) = with_daemon(harness).await;
    let late = granted(&store, 8, NOW).await;
    store.add((1..=4).map(job)).await;
    claim(&store, late, 1).await;
    let own = store.claim("t", 2, NOW).await;
    claim(&store, early, 1).await;
    beat(&store, early, after(2)).await;
    beat(&store, late, after(4)).await;
    for (claimed, until) in own.iter().zip([11, 13]) {
        store.renew(vec![lease_ref(claimed)], after(until)).await;
    }
    // At 11, 12, 13 and 14.
    assert_eq!(expired(&store, after(60)).await, [2, 4, 3, 1]);
    let some = store.lease_expired(3).await.unwrap();
    assert_eq!(numbers(&some), [2, 4, 3], "the oldest of all kinds");
}
