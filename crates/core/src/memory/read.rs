//! Jobs are listed and counted.

use std::collections::BTreeMap;

use crate::job::Job;
use crate::name::{Tenant, TypeKey};
use crate::state::State as JobState;
use crate::store::{List, Page, TypeStats};
use crate::time::Timestamp;

use super::{Row, State};

impl State {
    pub(super) fn job_list(&self, list: &List) -> Page {
        let wanted = |job: &&Job| {
            job.key.tenant == list.tenant
                && list.name.as_ref().is_none_or(|name| job.key.name == *name)
                && list.state.is_none_or(|state| job.state == state)
                && list.before.is_none_or(|before| job.id < before)
        };
        let newest_first = self.jobs.values().rev().map(|row| &row.job);
        let mut matching = newest_first.filter(wanted);
        let jobs: Vec<Job> = matching.by_ref().take(list.limit).cloned().collect();
        let more = matching.next().is_some();
        let next = jobs.last().map(|job| job.id).filter(|_| more);
        Page { jobs, next }
    }

    pub(super) fn type_stats(&self, tenant: Option<&Tenant>) -> Vec<TypeStats> {
        let mut stats: BTreeMap<&TypeKey, TypeStats> = BTreeMap::new();
        for (key, row) in &self.types {
            let empty = TypeStats {
                key: key.clone(),
                handler: row.in_force.is_some(),
                suspended: row.suspended,
                settings: row.has_settings,
                ready: 0,
                deferred: 0,
                running: 0,
                paused: 0,
                finished: 0,
                failed: 0,
                cancelled: 0,
                oldest_ready_at: None,
            };
            stats.insert(key, empty);
        }
        for row in self.jobs.values() {
            let of_type = stats.get_mut(&row.job.key).expect("a job's type is always there");
            count(row, self.now, of_type);
        }
        let asked_for = |stats: &TypeStats| match tenant {
            Some(tenant) => stats.key.tenant == *tenant,
            None => self.types[&stats.key].has_settings || !stats.is_empty(),
        };
        stats.into_values().filter(asked_for).collect()
    }
}

fn count(row: &Row, now: Timestamp, stats: &mut TypeStats) {
    let job = &row.job;
    match job.state {
        JobState::Queued if row.is_ready(now) => {
            stats.ready += 1;
            let oldest = stats.oldest_ready_at.unwrap_or(job.run_at);
            stats.oldest_ready_at = Some(oldest.min(job.run_at));
        }
        JobState::Queued => stats.deferred += 1,
        JobState::Running => stats.running += 1,
        JobState::Paused => stats.paused += 1,
        JobState::Finished => stats.finished += 1,
        JobState::Failed => stats.failed += 1,
        JobState::Cancelled => stats.cancelled += 1,
    }
}
