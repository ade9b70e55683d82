//! Unhandled: gives up jobs of types that have had no handler and no worker for too long. Separate
//! from the reaper, because there may be very many such types: each pass looks at some of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use windlass_core::store::{self, Overdue, TypeStats};
use windlass_core::{Timestamp, TypeKey};

use crate::dispatch::policy::Policy;
use crate::house::reap::{self, REAP_BATCH_MAX};
use crate::house::service::{Failed, Next, Service};
use crate::options::Options;
use crate::shared::Shared;

/// Longest interval between two scans of all types.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Minimum number of scans within the age at which jobs are given up.
const LOOKS_PER_AGE: u32 = 4;
/// Types with possibly overdue jobs that one pass checks in the store.
const TYPES_MAX: usize = 100;
/// The pause between two passes of one scan, to leave the store to others.
const PASS_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Unhandled {
    shared: Arc<Shared>,
    /// Types that the last scan left to check, with when their oldest job came due.
    suspects: VecDeque<(TypeKey, Timestamp)>,
    /// When the next scan of all types is due.
    look_at: Instant,
}

impl Unhandled {
    pub(crate) fn new(shared: Arc<Shared>) -> Unhandled {
        Unhandled { shared, suspects: VecDeque::new(), look_at: Instant::now() }
    }

    /// Scans all types for those that may have overdue jobs.
    async fn look(&mut self) -> Result<(), store::Error> {
        let shared = &self.shared;
        let shortest = shared.options.retry.age / LOOKS_PER_AGE;
        let pause = shortest.clamp(shared.options.reap_interval, INTERVAL_MAX);
        self.look_at = Instant::now() + pause;
        let stats = shared.store.type_stats(None).await?;
        self.suspects = stats.into_iter().filter_map(|stats| self.suspect(stats)).collect();
        Ok(())
    }

    /// The type, if its jobs may be overdue. Only a type with settings can have another age limit.
    fn suspect(&self, stats: TypeStats) -> Option<(TypeKey, Timestamp)> {
        let Options { keep_unhandled, retry, .. } = &self.shared.options;
        let TypeStats { key, handler: false, suspended: false, .. } = stats else { return None };
        let oldest = stats.oldest_ready_at?;
        let old = stats.settings || self.shared.now().since(oldest) >= retry.age;
        (old && !keep_unhandled.contains(&key.tenant)).then_some((key, oldest))
    }

    /// Gives up the overdue jobs of one type. True when there may be more.
    async fn give_up(&self, key: &TypeKey, oldest: Timestamp) -> Result<bool, store::Error> {
        let shared = &self.shared;
        let settings = shared.store.type_settings_get(key).await?;
        let policy = Policy::of(None, &settings, &shared.options);
        if shared.now().since(oldest) < policy.retry.age {
            return Ok(false);
        }
        let which = Overdue::Unhandled { key: key.clone(), due_for: policy.retry.age };
        let why = "no handler and no worker took it in time";
        let given_up = reap::give_up(shared, which, why, policy.retention).await?;
        Ok(given_up == REAP_BATCH_MAX)
    }

    async fn look_and_give_up(&mut self) -> Result<(), store::Error> {
        if self.suspects.is_empty() {
            self.look().await?;
        }
        for _ in 0..TYPES_MAX {
            let Some((key, oldest)) = self.suspects.front() else { break };
            if !self.give_up(key, *oldest).await? {
                self.suspects.pop_front();
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Service for Unhandled {
    fn name(&self) -> &'static str {
        "unhandled"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let interval = self.shared.options.reap_interval;
        self.look_and_give_up().await.map_err(|error| Failed::new(error, interval))?;
        let pause = self.look_at.saturating_duration_since(Instant::now());
        Ok(Next::After(if self.suspects.is_empty() { pause } else { PASS_PAUSE }))
    }
}
