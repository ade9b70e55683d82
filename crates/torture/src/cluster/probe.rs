//! Probes: one for each daemon, which adds a job that only the store can decide (with a unique
//! key), again and again. Their acknowledgements show for how long the cluster could not store
//! anything, and at the end every acknowledged job must be there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::door::connect;
use crate::site::Site;

/// Pause between two adds, and so the resolution of gaps.
const PAUSE: Duration = Duration::from_millis(100);
/// Its jobs are nobody's: they stay queued.
pub(crate) const TENANT: &str = "probe";

pub(crate) struct Probes<'a> {
    site: &'a Site,
    /// Of each daemon, in the order of time.
    acks: Mutex<Vec<Vec<Ack>>>,
    jobs: Mutex<BTreeSet<String>>,
}

/// When an add was sent that was acknowledged, and when it was.
#[derive(Debug, Clone, Copy)]
struct Ack {
    sent_ns: u64,
    done_ns: u64,
}

/// For how long nothing was acknowledged around a fault.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gap {
    /// By no daemon.
    pub(crate) any: Duration,
    /// By the daemon for which it took longest.
    pub(crate) longest: Duration,
}

impl<'a> Probes<'a> {
    pub(crate) fn new(site: &'a Site) -> Probes<'a> {
        let acks = (0..site.daemon_count()).map(|_| Vec::new()).collect();
        Probes { site, acks: Mutex::new(acks), jobs: Mutex::default() }
    }

    /// Adds by this daemon until the run drains.
    pub(crate) fn run(&self, daemon: usize) {
        for number in 0_u64.. {
            if !self.site.is_busy() {
                return;
            }
            let sent_ns = self.site.now_ns();
            if let Some(job) = self.add(daemon, number) {
                lock(&self.jobs).insert(job);
                lock(&self.acks)[daemon].push(Ack { sent_ns, done_ns: self.site.now_ns() });
            }
            self.site.pause_while(PAUSE, || self.site.is_busy());
        }
    }

    /// The id of a new job, if it was acknowledged.
    fn add(&self, daemon: usize, number: u64) -> Option<String> {
        let unique = format!("{}-{number}", self.site.daemon_name(daemon));
        let add = json!({"jobs": [{"payload": "", "unique": unique}]}).to_string();
        let kind = [("Content-Type", "application/json")];
        let path = format!("/v1/{TENANT}/jobs/probe");
        let mut connection = connect(self.site, daemon)?;
        let answer = connection.call("POST", &path, &kind, add.as_bytes()).ok()?;
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        Some(body["ids"][0].as_str()?.to_owned()).filter(|_| answer.status / 100 == 2)
    }

    /// Waits until every daemon has acknowledged what was sent after this time.
    pub(crate) fn until_acknowledged(&self, since_ns: u64, time_max: Duration) -> bool {
        let until = self.site.now_ns() + time_max.as_nanos() as u64;
        let is_back = |of: &Vec<Ack>| of.last().is_some_and(|ack| ack.sent_ns >= since_ns);
        while !lock(&self.acks).iter().all(is_back) {
            if self.site.now_ns() > until {
                return false;
            }
            std::thread::sleep(PAUSE / 4);
        }
        true
    }

    /// The longest time between two acknowledgements from the last one before `from_ns` until now.
    pub(crate) fn gap(&self, from_ns: u64) -> Gap {
        let acks = lock(&self.acks);
        let now_ns = self.site.now_ns();
        let of_each =
            acks.iter().map(|of| longest(of.iter().map(|ack| ack.done_ns), from_ns, now_ns));
        let mut all: Vec<u64> = acks.iter().flatten().map(|ack| ack.done_ns).collect();
        all.sort_unstable();
        Gap {
            any: longest(all.into_iter(), from_ns, now_ns),
            longest: of_each.max().unwrap_or_default(),
        }
    }

    /// How many adds were acknowledged.
    pub(crate) fn count(&self) -> usize {
        lock(&self.jobs).len()
    }

    /// Acknowledged jobs that are not in this list.
    pub(crate) fn lost(&self, listed: &[Value]) -> Vec<String> {
        let listed: BTreeSet<&str> = listed.iter().filter_map(|job| job["id"].as_str()).collect();
        let jobs = lock(&self.jobs);
        jobs.iter().filter(|job| !listed.contains(job.as_str())).cloned().collect()
    }
}

/// The longest time without one of these moments, which are in order.
fn longest(moments: impl Iterator<Item = u64>, from_ns: u64, to_ns: u64) -> Duration {
    let (mut last, mut longest) = (None, 0);
    for at in moments.chain([to_ns]) {
        if at >= from_ns {
            longest = longest.max(at - last.unwrap_or(from_ns).min(at));
        }
        last = Some(at);
    }
    Duration::from_nanos(longest)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_begins_with_the_last_acknowledgement_before_the_fault() {
        let gap = |moments: &[u64], from| longest(moments.iter().copied(), from, 100).as_nanos();
        assert_eq!(gap(&[10, 20, 25, 60, 70, 95], 30), 35);
        assert_eq!(gap(&[10, 20, 25, 60, 70, 95], 65), 25);
        assert_eq!(gap(&[10, 40], 30), 60, "there was none since");
        assert_eq!(gap(&[], 30), 70);
    }
}
