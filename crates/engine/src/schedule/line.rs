//! A line: members in order of arrival, each once.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Line<T> {
    tickets: u64,
    order: BTreeMap<u64, T>,
    places: HashMap<T, u64>,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { tickets: 0, order: BTreeMap::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Line<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a member at the end; one that is already in line keeps its place.
    pub(crate) fn push(&mut self, member: &T) {
        if !self.places.contains_key(member) {
            self.tickets += 1;
            self.order.insert(self.tickets, member.clone());
            self.places.insert(member.clone(), self.tickets);
        }
    }

    pub(crate) fn remove(&mut self, member: &T) {
        if let Some(ticket) = self.places.remove(member) {
            self.order.remove(&ticket);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let (_, member) = self.order.pop_first()?;
        self.places.remove(&member);
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_came_is_the_first_that_goes_and_each_stands_once() {
        let mut line = Line::default();
        [3, 1, 3, 2, 1].iter().for_each(|n| line.push(n));
        line.remove(&1);
        line.remove(&7);
        line.push(&1);
        assert_eq!(std::iter::from_fn(|| line.pop()).collect::<Vec<_>>(), [3, 2, 1]);
        assert!(line.is_empty() && line.places.is_empty());
    }
}
