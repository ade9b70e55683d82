//! Connections that are not admitted yet: in the handshake, or without a valid key. When all
//! connections are taken, the oldest of them makes room for the next one, once it has had the time
//! that an honest client needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Nobody is cut off before: enough for a handshake and the head of a request.
const STAY_MIN: Duration = Duration::from_secs(1);

/// The guests of one door.
#[derive(Default)]
pub(crate) struct Guests(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By age.
    cuts: BTreeMap<u64, Stay>,
}

/// Whether a guest could make room.
enum Room {
    Made,
    /// Not before this time.
    At(Instant),
    Nobody,
}

/// How long a guest may stay in any case.
struct Stay {
    until: Instant,
    cut: CancellationToken,
}

/// A connection that may be cut off to make room for another, until it is admitted.
pub struct Guest {
    of: Arc<Mutex<Waiting>>,
    number: u64,
    is_admitted: AtomicBool,
    cut: CancellationToken,
}

impl Guests {
    pub(crate) fn enter(&self) -> Guest {
        let cut = CancellationToken::new();
        let mut waiting = lock(&self.0);
        let number = waiting.next;
        waiting.next += 1;
        let until = Instant::now() + STAY_MIN;
        waiting.cuts.insert(number, Stay { until, cut: cut.clone() });
        drop(waiting);
        Guest { of: Arc::clone(&self.0), number, is_admitted: AtomicBool::new(false), cut }
    }

    /// Cuts off the oldest guest, as soon as it may be. Waits for ever if there is none: only the
    /// caller lets others in.
    pub(crate) async fn make_room(&self) {
        loop {
            match self.cut_oldest(Instant::now()) {
                Room::Made => return,
                Room::At(until) => sleep_until(until).await,
                Room::Nobody => std::future::pending().await,
            }
        }
    }

    fn cut_oldest(&self, now: Instant) -> Room {
        let mut waiting = lock(&self.0);
        let Some(oldest) = waiting.cuts.first_entry() else { return Room::Nobody };
        if oldest.get().until > now {
            return Room::At(oldest.get().until);
        }
        oldest.remove().cut.cancel();
        tracing::debug!("a connection without a key is cut off to make room for others");
        Room::Made
    }
}

impl Guest {
    /// The client may come in, and keeps its connection.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed) {
            self.leave();
        }
    }

    /// Cancelled when the connection has to make room.
    pub(crate) fn cut(&self) -> CancellationToken {
        self.cut.clone()
    }

    fn leave(&self) {
        lock(&self.of).cuts.remove(&self.number);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_admitted.load(Ordering::Relaxed) {
            self.leave();
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Nothing in between can panic.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_is_not_admitted_makes_room() {
        let guests = Guests::default();
        let entered: Vec<Guest> = (0..4).map(|_| guests.enter()).collect();
        let cut = || entered.iter().map(|guest| guest.cut.is_cancelled()).collect::<Vec<_>>();
        entered[0].admit();
        guests.make_room().await;
        assert_eq!(cut(), [false, true, false, false]);
        entered[2].admit();
        entered[2].admit();
        guests.make_room().await;
        assert_eq!(cut(), [false, true, false, true]);
        assert!(matches!(guests.cut_oldest(Instant::now()), Room::Nobody));
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_has_the_time_that_an_honest_client_needs() {
        let guests = Guests::default();
        let (first, second) = (guests.enter(), guests.enter());
        let entered_at = Instant::now();
        tokio::time::advance(STAY_MIN / 2).await;
        let third = guests.enter();
        // The first is admitted while another connection waits for its place.
        let admits = async {
            tokio::time::advance(STAY_MIN / 4).await;
            first.admit();
        };
        tokio::join!(guests.make_room(), admits);
        assert!(second.cut.is_cancelled() && entered_at.elapsed() >= STAY_MIN);
        assert!(!first.cut.is_cancelled() && !third.cut.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_gone_is_forgotten() {
        let guests = Guests::default();
        drop(guests.enter());
        let next = guests.enter();
        guests.make_room().await;
        assert!(next.cut.is_cancelled());
        assert!(lock(&guests.0).cuts.is_empty());
    }
}
