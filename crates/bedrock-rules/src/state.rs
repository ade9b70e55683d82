//! The names of states. A job lent to a worker is `RUNQUEUED`: it runs, and is queued again in case
//! the worker never reports back.

use windlass_core::State;

pub const QUEUED: &str = "QUEUED";
pub const RUNQUEUED: &str = "RUNQUEUED";
pub const RUNNING: &str = "RUNNING";
pub const PAUSED: &str = "PAUSED";
pub const FINISHED: &str = "FINISHED";
pub const FAILED: &str = "FAILED";
pub const CANCELLED: &str = "CANCELLED";

/// The name for a job in this state.
pub fn word(state: State, lent: bool) -> &'static str {
    match state {
        State::Queued if lent => RUNQUEUED,
        State::Queued => QUEUED,
        State::Running => RUNNING,
        State::Paused => PAUSED,
        State::Finished => FINISHED,
        State::Failed => FAILED,
        State::Cancelled => CANCELLED,
    }
}

/// The state with this name, and whether a job in it is lent.
pub fn read(text: &str) -> Option<(State, bool)> {
    let lent = (State::Queued, true);
    let states = State::ALL.into_iter().map(|state| (state, false)).chain([lent]);
    states.into_iter().find(|(state, lent)| word(*state, *lent) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_what_it_was_written_for() {
        for state in State::ALL {
            assert_eq!(read(word(state, false)), Some((state, false)));
        }
        assert_eq!(read(RUNQUEUED), Some((State::Queued, true)));
        assert_eq!(read("queued"), None);
    }
}
