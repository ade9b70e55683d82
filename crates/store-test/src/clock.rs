//! The wall clock is set while the store is in use. Durations keep their length, and ready jobs
//! stay ready; jobs that wait for a time of day still wait for it.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::limit::ORPHAN_PIECES_AGE;
use windlass_core::store::{Hold, Piece, SysidGrant, SysidRenew, SysidReserve};
use windlass_core::{Extra, NewJob, Timestamp};

use crate::Harness;
use crate::daemon::report;
use crate::fixture::{
    LEASE, NOW, Subject, after, again, claim_of, id, job, job_of, lease_ref, numbers, pick,
    settlement, sysid,
};

const HOUR: u64 = 3600;

/// The clock before and after it is set: by more than a lease and by less.
const STEPS: [(u64, u64); 4] = [(HOUR, 0), (0, HOUR), (9, 0), (0, 9)];

/// Sets the wall clock; a write makes the store notice it.
async fn set(store: &Subject, to: Timestamp) {
    store.set_clock(to);
    store.boot_next().await.unwrap();
}

async fn expired(store: &Subject, seconds: u64) -> Vec<i64> {
    let at = store.now() + Duration::from_secs(seconds);
    numbers(&store.at(at).lease_expired(10).await.unwrap())
}

pub async fn a_ready_job_stays_ready(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(after(HOUR)).add([NewJob { run_at: after(HOUR), ..job(1) }]).await;
    store.add([NewJob { run_at: after(HOUR + 5), ..job_of("late", 2) }]).await;
    store.waiting(after(HOUR + 5)).await;
    set(&store, NOW).await;
    assert_eq!(store.waiting(NOW).await.types.len(), 2);
    assert_eq!(store.stats("t", NOW).await.unwrap().ready, 1);
    store.claim_one("t", NOW).await;
    store.claim_one("late", NOW).await;
}

/// It was accepted before the clock was set back, or by a daemon whose clock is ahead.
pub async fn a_job_created_ahead_of_the_clock_is_ready_unless_it_is_to_wait(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let created_at = after(HOUR);
    let at_once = NewJob { run_at: created_at, created_at, ..job(1) };
    let overdue = NewJob { run_at: after(1), created_at, ..job(2) };
    let waiting = NewJob { run_at: after(HOUR + 1), created_at, ..job(3) };
    store.add([at_once, overdue, waiting]).await;
    assert_eq!(store.claim("t", 9, NOW).await.len(), 2);
    assert_eq!(store.claim_one("t", after(HOUR + 1)).await.job.id, id(3));
}

pub async fn a_lease_lasts_as_long_as_it_was_to(harness: &dyn Harness) {
    for (before, afterwards) in STEPS {
        let store = Subject::fresh(harness).await;
        store.add([job(1)]).await;
        store.set_clock(after(before));
        let claimed = store.claim_one("t", store.now()).await;
        store.at(store.now() + Duration::from_secs(4));
        set(&store, after(afterwards)).await;
        assert!(expired(&store, 5).await.is_empty());
        assert_eq!(expired(&store, 1).await, [1]);
        let until = store.now() + LEASE;
        assert_eq!(store.renew(vec![lease_ref(&claimed)], until).await, []);
        assert!(expired(&store, 9).await.is_empty());
    }
}

pub async fn a_lease_without_an_end_has_none_afterwards(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let renew = windlass_core::store::Renew { leases: vec![lease_ref(&claimed)], hold: None };
    assert_eq!(store.job_renew(renew).await.unwrap(), []);
    set(&store, after(HOUR)).await;
    let until = store.get(1).await.lease.expect("a lease").expires_at;
    assert_eq!(until, Timestamp::NEVER);
}

pub async fn a_daemons_number_and_its_leases_last_as_long_as_they_were_to(harness: &dyn Harness) {
    for (before, afterwards) in STEPS {
        let store = Subject::fresh(harness).await;
        store.add([job(1)]).await;
        store.set_clock(after(before));
        let reserve = SysidReserve { wanted: Some(sysid(7)), lease: LEASE };
        let grant: SysidGrant = store.sysid_reserve(reserve).await.unwrap();
        let report = Some(report(7, 0, 0));
        let beat = SysidRenew { grant, lease: LEASE, id_newest: None, report };
        store.sysid_renew(beat).await.unwrap();
        let mut claim = claim_of(vec![pick("t", 1)]);
        claim.hold = Hold::Beat(grant.boot);
        store.job_claim(claim).await.unwrap();
        store.at(store.now() + Duration::from_secs(4));
        set(&store, after(afterwards)).await;
        assert_eq!(store.sysid_list().await.unwrap(), [sysid(7)]);
        assert!(expired(&store, 5).await.is_empty());
        assert_eq!(expired(&store, 1).await, [1]);
        assert_eq!(store.sysid_list().await.unwrap(), []);
        let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: None };
        assert_eq!(store.sysid_renew(renew).await.unwrap(), store.now(), "the store's time");
        assert!(expired(&store, 9).await.is_empty());
    }
}

pub async fn a_lease_is_not_broken_because_the_clock_was_set(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.set_clock(after(HOUR));
    let mut breaking = settlement(&claimed, again(store.now()));
    breaking.only_if_expired = true;
    let settled = store.settle(breaking.clone()).await;
    assert_eq!(settled, windlass_core::store::Settled::Stale, "the first write notices it");
    store.at(store.now() + LEASE);
    assert_eq!(store.settle(breaking).await, windlass_core::store::Settled::Done);
}

pub async fn a_retry_waits_as_long_as_it_was_to(harness: &dyn Harness) {
    for (before, afterwards) in STEPS {
        let store = Subject::fresh(harness).await;
        store.add([job(1)]).await;
        store.set_clock(after(before));
        let claimed = store.claim_one("t", store.now()).await;
        let run_at = store.now() + Duration::from_secs(30);
        store.settle(settlement(&claimed, store.again(run_at))).await;
        set(&store, after(afterwards)).await;
        assert!(store.claim("t", 1, store.now() + Duration::from_secs(29)).await.is_empty());
        store.claim_one("t", store.now() + Duration::from_secs(1)).await;
    }
}

pub async fn a_lent_job_stays_lent_as_long_as_it_was_to(harness: &dyn Harness) {
    for (before, afterwards) in STEPS {
        let store = Subject::fresh(harness).await;
        store.set_clock(after(before));
        store.boot_next().await.unwrap();
        let extra = Extra { lent: true, ..Extra::default() };
        let (created_at, run_at) = (store.now(), store.now() + Duration::from_secs(30));
        store.add([NewJob { extra, created_at, run_at, ..job(1) }]).await;
        set(&store, after(afterwards)).await;
        assert!(store.claim("t", 1, store.now() + Duration::from_secs(29)).await.is_empty());
        store.claim_one("t", store.now() + Duration::from_secs(1)).await;
    }
}

/// Their job is still in a journal.
pub async fn pieces_wait_for_their_job_as_long_as_they_were_to(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let bytes = Bytes::from_static(b"piece");
    store.payload_put(vec![Piece { id: id(1), index: 0, bytes }]).await.unwrap();
    set(&store, NOW + ORPHAN_PIECES_AGE).await;
    store.job_purge(10).await.unwrap();
    assert!(store.payload_piece(id(1), 0).await.unwrap().is_some(), "they have just been put");
    store.at(store.now() + ORPHAN_PIECES_AGE).job_purge(10).await.unwrap();
    assert!(store.payload_piece(id(1), 0).await.unwrap().is_none());
}

pub async fn a_job_that_is_to_run_at_a_time_of_day_waits_for_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { run_at: after(2 * HOUR), ..job(1) }]).await;
    set(&store, after(HOUR)).await;
    assert!(store.claim("t", 1, after(2 * HOUR - 1)).await.is_empty());
    set(&store, after(HOUR)).await;
    assert!(store.claim("t", 1, after(2 * HOUR - 1)).await.is_empty());
    store.claim_one("t", after(2 * HOUR)).await;
}
