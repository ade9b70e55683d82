//! API keys: put, listed, revoked, rotated, and how daemons learn of it.

use std::time::Duration;

use windlass_core::key::{Key, KeyDigest, KeyId, NewKey, Owner, Role, Standing};
use windlass_core::limit::{KEY_RETENTION, KEY_TOUCH_INTERVAL, TENANT_KEYS_MAX};
use windlass_core::name::Tenant;
use windlass_core::store::{Error, KeyReplacement, KeyRevision, KeyRotate};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, globex};

const HOUR: Duration = Duration::from_secs(3600);

fn id(number: u64) -> KeyId {
    format!("{number:016x}").parse().unwrap()
}

fn new(number: u64, role: Role, tenant: Option<Tenant>) -> NewKey {
    let owner = Owner { role, tenant, name: format!("key {number}") };
    NewKey { id: id(number), digest: KeyDigest([number as u8; 32]), owner, lifetime: None }
}

fn of_acme(number: u64) -> NewKey {
    new(number, Role::Producer, Some(acme()))
}

fn rotation(old: u64, to: u64, overlap: Duration) -> KeyRotate {
    let new = KeyReplacement { id: id(to), digest: KeyDigest([to as u8; 32]), lifetime: None };
    KeyRotate { tenant: None, old: id(old), new, overlap }
}

async fn find(store: &Subject, number: u64) -> Key {
    store.key_find(id(number)).await.unwrap().expect("the key is there")
}

async fn changed(store: &Subject, since: KeyRevision) -> Vec<Key> {
    let changed = store.key_changed(since, 100).await.unwrap();
    changed.into_iter().map(|(_, key)| key).collect()
}

pub async fn every_field_of_a_key_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.key_find(id(1)).await.unwrap(), None);
    for (role, number) in Role::ALL.into_iter().zip(1..) {
        let tenant = role.has_tenant().then(acme);
        let mut new = new(number, role, tenant);
        new.lifetime = (number % 2 == 0).then_some(HOUR);
        new.owner.name = "ä \"x\"".into();
        let put = store.at(after(number)).key_put(new.clone()).await.unwrap();
        assert_eq!(put, Key::made(new, after(number)));
        assert_eq!(find(&store, number).await, put);
    }
}

pub async fn a_key_that_is_put_again_stays_as_it_is(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    let revoked = store.at(after(1)).key_revoke(None, id(1)).await.unwrap().unwrap();
    let again = store.at(after(2)).key_put(of_acme(1)).await.unwrap();
    assert_eq!(again, revoked, "it is not revived");
}

pub async fn an_id_belongs_to_one_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.key_put(of_acme(1)).await.unwrap();
    let other = NewKey { digest: KeyDigest([9; 32]), ..of_acme(1) };
    let refused = store.key_put(other).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(find(&store, 1).await.digest, KeyDigest([1; 32]));
}

pub async fn keys_are_listed_by_id_in_pages_and_by_tenant(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in [3, 1, 4, 2] {
        store.key_put(of_acme(number)).await.unwrap();
    }
    store.key_put(new(5, Role::Worker, Some(globex()))).await.unwrap();
    store.key_put(new(6, Role::Admin, None)).await.unwrap();
    let list = async |tenant: Option<Tenant>, after: Option<u64>, limit| {
        let keys = store.key_list(tenant.as_ref(), after.map(id), limit).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 100).await, [1, 2, 3, 4, 5, 6].map(id));
    assert_eq!(list(None, Some(2), 2).await, [3, 4].map(id));
    assert_eq!(list(Some(acme()), Some(1), 100).await, [2, 3, 4].map(id));
    assert_eq!(list(Some(globex()), None, 100).await, [id(5)]);
    assert_eq!(list(Some(globex()), Some(5), 100).await, []);
}

pub async fn a_revoked_key_stays_revoked(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.key_revoke(None, id(1)).await.unwrap(), None);
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    for seconds in [5, 6] {
        let revoked = store.at(after(seconds)).key_revoke(None, id(1)).await.unwrap().unwrap();
        assert_eq!(revoked.revoked_at, Some(after(5)));
        assert_eq!(revoked, find(&store, 1).await);
    }
}

pub async fn a_key_of_another_tenant_is_not_revoked_or_rotated(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.key_put(of_acme(1)).await.unwrap();
    store.key_put(new(2, Role::Admin, None)).await.unwrap();
    for number in [1, 2] {
        assert_eq!(store.key_revoke(Some(&globex()), id(number)).await.unwrap(), None);
        let rotate = KeyRotate { tenant: Some(globex()), ..rotation(number, 9, HOUR) };
        assert_eq!(store.key_rotate(rotate).await.unwrap(), None);
        assert_eq!(find(&store, number).await.ends_at(), None);
    }
    assert_eq!(store.key_find(id(9)).await.unwrap(), None);
    assert!(store.key_revoke(Some(&acme()), id(1)).await.unwrap().is_some());
}

pub async fn a_rotated_key_is_replaced_and_ends_after_the_overlap(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    assert_eq!(store.key_rotate(rotation(7, 2, HOUR)).await.unwrap(), None);
    let mut rotate = rotation(1, 2, HOUR);
    rotate.new.lifetime = Some(2 * HOUR);
    let new = store.at(after(5)).key_rotate(rotate).await.unwrap().unwrap();
    assert_eq!(new, find(&store, 2).await);
    assert_eq!((new.created_at, new.expires_at), (after(5), Some(after(5) + 2 * HOUR)));
    let old = find(&store, 1).await;
    assert_eq!(new.owner, old.owner);
    assert_eq!((old.expires_at, old.revoked_at), (Some(after(5) + HOUR), None));
}

pub async fn a_rotation_does_not_prolong_a_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let short = NewKey { lifetime: Some(HOUR), ..of_acme(1) };
    store.at(NOW).key_put(short).await.unwrap();
    store.key_rotate(rotation(1, 2, 10 * HOUR)).await.unwrap().unwrap();
    assert_eq!(find(&store, 1).await.expires_at, Some(NOW + HOUR));
}

pub async fn only_a_key_in_force_is_rotated(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    store.key_revoke(None, id(1)).await.unwrap();
    store.key_put(NewKey { lifetime: Some(HOUR), ..of_acme(2) }).await.unwrap();
    store.at(NOW + HOUR);
    assert_eq!(find(&store, 2).await.standing(store.now()), Standing::Expired);
    for number in [1, 2] {
        let refused = store.key_rotate(rotation(number, 9, HOUR)).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    assert_eq!(store.key_find(id(9)).await.unwrap(), None);
}

pub async fn the_use_of_a_key_is_noted_once_a_minute(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    let last = async || find(&store, 1).await.last_used_at;
    assert_eq!(last().await, None);
    let minute = KEY_TOUCH_INTERVAL.as_secs();
    for (seconds, noted) in [(1, 1), (minute, 1), (minute + 1, minute + 1)] {
        store.at(after(seconds)).key_touch(vec![id(1), id(99)]).await.unwrap();
        assert_eq!(last().await, Some(after(noted)), "after {seconds} s");
    }
    assert_eq!(store.key_find(id(99)).await.unwrap(), None);
}

pub async fn changes_are_reported_in_their_order(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(changed(&store, KeyRevision::default()).await, []);
    for number in [2, 1, 3] {
        store.at(NOW).key_put(of_acme(number)).await.unwrap();
    }
    let first = store.key_changed(KeyRevision::default(), 2).await.unwrap();
    assert_eq!(first.iter().map(|(_, key)| key.id).collect::<Vec<_>>(), [id(2), id(1)]);
    let seen = first[1].0;
    assert_eq!(changed(&store, seen).await, [find(&store, 3).await]);
    store.key_revoke(None, id(2)).await.unwrap();
    store.key_touch(vec![id(1)]).await.unwrap();
    let expected = [find(&store, 3).await, find(&store, 2).await];
    assert_eq!(changed(&store, seen).await, expected, "a use is no change");
    let all = store.key_changed(seen, 100).await.unwrap();
    let newest = all[1].0;
    assert_eq!(changed(&store, newest).await, []);
    store.key_rotate(rotation(1, 4, HOUR)).await.unwrap();
    assert_eq!(changed(&store, newest).await, [find(&store, 4).await, find(&store, 1).await]);
}

pub async fn a_key_that_ended_long_ago_is_removed_by_a_put(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).key_put(of_acme(1)).await.unwrap();
    store.key_put(NewKey { lifetime: Some(HOUR), ..of_acme(2) }).await.unwrap();
    store.key_put(of_acme(3)).await.unwrap();
    store.key_revoke(None, id(1)).await.unwrap();
    let ids = async || {
        let keys = store.key_list(None, None, 100).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    store.at(NOW + KEY_RETENTION).key_put(of_acme(4)).await.unwrap();
    assert_eq!(ids().await, [2, 3, 4].map(id));
    store.at(NOW + KEY_RETENTION + HOUR).key_put(of_acme(5)).await.unwrap();
    assert_eq!(ids().await, [3, 4, 5].map(id));
}

pub async fn a_tenant_has_so_many_keys_and_no_more(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW);
    let last = TENANT_KEYS_MAX as u64;
    // As many callers at once as daemons have, and not more: a store may refuse to let very many
    // wait.
    const CALLERS: u64 = 20;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 1..=CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            for number in (caller..=last).step_by(CALLERS as usize) {
                store.key_put(of_acme(number)).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    let refuses = async |what: &str| {
        let rotated = store.key_rotate(rotation(1, last + 1, HOUR)).await;
        assert!(matches!(rotated, Err(Error::Conflict(_))), "{what}: {rotated:?}");
        let put = store.key_put(of_acme(last + 1)).await;
        let Err(Error::Conflict(reason)) = put else { panic!("{what}: {put:?}") };
        assert!(reason.contains("acme") && reason.contains("1000"), "{reason}");
    };
    refuses("all are in force").await;
    assert_eq!(find(&store, 1).await.expires_at, None, "a rotation changes all or nothing");
    assert!(store.key_put(of_acme(1)).await.is_ok(), "it is there already");
    store.key_put(new(last + 2, Role::Worker, Some(globex()))).await.unwrap();
    store.key_put(new(last + 3, Role::Admin, None)).await.unwrap();
    store.key_revoke(None, id(2)).await.unwrap();
    refuses("an ended one is still listed").await;
    store.at(NOW + KEY_RETENTION).key_put(of_acme(last + 1)).await.unwrap();
}

pub async fn keys_are_durable(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in [1, 2, 3] {
        store.at(NOW).key_put(of_acme(number)).await.unwrap();
    }
    store.key_revoke(None, id(2)).await.unwrap();
    store.key_rotate(rotation(3, 4, HOUR)).await.unwrap();
    let before = changed(&store, KeyRevision::default()).await;
    let Some(undone) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, undone);
    assert_eq!(changed(&store, KeyRevision::default()).await, before);
}
