//! Which types have no handler: their jobs are no reason to look at the store. A type of which that
//! is not known is asked about in the next look, once.

use std::collections::{HashMap, HashSet};

use windlass_core::TypeKey;

use super::Scheduler;

/// Remembered types without a handler; when there are more, all are forgotten.
const UNHANDLED_TYPES_MAX: usize = 20_000;
/// Types that one look asks about. Others are asked about when their next jobs are announced.
const UNKNOWN_TYPES_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Unhandled {
    known: HashSet<TypeKey>,
    /// Types whose jobs were announced although they are neither here nor in the window, each with
    /// the number of the look during which that happened last.
    unknown: HashMap<TypeKey, u64>,
}

impl Unhandled {
    /// Whether the type is known to have no handler; if not, it is asked about.
    pub(super) fn contains(&mut self, key: &TypeKey, look: u64) -> bool {
        let known = self.known.contains(key);
        let has_room = self.unknown.len() < UNKNOWN_TYPES_MAX || self.unknown.contains_key(key);
        if !known && has_room {
            self.unknown.insert(key.clone(), look);
        }
        known
    }

    /// The store has reported the type without a handler.
    pub(super) fn insert(&mut self, key: &TypeKey) {
        self.unknown.remove(key);
        if self.known.len() >= UNHANDLED_TYPES_MAX {
            self.known.clear();
        }
        self.known.insert(key.clone());
    }

    /// The type has a handler. An answer of the store that is older than that does not count.
    pub(super) fn remove(&mut self, key: &TypeKey) {
        self.known.remove(key);
        self.unknown.remove(key);
    }
}

impl Scheduler {
    /// The types that the current look asks about: their jobs were announced before it began.
    pub(crate) fn unknown_types(&self) -> Vec<TypeKey> {
        let before = |(_, noted): &(&TypeKey, &u64)| **noted < self.look;
        self.unhandled.unknown.iter().filter(before).map(|(key, _)| key.clone()).collect()
    }

    /// The store has answered which of these have no handler. A type that was announced again
    /// during the look may have got one since.
    pub(crate) fn note_unhandled(&mut self, asked: &[TypeKey], without: &[TypeKey]) {
        let Scheduler { unhandled, look, .. } = self;
        let mut answered = HashSet::new();
        for key in asked {
            if unhandled.unknown.get(key).is_some_and(|noted| noted < look) {
                unhandled.unknown.remove(key);
                answered.insert(key);
            }
        }
        without.iter().filter(|key| answered.contains(key)).for_each(|key| unhandled.insert(key));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{handler, key, scheduler};
    use super::UNKNOWN_TYPES_MAX;
    use crate::options::Fairness;

    #[test]
    fn jobs_of_a_type_without_a_handler_are_no_reason_to_look_once_that_is_known() {
        let mut scheduler = scheduler(Fairness::Tenant, Vec::new());
        let t = key("a", "bare");
        assert!(!scheduler.note(&t, 1));
        scheduler.look_begins();
        let asked = scheduler.unknown_types();
        assert_eq!(asked, std::slice::from_ref(&t));
        scheduler.note_unhandled(&asked, &asked);
        assert!(scheduler.note(&t, 1));
        scheduler.look_begins();
        assert!(scheduler.unknown_types().is_empty());
        scheduler.set_handler(&t, handler().unwrap());
        assert!(!scheduler.note(&t, 1), "it may run here now");
    }

    #[test]
    fn a_look_asks_about_types_announced_before_it_began_and_not_about_too_many() {
        let mut scheduler = scheduler(Fairness::Tenant, Vec::new());
        for n in 0..=UNKNOWN_TYPES_MAX {
            assert!(!scheduler.note(&key("a", &format!("t{n}")), 1));
        }
        assert!(scheduler.unknown_types().is_empty(), "no look has begun");
        scheduler.look_begins();
        assert_eq!(scheduler.unknown_types().len(), UNKNOWN_TYPES_MAX);
    }

    #[test]
    fn several_types_without_a_handler_are_remembered() {
        let mut scheduler = scheduler(Fairness::Tenant, Vec::new());
        let types = ["t", "u"].map(|name| key("a", name));
        assert!(!types.iter().any(|t| scheduler.note(t, 1)));
        scheduler.look_begins();
        let asked = scheduler.unknown_types();
        scheduler.note_unhandled(&asked, &types);
        assert!(types.iter().all(|t| scheduler.note(t, 1)));
    }

    #[test]
    fn an_answer_about_handlers_does_not_count_for_a_type_that_got_one_meanwhile() {
        let mut scheduler = scheduler(Fairness::Tenant, Vec::new());
        let (set, again, handled) = (key("a", "set"), key("a", "again"), key("a", "handled"));
        for t in [&set, &again, &handled] {
            assert!(!scheduler.note(t, 1));
        }
        scheduler.look_begins();
        let asked = scheduler.unknown_types();
        scheduler.set_handler(&set, handler().unwrap());
        scheduler.set_handler(&again, handler().unwrap());
        assert!(!scheduler.note(&again, 1));
        scheduler.note_unhandled(&asked, &[set.clone(), again.clone()]);
        for t in [&set, &again, &handled] {
            assert!(!scheduler.note(t, 1), "{t}");
        }
    }
}
