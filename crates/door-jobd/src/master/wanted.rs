//! The targets to poll: a bounded set that never loses a name. A full set means all targets,
//! because an unnecessary poll costs one query, while a missing poll strands a job.

use std::collections::BTreeSet;

/// Maximum number of names; beyond it the set means all targets.
pub(crate) const NAMES_MAX: usize = 10_000;

/// Maximum total length of the names; beyond it the set means all targets.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    names: BTreeSet<String>,
    bytes: usize,
    everything: bool,
}

/// The targets of one request to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    /// Never empty.
    Only(Vec<String>),
}

impl Wanted {
    pub(crate) fn add(&mut self, name: &str) {
        if self.everything || self.names.contains(name) {
            return;
        }
        self.bytes += name.len();
        if self.names.len() == NAMES_MAX || self.bytes > BYTES_MAX {
            self.add_everything();
        } else {
            self.names.insert(name.to_owned());
        }
    }

    pub(crate) fn add_everything(&mut self) {
        *self = Self { everything: true, ..Self::default() };
    }

    pub(crate) fn add_scope(&mut self, scope: &Scope) {
        match scope {
            Scope::Everything => self.add_everything(),
            Scope::Only(names) => names.iter().for_each(|name| self.add(name)),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if self.names.remove(name) {
            self.bytes -= name.len();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.everything
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The subset that a worker with these targets serves, in the worker's order.
    pub(crate) fn part(&self, served: &[String]) -> Option<Scope> {
        if self.everything {
            return Some(Scope::Everything);
        }
        let part: Vec<String> =
            served.iter().filter(|name| self.names.contains(*name)).cloned().collect();
        (!part.is_empty()).then_some(Scope::Only(part))
    }
}

impl<'a> FromIterator<&'a Scope> for Wanted {
    fn from_iter<I: IntoIterator<Item = &'a Scope>>(scopes: I) -> Self {
        let mut wanted = Self::default();
        scopes.into_iter().for_each(|scope| wanted.add_scope(scope));
        wanted
    }
}

impl<'a> FromIterator<&'a str> for Wanted {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut wanted = Self::default();
        names.into_iter().for_each(|name| wanted.add(name));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_is_kept_once_and_the_part_has_the_workers_order() {
        let wanted: Wanted = ["b", "a", "b", "x"].into_iter().collect();
        assert_eq!(wanted.names().collect::<Vec<_>>(), ["a", "b", "x"]);
        let part = wanted.part(&names(&["c", "b", "a"]));
        assert_eq!(part, Some(Scope::Only(names(&["b", "a"]))));
        assert_eq!(wanted.part(&names(&["c"])), None);
    }

    #[test]
    fn too_many_names_stand_for_everything() {
        let mut wanted = Wanted::default();
        (0..NAMES_MAX).for_each(|number| wanted.add(&number.to_string()));
        wanted.add("0");
        assert!(!wanted.is_everything());
        wanted.add("one more");
        assert!(wanted.is_everything());
        assert_eq!(wanted.names().count(), 0);
        assert_eq!(wanted.part(&names(&["any"])), Some(Scope::Everything));
    }

    #[test]
    fn too_long_names_stand_for_everything_and_removed_ones_do_not_count() {
        let mut wanted = Wanted::default();
        let long = "n".repeat(BYTES_MAX);
        wanted.add(&long);
        wanted.remove(&long);
        wanted.remove("never there");
        assert!(wanted.is_empty());
        wanted.add(&long);
        assert!(!wanted.is_everything());
        wanted.add("n");
        assert!(wanted.is_everything());
        assert!(!wanted.is_empty());
    }
}
