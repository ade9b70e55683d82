//! Secrets: sealed values, put, listed, removed and sealed anew.

use windlass_core::limit::SECRETS_MAX;
use windlass_core::name::Tenant;
use windlass_core::secret::{Sealed, SealedSecret, SecretInfo, SecretName};
use windlass_core::store::Error;

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, globex, id};

fn name(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

/// For a store, a sealed value is any bytes.
fn sealed(tenant: Tenant, of: &str, version: i64, bytes: &[u8]) -> SealedSecret {
    let sealed = Sealed::from_stored(bytes.to_vec());
    SealedSecret { tenant, name: name(of), version: id(version), sealed }
}

fn of_acme(of: &str, version: i64) -> SealedSecret {
    sealed(acme(), of, version, b"\0sealed \xff")
}

async fn get(store: &Subject, tenant: Tenant, names: &[&str]) -> Vec<SealedSecret> {
    let names = names.iter().map(|of| name(of)).collect();
    store.secret_get(&tenant, names).await.unwrap()
}

pub async fn a_secret_comes_back_sealed_as_it_was_put(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(get(&store, acme(), &["A"]).await, []);
    let longest = vec![7; 70_000];
    let secrets = [of_acme("A", i64::MAX), sealed(acme(), "B", 1, &longest)];
    for secret in &secrets {
        let info = store.at(after(5)).secret_put(secret.clone()).await.unwrap();
        let (name, version) = (secret.name.clone(), secret.version);
        assert_eq!(info, SecretInfo { name, version, updated_at: after(5) });
    }
    assert_eq!(get(&store, acme(), &["A", "B", "C"]).await, secrets);
    assert_eq!(get(&store, acme(), &["B"]).await, secrets[1..]);
    assert_eq!(get(&store, acme(), &[]).await, []);
}

pub async fn a_secret_that_is_put_again_has_the_new_version(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).secret_put(of_acme("A", 2)).await.unwrap();
    let again = sealed(acme(), "A", 1, b"other");
    store.at(after(9)).secret_put(again.clone()).await.unwrap();
    assert_eq!(get(&store, acme(), &["A"]).await, [again]);
    let list = store.secret_list(&acme()).await.unwrap();
    assert_eq!(list, [SecretInfo { name: name("A"), version: id(1), updated_at: after(9) }]);
}

pub async fn secrets_are_listed_by_name_and_belong_to_one_tenant(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for of in ["B", "_C", "A"] {
        store.secret_put(of_acme(of, 1)).await.unwrap();
    }
    let theirs = sealed(globex(), "A", 2, b"theirs");
    store.secret_put(theirs.clone()).await.unwrap();
    let list = async |tenant: Tenant| {
        let secrets = store.secret_list(&tenant).await.unwrap();
        secrets.into_iter().map(|secret| secret.name).collect::<Vec<_>>()
    };
    assert_eq!(list(acme()).await, [name("A"), name("B"), name("_C")]);
    assert_eq!(list(globex()).await, [name("A")]);
    assert_eq!(get(&store, globex(), &["A", "B"]).await, [theirs]);
    assert_eq!(get(&store, acme(), &["A"]).await, [of_acme("A", 1)]);
}

pub async fn a_secret_is_removed_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.secret_put(of_acme("A", 1)).await.unwrap();
    store.secret_put(of_acme("B", 1)).await.unwrap();
    assert!(!store.secret_delete(&globex(), &name("A")).await.unwrap());
    assert!(store.secret_delete(&acme(), &name("A")).await.unwrap());
    assert!(!store.secret_delete(&acme(), &name("A")).await.unwrap());
    assert_eq!(get(&store, acme(), &["A", "B"]).await, [of_acme("B", 1)]);
}

pub async fn a_tenant_has_a_bounded_number_of_secrets(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in 0..SECRETS_MAX {
        store.secret_put(of_acme(&format!("S{number}"), 1)).await.unwrap();
    }
    let refused = store.secret_put(of_acme("ONE_MORE", 1)).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    store.secret_put(of_acme("S0", 2)).await.unwrap();
    store.secret_put(sealed(globex(), "ONE_MORE", 1, b"x")).await.unwrap();
    store.secret_delete(&acme(), &name("S1")).await.unwrap();
    store.secret_put(of_acme("ONE_MORE", 1)).await.unwrap();
}

pub async fn all_secrets_are_walked_in_portions(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let all = [
        of_acme("A", 1),
        of_acme("B", 2),
        of_acme("C", 3),
        sealed(globex(), "A", 4, b"x"),
        sealed(globex(), "B", 5, b"y"),
    ];
    for secret in all.iter().rev() {
        store.secret_put(secret.clone()).await.unwrap();
    }
    for portion in [1, 2, 3, 100] {
        let (mut walked, mut after) = (Vec::new(), None);
        loop {
            let next = store.secret_all(after.clone(), portion).await.unwrap();
            let Some(last) = next.last() else { break };
            assert!(next.len() <= portion);
            after = Some((last.tenant.clone(), last.name.clone()));
            walked.extend(next);
        }
        assert_eq!(walked, all, "{portion} at once");
    }
}

pub async fn only_the_same_version_is_sealed_anew(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).secret_put(of_acme("A", 1)).await.unwrap();
    store.at(NOW).secret_put(of_acme("B", 2)).await.unwrap();
    let anew = |of, version| sealed(acme(), of, version, b"anew");
    let foreign = sealed(globex(), "A", 1, b"anew");
    let again = vec![anew("A", 1), anew("B", 1), anew("C", 1), foreign];
    assert_eq!(store.at(after(5)).secret_reseal(again).await.unwrap(), 1);
    let expected = [anew("A", 1), of_acme("B", 2)];
    assert_eq!(get(&store, acme(), &["A", "B", "C"]).await, expected);
    assert_eq!(store.secret_list(&acme()).await.unwrap()[0].updated_at, NOW, "no new value");
    assert_eq!(store.secret_list(&globex()).await.unwrap(), []);
    assert_eq!(store.secret_reseal(Vec::new()).await.unwrap(), 0);
}

pub async fn secrets_are_durable(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for of in ["A", "B", "C"] {
        store.secret_put(of_acme(of, 1)).await.unwrap();
    }
    store.secret_delete(&acme(), &name("B")).await.unwrap();
    store.secret_reseal(vec![sealed(acme(), "C", 1, b"anew")]).await.unwrap();
    let before = store.secret_all(None, 100).await.unwrap();
    let Some(undone) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, undone);
    assert_eq!(store.secret_all(None, 100).await.unwrap(), before);
    assert_eq!(before.len(), 2);
}
