//! A clock that is wrong for a while.

use std::sync::atomic::{AtomicU64, Ordering};

use windlass_core::limit::ID_BORROW_MAX;

use super::*;

/// Counts what is logged on this thread.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl tracing::Subscriber for Counter {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn s0_10_a_clock_that_jumped_ahead_and_back_stops_no_add_and_is_logged_once() {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut made = Vec::new();
    for restart in 0..2 {
        clock.set(NOW);
        let journal = Journal::open(options(root.path()), clock.clone(), None, None).unwrap();
        clock.set(NOW + WEEK);
        made.extend(journal.append(entries(&["while it is wrong"]), None).await.unwrap());
        clock.set(NOW);
        let logged = Counter::default();
        tracing::subscriber::with_default(logged.clone(), || {
            made.extend((0..3000).map(|_| journal.make_id().unwrap()));
        });
        assert_eq!(logged.0.load(Ordering::SeqCst), 1, "restart {restart}");
        made.extend(journal.append(entries(&["afterwards"]), None).await.unwrap());
        journal.close().await;
    }
    assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
}

#[tokio::test]
async fn a_clock_that_is_too_far_back_refuses_and_harms_nobody() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let clock_dyn: Arc<dyn Clock> = clock.clone();
    let journal = Journal::open(options(root.path()), clock_dyn, None, None).unwrap();
    journal.append(entries(&["a"]), None).await.unwrap();
    clock.set(NOW - ID_BORROW_MAX - Duration::from_secs(3600));
    let refused = journal.append(entries(&["b"]), None).await;
    assert!(matches!(refused, Err(Error::Clock(_))), "{refused:?}");
    assert!(matches!(journal.make_id(), Err(Error::Clock(_))));
    clock.set(NOW);
    journal.append(entries(&["c"]), None).await.unwrap();
    assert_eq!(texts(&drain(&journal).await), ["a", "c"]);
}
