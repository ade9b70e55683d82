//! The audit: put, replaced, listed and purged.

use std::time::Duration;

use windlass_core::audit::{Act, Actor, AuditEntry, AuditFilter, AuditId, Reason, Subject};
use windlass_core::key::Role;
use windlass_core::limit::AUDIT_LOOK_MAX;
use windlass_core::name::TypeName;
use windlass_core::store::{AuditList, AuditPage, Durability};

use crate::Harness;
use crate::fixture::{NOW, Subject as Store, acme, after, globex};

const SYNCED: Durability = Durability::Synced;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An entry of this second.
fn entry(number: u64) -> AuditEntry {
    let act = Act {
        by: Actor::Insecure,
        address: None,
        action: "handler_set".into(),
        subject: Subject::default(),
    };
    let at = after(number);
    let id = AuditId(number as i64);
    AuditEntry { at, id, act, status: Some(200), reason: None, count: 1, last_at: at }
}

fn key(number: u64) -> Actor {
    Actor::Key { id: format!("{number:016x}").parse().unwrap(), role: Role::Manager }
}

fn list(filter: AuditFilter) -> AuditList {
    AuditList { filter, before: None, limit: 100 }
}

async fn put(store: &Store, entries: impl IntoIterator<Item = AuditEntry>) {
    store.audit_put(entries.into_iter().collect(), SYNCED).await.unwrap();
}

async fn page(store: &Store, list: AuditList) -> AuditPage {
    store.audit_list(list).await.unwrap()
}

async fn numbers(store: &Store, filter: AuditFilter) -> Vec<i64> {
    page(store, list(filter)).await.entries.iter().map(|entry| entry.id.0).collect()
}

pub async fn every_field_of_an_entry_comes_back(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    let mut whole = entry(1);
    whole.act = Act {
        by: key(7),
        address: Some("2001:db8::1".parse().unwrap()),
        action: "key_create".into(),
        subject: Subject {
            tenant: Some(acme()),
            name: Some(TypeName::new("ä \"x\"").unwrap()),
            id: Some("5".into()),
            detail: Some("role viewer".into()),
        },
    };
    whole.status = None;
    whole.reason = Some(Reason::Tenant);
    whole.count = u64::from(u32::MAX) + 1;
    whole.last_at = after(9);
    let mut entries = vec![whole];
    for (number, by) in (2..).zip([Actor::Nobody, Actor::Insecure, Actor::Daemon]) {
        entries.insert(0, entry(number));
        entries[0].act.by = by;
    }
    for (number, reason) in (10..).zip(Reason::ALL) {
        entries.insert(0, AuditEntry { reason: Some(reason), ..entry(number) });
    }
    put(&store, entries.clone()).await;
    let listed = page(&store, list(AuditFilter::default())).await;
    assert_eq!(listed, AuditPage { entries, next: None });
}

pub async fn an_entry_that_is_put_again_is_replaced(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    let begun = AuditEntry { status: None, ..entry(1) };
    let ended = AuditEntry { last_at: after(2), count: 3, ..entry(1) };
    let other = AuditEntry { id: AuditId(2), ..entry(1) };
    put(&store, [begun, other.clone()]).await;
    put(&store, [ended.clone()]).await;
    let listed = page(&store, list(AuditFilter::default())).await;
    assert_eq!(listed.entries, [other, ended]);
}

pub async fn entries_are_listed_newest_first_in_pages(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    put(&store, [3, 1, 5, 2, 4].map(entry)).await;
    // Of one millisecond.
    put(&store, [AuditEntry { id: AuditId(6), ..entry(5) }]).await;
    let (mut seen, mut before) = (Vec::new(), None);
    for _ in 0..4 {
        let list = AuditList { before, limit: 2, ..list(AuditFilter::default()) };
        let AuditPage { entries, next } = page(&store, list).await;
        assert!(entries.len() <= 2);
        seen.extend(entries.iter().map(|entry| entry.id.0));
        before = next;
        if next.is_none() {
            break;
        }
    }
    assert_eq!((seen, before), (vec![6, 5, 4, 3, 2, 1], None));
}

pub async fn entries_are_filtered(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    let made = |number, by, tenant, action: &str| {
        let mut made = entry(number);
        made.act.by = by;
        made.act.subject.tenant = tenant;
        made.act.action = action.into();
        made
    };
    put(
        &store,
        [
            made(1, key(1), Some(acme()), "handler_set"),
            made(2, key(2), Some(acme()), "handler_set"),
            made(3, key(1), Some(acme()), "job_cancel"),
            made(4, key(3), Some(globex()), "handler_set"),
            made(5, Actor::Nobody, None, "handler_set"),
        ],
    )
    .await;
    let all = AuditFilter::default;
    let of = |tenant| AuditFilter { tenant: Some(tenant), ..all() };
    let by = |number| AuditFilter { key: key(number).key(), ..all() };
    let set = || AuditFilter { action: Some("handler_set".into()), ..all() };
    assert_eq!(numbers(&store, all()).await, [5, 4, 3, 2, 1]);
    assert_eq!(numbers(&store, of(acme())).await, [3, 2, 1]);
    assert_eq!(numbers(&store, of(globex())).await, [4]);
    assert_eq!(numbers(&store, by(1)).await, [3, 1]);
    assert_eq!(numbers(&store, by(9)).await, [] as [i64; 0]);
    assert_eq!(numbers(&store, set()).await, [5, 4, 2, 1]);
    let filter = AuditFilter { tenant: Some(acme()), ..set() };
    assert_eq!(numbers(&store, filter).await, [2, 1]);
    let filter = AuditFilter { tenant: Some(globex()), ..by(1) };
    assert_eq!(numbers(&store, filter).await, [] as [i64; 0]);
    let filter = AuditFilter { since: Some(after(2)), until: Some(after(4)), ..all() };
    assert_eq!(numbers(&store, filter.clone()).await, [3, 2], "until is not part of it");
    let first = page(&store, AuditList { limit: 1, ..list(filter.clone()) }).await;
    let rest = page(&store, AuditList { before: first.next, ..list(filter) }).await;
    assert_eq!(rest.entries.iter().map(|entry| entry.id.0).collect::<Vec<_>>(), [2]);
}

pub async fn a_page_looks_at_a_bounded_number_of_entries(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    let mut old = entry(1);
    old.act.action = "key_create".into();
    put(&store, [old.clone()]).await;
    let other = |number: usize| AuditEntry { id: AuditId(number as i64), ..entry(2) };
    put(&store, (0..AUDIT_LOOK_MAX + 1).map(other)).await;
    let filter = AuditFilter { action: Some("key_create".into()), ..AuditFilter::default() };
    let first = page(&store, list(filter.clone())).await;
    assert_eq!(first.entries, []);
    assert!(first.next.is_some(), "others follow");
    let second = page(&store, AuditList { before: first.next, ..list(filter) }).await;
    assert_eq!(second, AuditPage { entries: vec![old], next: None });
}

pub async fn old_entries_are_purged_in_pieces(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    put(&store, (1..=5).map(entry)).await;
    assert_eq!(store.at(NOW + DAY).audit_purge(DAY, 10).await.unwrap(), 0);
    store.at(after(4) + DAY);
    for expected in [3, 1, 0] {
        assert_eq!(store.audit_purge(DAY, 3).await.unwrap(), expected);
    }
    assert_eq!(numbers(&store, AuditFilter::default()).await, [5]);
    assert_eq!(store.audit_purge(Duration::ZERO, 3).await.unwrap(), 1);
}

pub async fn synced_entries_are_durable_with_those_before_them(harness: &dyn Harness) {
    let store = Store::fresh(harness).await;
    store.audit_put(vec![entry(1)], Durability::Relaxed).await.unwrap();
    put(&store, [entry(2)]).await;
    let Some(undone) = harness.undo_relaxed(store.store).await else { return };
    let store = Store::of(harness, undone);
    assert_eq!(numbers(&store, AuditFilter::default()).await, [2, 1]);
}
