//! How the tasks that may run are shared between queues.
//!
//! Queues are in groups. The first group is the default: it gets what the others leave. Capacity is
//! reserved for all work of later groups; tasks that already run in a group reduce the share of the
//! groups after it, because they cannot be taken back.

/// The open tasks of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Tasks that a node may claim.
    pub queued: u64,
    /// Including claimed ones.
    pub running: u64,
}

impl Demand {
    /// Running tasks count, because a limit without them would block the queued ones.
    fn total(self) -> u64 {
        self.queued.saturating_add(self.running)
    }
}

/// The limit of each queue, if `most` tasks may run in all queues together.
pub(crate) fn share(most: u64, groups: &[Vec<Demand>]) -> Vec<Vec<u64>> {
    let total = |group: &[Demand]| -> u64 {
        group.iter().fold(0, |sum, demand| sum.saturating_add(demand.total()))
    };
    let later = groups.iter().skip(1).fold(0_u64, |sum, group| sum.saturating_add(total(group)));
    let mut used = 0_u64;
    let limits = groups.iter().enumerate().map(|(place, group)| {
        let reserved = if place == 0 { later.min(most) } else { 0 };
        let limits = split((most - reserved).saturating_sub(used), group);
        for (demand, limit) in group.iter().zip(&limits) {
            used = used.saturating_add(demand.running.max(*limit));
        }
        limits
    });
    limits.collect()
}

/// Equal shares, but never more than a queue needs; what one does not need goes to the others, and
/// the remainder to the first ones.
fn split(room: u64, group: &[Demand]) -> Vec<u64> {
    let mut limits = vec![0; group.len()];
    let mut order: Vec<usize> = (0..group.len()).collect();
    order.sort_by_key(|place| group[*place].total());
    let mut room = room;
    // Queues that need less than an equal share come first, and the rest share what those leave.
    let mut rest = order.as_slice();
    while let [first, others @ ..] = rest {
        let wanted = group[*first].total();
        if wanted > room / rest.len() as u64 {
            break;
        }
        limits[*first] = wanted;
        room -= wanted;
        rest = others;
    }
    if rest.is_empty() {
        return limits;
    }
    let (even, over) = (room / rest.len() as u64, room % rest.len() as u64);
    let mut rest = rest.to_vec();
    rest.sort_unstable();
    for (turn, place) in (0..).zip(rest) {
        limits[place] = even + u64::from(turn < over);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(group: &[(u64, u64)]) -> Vec<Demand> {
        group
            .iter()
            .map(|(queued, running)| Demand { queued: *queued, running: *running })
            .collect()
    }

    #[track_caller]
    fn check(most: u64, groups: &[&[(u64, u64)]], limits: &[&[u64]]) {
        let groups: Vec<Vec<Demand>> = groups.iter().map(|group| demands(group)).collect();
        assert_eq!(share(most, &groups), limits);
    }

    #[test]
    fn a_default_group_has_all_that_nobody_else_wants() {
        check(10, &[&[(50, 0)]], &[&[10]]);
        check(10, &[&[(50, 0)], &[(0, 0)], &[(0, 0)]], &[&[10], &[0], &[0]]);
        check(10, &[&[(3, 0)]], &[&[3]]);
        check(0, &[&[(3, 2)], &[(1, 0)]], &[&[0], &[0]]);
    }

    #[test]
    fn later_groups_take_from_the_default_as_its_tasks_end() {
        // Ten run, and four of the second group arrive.
        check(10, &[&[(90, 10)], &[(4, 0)], &[(0, 0)]], &[&[6], &[0], &[0]]);
        // Two have ended, and three of the third group arrive.
        check(10, &[&[(90, 8)], &[(4, 0)], &[(3, 0)]], &[&[3], &[2], &[0]]);
        check(10, &[&[(90, 6)], &[(2, 2)], &[(3, 0)]], &[&[3], &[4], &[0]]);
        check(10, &[&[(90, 6)], &[(0, 3)], &[(3, 0)]], &[&[4], &[3], &[1]]);
        check(10, &[&[(90, 6)], &[(0, 3)], &[(2, 1)]], &[&[4], &[3], &[1]]);
    }

    #[test]
    fn queues_of_a_group_share_evenly_what_they_need() {
        check(10, &[&[(50, 0), (50, 0), (50, 0)]], &[&[4, 3, 3]]);
        check(10, &[&[(50, 0), (1, 0), (50, 0)]], &[&[5, 1, 4]]);
        check(10, &[&[], &[(9, 0), (9, 0)]], &[&[], &[5, 5]]);
        check(7, &[&[(9, 0)], &[(1, 0), (9, 0)]], &[&[0], &[1, 6]]);
        check(5, &[], &[]);
    }

    /// One task at a time, each to the queue of its group that has the fewest.
    fn by_hand(most: u64, groups: &[Vec<Demand>]) -> Vec<Vec<u64>> {
        let wanted = |demand: &Demand| demand.queued + demand.running;
        let later: u64 = groups.iter().skip(1).flatten().map(wanted).sum();
        let mut used = 0;
        let mut all = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            let kept = if place == 0 { later.min(most) } else { 0 };
            let mut limits = vec![0; group.len()];
            let mut room = (most - kept).saturating_sub(used);
            while room > 0 {
                let open = (0..group.len()).filter(|at| limits[*at] < wanted(&group[*at]));
                let Some(least) = open.min_by_key(|at| limits[*at]) else { break };
                limits[least] += 1;
                room -= 1;
            }
            used += group
                .iter()
                .zip(&limits)
                .map(|(demand, limit)| demand.running.max(*limit))
                .sum::<u64>();
            all.push(limits);
        }
        all
    }

    #[test]
    fn every_share_is_what_giving_one_by_one_makes() {
        let mut random = fastrand::Rng::with_seed(42);
        for _ in 0..5_000 {
            let most = random.u64(0..30);
            let count = random.usize(0..4);
            let groups: Vec<Vec<Demand>> = (0..count)
                .map(|_| {
                    let queues = random.usize(0..4);
                    (0..queues)
                        .map(|_| Demand { queued: random.u64(0..12), running: random.u64(0..8) })
                        .collect()
                })
                .collect();
            let limits = share(most, &groups);
            assert_eq!(limits, by_hand(most, &groups), "{most} {groups:?}");
            let given: u64 = limits.iter().flatten().sum();
            assert!(given <= most, "{most} {groups:?} {limits:?}");
            let wanted: u64 = groups.iter().flatten().map(|demand| demand.total()).sum();
            if wanted <= most {
                assert_eq!(given, wanted, "{most} {groups:?} {limits:?}");
            }
        }
    }

    #[test]
    fn numbers_beyond_all_measure_do_not_overflow() {
        let huge = Demand { queued: u64::MAX, running: u64::MAX };
        let limits = share(u64::MAX, &[vec![huge], vec![huge, huge]]);
        assert_eq!(limits.len(), 2);
    }
}
