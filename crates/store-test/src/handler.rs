//! Handlers are stored in versions; the newest is current until it is deleted.

use std::time::Duration;

use windlass_core::handler::{Handler, HandlerOptions, HandlerSpec, Lang, Limits};
use windlass_core::limit::{HANDLER_BYTES_MAX, HANDLER_VERSIONS_MAX};
use windlass_core::secret::SecretName;
use windlass_core::{Network, RetryPolicy, TypeKey};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, globex, handler_spec, id, job, key};

fn body(text: &str) -> HandlerSpec {
    HandlerSpec { body: text.into(), ..handler_spec() }
}

pub async fn s0_53_every_field_of_a_handler_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let full = HandlerSpec {
        lang: Lang::Node,
        body: "module.exports = (x) => `\u{1F600} ${x}`\n\t'\"\\".into(),
        before: Some("before".into()),
        before_each: Some("before each".into()),
        after_each: Some(String::new()),
        eid: Some("shared".into()),
        options: HandlerOptions {
            timeout: Some(Duration::from_millis(1501)),
            batch: Some(100),
            contexts: Some(2),
            context_jobs: Some(10_000),
            idle: Some(Duration::from_secs(60)),
            env: [("NAME".to_owned(), "a=b\n\"c\"".to_owned())].into(),
            secrets: vec![SecretName::new("STRIPE_KEY").unwrap()],
            retry: Some(RetryPolicy { attempts: 3, factor: 1.5, ..RetryPolicy::default() }),
            limits: Limits {
                memory: Some(u64::MAX),
                cpu: Some(Duration::from_secs(7)),
                processes: Some(3),
                file_size: Some(1 << 40),
                scratch: Some(1 << 30),
            },
            network: Some(Network::Only(vec!["db.internal:5432".parse().unwrap()])),
        },
    };
    for (spec, number) in [(full, 100), (handler_spec(), 101)] {
        store.at(after(5)).handler_put(id(number), &key("t"), spec.clone()).await.unwrap();
        let expected = Handler { id: id(number), key: key("t"), created_at: after(5), spec };
        assert_eq!(store.handler_get(&key("t"), None).await.unwrap(), Some(expected));
    }
}

pub async fn every_language_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (lang, number) in Lang::ALL.into_iter().zip(100..) {
        let spec = HandlerSpec { lang, ..handler_spec() };
        store.at(NOW).handler_put(id(number), &key("t"), spec).await.unwrap();
        let handler = store.handler_get(&key("t"), None).await.unwrap();
        assert_eq!(handler.map(|handler| handler.spec.lang), Some(lang));
    }
}

pub async fn s0_38_the_newest_version_is_in_force(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.handler_get(&key("t"), None).await.unwrap(), None);
    for number in 100..=102 {
        store.at(NOW).handler_put(id(number), &key("t"), body(&number.to_string())).await.unwrap();
    }
    let in_force = store.handler_get(&key("t"), None).await.unwrap().expect("a handler");
    assert_eq!((in_force.id, in_force.spec.body.as_str()), (id(102), "102"));
    for number in 100..=102 {
        let version = store.handler_get(&key("t"), Some(id(number))).await.unwrap();
        assert_eq!(version.expect("older ones stay").spec.body, number.to_string());
    }
    assert_eq!(store.handler_get(&key("t"), Some(id(99))).await.unwrap(), None);
}

pub async fn s0_37_a_deleted_handler_is_not_in_force(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    assert!(!store.handler_delete(&key("t")).await.unwrap(), "it had none");
    store.at(NOW).handler_put(id(100), &key("t"), body("old")).await.unwrap();
    assert!(store.handler_delete(&key("t")).await.unwrap());
    assert!(!store.handler_delete(&key("t")).await.unwrap());
    assert_eq!(store.handler_get(&key("t"), None).await.unwrap(), None);
    assert_eq!(store.handler_list(&acme()).await.unwrap(), []);
    let version = store.handler_get(&key("t"), Some(id(100))).await.unwrap();
    assert_eq!(version.expect("the version can still be asked for").spec.body, "old");
    assert_eq!(store.claim("t", 10, NOW).await.len(), 1, "its jobs wait and can be pulled");

    store.at(NOW).handler_put(id(101), &key("t"), body("new")).await.unwrap();
    let in_force = store.handler_get(&key("t"), None).await.unwrap();
    assert_eq!(in_force.map(|handler| handler.id), Some(id(101)));
}

pub async fn the_newest_versions_are_kept(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let count = HANDLER_VERSIONS_MAX as i64 + 5;
    for number in 1..=count {
        store.at(NOW).handler_put(id(number), &key("t"), handler_spec()).await.unwrap();
    }
    store.at(NOW).handler_put(id(1000), &key("other"), handler_spec()).await.unwrap();
    for number in 1..=count {
        let version = store.handler_get(&key("t"), Some(id(number))).await.unwrap();
        assert_eq!(version.is_some(), number > 5, "version {number}");
    }
}

pub async fn a_list_shows_what_is_in_force_by_name(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let theirs = TypeKey { tenant: globex(), ..key("a") };
    store.at(NOW).handler_put(id(1), &theirs, handler_spec()).await.unwrap();
    for (number, name) in [(2, "b"), (3, "a"), (4, "c"), (5, "b"), (6, "B")] {
        store.at(NOW).handler_put(id(number), &key(name), handler_spec()).await.unwrap();
    }
    store.handler_delete(&key("c")).await.unwrap();
    let list = store.handler_list(&acme()).await.unwrap();
    let seen: Vec<_> = list.iter().map(|h| (h.key.name.as_str(), h.id.get())).collect();
    assert_eq!(seen, [("B", 6), ("a", 3), ("b", 5)]);
}

pub async fn a_version_belongs_to_its_type(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    store.at(NOW).handler_put(id(101), &key("other"), handler_spec()).await.unwrap();
    let theirs = TypeKey { tenant: globex(), ..key("t") };
    assert_eq!(store.handler_get(&key("other"), Some(id(100))).await.unwrap(), None);
    assert_eq!(store.handler_get(&theirs, Some(id(100))).await.unwrap(), None);
    assert_eq!(store.handler_get(&theirs, None).await.unwrap(), None);
    assert!(!store.handler_delete(&theirs).await.unwrap());
    assert!(store.handler_get(&key("t"), None).await.unwrap().is_some());
}

pub async fn the_largest_source_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let spec = body(&"x".repeat(HANDLER_BYTES_MAX));
    store.at(NOW).handler_put(id(100), &key("t"), spec.clone()).await.unwrap();
    let handler = store.handler_get(&key("t"), None).await.unwrap().expect("a handler");
    assert!(handler.spec == spec);
}
