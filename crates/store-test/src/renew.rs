//! Only the holder of a lease can renew it.

use std::time::Duration;

use windlass_core::job::Token;
use windlass_core::store::LeaseRef;
use windlass_core::{Job, Lease};

use crate::Harness;
use crate::fixture::{
    FINISHED, LEASE, NOW, Subject, acme, after, claim_of, globex, id, job, lease_ref, pick,
    release, settlement,
};

pub async fn s0_14_a_renewed_lease_ends_later(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let claimed = store.claim("t", 2, NOW).await;
    let lost = store.renew(vec![lease_ref(&claimed[0])], after(60)).await;
    assert_eq!(lost, []);

    let lease = claimed[0].job.lease.map(|lease| Lease { expires_at: after(60), ..lease });
    assert_eq!(store.get(1).await, Job { lease, ..claimed[0].job.clone() });
    assert_eq!(store.get(2).await, claimed[1].job, "the other lease is as it was");
    let expired = store.at(NOW + LEASE).lease_expired(10).await.unwrap();
    assert_eq!(expired.iter().map(|job| job.id).collect::<Vec<_>>(), [id(2)]);
}

pub async fn a_lease_that_ran_out_is_renewed_while_nobody_broke_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let late = NOW + LEASE * 3;
    assert_eq!(store.at(late).lease_expired(10).await.unwrap().len(), 1);
    assert_eq!(store.renew(vec![lease_ref(&claimed)], late + LEASE).await, []);
    assert_eq!(store.at(late).lease_expired(10).await.unwrap(), []);
}

pub async fn s0_50_only_the_owner_renews(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let right = lease_ref(&claimed);
    let wrong = [
        LeaseRef { token: Token(right.token.0 + 1), ..right.clone() },
        LeaseRef { token: Token(right.token.0 - 1), ..right.clone() },
        LeaseRef { tenant: globex(), ..right.clone() },
        LeaseRef { id: id(2), ..right.clone() },
    ];
    let mut asked = wrong.to_vec();
    asked.insert(2, right);
    let mut lost = store.renew(asked, after(60)).await;
    let order = |lease: &LeaseRef| (lease.tenant.clone(), lease.id, lease.token);
    lost.sort_by_key(order);
    let mut expected = wrong.to_vec();
    expected.sort_by_key(order);
    assert_eq!(lost, expected, "exactly the wrong ones are lost");
    assert_eq!(store.get(1).await.lease.expect("a lease").expires_at, after(60));
}

pub async fn a_wrong_token_renews_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let right = lease_ref(&claimed);
    let wrong = LeaseRef { token: Token(right.token.0 + 1), ..right };
    assert_eq!(store.renew(vec![wrong.clone()], after(60)).await, [wrong]);
    assert_eq!(store.get(1).await, claimed.job);
}

pub async fn the_lease_of_a_job_that_does_not_run_is_lost(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed = store.claim("t", 4, NOW).await;
    store.settle(settlement(&claimed[0], FINISHED)).await;
    store.settle(settlement(&claimed[1], release(after(60)))).await;
    store.cancel(3, NOW).await;
    let leases: Vec<LeaseRef> = claimed.iter().map(lease_ref).collect();
    let mut lost = store.renew(leases.clone(), after(60)).await;
    lost.sort_by_key(|lease| lease.id);
    assert_eq!(lost, leases[..3]);
    assert_eq!(store.get(1).await.lease, None);
    assert_eq!(store.get(2).await.lease, None);
    assert_eq!(store.get(3).await.lease, None);
}

pub async fn the_lease_before_the_present_one_is_lost(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let before = store.claim_one("t", NOW).await;
    store.settle(settlement(&before, release(NOW))).await;
    let present =
        store.at(after(1)).job_claim(claim_of(vec![pick("t", 1)])).await.unwrap().jobs.remove(0);
    let stale = lease_ref(&before);
    assert_eq!(store.renew(vec![stale.clone()], after(60)).await, [stale]);
    assert_eq!(store.get(1).await, present.job);
}

pub async fn many_leases_are_renewed_at_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=500).map(job)).await;
    let claimed = store.claim("t", 500, NOW).await;
    let until = NOW + LEASE + Duration::from_millis(1);
    let leases = claimed.iter().map(lease_ref).collect();
    assert_eq!(store.renew(leases, until).await, []);
    assert_eq!(store.at(NOW + LEASE).lease_expired(1000).await.unwrap(), []);
    assert_eq!(store.at(until).lease_expired(1000).await.unwrap().len(), 500);
    assert_eq!(store.renew(Vec::new(), until).await, []);
    assert_eq!(store.job_get(&acme(), id(500)).await.unwrap().unwrap().attempt, 1);
}
