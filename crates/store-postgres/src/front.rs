//! Where the queues begin. A transaction that is left open keeps the server from removing the rows
//! of jobs that were claimed, and a claim that began with the first of them would pass all of them.
//! So the table `front` has bounds, for each type and rank: no job comes before them. This daemon
//! notes from where it has taken jobs, and after some thousands raises the bound up to there.
//!
//! Daemons remember no bounds. The statement that raises one checks that no job is left before it,
//! under a lock that keeps others from adding jobs unseen; a transaction that adds a job before a
//! bound lowers it (`announce`). Claims read the bounds and the queue in one statement.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::queue::QueueKey;
use crate::tx::{Place, Tx};

/// Ranks of a type that have a bound.
const RANKS_MAX: usize = 16;
/// Types of which this daemon notes something at the same time.
const TYPES_MAX: usize = 10_000;
/// Nobody waits long for a bound: with this many milliseconds, it is raised the next time.
const PATIENCE: &str = "SET LOCAL lock_timeout = 200";

/// From where jobs were taken, by type.
#[derive(Debug, Default)]
pub(crate) struct Passed(BTreeMap<i32, OfType>);

#[derive(Debug, Default)]
pub(crate) struct OfType {
    jobs: u64,
    /// The last place of each rank.
    places: BTreeMap<i32, Place>,
}

impl Passed {
    /// So many jobs were taken up to this place.
    pub(crate) fn note(&mut self, key: QueueKey, jobs: u64) {
        let of_type = self.0.entry(key.type_id).or_default();
        of_type.jobs += jobs;
        of_type.reach(key.rank, key.place());
    }

    /// Adds what another transaction has noted. Returns the types of which at least `enough` jobs
    /// have passed, and forgets them.
    pub(crate) fn take_full(&mut self, others: Passed, enough: u64) -> Vec<(i32, OfType)> {
        let mut full = Vec::new();
        for (type_id, others) in others.0 {
            if self.0.len() >= TYPES_MAX && !self.0.contains_key(&type_id) {
                self.0.pop_first();
            }
            let of_type = self.0.entry(type_id).or_default();
            of_type.jobs += others.jobs;
            others.places.into_iter().for_each(|(rank, place)| of_type.reach(rank, place));
            if of_type.jobs >= enough {
                full.extend(self.0.remove(&type_id).map(|of_type| (type_id, of_type)));
            }
        }
        full
    }
}

impl OfType {
    fn reach(&mut self, rank: i32, place: Place) {
        let last = self.places.entry(rank).or_insert(place);
        *last = place.max(*last);
        if self.places.len() > RANKS_MAX {
            self.places.pop_last();
        }
    }
}

/// Raises the bounds of a type.
pub(crate) async fn raise(tx: &mut Tx<'_>, type_id: i32, passed: &OfType) -> Result<()> {
    tx.batch(PATIENCE).await?;
    let ranks: Vec<i32> = passed.places.keys().copied().collect();
    let times: Vec<i64> = passed.places.values().map(|place| place.0).collect();
    let ties: Vec<i64> = passed.places.values().map(|place| place.1).collect();
    let ids: Vec<i64> = passed.places.values().map(|place| place.2).collect();
    let raise = "SELECT raise_front($1, $2, $3, $4, $5, $6)";
    let most = RANKS_MAX as i32;
    tx.execute(raise, &[&type_id, &ranks, &times, &ties, &ids, &most]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass_core::time::Timestamp;

    use super::*;

    fn passed(keys: &[(i32, i32, i64)]) -> Passed {
        let mut passed = Passed::default();
        for &(type_id, rank, run_at) in keys {
            let run_at = Timestamp(run_at);
            passed.note(QueueKey { type_id, rank, run_at, tie: 0, id: 1 }, 1);
        }
        passed
    }

    #[test]
    fn a_type_is_full_when_enough_of_its_jobs_have_passed() {
        let mut all = Passed::default();
        assert!(all.take_full(passed(&[(1, 5, 10), (2, 5, 10)]), 3).is_empty());
        let full = all.take_full(passed(&[(1, 5, 9), (1, 7, 3)]), 3);
        let [(1, of_type)] = &full[..] else { panic!("{full:?}") };
        assert_eq!(of_type.places, BTreeMap::from([(5, (10, 0, 1)), (7, (3, 0, 1))]));
        assert!(all.take_full(passed(&[(1, 5, 11)]), 3).is_empty(), "it begins again");
    }

    #[test]
    fn the_most_urgent_ranks_are_noted() {
        let many: Vec<(i32, i32, i64)> = (0..100).rev().map(|rank| (1, rank, 1)).collect();
        let full = Passed::default().take_full(passed(&many), 1);
        let ranks: Vec<i32> = full[0].1.places.keys().copied().collect();
        assert_eq!(ranks, (0..RANKS_MAX as i32).collect::<Vec<_>>());
    }
}
