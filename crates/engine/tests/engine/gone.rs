//! Claims whose clients have disconnected while the store hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::unconstrained;

use windlass_core::memory::MemoryStore;
use windlass_engine::api::PullClaim;
use windlass_test_kit::wait::in_time;

use crate::fake::{Daemon, jobs, key};
use crate::take::{glob, one_job};
use crate::{PATIENCE, wish};

/// No more small ones than this look at once.
const ROOM: usize = 4096;

#[tokio::test]
async fn claims_of_clients_that_are_gone_are_bounded() {
    for wait in [Duration::ZERO, PATIENCE] {
        let store = Arc::new(MemoryStore::default());
        let daemon = Daemon::start_on(store.clone(), |_| {}).await;
        let (t, looks) = (key("acme", "t"), Arc::new(AtomicUsize::new(0)));
        daemon.engine.add(&t, jobs(&["x"; 2]), None).await.unwrap();
        // It is in the store, so no claim waits for its ingest.
        assert_eq!(daemon.engine.types(&t.tenant).await.unwrap()[0].ready, 2);
        let hangs = watch::Sender::new(true);
        store.set_hook({
            let (looks, hangs) = (looks.clone(), hangs.clone());
            move |call| {
                if matches!(call, "type_named" | "job_take") {
                    looks.fetch_add(1, Ordering::SeqCst);
                }
                let mut hangs = hangs.subscribe();
                async move { drop(hangs.wait_for(|hangs| !hangs).await) }
            }
        });
        for _ in 0..ROOM {
            let other = PullClaim { types: vec!["other".into()], ..wish(&t, wait) };
            let claim = Box::pin(unconstrained(daemon.engine.claim(other)));
            let take = Box::pin(unconstrained(daemon.engine.take(one_job(glob("other")), wait)));
            assert!(
                futures_util::poll!(claim).is_pending() && futures_util::poll!(take).is_pending()
            );
        }
        // It waits for room.
        let mut living = Box::pin(unconstrained(daemon.engine.claim(wish(&t, wait))));
        assert!(futures_util::poll!(&mut living).is_pending());
        let looking = looks.load(Ordering::SeqCst);
        assert!(looking > 0 && looking <= ROOM, "{looking} look");
        hangs.send_replace(false);
        let claimed = in_time("the living one is served", living).await.unwrap();
        assert_eq!(claimed.len(), 2);
        assert_eq!(looks.load(Ordering::SeqCst), looking + 1, "those that waited look no more");
    }
}
