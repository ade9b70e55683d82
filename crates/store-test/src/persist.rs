//! What was answered still exists after the store is closed and reopened. These cases do nothing
//! for a store that is only in memory.

use std::time::Duration;

use bytes::Bytes;

use windlass_core::handler::TypeSettings;
use windlass_core::job::{Boot, Progress};
use windlass_core::store::{
    Durability, IdempotencyRecord, Insert, Inserted, JournalMark, Piece, Settled, Settlement,
    SysidRenew, SysidReserve,
};
use windlass_core::{Extra, Json, NewJob, Payload, TypeName};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, LEASE, NOW, Subject, acme, after, everything_of, handler_spec, id, job,
    job_of, journal, key, lease_ref, priority, said, settlement, sysid,
};

async fn reopened(harness: &dyn Harness, store: Subject) -> Option<Subject> {
    harness.reopen(store.store).await.map(|store| Subject::of(harness, store))
}

pub async fn jobs_in_every_state_are_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job_of("a", 1), FINISHED).await;
    store.ran(job_of("a", 2), FAILED).await;
    store.add([job_of("a", 3), job_of("b", 4)]).await;
    store.cancel(3, NOW).await;
    store.claim_one("b", NOW).await;
    let full = NewJob {
        priority: priority(1),
        run_at: after(60),
        expires_at: Some(after(600)),
        timeout: Some(Duration::from_millis(1501)),
        unique: Some("k".into()),
        ..job_of("a", 5)
    };
    store.add([full.clone(), job_of("a", 6)]).await;
    let before = store.listed(everything_of(acme())).await;
    let numbers = [store.stats("a", NOW).await, store.stats("b", NOW).await];

    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.listed(everything_of(acme())).await, before);
    assert_eq!([store.stats("a", NOW).await, store.stats("b", NOW).await], numbers);
    assert_eq!(store.insert([NewJob { id: id(7), ..full }]).await, [Inserted::Held(id(5))]);
    assert_eq!(store.insert([job(1)]).await, [Inserted::Duplicate]);
    assert_eq!(store.claim("a", 10, after(60)).await.len(), 2);
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(10).await.unwrap(), 3);
}

pub async fn a_running_job_is_still_its_owners(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let progress = Progress { percent: 33.3, message: "a third".into(), at: NOW };
    store.job_progress(vec![(lease_ref(&claimed), progress.clone())]).await.unwrap();
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.get(1).await.lease, claimed.job.lease);
    assert_eq!(store.get(1).await.progress, Some(progress));
    assert_eq!(store.at(NOW + LEASE).lease_expired(10).await.unwrap().len(), 1);
    assert_eq!(store.renew(vec![lease_ref(&claimed)], after(60)).await, []);
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
}

pub async fn what_belongs_to_a_job_is_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store
        .payload_put(vec![Piece { id: id(1), index: 0, bytes: Bytes::from_static(b"piece\0") }])
        .await
        .unwrap();
    store.add([NewJob { payload: Payload::Pieces { bytes: 6 }, ..job(1) }]).await;
    let claimed = store.claim_one("t", NOW).await;
    let data = Some(Json::string("data"));
    let end = Settlement { data: data.clone(), log: said("log"), ..settlement(&claimed, FAILED) };
    store.settle(end).await;
    store.add([job(2)]).await;
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), data);
    let log = store.job_log(&acme(), id(1)).await.unwrap().expect("the job is there");
    assert_eq!(log[0].log, said("log"));
    let piece = store.payload_piece(id(1), 0).await.unwrap();
    assert_eq!(piece, Some(Bytes::from_static(b"piece\0")));
    let payload = store.job_payload(&acme(), id(1)).await.unwrap();
    assert_eq!(payload, Some(Payload::Pieces { bytes: 6 }));
    assert_eq!(store.claim_one("t", NOW).await.payload, job(2).payload);
}

pub async fn s0_62_a_job_that_followed_is_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let then = Some(TypeName::new("last").unwrap());
    let follow = NewJob { then, ..job_of("next", 2) };
    let end = Settlement { follow: Some(follow), ..settlement(&claimed, FINISHED) };
    assert_eq!(store.settle(end).await, Settled::Done);
    let before = store.listed(everything_of(acme())).await;
    assert_eq!(before.len(), 2);
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.listed(everything_of(acme())).await, before);
}

pub async fn families_hidden_jobs_and_texts_are_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2, 3]).await;
    store.settle(settlement(&parent, FINISHED)).await;
    store.cancel(3, NOW).await;
    let extra = Extra { hidden: true, ..crate::kin::run_at_text("tomorrow") };
    store.add([NewJob { extra, ..job(4) }, job(5)]).await;
    store.alter(5, |job| (job.extra.lent, job.run_at) = (true, after(9))).await;
    let before = store.listed(everything_of(acme())).await;
    assert_eq!(before.len(), 5);
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.listed(everything_of(acme())).await, before);
    assert_eq!(store.take_of(crate::kin::glob("*"), 9).await, [2]);
    let child = store.get(2).await;
    let claimed = windlass_core::store::Claimed { job: child, ..parent };
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    assert_eq!(store.claim_one("parent", NOW).await.job.id, id(1));
}

pub async fn s0_45_handlers_and_settings_are_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let settings = TypeSettings { rate: Some(1.5), ..TypeSettings::default() };
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    store.at(after(1)).handler_put(id(101), &key("t"), handler_spec()).await.unwrap();
    store.type_settings_put(&key("t"), settings.clone()).await.unwrap();
    store.type_suspend(&key("t"), true).await.unwrap();
    let before = store.handler_list(&acme()).await.unwrap();
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.handler_list(&acme()).await.unwrap(), before);
    assert!(store.handler_get(&key("t"), Some(id(100))).await.unwrap().is_some());
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), settings);
    assert!(store.stats("t", NOW).await.expect("the type is there").suspended);
}

pub async fn s0_58_numbers_boots_and_marks_are_still_there(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let reserve = |wanted| SysidReserve { wanted, lease: LEASE };
    let grant = store.sysid_reserve(reserve(Some(sysid(7)))).await.unwrap();
    let noting = SysidRenew { grant, lease: LEASE, id_newest: Some(id(90)), report: None };
    store.at(after(10)).sysid_renew(noting).await.unwrap();
    let mark = Some(JournalMark { journal: journal(7), from: None, position: id(5) });
    let record = IdempotencyRecord {
        tenant: acme(),
        key: "k".into(),
        fingerprint: 1 << 63,
        ids: vec![id(5)],
        expires_at: after(60),
    };
    let (jobs, keys, durability) = (vec![job(5)], vec![record.clone()], Durability::Synced);
    store.job_insert(Insert { jobs, keys, mark, durability }).await.unwrap();

    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.at(after(19)).sysid_list().await.unwrap(), [sysid(7)]);
    assert!(store.sysid_reserve(reserve(Some(sysid(7)))).await.is_err());
    assert!(store.sysid_reserve(reserve(None)).await.unwrap().boot > grant.boot);
    assert_eq!(store.journal_position(journal(7)).await.unwrap(), Some(id(5)));
    assert_eq!(store.id_newest().await.unwrap(), Some(id(90)));
    assert_eq!(store.at(NOW).idempotency_get(&acme(), "k").await.unwrap(), Some(record));
}

pub async fn s0_50_boot_numbers_go_on_growing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let before = store.at(NOW).boot_next().await.unwrap();
    let Some(store) = reopened(harness, store).await else { return };
    assert_eq!(store.at(NOW).boot_next().await.unwrap(), Boot(before.0 + 1));
}
