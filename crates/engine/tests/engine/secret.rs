//! Secrets: what a kill in the middle of a rekey leaves, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use windlass_core::memory::MemoryStore;
use windlass_core::secret::{KeyRing, SealKeys, SecretName, SecretValue};
use windlass_core::store::prelude::*;
use windlass_core::{HandlerOptions, HandlerSpec, State, Tenant};
use windlass_engine::Error;
use windlass_test_kit::wait::in_time;

use crate::fake::{Daemon, handler, jobs, key};
use crate::{ended, quick};

/// Enough for three portions of a rekey.
const SECRETS: [(&str, usize); 2] = [("acme", 130), ("globex", 120)];

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn name(number: usize) -> SecretName {
    SecretName::new(&format!("S{number:03}")).unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}

async fn set_all(daemon: &Daemon) {
    for (of, count) in SECRETS {
        for number in 0..count {
            let text = format!("{of} {number}");
            daemon.engine.secret_set(&tenant(of), name(number), value(&text)).await.unwrap();
        }
    }
}

/// Every secret opens with these keys, to the value that was set.
async fn all_open(store: &MemoryStore, ring: &KeyRing) {
    let all = store.secret_all(None, 1000).await.unwrap();
    assert_eq!(all.len(), SECRETS.iter().map(|(_, count)| count).sum::<usize>());
    for secret in all {
        let number: usize = secret.name.as_str()[1..].parse().unwrap();
        let text = format!("{} {number}", secret.tenant);
        assert_eq!(ring.open(&secret), Ok(value(&text)), "{secret:?}");
    }
}

/// Stops a call of the store for ever, the one with this number from 0.
fn hang_at(store: &MemoryStore, call: &'static str, number: usize) -> watch::Receiver<bool> {
    let (hangs, seen) = watch::channel(false);
    let (hangs, calls) = (Arc::new(hangs), Arc::new(AtomicUsize::new(0)));
    store.set_hook(move |called| {
        let (hangs, calls) = (hangs.clone(), calls.clone());
        async move {
            if called == call && calls.fetch_add(1, Ordering::SeqCst) == number {
                hangs.send_replace(true);
                std::future::pending().await
            }
        }
    });
    seen
}

#[tokio::test]
async fn a_rekey_that_is_killed_between_any_two_steps_leaves_everything_readable() {
    for number in 0..3 {
        let store = Arc::new(MemoryStore::default());
        let daemon = Daemon::start_on(store.clone(), quick).await;
        set_all(&daemon).await;
        let old = daemon.keys.read().unwrap();
        let mut hangs = hang_at(&store, "secret_reseal", number);
        let engine = daemon.engine.clone();
        let rekey = tokio::spawn(async move { engine.secret_rekey().await });
        in_time("it hangs", hangs.wait_for(|hangs| *hangs)).await.unwrap();
        let both = daemon.keys.read().unwrap();
        assert_eq!((both.ids().len(), both.ids()[0]), (2, old.newest()));
        all_open(&store, &both).await;
        let anew = store.secret_all(None, 1000).await.unwrap();
        let anew = anew.iter().filter(|secret| secret.sealed.key() == Some(both.newest()));
        assert_eq!(anew.count(), number * 100);
        // From here on it never goes on, as if its daemon had been killed.
        drop((rekey, daemon));

        store.set_hook(|_| std::future::ready(()));
        let daemon = Daemon::start_on(store.clone(), quick).await;
        daemon.keys.set(Some(both.clone()));
        assert_eq!(daemon.engine.secret_prepare().await.unwrap().keys, 2);
        let done = daemon.engine.secret_rekey().await.unwrap();
        assert_eq!((done.resealed, done.unreadable), (250, vec![]));
        let new = daemon.keys.read().unwrap();
        assert_eq!(new.ids(), [done.key]);
        assert!(!both.ids().contains(&done.key));
        all_open(&store, &new).await;
    }
}

#[tokio::test]
async fn a_rekey_waits_for_a_value_that_is_being_stored() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    daemon.engine.secret_prepare().await.unwrap();
    let before = daemon.keys.read().unwrap();
    let (go, gone) = watch::channel(false);
    let (reached, mut at) = watch::channel(false);
    let reached = Arc::new(reached);
    store.set_hook(move |called| {
        let (mut gone, reached) = (gone.clone(), reached.clone());
        async move {
            if called == "secret_put" {
                reached.send_replace(true);
                let _ = gone.wait_for(|gone| *gone).await;
            }
        }
    });
    let engine = daemon.engine.clone();
    let set = tokio::spawn(async move {
        engine.secret_set(&tenant("acme"), name(0), value("hunter2!")).await
    });
    in_time("it is sealed", at.wait_for(|at| *at)).await.unwrap();
    let mut rekey = Box::pin(daemon.engine.secret_rekey());
    let waits = tokio::time::timeout(std::time::Duration::from_millis(200), &mut rekey).await;
    assert!(waits.is_err() && daemon.keys.read().unwrap() == before, "{waits:?}");
    go.send_replace(true);
    set.await.unwrap().unwrap();
    assert_eq!(rekey.await.unwrap().resealed, 1);
    let sealed = store.secret_get(&tenant("acme"), vec![name(0)]).await.unwrap();
    assert_eq!(daemon.keys.read().unwrap().open(&sealed[0]), Ok(value("hunter2!")));
}

#[tokio::test]
async fn no_other_key_is_made_while_there_are_secrets() {
    let daemon = Daemon::start(quick).await;
    let acme = tenant("acme");
    daemon.engine.secret_set(&acme, name(0), value("hunter2!")).await.unwrap();
    let ring = daemon.keys.read().unwrap();
    daemon.keys.set(None);
    let refused = daemon.engine.secret_set(&acme, name(1), value("x")).await;
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.contains("put it back")));
    assert!(daemon.engine.secret_rekey().await.is_err());
    assert!(daemon.engine.secret_prepare().await.is_err());
    assert!(daemon.keys.read().is_err());
    daemon.keys.set(Some(ring));
    daemon.engine.secret_set(&acme, name(1), value("x")).await.unwrap();
    for number in 0..2 {
        daemon.engine.secret_delete(&acme, name(number)).await.unwrap();
    }
    daemon.keys.set(None);
    daemon.engine.secret_set(&acme, name(0), value("y")).await.unwrap();
}

#[tokio::test]
async fn jobs_fail_without_their_secret_by_the_ordinary_rules() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let t = key("acme", "t");
    let options = HandlerOptions { secrets: vec![name(0)], ..HandlerOptions::default() };
    daemon.engine.handler_set(&t, HandlerSpec { options, ..handler() }).await.unwrap();
    let missing = daemon.engine.secret_missing(&t.tenant, &[name(0)]).await.unwrap();
    assert_eq!(missing, [name(0)]);
    let id = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &t, id).await, State::Failed);
    let log = daemon.engine.job_log(&t.tenant, id).await.unwrap();
    assert_eq!(log.len(), 3, "by the ordinary rules");
    assert!(log[0].log.to_string().contains("there is no secret S000"), "{:?}", log[0].log);
    assert_eq!(daemon.runner.all_started(), [], "the runner does not see it");
    daemon.engine.secret_set(&t.tenant, name(0), value("hunter2!")).await.unwrap();
    let id = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    let list = daemon.engine.secret_list(&t.tenant).await.unwrap();
    assert_eq!((&list[0].info.name, &list[0].handlers[..]), (&name(0), &[t.name.clone()][..]));
}
