//! Measures how long jobs of each handler take, so that batches are large if jobs are fast and
//! small if they are slow: one context runs a batch, and no job should wait behind slow ones while
//! other contexts are idle.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use windlass_core::sync::lock;
use windlass_core::{Handler, HandlerId};

/// Maximum size of a batch, unless the handler sets one.
const BATCH_DEFAULT: u32 = 100;
/// Maximum size of a batch, whatever the handler sets.
const BATCH_MAX: u32 = 1000;
/// How long a batch should keep a context busy, unless the handler sets its size.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// Jobs that take longer on average are assumed to wait for something, so they gain from more
/// contexts than there are CPUs. The first call of a handler, before anything is compiled or
/// cached, stays below it.
const QUICK_MAX: Duration = Duration::from_millis(5);
/// Handlers to remember; beyond that number all are forgotten and measured again.
const HANDLERS_MAX: usize = 10_000;

pub(super) struct Paces {
    means: Mutex<HashMap<HandlerId, Duration>>,
    cores: u32,
}

impl Paces {
    pub(super) fn new(cores: usize) -> Paces {
        Paces { means: Mutex::default(), cores: u32::try_from(cores).unwrap_or(u32::MAX).max(1) }
    }

    /// Learns from a batch; the newest counts for half.
    pub(super) fn note(&self, handler: HandlerId, jobs: u32, took: Duration) {
        let mean = took / jobs.max(1);
        let mut means = lock(&self.means);
        if means.len() >= HANDLERS_MAX {
            means.clear();
        }
        means.entry(handler).and_modify(|known| *known = (*known + mean) / 2).or_insert(mean);
    }

    /// The largest batch that is worthwhile.
    pub(super) fn batch_max(&self, handler: &Handler) -> u32 {
        match (handler.spec.options.batch, self.mean(handler.id)) {
            (Some(batch), _) => batch.clamp(1, BATCH_MAX),
            (None, None) => 1,
            (None, Some(mean)) => {
                let fitting = BATCH_TIME.as_nanos() / mean.as_nanos().max(1);
                u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, BATCH_DEFAULT)
            }
        }
    }

    /// The largest number of contexts that is worthwhile; `None` if there cannot be too many.
    pub(super) fn contexts_max(&self, handler: &Handler) -> Option<u32> {
        let is_slow = self.mean(handler.id).is_some_and(|mean| mean > QUICK_MAX);
        handler.spec.options.contexts.or((!is_slow).then_some(self.cores))
    }

    fn mean(&self, handler: HandlerId) -> Option<Duration> {
        lock(&self.means).get(&handler).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{HandlerOptions, HandlerSpec, JobId, Lang, Timestamp, TypeKey};

    fn handler(batch: Option<u32>, contexts: Option<u32>) -> Handler {
        let options = HandlerOptions { batch, contexts, ..HandlerOptions::default() };
        let body = "return".to_owned();
        let (before, before_each, after_each, eid) = (None, None, None, None);
        let lang = Lang::Node;
        let spec = HandlerSpec { lang, body, before, before_each, after_each, eid, options };
        let key = TypeKey::new("a", "t").unwrap();
        Handler { id: JobId::new(1).unwrap(), key, created_at: Timestamp(0), spec }
    }

    #[test]
    fn quick_jobs_come_in_large_batches_to_few_contexts_and_slow_ones_alone_to_many() {
        let paces = Paces::new(2);
        let handler = handler(None, None);
        assert_eq!((paces.batch_max(&handler), paces.contexts_max(&handler)), (1, Some(2)));
        for (took_ms, expected) in [(1, (100, Some(2))), (10_000, (1, None))] {
            for _ in 0..20 {
                paces.note(handler.id, 100, Duration::from_millis(took_ms));
            }
            assert_eq!((paces.batch_max(&handler), paces.contexts_max(&handler)), expected);
        }
    }

    #[test]
    fn what_the_handler_says_holds() {
        let paces = Paces::new(2);
        let handler = handler(Some(7), Some(3));
        paces.note(handler.id, 1, Duration::from_secs(10));
        assert_eq!((paces.batch_max(&handler), paces.contexts_max(&handler)), (7, Some(3)));
    }
}
