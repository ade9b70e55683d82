//! Services that panic and services that fail, on paused time.

use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_core::{Clock, Timestamp};

use super::*;
use crate::house::health::FAILING_SHOWN_AFTER;
use crate::metrics::Metrics;

const FAILURE_PAUSE: Duration = Duration::from_secs(1);

#[test]
fn a_backoff_doubles_up_to_its_bound_and_starts_over() {
    let ms = Duration::from_millis;
    let mut backoff = Backoff::new(ms(50), ms(180));
    let pauses: Vec<_> = (0..4).map(|_| backoff.pause()).collect();
    assert_eq!(pauses, [ms(50), ms(100), ms(180), ms(180)]);
    backoff.reset();
    assert_eq!(backoff.pause(), ms(50));
}

/// Panics and fails a given number of times, then succeeds.
#[derive(Default)]
struct Counted {
    panics: AtomicUsize,
    /// Passes that fail.
    failures: AtomicUsize,
    /// Attempts to recover that fail.
    stuck: AtomicUsize,
    passes: AtomicUsize,
    recoveries: AtomicUsize,
    passed: Notify,
    failed: Notify,
}

struct Panics(Arc<Counted>);

/// Takes one from a number that is not zero.
fn take_one(number: &AtomicUsize) -> bool {
    number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl Service for Panics {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        if take_one(&self.0.panics) {
            panic!("as requested");
        }
        if take_one(&self.0.failures) {
            self.0.failed.notify_one();
            return Err(Failed::new("no luck", FAILURE_PAUSE));
        }
        self.0.passes.fetch_add(1, Ordering::SeqCst);
        self.0.passed.notify_one();
        Ok(Next::OnWake)
    }

    async fn recover(&mut self) -> Result<(), Error> {
        self.0.recoveries.fetch_add(1, Ordering::SeqCst);
        match take_one(&self.0.stuck) {
            true => Err(Error::Unavailable("not yet".into())),
            false => Ok(()),
        }
    }
}

/// Steady time is tokio's, which stands still while a service works.
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn steady(&self) -> Duration {
        self.0.elapsed()
    }

    fn machine_run(&self) -> i64 {
        1
    }
}

struct Bench {
    services: Services,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    counted: Arc<Counted>,
    wake: Arc<Notify>,
    stop: CancellationToken,
}

fn bench(panics: usize, stuck: usize) -> Bench {
    let metrics = Arc::new(Metrics::default());
    let clock = Arc::new(PausedClock(tokio::time::Instant::now()));
    let health = Arc::new(Health::new(metrics.clone(), clock));
    let services = Services::new(health.clone());
    let counted = Arc::new(Counted::default());
    counted.panics.store(panics, Ordering::SeqCst);
    counted.stuck.store(stuck, Ordering::SeqCst);
    let (wake, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    services.spawn(Panics(counted.clone()), wake.clone(), stop.clone());
    Bench { services, health, metrics, counted, wake, stop }
}

fn failures_counted(metrics: &Metrics) -> String {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.starts_with("windlass_service_failures_total"));
    line.unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_is_shown_and_counted_and_goes_on() {
    let bench = bench(3, 0);
    bench.counted.passed.notified().await;
    let failed = bench.health.failed_services();
    assert_eq!((failed.len(), failed[0].name, failed[0].failures), (1, "test", 3));
    let words = bench.health.services().unwrap_err();
    assert_eq!(words, "the service test has panicked 3 times in the last 5m");
    let line = r#"windlass_service_failures_total{service="test"} 3"#;
    assert_eq!(failures_counted(&bench.metrics), line);
    assert_eq!(bench.counted.recoveries.load(Ordering::SeqCst), 3);
    bench.wake.notify_one();
    bench.counted.passed.notified().await;
    assert!(bench.health.failure.borrow().is_none());

    tokio::time::advance(FAILURES_WINDOW).await;
    assert_eq!(bench.health.services(), Ok(()), "it is forgotten when all has been well for long");
    assert_eq!(failures_counted(&bench.metrics), line);
    bench.stop.cancel();
    bench.services.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_panicking_ends_the_daemon_with_a_sentence() {
    let bench = bench(usize::MAX, 0);
    let mut failure = bench.health.failure.subscribe();
    let why = failure.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(why.starts_with("the service test panicked 10 times within 5m"), "{why}");
    assert_eq!(bench.counted.panics.load(Ordering::SeqCst), usize::MAX - FAILURES_MAX);
    bench.services.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn panics_that_are_far_apart_do_not_end_the_daemon() {
    let bench = bench(0, 0);
    bench.counted.passed.notified().await;
    for _ in 0..3 * FAILURES_MAX {
        bench.counted.panics.store(1, Ordering::SeqCst);
        bench.wake.notify_one();
        bench.counted.passed.notified().await;
        tokio::time::advance(FAILURES_WINDOW / FAILURES_MAX as u32 * 2).await;
    }
    assert!(bench.health.failure.borrow().is_none());
}

#[tokio::test(start_paused = true)]
async fn no_pass_comes_before_the_service_has_recovered() {
    let bench = bench(1, 20);
    bench.counted.passed.notified().await;
    assert_eq!(bench.counted.recoveries.load(Ordering::SeqCst), 21);
    assert_eq!(bench.counted.passes.load(Ordering::SeqCst), 1);
    assert_eq!(bench.health.failed_services()[0].failures, 1, "waiting is no failure");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_pause_after_a_panic() {
    let bench = bench(FAILURES_MAX - 1, 0);
    tokio::task::yield_now().await;
    bench.stop.cancel();
    bench.services.stopped().await;
    assert_eq!(bench.counted.passes.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_failing_is_shown_until_a_pass_succeeds() {
    let bench = bench(0, 0);
    bench.counted.passed.notified().await;
    bench.counted.failures.store(usize::MAX, Ordering::SeqCst);
    bench.wake.notify_one();
    let failed_for = async || {
        bench.counted.failed.notified().await;
        bench.health.failing_services().first().map(|failing| failing.failing_for)
    };
    // The first pass that fails, and one each second until just before it is shown.
    for _ in 0..FAILING_SHOWN_AFTER.as_secs() {
        assert_eq!(failed_for().await, None, "not every hiccup is shown");
    }
    assert_eq!(failed_for().await, Some(FAILING_SHOWN_AFTER));
    let words = bench.health.services().unwrap_err();
    assert_eq!(words, "the service test has failed for 30s");
    let failing = bench.health.failing_services();
    assert_eq!((failing.len(), failing[0].name, &*failing[0].why), (1, "test", "no luck"));
    assert_eq!(bench.health.failed_services(), [], "it has not panicked");
    assert!(bench.health.failure.borrow().is_none());

    bench.counted.failures.store(0, Ordering::SeqCst);
    bench.counted.passed.notified().await;
    assert_eq!((bench.health.services(), bench.health.failing_services()), (Ok(()), vec![]));
}

#[tokio::test(start_paused = true)]
async fn failures_with_successes_between_them_are_not_shown() {
    let bench = bench(0, 0);
    bench.counted.passed.notified().await;
    for _ in 0..4 {
        bench.counted.failures.store(20, Ordering::SeqCst);
        bench.wake.notify_one();
        bench.counted.passed.notified().await;
        assert_eq!(bench.health.services(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_recover_from_a_panic_is_shown_as_failing() {
    let bench = bench(1, usize::MAX);
    while bench.counted.recoveries.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
        tokio::time::advance(RESTART_PAUSE_MIN).await;
    }
    tokio::time::advance(FAILING_SHOWN_AFTER).await;
    let failing = bench.health.failing_services();
    assert_eq!(failing[0].why, "has not recovered from a panic yet: not yet");
}
