//! Parents and children: who waits for whom. Pure decisions; stores and doors carry them out.
//!
//! A child belongs to a parent that runs or is paused. While the parent runs, the child is paused.
//! When the parent's attempt ends well and children are pending, the parent is paused and its
//! children are queued. When the last pending child has ended, the parent is queued and runs again.
//! A failed child is not pending, but its parent waits until the child is rerun, cancelled or
//! removed. There are no grandchildren.

use std::sync::Arc;

use crate::calendar::Civil;
use crate::edit::{ChildMove, Children, Edit, Put};
use crate::job::{Extra, Job, NewJob};
use crate::state::{self, Event, State};
use crate::time::Timestamp;

/// Why a job cannot be the child of this parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// There is no such parent.
    Missing,
    /// The parent neither runs nor waits for children.
    NotOpen,
    /// The parent is a child itself.
    Grandchild,
}

/// Whether a new child of this parent is paused.
pub fn child_is_paused(parent: &Job) -> Result<bool, Unfit> {
    let paused = match parent.state {
        State::Running => true,
        State::Queued if parent.extra.lent => true,
        State::Paused => false,
        _ => return Err(Unfit::NotOpen),
    };
    if parent.parent.is_some() { Err(Unfit::Grandchild) } else { Ok(paused) }
}

/// Sets how a job with this parent begins.
pub fn begin(new: &mut NewJob, parent: Option<&Job>) -> Result<(), Unfit> {
    let parent = parent.ok_or(Unfit::Missing)?;
    new.paused = child_is_paused(parent)?;
    new.extra.hidden |= parent.extra.hidden;
    Ok(())
}

/// The edits for a parent whose attempt ended well while children are pending, and for the
/// children. `None` when it need not wait.
pub fn wait_for_children(job: &Job, children: Children) -> Option<Vec<Edit>> {
    if !children.pending() {
        return None;
    }
    // Due as soon as it is queued, and before other jobs of that millisecond. Its new time is shown
    // as a whole second.
    let run_at = job.started_at.unwrap_or(job.run_at);
    let shown = Civil::from_timestamp(run_at).to_string();
    let paused = Job {
        state: State::Paused,
        attempt: 0,
        lease: None,
        run_at,
        extra: Extra {
            run_at_text: Some(Arc::from(shown)),
            order_key: -1,
            lent: false,
            ..job.extra.clone()
        },
        ..job.clone()
    };
    let put = Edit::Put(Box::new(Put { job: paused, payload: None, purge_at: None }));
    let free = Edit::Children { parent: job.id, from: State::Paused, to: ChildMove::Queue };
    Some(vec![put, free])
}

/// The edits for a parent when a child has finished, was cancelled or is gone; `others` are its
/// remaining children.
pub fn after_child(parent: &Job, others: Children) -> Option<Edit> {
    if others.pending() { None } else { resume(parent) }
}

/// The edits for the family of a job that has ended; `siblings` are the parent's other children.
pub fn after_end(
    job: &Job,
    parent: Option<&Job>,
    siblings: Children,
    purge_at: Timestamp,
) -> Vec<Edit> {
    let mut edits = Vec::new();
    if job.children && job.state == State::Cancelled {
        for from in [State::Queued, State::Paused] {
            let to = ChildMove::Cancel { purge_at };
            edits.push(Edit::Children { parent: job.id, from, to });
        }
    }
    if matches!(job.state, State::Finished | State::Cancelled) {
        edits.extend(parent.and_then(|parent| after_child(parent, siblings)));
    }
    edits
}

/// The edits for the family of a removed job: its paused children would wait for ever.
pub fn after_removal(
    job: &Job,
    parent: Option<&Job>,
    siblings: Children,
    purge_at: Timestamp,
) -> Vec<Edit> {
    let to = ChildMove::Cancel { purge_at };
    let children = Edit::Children { parent: job.id, from: State::Paused, to };
    let mut edits = Vec::from_iter(job.children.then_some(children));
    edits.extend(parent.and_then(|parent| after_child(parent, siblings)));
    edits
}

/// Queues a parent that waits; `None` if it does not wait.
pub fn resume(parent: &Job) -> Option<Edit> {
    if parent.state != State::Paused {
        return None;
    }
    let state = state::next(parent.state, Event::Resume)?;
    let job = Job { state, ..parent.clone() };
    Some(Edit::Put(Box::new(Put { job, payload: None, purge_at: None })))
}

/// Whether the parent waits for this child: one that has ended does not.
pub fn is_waited_for(parent: Option<&Job>) -> bool {
    parent.is_some_and(|parent| !matches!(parent.state, State::Finished | State::Cancelled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{JobId, Sysid};
    use crate::job::tests::running_job;
    use crate::job::{Lease, Token};
    use crate::name::TypeName;

    const PENDING: Children =
        Children { active: false, paused: true, failed: false, finished: false, cancelled: false };

    fn parent(state: State) -> Job {
        Job { state, started_at: Some(Timestamp(5000)), ..running_job(3, Timestamp(9000)) }
    }

    #[test]
    fn a_child_is_paused_while_its_parent_runs() {
        let expected = [
            (State::Queued, Err(Unfit::NotOpen)),
            (State::Running, Ok(true)),
            (State::Paused, Ok(false)),
            (State::Finished, Err(Unfit::NotOpen)),
            (State::Failed, Err(Unfit::NotOpen)),
            (State::Cancelled, Err(Unfit::NotOpen)),
        ];
        for (state, answer) in expected {
            assert_eq!(child_is_paused(&parent(state)), answer, "{state}");
        }
        let mut lent = parent(State::Queued);
        lent.extra.lent = true;
        assert_eq!(child_is_paused(&lent), Ok(true));
        let child = Job { parent: JobId::new(7), ..parent(State::Running) };
        assert_eq!(child_is_paused(&child), Err(Unfit::Grandchild));
    }

    #[test]
    fn a_child_begins_as_its_parent_lets_it() {
        let new = || {
            parent(State::Running).follow(
                TypeName::new("c").unwrap(),
                JobId::new(9).unwrap(),
                None,
                Timestamp(1),
            )
        };
        let begun = |parent: Option<&Job>| {
            let mut new = new();
            begin(&mut new, parent).map(|()| (new.paused, new.extra.hidden))
        };
        let mut hidden = parent(State::Paused);
        hidden.extra.hidden = true;
        assert_eq!(begun(Some(&parent(State::Running))), Ok((true, false)));
        assert_eq!(begun(Some(&hidden)), Ok((false, true)));
        assert_eq!(begun(Some(&parent(State::Failed))), Err(Unfit::NotOpen));
        assert_eq!(begun(None), Err(Unfit::Missing));
    }

    #[test]
    fn a_parent_waits_only_while_children_are_pending() {
        let mut job = parent(State::Running);
        (job.extra.lent, job.extra.order_key) = (true, 5);
        let expires_at = Timestamp(9999);
        job.lease =
            Some(Lease { owner: Sysid::FIRST, token: Token(1), expires_at, on_beat: false });
        let ended = Children { failed: true, finished: true, cancelled: true, ..PENDING };
        let ended = Children { paused: false, ..ended };
        assert_eq!(wait_for_children(&job, ended), None);
        let edits = wait_for_children(&job, PENDING).unwrap();
        let Edit::Put(put) = &edits[0] else { panic!("the parent comes first") };
        assert_eq!((put.job.state, put.job.run_at), (State::Paused, Timestamp(5000)));
        assert_eq!((put.job.attempt, put.job.lease), (0, None));
        assert_eq!(put.job.extra.run_at_text.as_deref(), Some("1970-01-01 00:00:05"));
        assert_eq!((put.job.extra.lent, put.job.extra.order_key), (false, -1));
        let free = Edit::Children { parent: job.id, from: State::Paused, to: ChildMove::Queue };
        assert_eq!(edits[1], free);
    }

    #[test]
    fn the_last_child_wakes_a_paused_parent_and_no_other() {
        for state in State::ALL {
            let woken = after_child(&parent(state), Children::default());
            let woken = woken.map(|edit| match edit {
                Edit::Put(put) => put.job.state,
                other => panic!("{other:?}"),
            });
            assert_eq!(woken, (state == State::Paused).then_some(State::Queued), "{state}");
            assert_eq!(after_child(&parent(state), PENDING), None, "{state}");
        }
    }

    #[test]
    fn a_parent_waits_unless_it_has_ended_for_good() {
        let waits = |state| is_waited_for(Some(&parent(state)));
        assert_eq!(State::ALL.map(waits), [true, true, true, false, true, false]);
        assert!(!is_waited_for(None));
    }

    #[test]
    fn what_ends_or_goes_moves_its_family() {
        let (purge_at, waits, none) = (Timestamp(99), parent(State::Paused), Children::default());
        let moves = |from| {
            let to = ChildMove::Cancel { purge_at };
            Edit::Children { parent: waits.id, from, to }
        };
        for state in State::ALL {
            let ended = Job { children: true, ..parent(state) };
            let edits = after_end(&ended, Some(&waits), none, purge_at);
            let woken = resume(&waits).unwrap();
            let expected = match state {
                State::Finished => vec![woken],
                State::Cancelled => vec![moves(State::Queued), moves(State::Paused), woken],
                _ => Vec::new(),
            };
            assert_eq!(edits, expected, "{state}");
            assert_eq!(after_end(&parent(state), None, none, purge_at), [], "{state}");
            let gone = after_removal(&ended, Some(&waits), none, purge_at);
            assert_eq!(gone, [moves(State::Paused), resume(&waits).unwrap()], "{state}");
            let not_last = after_removal(&parent(state), Some(&waits), PENDING, purge_at);
            assert_eq!(not_last, [], "{state}");
        }
    }
}
