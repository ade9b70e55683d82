//! A set whose members are drawn with a probability in proportion to their weight, in constant
//! time.
//!
//! Members are kept in classes by the magnitude of their weights. A draw picks a class by its total
//! weight, then random members of it until one is accepted, each with a probability of at least one
//! half.

use std::collections::HashMap;
use std::hash::Hash;

/// Magnitudes of a weight.
const CLASSES: usize = 64;
/// Random tries in one draw. That many fail once in 2^64 draws; then the last member is taken.
const TRIES_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct WeightedSet<T> {
    locations: HashMap<T, Location>,
    classes: Vec<Class<T>>,
}

/// Where a member is kept.
#[derive(Debug, Clone, Copy)]
struct Location {
    class: usize,
    index: usize,
    weight: u64,
}

#[derive(Debug)]
struct Class<T> {
    members: Vec<T>,
    total: u64,
}

impl<T> Default for WeightedSet<T> {
    fn default() -> WeightedSet<T> {
        WeightedSet { locations: HashMap::new(), classes: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> WeightedSet<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.locations.is_empty()
    }

    pub(crate) fn contains(&self, member: &T) -> bool {
        self.locations.contains_key(member)
    }

    pub(crate) fn len(&self) -> usize {
        self.locations.len()
    }

    /// The total weight of all members.
    pub(crate) fn weight(&self) -> u64 {
        self.classes.iter().map(|class| class.total).sum()
    }

    /// Adds a member or changes its weight, which is at least 1.
    pub(crate) fn insert(&mut self, member: &T, weight: u64) {
        let weight = weight.max(1);
        if self.locations.get(member).is_some_and(|location| location.weight == weight) {
            return;
        }
        self.remove(member);
        let class = weight.ilog2() as usize;
        debug_assert!(class < CLASSES, "a weight has 64 bits");
        while self.classes.len() <= class {
            self.classes.push(Class { members: Vec::new(), total: 0 });
        }
        let of_class = &mut self.classes[class];
        let location = Location { class, index: of_class.members.len(), weight };
        of_class.members.push(member.clone());
        of_class.total += weight;
        self.locations.insert(member.clone(), location);
    }

    pub(crate) fn remove(&mut self, member: &T) {
        let Some(Location { class, index, weight }) = self.locations.remove(member) else { return };
        let of_class = &mut self.classes[class];
        of_class.members.swap_remove(index);
        of_class.total -= weight;
        if let Some(moved) = of_class.members.get(index)
            && let Some(location) = self.locations.get_mut(moved)
        {
            location.index = index;
        }
    }

    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> Option<&T> {
        let total = self.weight();
        let mut mark = if total == 0 { return None } else { rng.u64(..total) };
        let class = self.classes.iter().position(|class| {
            let hit = mark < class.total;
            mark = mark.saturating_sub(class.total);
            hit
        })?;
        let members = &self.classes[class].members;
        let ceiling = (2_u64 << class).wrapping_sub(1);
        let mut drawn = None;
        for _ in 0..TRIES_MAX {
            let member = &members[rng.usize(..members.len())];
            drawn = Some(member);
            if rng.u64(..=ceiling) < self.locations[member].weight {
                break;
            }
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(set: &WeightedSet<u32>, draws: usize) -> HashMap<u32, f64> {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut shares = HashMap::new();
        for _ in 0..draws {
            *shares.entry(*set.draw(&mut rng).unwrap()).or_insert(0.0) += 1.0 / draws as f64;
        }
        shares
    }

    #[test]
    fn members_are_drawn_by_their_weights_whatever_they_are() {
        let mut set = WeightedSet::default();
        let weights = [(1, 1), (2, 3), (3, 4), (4, 1000), (5, 7)];
        weights.iter().for_each(|(member, weight)| set.insert(member, *weight));
        set.insert(&4, 5);
        assert_eq!((set.weight(), set.len()), (20, 5));
        let shares = shares(&set, 40_000);
        for (member, share) in [(1, 0.05), (2, 0.15), (3, 0.2), (4, 0.25), (5, 0.35)] {
            assert!((shares[&member] - share).abs() < 0.01, "{shares:?}");
        }
    }

    #[test]
    fn members_stay_reachable_whatever_is_removed() {
        let mut set = WeightedSet::default();
        (0..10).for_each(|n| set.insert(&n, u64::from(n % 3 + 1)));
        [9, 0, 5, 5, 42].iter().for_each(|n| set.remove(n));
        let mut left: Vec<u32> = shares(&set, 5000).into_keys().collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 4, 6, 7, 8]);
        left.iter().for_each(|n| set.remove(n));
        assert!(set.is_empty() && set.draw(&mut fastrand::Rng::new()).is_none());
    }
}
