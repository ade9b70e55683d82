//! Contact: whether this daemon may declare another one dead. While the store is away, no daemon
//! can renew, so a lease that expires then says nothing about its holder. A daemon breaks a lease
//! only after one lease time of unbroken contact with the store. After a start, this does not apply
//! to leases of its own number: it was granted only because their owner did not beat any more.
//!
//! And whether its number may belong to another daemon by now: a process that was suspended for a
//! whole lease beats before it answers an add, or finds that the store does not answer. All times
//! are of the steady clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use windlass_core::Sysid;
use windlass_core::sync::lock;

use crate::house::clock::DaemonClock;

/// How long an answer waits for the beat after a suspension. A store that has been silent for as
/// long hangs, and no answer waits for it any more.
const BEAT_PATIENCE: Duration = Duration::from_secs(5);
/// How often this is noted while the store hangs. Often enough that there is always a recent note,
/// also if each beat takes long and fails.
const NOTES_PER_LEASE: u32 = 5;
/// A wait for a note that took so many times as long was a suspension. Together with the time
/// between two beats it is less than a lease, so the number is still ours after a shorter one.
const SUSPENSION_INTERVALS: u32 = 2;

pub(crate) struct Contact {
    lease: Duration,
    me: Sysid,
    state: Mutex<State>,
    /// When a beat was last tried: the latest one that was answered was sent then, or the store
    /// hung then.
    tried: watch::Sender<Duration>,
    /// Whether the store hangs: it did not answer a call in time, and neither a beat nor an insert
    /// since.
    hangs: AtomicBool,
    /// Triggers a beat.
    pub(crate) beat_wanted: Arc<Notify>,
}

struct State {
    started: Duration,
    /// When the latest successful beat was sent.
    beat: Duration,
    /// When contact was last restored.
    back: Option<Duration>,
    /// How long beats have been waited for since one was answered in time.
    silence: Duration,
}

impl Contact {
    pub(crate) fn new(lease: Duration, me: Sysid, now: Duration) -> Contact {
        let state =
            Mutex::new(State { started: now, beat: now, back: None, silence: Duration::ZERO });
        let (tried, hangs) = (watch::Sender::new(now), AtomicBool::new(false));
        Contact { lease, me, state, tried, hangs, beat_wanted: Arc::default() }
    }

    /// How long a beat is waited for until `not_answered` is called.
    pub(crate) fn note_interval(&self) -> Duration {
        (self.lease / NOTES_PER_LEASE).min(BEAT_PATIENCE)
    }

    /// A beat that was sent at this time has been answered, with an error or without.
    pub(crate) fn answered(&self, sent: Duration, now: Duration) {
        if now.saturating_sub(sent) < self.note_interval() {
            lock(&self.state).silence = Duration::ZERO;
        }
        self.note_answer();
        self.tried(sent);
    }

    /// A beat that was under way all this time has not been answered.
    pub(crate) fn not_answered(&self, since: Duration, now: Duration) {
        let (waited, mut state) = (now.saturating_sub(since), lock(&self.state));
        // A process that was suspended has not waited.
        let suspended = waited >= SUSPENSION_INTERVALS * self.note_interval();
        state.silence = if suspended { Duration::ZERO } else { state.silence + waited };
        if state.silence >= BEAT_PATIENCE {
            self.note_hang();
            self.tried(since);
        }
    }

    fn tried(&self, at: Duration) {
        self.tried.send_if_modified(|tried| {
            let is_later = at > *tried;
            *tried = at.max(*tried);
            is_later
        });
    }

    /// The store did not answer a call in time.
    pub(crate) fn note_hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    /// The store answered a call that it does not answer while it hangs. Beats in the meantime are
    /// judged on their own.
    pub(crate) fn note_answer(&self) {
        self.hangs.store(false, Ordering::SeqCst);
    }

    pub(crate) fn store_hangs(&self) -> bool {
        self.hangs.load(Ordering::SeqCst)
    }

    /// Returns when a beat was tried within the last lease; triggers one if not. Gives up after
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
    const MS: Duration = Duration::from_millis(1);

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

    #[test]
    fn a_store_that_hangs_is_waited_for_once() {
        let (contact, start) = contact();
        let (interval, mut now) = (contact.note_interval(), start);
        let mut wait = |times: u32| {
            for _ in 0..times {
                contact.not_answered(now, now + interval);
                now += interval;
            }
            (contact.store_hangs(), now - *contact.tried.borrow())
        };
        let patience = BEAT_PATIENCE.div_duration_f64(interval).ceil() as u32;
        assert_eq!(wait(patience - 1), (false, (patience - 1) * interval));
        for _ in 0..2 {
            assert_eq!(wait(1), (true, interval), "and from then on as long as it hangs");
        }
        // A beat that fails so late does not change that.
        contact.answered(start, now);
        assert!(!contact.store_hangs());
        contact.not_answered(now, now + interval);
        assert_eq!((contact.store_hangs(), *contact.tried.borrow()), (true, now));
        // One that is answered in time does.
        contact.answered(now, now);
        contact.not_answered(now, now + interval);
        assert!(!contact.store_hangs());
    }

    #[test]
    fn a_process_that_stood_still_waits_again_for_a_store_that_hangs() {
        for suspended in [2 * contact().0.note_interval(), LEASE - MS, LEASE] {
            let (contact, start) = contact();
            let interval = contact.note_interval();
            for number in 0..10 {
                contact.not_answered(start + number * interval, start + (number + 1) * interval);
            }
            let asleep = start + 10 * interval;
            let awake = asleep + suspended;
            contact.not_answered(asleep, awake);
            contact.not_answered(awake, awake + interval);
            assert!(*contact.tried.borrow() < asleep, "{suspended:?}");
        }
    }

    #[test]
    fn a_store_does_not_hang_because_this_process_stood_still() {
        let (contact, start) = contact();
        let sent = start + LEASE / 3;
        contact.not_answered(sent, sent + LEASE - MS);
        assert!(!contact.store_hangs());
        assert_eq!(*contact.tried.borrow(), start);
    }
}
