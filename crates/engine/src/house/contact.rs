//! Contact: whether this daemon may declare another one dead. While the store is away, no daemon
//! can renew, so a lease that expires then says nothing about its holder. A daemon breaks a lease
//! only after one lease time of unbroken contact with the store. After a start, this does not apply
//! to leases of its own number: it was granted only because their owner did not beat any more.
//!
//! And whether its number may belong to another daemon by now: a process that was suspended for a
//! whole lease beats before it answers an add. All times are of the steady clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use windlass_core::Sysid;
use windlass_core::sync::lock;

use crate::house::clock::DaemonClock;

/// How long an answer waits for the beat after a suspension.
const BEAT_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Contact {
    lease: Duration,
    me: Sysid,
    state: Mutex<State>,
    /// When the latest completed beat was sent, successful or not.
    tried: watch::Sender<Duration>,
    /// Triggers a beat.
    pub(crate) beat_wanted: Arc<Notify>,
}

struct State {
    started: Duration,
    /// When the latest successful beat was sent.
    beat: Duration,
    /// When contact was last restored.
    back: Option<Duration>,
}

impl Contact {
    pub(crate) fn new(lease: Duration, me: Sysid, now: Duration) -> Contact {
        let state = Mutex::new(State { started: now, beat: now, back: None });
        Contact { lease, me, state, tried: watch::Sender::new(now), beat_wanted: Arc::default() }
    }

    /// A beat that was sent at this time has completed.
    pub(crate) fn tried(&self, sent: Duration) {
        self.tried.send_replace(sent);
    }

    /// Returns when there was a beat within the last lease; triggers one if not. Gives up after
    /// `BEAT_PATIENCE`, so that a store that is away does not hold up adds.
    pub(crate) async fn await_recent_beat(&self, clock: &DaemonClock) {
        let fresh = |tried: &Duration| clock.steady().saturating_sub(*tried) < self.lease;
        if !fresh(&self.tried.borrow()) {
            self.beat_wanted.notify_one();
            let _ =
                tokio::time::timeout(BEAT_PATIENCE, self.tried.subscribe().wait_for(fresh)).await;
        }
    }

    /// The store took a beat that was sent at `now`. True when contact had been lost: a beat
    /// failed, or the last one was too long ago because this process was suspended.
    pub(crate) fn beat(&self, failed_before: bool, now: Duration) -> bool {
        let mut state = lock(&self.state);
        let lost = failed_before || now.saturating_sub(state.beat) >= self.lease;
        state.beat = now;
        if lost {
            state.back = Some(now);
        }
        lost
    }

    /// Whether an expired lease of this owner may be broken. Leases that we granted to workers
    /// ourselves can be broken right after the start.
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

    /// Beats each second; returns the time of the last.
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
