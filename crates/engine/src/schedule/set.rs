//! A set from which a random member is taken in constant time.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct IndexedSet<T> {
    members: Vec<T>,
    places: HashMap<T, usize>,
}

impl<T> Default for IndexedSet<T> {
    fn default() -> IndexedSet<T> {
        IndexedSet { members: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> IndexedSet<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn members(&self) -> &[T] {
        &self.members
    }

    pub(crate) fn insert(&mut self, member: &T) {
        if !self.places.contains_key(member) {
            self.places.insert(member.clone(), self.members.len());
            self.members.push(member.clone());
        }
    }

    pub(crate) fn remove(&mut self, member: &T) {
        let Some(place) = self.places.remove(member) else { return };
        self.members.swap_remove(place);
        if let Some(moved) = self.members.get(place) {
            self.places.insert(moved.clone(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stay_reachable_whatever_is_removed() {
        let mut set = IndexedSet::default();
        for n in 0..10 {
            set.insert(&n);
            set.insert(&n);
        }
        for n in [9, 0, 5, 5, 42] {
            set.remove(&n);
        }
        let mut left = set.members().to_vec();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 4, 6, 7, 8]);
        for n in left {
            set.remove(&n);
        }
        assert!(set.is_empty());
    }
}
