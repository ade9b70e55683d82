//! The store itself: capabilities, ping and close.

use std::time::Duration;

use bytes::Bytes;

use windlass_core::State;
use windlass_core::handler::TypeSettings;
use windlass_core::job::{Boot, Progress};
use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::{
    ChangedLook, Durability, EndRequest, Error, Insert, NamedLook, Piece, Renew, Requeue,
    SysidGrant, SysidRenew, SysidReserve,
};

use crate::Harness;
use crate::add::add_of;
use crate::fixture::{
    DAY, FINISHED, LEASE, NOW, Subject, acme, claim_of, everything_of, give_up_expired,
    handler_spec, id, job, journal, key, lease_ref, pick, settlement, sysid,
};
use crate::kin::{edits, glob, take};

/// How long a case waits to see that `changed` does not return.
const PATIENCE: Duration = Duration::from_millis(20);

pub async fn it_answers_and_flushes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ping().await.unwrap();
    store.flush().await.unwrap();
    store.add([job(1)]).await;
    store.flush().await.unwrap();
    assert_eq!(store.get(1).await.id, id(1));
}

pub async fn it_says_what_it_can_do(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let capabilities = store.capabilities();
    assert!(!capabilities.name.is_empty());
    assert!(capabilities.payload_inline_bytes_max >= PAYLOAD_PIECE_BYTES);
    assert_eq!(capabilities.shared, harness.second().await.is_some());
}

pub async fn without_wakes_it_never_tells_of_changes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    if store.capabilities().wakes {
        return;
    }
    store.add([job(1)]).await;
    assert!(tokio::time::timeout(PATIENCE, store.changed()).await.is_err());
}

/// The verbs that a closed store still answers.
macro_rules! answered {
    ($store:expr; $($verb:ident ( $($argument:expr),* ))*) => {{
        let mut answered = Vec::new();
        $(if !matches!($store.$verb($($argument),*).await, Err(Error::Unavailable(_))) {
            answered.push(stringify!($verb));
        })*
        answered
    }};
}

pub async fn a_closed_store_is_not_available(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let lease = lease_ref(&claimed);
    store.close().await;
    let (tenant, key, id) = (&acme(), &key("t"), id(1));
    let synced = Durability::Synced;
    let grant = SysidGrant { sysid: sysid(7), boot: Boot(1) };
    let named = NamedLook { tenant: acme(), names: vec!["t".into()], after: None, limit: 1 };
    let insert = Insert { jobs: vec![job(2)], keys: Vec::new(), mark: None, durability: synced };
    let progress = Progress { percent: 1.0, message: String::new(), at: NOW };
    let answered = answered! { store;
        sysid_reserve(SysidReserve { wanted: None, lease: LEASE })
        sysid_renew(SysidRenew { grant, lease: LEASE, id_newest: None, report: None })
        sysid_release(grant.sysid, grant.boot)
        boot_next()
        sysid_list()
        id_newest()
        job_insert(insert)
        job_add(add_of([job(2)], None))
        journal_position(journal(7))
        payload_put(vec![Piece { id, index: 0, bytes: Bytes::new() }])
        idempotency_get(tenant, "k")
        type_changed(ChangedLook { since: None, handled: true, each: 1, limit: 1 })
        type_first(None, 1, 1)
        type_next(vec![(acme(), None)], 1)
        type_named(named)
        type_unhandled(vec![key.clone()])
        job_claim(claim_of(vec![pick("t", 1)]))
        job_renew(Renew { leases: vec![lease.clone()], hold: None })
        lease_mine(sysid(7), None, 1)
        lease_claimed(vec![lease.token], 1)
        lease_expired(1)
        job_settle([settlement(&claimed, FINISHED)].into(), synced)
        job_progress(vec![(lease, progress)])
        job_cancel(EndRequest { tenant: acme(), id, keep: DAY })
        job_rerun(tenant, id)
        job_requeue(Requeue { key: key.clone(), state: State::Failed, limit: 1 })
        job_delete(tenant, id)
        job_give_up(give_up_expired())
        job_purge(1)
        job_decide(edits(Vec::new()))
        job_take(take(glob("*"), 1, NOW))
        handler_put(id, key, handler_spec())
        handler_get(key, None)
        handler_list(tenant)
        handler_delete(key)
        type_suspend(key, true)
        type_settings_put(key, TypeSettings::default())
        type_settings_get(key)
        flush()
        ping()
    };
    assert!(answered.is_empty(), "these still answer: {answered:?}");
    store.close().await;
}

pub async fn a_closed_store_is_not_read(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.close().await;
    let (tenant, id) = (&acme(), id(1));
    let answered = answered! { store;
        job_get(tenant, id)
        job_typed(tenant, id)
        job_full(tenant, id)
        job_result(tenant, id)
        job_log(tenant, id)
        job_payload(tenant, id)
        payload_piece(id, 0)
        job_list(everything_of(acme()))
        type_stats(None)
    };
    assert!(answered.is_empty(), "these still answer: {answered:?}");
}

/// Calls that succeeded before or during the close are kept.
pub async fn a_close_finishes_what_is_under_way(harness: &dyn Harness) {
    const ADDS: i64 = 50;
    let store = Subject::fresh(harness).await;
    let mut adds = tokio::task::JoinSet::new();
    for number in 1..=ADDS {
        let store = store.clone();
        let (jobs, durability) = (vec![job(number)], Durability::Relaxed);
        let insert = Insert { jobs, keys: Vec::new(), mark: None, durability };
        adds.spawn(async move { (number, store.job_insert(insert).await.is_ok()) });
    }
    let Some(reopened) = harness.reopen(store.store.clone()).await else { return };
    let answers = adds.join_all().await;
    let reopened = Subject::of(harness, reopened);
    for (number, answered) in answers {
        assert!(!answered || reopened.find(number).await.is_some(), "{number}");
    }
}
