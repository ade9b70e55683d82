//! A daemon that looks at what changed since its last look, as the dispatcher does. A store may
//! report a type more often than necessary, so the reports of two stores are not compared: each
//! must report all that opened.

use std::collections::BTreeSet;

use windlass_core::TypeKey;
use windlass_core::store::{ChangedLook, Revision};

use crate::fixture::Subject;

/// Types in one report: fewer than there are, so that a look needs several.
const PAGE: usize = 3;
/// Reports of one look.
const PAGES_MAX: usize = 100;

#[derive(Default)]
pub(super) struct Follower {
    without_handler: Seen,
    with_handler: Seen,
}

#[derive(Default)]
struct Seen {
    since: Revision,
    /// The types that it takes for open.
    open: BTreeSet<TypeKey>,
}

impl Follower {
    /// Looks, and checks that it missed nothing.
    pub(super) async fn look(&mut self, store: &Subject) {
        for (handled, seen) in [(false, &mut self.without_handler), (true, &mut self.with_handler)]
        {
            let mut pages = 0;
            loop {
                let look =
                    ChangedLook { since: Some(seen.since), handled, each: usize::MAX, limit: PAGE };
                let changed = store.type_changed(look).await.unwrap();
                seen.open.extend(changed.types.into_iter().map(|of_type| of_type.key));
                assert!(changed.up_to >= seen.since, "{:?} went back", changed.up_to);
                seen.since = changed.up_to;
                if !changed.more {
                    break;
                }
                pages += 1;
                assert!(pages < PAGES_MAX, "the look does not come to an end");
            }
            let since = Some(Revision::default());
            let all = ChangedLook { since, handled, each: usize::MAX, limit: usize::MAX };
            let all = store.type_changed(all).await.unwrap().types;
            let open: BTreeSet<TypeKey> = all.into_iter().map(|of_type| of_type.key).collect();
            let missed: Vec<_> = open.difference(&seen.open).collect();
            assert!(missed.is_empty(), "opened and were not reported: {missed:?}");
            // A closed type is reported when it opens again.
            seen.open = open;
        }
    }
}
