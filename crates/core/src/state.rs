//! The states of a job, and the only place that defines which changes are allowed.
//!
//! ```text
//!                 claim                 settle: end
//!   queued ──────────────► running ───────────────────► finished | failed
//!     ▲ │ ▲                 │   │                            │
//!     │ │ └─ again, release ┘   └─ cancel ─► cancelled       │
//!     │ └─ cancel ─► cancelled                 │             │
//!     │ └─ give up ─► failed                   │             │
//!     └──────────────── rerun ─────────────────┴─────────────┘
//! ```
//! `paused` waits: a parent for its children (running ─ pause ─► paused ─ resume ─► queued), a
//! child for the end of the attempt of its parent. The rules of families are in `family`.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for `run_at` and for a pick.
    Queued,
    /// Held under a lease by a daemon or a worker.
    Running,
    /// Waits for its children, or for its parent.
    Paused,
    Finished,
    /// Ran and failed for good, or after its last attempt.
    Failed,
    Cancelled,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Queued,
        State::Running,
        State::Paused,
        State::Finished,
        State::Failed,
        State::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Paused => "paused",
            State::Finished => "finished",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// An ended job is kept for a time and runs again only on request.
    pub fn is_ended(self) -> bool {
        matches!(self, State::Finished | State::Failed | State::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What may happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Taken under a lease.
    Claim,
    /// The attempt ended and was the last one.
    End(Ending),
    /// The attempt ended or its lease was broken; there will be another one.
    Again,
    /// Released; the attempt does not count.
    Release,
    /// The attempt ended well, and children are pending.
    Pause,
    /// The parent's attempt or the last child has ended.
    Resume,
    /// A client cancelled it.
    Cancel,
    /// It waited too long.
    GiveUp,
    /// A client wants to run it again.
    Rerun,
    /// Removed altogether.
    Delete,
}

/// The state in which a settled job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    Finished,
    Failed,
    Cancelled,
}

impl Ending {
    pub fn state(self) -> State {
        match self {
            Ending::Finished => State::Finished,
            Ending::Failed => State::Failed,
            Ending::Cancelled => State::Cancelled,
        }
    }
}

/// The state after `event`, or `None` if that is not allowed. A deleted job has no state, so
/// `Delete` returns the old one.
pub fn next(state: State, event: Event) -> Option<State> {
    match (state, event) {
        (State::Queued, Event::Claim) => Some(State::Running),
        (State::Running, Event::End(ending)) => Some(ending.state()),
        (State::Running, Event::Again | Event::Release) => Some(State::Queued),
        (State::Running, Event::Pause) => Some(State::Paused),
        (State::Paused, Event::Resume) => Some(State::Queued),
        (State::Queued | State::Running | State::Paused, Event::Cancel) => Some(State::Cancelled),
        (State::Queued | State::Paused, Event::GiveUp) => Some(State::Failed),
        (state, Event::Rerun) if state.is_ended() => Some(State::Queued),
        (state, Event::Delete) if state != State::Running => Some(state),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_job_only_reruns_or_goes() {
        let events = [
            Event::Claim,
            Event::End(Ending::Finished),
            Event::Again,
            Event::Release,
            Event::Cancel,
            Event::GiveUp,
        ];
        for state in State::ALL.into_iter().filter(|s| s.is_ended()) {
            for event in events {
                assert_eq!(next(state, event), None, "{state} {event:?}");
            }
            assert_eq!(next(state, Event::Rerun), Some(State::Queued));
        }
    }

    #[test]
    fn nothing_is_allowed_beside_the_table() {
        use State::{Cancelled, Failed, Finished, Paused, Queued, Running};
        let allowed = [
            (Event::Claim, vec![(Queued, Running)]),
            (Event::End(Ending::Finished), vec![(Running, Finished)]),
            (Event::End(Ending::Failed), vec![(Running, Failed)]),
            (Event::End(Ending::Cancelled), vec![(Running, Cancelled)]),
            (Event::Again, vec![(Running, Queued)]),
            (Event::Release, vec![(Running, Queued)]),
            (Event::Pause, vec![(Running, Paused)]),
            (Event::Resume, vec![(Paused, Queued)]),
            (Event::Cancel, [Queued, Running, Paused].map(|state| (state, Cancelled)).to_vec()),
            (Event::GiveUp, [Queued, Paused].map(|state| (state, Failed)).to_vec()),
            (Event::Rerun, [Finished, Failed, Cancelled].map(|state| (state, Queued)).to_vec()),
        ];
        for (event, changes) in allowed {
            for state in State::ALL {
                let change = changes.iter().find(|(from, _)| *from == state);
                assert_eq!(next(state, event), change.map(|(_, to)| *to), "{state} {event:?}");
            }
        }
    }

    /// Stores and clients have these names.
    #[test]
    fn states_have_names() {
        let names = ["queued", "running", "paused", "finished", "failed", "cancelled"];
        assert_eq!(State::ALL.map(State::as_str), names);
        assert_eq!(names.map(State::from_name), State::ALL.map(Some));
        assert_eq!(State::from_name("Queued"), None);
        assert_eq!(State::Paused.to_string(), "paused");
    }

    #[test]
    fn only_a_queued_job_is_claimed_and_only_a_running_one_is_settled() {
        for state in State::ALL {
            assert_eq!(next(state, Event::Claim).is_some(), state == State::Queued);
            for event in [Event::End(Ending::Failed), Event::Again, Event::Release] {
                assert_eq!(next(state, event).is_some(), state == State::Running);
            }
            assert_eq!(next(state, Event::Delete).is_some(), state != State::Running);
        }
    }
}
