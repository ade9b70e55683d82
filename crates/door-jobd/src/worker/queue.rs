//! Targets and their jobs: what to fetch and start; which targets are full, paused or wanted. Pure.
//!
//! A poll makes targets wanted. A fetch is due when one is asked for, none is in progress and at
//! least one wanted target is not full; it then takes all wanted targets, up to the limit, so that
//! more may be accepted than can run, which wait here. When the limit was reached, the same targets
//! are wanted again.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::table::Row;

/// Maximum number of targets of one worker.
pub(crate) const TARGETS_MAX: usize = 10_000;
/// Maximum number of accepted jobs that wait here; beyond it nothing is fetched.
pub(crate) const QUEUED_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    targets: HashMap<String, Target>,
    /// Number of targets ever added; gives each its position.
    added: u64,
    wanted: BTreeSet<String>,
    fetching: bool,
    queued: usize,
    /// From now on nothing is fetched or started.
    closed: bool,
}

#[derive(Debug)]
struct Target {
    position: u64,
    concurrency: u32,
    paused: bool,
    running: usize,
    queued: VecDeque<Row>,
}

/// A target as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetStatus {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) concurrency: u32,
    /// Running and waiting jobs.
    pub(crate) length: usize,
}

impl Target {
    fn length(&self) -> usize {
        self.running + self.queued.len()
    }

    fn has_room(&self) -> bool {
        self.length() < self.concurrency as usize
    }
}

impl Queue {
    pub(crate) fn new(targets: impl IntoIterator<Item = (String, u32)>) -> Queue {
        let mut queue = Queue::default();
        for (name, concurrency) in targets {
            queue.insert(name, concurrency);
        }
        queue
    }

    pub(crate) fn has(&self, target: &str) -> bool {
        self.targets.contains_key(target)
    }

    /// In the order in which they were added.
    pub(crate) fn names(&self) -> Vec<String> {
        self.statuses().into_iter().map(|seen| seen.name).collect()
    }

    pub(crate) fn statuses(&self) -> Vec<TargetStatus> {
        let mut targets: Vec<_> = self.targets.iter().collect();
        targets.sort_by_key(|(_, target)| target.position);
        let seen = targets.into_iter().map(|(name, target)| TargetStatus {
            name: name.clone(),
            paused: target.paused,
            concurrency: target.concurrency,
            length: target.length(),
        });
        seen.collect()
    }

    /// Errors are texts for clients.
    pub(crate) fn add(&mut self, name: &str, concurrency: u32) -> Result<(), String> {
        if self.has(name) {
            return Err(format!("target '{name}' already added"));
        }
        if self.targets.len() == TARGETS_MAX {
            return Err(format!("a worker serves at most {TARGETS_MAX} targets"));
        }
        self.insert(name.to_owned(), concurrency);
        Ok(())
    }

    fn insert(&mut self, name: String, concurrency: u32) {
        let position = self.added;
        self.added += 1;
        let target =
            Target { position, concurrency, paused: false, running: 0, queued: VecDeque::new() };
        self.targets.insert(name, target);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<(), String> {
        let target = self.targets.get(name).ok_or_else(|| not_found(name))?;
        if target.length() > 0 {
            return Err("queue is not empty".into());
        }
        self.targets.remove(name);
        self.wanted.remove(name);
        Ok(())
    }

    pub(crate) fn set_concurrency(&mut self, name: &str, concurrency: u32) -> Result<(), String> {
        let target = self.targets.get_mut(name).ok_or_else(|| not_found(name))?;
        target.concurrency = concurrency;
        Ok(())
    }

    /// Pauses or resumes these targets, or all. Unknown names are skipped.
    pub(crate) fn set_paused(&mut self, names: Option<&[String]>, paused: bool) {
        match names {
            None => self.targets.values_mut().for_each(|target| target.paused = paused),
            Some(names) => {
                for name in names {
                    if let Some(target) = self.targets.get_mut(name) {
                        target.paused = paused;
                    }
                }
            }
        }
    }

    /// Jobs of these targets, or of all, are wanted. Unknown names are skipped.
    pub(crate) fn want(&mut self, names: Option<&[String]>) {
        match names {
            None => self.wanted = self.targets.keys().cloned().collect(),
            Some(names) => {
                let known = names.iter().filter(|name| self.targets.contains_key(*name));
                self.wanted.extend(known.cloned());
            }
        }
    }

    /// The targets to fetch now. `fetched` or `fetch_failed` must follow.
    pub(crate) fn next_fetch(&mut self) -> Option<Vec<String>> {
        let room = |name: &String| self.targets.get(name).is_some_and(Target::has_room);
        let due = !self.closed && !self.fetching && self.queued < QUEUED_MAX;
        if !due || !self.wanted.iter().any(room) {
            return None;
        }
        self.fetching = true;
        Some(std::mem::take(&mut self.wanted).into_iter().collect())
    }

    /// Takes the rows of a fetch; `more` when there may be others. Returns those that have to go
    /// back, because their target was removed meanwhile or nothing is started any more.
    pub(crate) fn fetched(&mut self, targets: &[String], rows: Vec<Row>, more: bool) -> Vec<Row> {
        self.fetching = false;
        if more {
            self.want(Some(targets));
        }
        self.push(rows)
    }

    /// The fetch must be repeated.
    pub(crate) fn fetch_failed(&mut self, targets: &[String]) {
        self.fetching = false;
        self.want(Some(targets));
    }

    /// Queues accepted jobs. Returns those that have to go back.
    pub(crate) fn push(&mut self, rows: Vec<Row>) -> Vec<Row> {
        let mut back = Vec::new();
        for row in rows {
            match self.targets.get_mut(&row.target) {
                Some(target) if !self.closed => {
                    target.queued.push_back(row);
                    self.queued += 1;
                }
                _ => back.push(row),
            }
        }
        back
    }

    /// Takes the jobs to start now, at most this many. Each counts as running until `ended`.
    pub(crate) fn take_startable(&mut self, count_max: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.closed || self.queued == 0 {
            return rows;
        }
        for target in self.targets.values_mut().filter(|target| !target.paused) {
            while rows.len() < count_max
                && target.running < target.concurrency as usize
                && let Some(row) = target.queued.pop_front()
            {
                target.running += 1;
                rows.push(row);
            }
        }
        self.queued -= rows.len();
        rows
    }

    /// A job of this target has ended. Returns whether a postponed fetch is now due.
    pub(crate) fn ended(&mut self, target: &str) -> bool {
        let wanted = self.wanted.contains(target);
        let Some(target) = self.targets.get_mut(target) else {
            return false;
        };
        target.running = target.running.saturating_sub(1);
        wanted && !target.paused && target.has_room()
    }

    /// Forgets waiting jobs that are no longer ours.
    pub(crate) fn forget(&mut self, ids: &HashSet<u64>) {
        for target in self.targets.values_mut() {
            let before = target.queued.len();
            target.queued.retain(|row| !ids.contains(&row.id));
            self.queued -= before - target.queued.len();
        }
    }

    /// Stops fetching and starting. Returns the waiting jobs, which go back.
    pub(crate) fn close(&mut self) -> Vec<Row> {
        self.closed = true;
        self.wanted.clear();
        self.queued = 0;
        self.targets.values_mut().flat_map(|target| target.queued.drain(..)).collect()
    }

    pub(crate) fn is_fetching(&self) -> bool {
        self.fetching
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

fn not_found(name: &str) -> String {
    format!("target '{name}' not found")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Origin;

    fn queue(targets: &[(&str, u32)]) -> Queue {
        Queue::new(targets.iter().map(|(name, concurrency)| ((*name).to_owned(), *concurrency)))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn rows(target: &str, ids: std::ops::Range<u64>) -> Vec<Row> {
        ids.map(|id| Row { id, target: target.into(), origin: Origin::Waiting }).collect()
    }

    fn start(queue: &mut Queue) -> Vec<u64> {
        queue.take_startable(usize::MAX).into_iter().map(|row| row.id).collect()
    }

    fn length(queue: &Queue, name: &str) -> usize {
        queue.statuses().into_iter().find(|seen| seen.name == name).map_or(0, |seen| seen.length)
    }

    #[test]
    fn the_next_jobs_are_fetched_when_fewer_are_left_than_may_run() {
        let mut queue = queue(&[("a", 2)]);
        queue.want(None);
        let targets = queue.next_fetch().unwrap();
        assert_eq!(targets, ["a"]);
        assert!(queue.fetched(&targets, rows("a", 0..10), true).is_empty());
        assert_eq!(queue.next_fetch(), None, "ten wait or run, and two may");
        assert_eq!(start(&mut queue), [0, 1]);
        for ended in 0..8 {
            assert!(!queue.ended("a"), "{ended}");
            assert_eq!(start(&mut queue), [ended + 2]);
        }
        assert!(queue.ended("a"), "one is left running");
        assert_eq!(queue.next_fetch(), Some(names(&["a"])));
    }

    #[test]
    fn jobs_of_full_targets_are_fetched_along_with_those_of_a_free_one() {
        let mut queue = queue(&[("a", 1), ("b", 1), ("c", 1)]);
        queue.push(rows("a", 0..1));
        assert_eq!(start(&mut queue), [0]);
        queue.want(Some(&names(&["a"])));
        assert_eq!(queue.next_fetch(), None);
        queue.want(Some(&names(&["b"])));
        assert_eq!(queue.next_fetch(), Some(names(&["a", "b"])));
    }

    #[test]
    fn a_poll_during_a_fetch_is_kept_for_the_next_one() {
        let mut queue = queue(&[("a", 5), ("b", 5)]);
        queue.want(Some(&names(&["a"])));
        let targets = queue.next_fetch().unwrap();
        queue.want(Some(&names(&["b"])));
        assert_eq!(queue.next_fetch(), None);
        queue.fetched(&targets, Vec::new(), false);
        assert_eq!(queue.next_fetch(), Some(names(&["b"])));
    }

    #[test]
    fn a_fetch_that_failed_is_asked_for_again() {
        let mut queue = queue(&[("a", 5)]);
        queue.want(None);
        let targets = queue.next_fetch().unwrap();
        queue.fetch_failed(&targets);
        assert_eq!(queue.next_fetch(), Some(targets));
    }

    #[test]
    fn pause_holds_jobs_that_wait_and_jobs_that_are_fetched() {
        let mut queue = queue(&[("a", 2), ("b", 2)]);
        queue.push(rows("a", 0..3));
        assert_eq!(start(&mut queue), [0, 1]);
        queue.set_paused(Some(&names(&["a"])), true);
        queue.ended("a");
        assert_eq!(start(&mut queue), [0_u64; 0]);
        queue.push(rows("a", 3..4));
        queue.push(rows("b", 4..5));
        assert_eq!(start(&mut queue), [4]);
        assert_eq!(length(&queue, "a"), 3);
        queue.set_paused(None, false);
        assert_eq!(start(&mut queue), [2]);
    }

    #[test]
    fn the_end_of_a_job_of_a_paused_target_makes_no_fetch_due() {
        let mut queue = queue(&[("a", 1)]);
        queue.push(rows("a", 0..1));
        start(&mut queue);
        queue.want(None);
        queue.set_paused(None, true);
        assert!(!queue.ended("a"));
        assert_eq!(queue.next_fetch(), Some(names(&["a"])), "but asking is not refused");
    }

    #[test]
    fn another_concurrency_counts_at_once_and_stops_nothing() {
        let mut queue = queue(&[("a", 1)]);
        queue.push(rows("a", 0..4));
        assert_eq!(start(&mut queue), [0]);
        queue.set_concurrency("a", 3).unwrap();
        assert_eq!(start(&mut queue), [1, 2]);
        queue.set_concurrency("a", 1).unwrap();
        queue.ended("a");
        queue.ended("a");
        assert_eq!(start(&mut queue), [0_u64; 0]);
        queue.ended("a");
        assert_eq!(start(&mut queue), [3]);
    }

    #[test]
    fn targets_come_and_go_unless_they_have_jobs() {
        let mut queue = queue(&[("b", 1)]);
        assert_eq!(queue.add("b", 1), Err("target 'b' already added".into()));
        for name in ["toString", "constructor", "", "null"] {
            assert_eq!(queue.remove(name), Err(format!("target '{name}' not found")));
            assert_eq!(queue.set_concurrency(name, 1), Err(format!("target '{name}' not found")));
            assert_eq!(queue.add(name, 1), Ok(()));
        }
        assert_eq!(queue.names(), ["b", "toString", "constructor", "", "null"]);
        queue.push(rows("b", 0..1));
        assert_eq!(queue.remove("b"), Err("queue is not empty".into()));
        start(&mut queue);
        assert_eq!(queue.remove("b"), Err("queue is not empty".into()));
        queue.ended("b");
        queue.want(None);
        assert_eq!(queue.remove("b"), Ok(()));
        assert!(!queue.next_fetch().unwrap().contains(&"b".to_owned()));
    }

    #[test]
    fn rows_of_a_target_that_was_removed_meanwhile_go_back() {
        let mut queue = queue(&[("a", 1), ("b", 1)]);
        queue.want(None);
        let targets = queue.next_fetch().unwrap();
        queue.remove("a").unwrap();
        assert_eq!(queue.fetched(&targets, rows("a", 0..2), true), rows("a", 0..2));
        assert_eq!(queue.next_fetch(), Some(names(&["b"])));
    }

    #[test]
    fn a_closed_queue_gives_its_jobs_back_and_takes_no_more() {
        let mut queue = queue(&[("a", 1)]);
        queue.push(rows("a", 0..3));
        start(&mut queue);
        assert_eq!(queue.close(), rows("a", 1..3));
        queue.want(None);
        assert_eq!(queue.next_fetch(), None);
        assert_eq!(queue.push(rows("a", 3..4)), rows("a", 3..4));
        queue.ended("a");
        assert_eq!(start(&mut queue), [0_u64; 0]);
    }

    #[test]
    fn jobs_that_are_no_longer_ours_are_forgotten_and_starts_can_be_bounded() {
        let mut queue = queue(&[("a", 10)]);
        queue.push(rows("a", 0..5));
        queue.forget(&HashSet::from([1, 7]));
        assert_eq!(length(&queue, "a"), 4);
        assert_eq!(queue.take_startable(3).len(), 3);
        assert_eq!(start(&mut queue), [4]);
    }

    #[test]
    fn the_targets_and_the_jobs_that_wait_are_bounded() {
        let mut queue = Queue::default();
        for number in 0..TARGETS_MAX {
            queue.add(&number.to_string(), 1).unwrap();
        }
        assert!(queue.add("one more", 1).unwrap_err().contains("at most 10000"));
        queue.push(rows("0", 0..QUEUED_MAX as u64));
        queue.want(None);
        assert_eq!(queue.next_fetch(), None);
        start(&mut queue);
        assert!(queue.next_fetch().is_some());
    }
}
