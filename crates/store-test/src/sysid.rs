//! Sysids: unique, under a lease, with boot numbers that only grow.

use std::collections::BTreeSet;

use windlass_core::job::Boot;
use windlass_core::limit::SYSID_MAX;
use windlass_core::store::{Error, SysidGrant, SysidRenew, SysidReserve};
use windlass_core::{Sysid, Timestamp};

use crate::Harness;
use crate::fixture::{LEASE, NOW, Subject, after, id, job, sysid};

/// Concurrent reservations of a case that takes many.
const AT_ONCE: usize = 65;

fn reserve(wanted: Option<u16>) -> SysidReserve {
    SysidReserve { wanted: wanted.map(sysid), lease: LEASE }
}

async fn granted(store: &Subject, wanted: Option<u16>, now: Timestamp) -> SysidGrant {
    store.at(now).sysid_reserve(reserve(wanted)).await.unwrap()
}

async fn refused(store: &Subject, wanted: Option<u16>, now: Timestamp) -> bool {
    matches!(store.at(now).sysid_reserve(reserve(wanted)).await, Err(Error::Conflict(_)))
}

fn renewal(store: &Subject, grant: SysidGrant, until: Timestamp) -> SysidRenew {
    SysidRenew { grant, lease: until.since(store.now()), id_newest: None, report: None }
}

async fn listed(store: &Subject, now: Timestamp) -> Vec<Sysid> {
    let mut sysids = store.at(now).sysid_list().await.unwrap();
    sysids.sort();
    sysids
}

pub async fn s0_19_numbers_are_distinct_and_a_taken_one_is_refused(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let mut sysids = BTreeSet::new();
    for _ in 0..20 {
        sysids.insert(granted(&store, None, NOW).await.sysid);
    }
    assert_eq!(sysids.len(), 20);
    assert_eq!(listed(&store, NOW).await, sysids.iter().copied().collect::<Vec<_>>());
    for taken in sysids {
        assert!(refused(&store, Some(taken.get()), NOW).await, "{taken}");
    }
}

pub async fn s0_58_a_wanted_number_is_given(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(granted(&store, Some(4095), NOW).await.sysid, sysid(4095));
    assert_eq!(granted(&store, Some(1), NOW).await.sysid, sysid(1));
    assert_eq!(listed(&store, NOW).await, [sysid(1), sysid(4095)]);
}

pub async fn s0_58_a_released_number_is_free_at_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let first = granted(&store, Some(7), NOW).await;
    store.sysid_release(first.sysid, first.boot).await.unwrap();
    assert_eq!(listed(&store, NOW).await, []);
    let second = granted(&store, Some(7), NOW).await;
    assert!(second.boot > first.boot);

    // The first daemon can no longer renew or release it.
    store.sysid_release(first.sysid, first.boot).await.unwrap();
    assert_eq!(listed(&store, NOW).await, [sysid(7)]);
    assert!(refused(&store, Some(7), NOW).await);
}

pub async fn s0_58_a_dead_daemons_number_is_free_after_its_lease(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let dead = granted(&store, Some(7), NOW).await;
    assert!(refused(&store, Some(7), after(9)).await);
    assert_eq!(listed(&store, after(9)).await, [sysid(7)]);
    assert_eq!(listed(&store, after(10)).await, []);
    let next = granted(&store, Some(7), after(10)).await;
    assert_ne!(next.boot, dead.boot);
    let renewed = store.sysid_renew(renewal(&store, dead, after(99))).await;
    assert!(matches!(renewed, Err(Error::Conflict(_))), "{renewed:?}");
    assert_eq!(listed(&store, after(50)).await, [], "a refused renewal prolongs nothing");
}

pub async fn s0_58_a_renewed_number_stays_taken(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store, Some(7), NOW).await;
    store.sysid_renew(renewal(&store, grant, after(30))).await.unwrap();
    assert!(refused(&store, Some(7), after(29)).await);
    assert_eq!(listed(&store, after(29)).await, [sysid(7)]);
}

pub async fn a_lease_that_ran_out_is_renewed_if_nobody_took_the_number(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store, Some(7), NOW).await;
    assert_eq!(listed(&store, after(20)).await, []);
    store.sysid_renew(renewal(&store, grant, after(30))).await.unwrap();
    assert_eq!(listed(&store, after(20)).await, [sysid(7)]);
}

pub async fn boot_numbers_only_grow(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let mut last = None;
    for round in 0..10 {
        let now = after(round * 5);
        let grant = granted(&store, None, now).await;
        assert!(last.is_none_or(|last| grant.boot > last), "{grant:?} after {last:?}");
        last = Some(grant.boot);
        if round % 3 == 0 {
            store.sysid_release(grant.sysid, grant.boot).await.unwrap();
        }
        refused(&store, Some(grant.sysid.get()), now).await;
    }
}

pub async fn a_number_that_was_never_used_is_preferred(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let used = granted(&store, None, NOW).await;
    store.sysid_release(used.sysid, used.boot).await.unwrap();
    let next = granted(&store, None, NOW).await;
    assert_ne!(next.sysid, used.sysid);
}

/// Takes every sysid; all are free again after 10 seconds, and 77 after 9.
async fn take_all(store: &Subject) {
    let wanted: Vec<u16> = (1..=SYSID_MAX).collect();
    for some in wanted.chunks(AT_ONCE) {
        let calls = some.iter().map(|wanted| {
            let store = store.clone();
            let mut reserve = reserve(Some(*wanted));
            if *wanted == 77 {
                reserve.lease = LEASE - std::time::Duration::from_secs(1);
            }
            tokio::spawn(async move { store.sysid_reserve(reserve).await.unwrap() })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
    }
}

pub async fn when_all_are_taken_the_next_one_is_refused(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    take_all(&store).await;
    assert!(refused(&store, None, NOW).await);
    assert_eq!(listed(&store, NOW).await.len(), usize::from(SYSID_MAX));
    let longest_free = granted(&store, None, after(60)).await;
    assert_eq!(longest_free.sysid, sysid(77));
}

pub async fn the_newest_id_is_known_without_its_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.id_newest().await.unwrap(), None);
    store.add([job(5), job(3)]).await;
    assert_eq!(store.id_newest().await.unwrap(), Some(id(5)));

    let grant = granted(&store, Some(7), NOW).await;
    let noting = |newest| SysidRenew { id_newest: newest, ..renewal(&store, grant, after(30)) };
    store.sysid_renew(noting(Some(id(90)))).await.unwrap();
    assert_eq!(store.id_newest().await.unwrap(), Some(id(90)));
    for older in [Some(id(80)), None] {
        store.sysid_renew(noting(older)).await.unwrap();
        assert_eq!(store.id_newest().await.unwrap(), Some(id(90)), "a note is never taken back");
    }
    store.sysid_release(grant.sysid, grant.boot).await.unwrap();
    assert_eq!(store.id_newest().await.unwrap(), Some(id(90)), "nor lost with its daemon");
    granted(&store, Some(7), after(60)).await;
    assert_eq!(store.id_newest().await.unwrap(), Some(id(90)), "nor with the next one");
}

pub async fn the_newest_id_includes_ended_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(9), crate::fixture::FINISHED).await;
    store.add([job(2)]).await;
    assert_eq!(store.id_newest().await.unwrap(), Some(id(9)));
}

/// So that a store that has lost even synced changes does not grant a boot number twice.
pub async fn boot_numbers_are_not_below_the_clock(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let first = store.at(NOW).boot_next().await.unwrap();
    assert!(first >= Boot::after(Boot(0), NOW), "{first:?}");
    let other = Subject::fresh(harness).await;
    let later = other.at(after(60)).boot_next().await.unwrap();
    assert!(later > first, "{later:?} is another store's, and later than {first:?}");
    assert!(granted(&other, None, after(3600)).await.boot >= Boot::after(Boot(0), after(3600)));
}

pub async fn the_newest_id_is_that_of_any_daemon(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (one, two) = (granted(&store, None, NOW).await, granted(&store, None, NOW).await);
    for (grant, newest, known) in [(one, 90, 90), (two, 95, 95), (one, 92, 95)] {
        let id_newest = Some(id(newest));
        let renew = SysidRenew { id_newest, ..renewal(&store, grant, after(30)) };
        store.sysid_renew(renew).await.unwrap();
        assert_eq!(store.id_newest().await.unwrap(), Some(id(known)));
    }
}
