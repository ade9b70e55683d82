//! Contact: whether this daemon may say that another one is dead. While the store was away, nobody
//! could renew anything, so a lease that ran out then says nothing about its holder. Nobody breaks
//! a lease before it has itself had one whole lease of unbroken contact with the store.
//!
//! And whether its number may be another's by now: a process that stood still for a whole lease
//! beats before it answers an add. All times are those of the steady clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use windlass_core::Sysid;
use windlass_core::sync::lock;

use crate::house::clock::DaemonClock;

/// How long an answer waits for the beat of a process that stood still.
const BEAT_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Contact {
    lease: Duration,
    me: Sysid,
    state: Mutex<State>,
    /// When the newest beat was sent that came to an end, well or not.
    tried: watch::Sender<Duration>,
    /// Makes the daemon beat at once.
    pub(crate) beat_wanted: Arc<Notify>,
}

struct State {
    started: Duration,
    /// When the newest beat was sent that the store took.
    beat: Duration,
    /// When contact came back after it was lost.
    back: Option<Duration>,
}

impl Contact {
    pub(crate) fn new(lease: Duration, me: Sysid, now: Duration) -> Contact {
        let state = Mutex::new(State { started: now, beat: now, back: None });
        Contact { lease, me, state, tried: watch::Sender::new(now), beat_wanted: Arc::default() }
    }

    /// A beat that was sent at this time came to an end.
    pub(crate) fn tried(&self, sent: Duration) {
        self.tried.send_replace(sent);
    }

    /// This process has not stood still for a lease, or there was a beat since. A store that is
    /// away cannot be asked; what is accepted meanwhile is not held up.
    pub(crate) async fn moves(&self, clock: &DaemonClock) {
        let fresh = |tried: &Duration| clock.steady().saturating_sub(*tried) < self.lease;
        if !fresh(&self.tried.borrow()) {
            self.beat_wanted.notify_one();
            let _ =
                tokio::time::timeout(BEAT_PATIENCE, self.tried.subscribe().wait_for(fresh)).await;
        }
    }

    /// The store took a beat that was sent at `now`. True when contact had been lost before: a beat
    /// failed, or the last one was too long ago, because this process stood still.
    pub(crate) fn beat(&self, failed_before: bool, now: Duration) -> bool {
        let mut state = lock(&self.state);
        let lost = failed_before || now.saturating_sub(state.beat) >= self.lease;
        state.beat = now;
        if lost {
            state.back = Some(now);
        }
        lost
    }

    /// Whether a lease of this owner that ran out may be broken. What we granted to workers
    /// ourselves needs no contact with others.
    pub(crate) fn may_break(&self, owner: Sysid, now: Duration) -> bool {
        let state = lock(&self.state);
        let long_enough = |since: Duration| now.saturating_sub(since) >= self.lease;
        let in_contact = now.saturating_sub(state.beat) < self.lease;
        let known = owner == self.me || long_enough(state.started);
        in_contact && known && state.back.is_none_or(long_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn sysid(number: u16) -> Sysid {
        Sysid::new(number).unwrap()
    }

    fn contact() -> (Contact, Duration) {
        let start = Duration::from_secs(1000);
        (Contact::new(LEASE, sysid(1), start), start)
    }

    /// A beat each second; the time of the last.
    fn beats(contact: &Contact, from: Duration, seconds: u64) -> Duration {
        let at = |second| from + Duration::from_secs(second);
        assert!((1..=seconds).all(|second| !contact.beat(false, at(second))));
        at(seconds)
    }

    #[test]
    fn a_newcomer_breaks_only_what_it_granted_itself() {
        let (contact, start) = contact();
        assert!(contact.may_break(sysid(1), start) && !contact.may_break(sysid(2), start));
        let nine = beats(&contact, start, 9);
        assert!(!contact.may_break(sysid(2), nine));
        let ten = beats(&contact, nine, 1);
        assert!(contact.may_break(sysid(2), ten));
    }

    #[test]
    fn after_the_store_was_away_nothing_is_broken_for_one_lease() {
        let (contact, start) = contact();
        let back = beats(&contact, start, 20) + Duration::from_secs(1);
        assert!(contact.beat(true, back));
        assert!(!contact.may_break(sysid(1), back) && !contact.may_break(sysid(2), back));
        let later = beats(&contact, back, 10);
        assert!(contact.may_break(sysid(1), later) && contact.may_break(sysid(2), later));
    }

    #[test]
    fn a_process_that_stood_still_has_lost_contact() {
        let (contact, start) = contact();
        let awake = beats(&contact, start, 20) + LEASE;
        assert!(!contact.may_break(sysid(2), awake), "before its next beat");
        assert!(contact.beat(false, awake));
        assert!(!contact.may_break(sysid(2), awake), "and after it");
    }
}
