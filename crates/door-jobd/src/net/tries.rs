//! Guessing passwords: the tries of one address are made one after another, and after each wrong
//! one the next has to wait longer. Right ones wait too, or a guess would be known to be wrong as
//! soon as it is not answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use windlass_core::sync::lock;

/// Wait after the first wrong password; it doubles with each further one.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Wrong passwords are forgotten after this much time without another.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Tries of one address that wait; further ones are refused without a look at their password.
const WAITING_MAX: usize = 16;
/// Addresses that are remembered. Beyond that, the one that was wrong the longest ago is forgotten.
const ADDRESSES_MAX: usize = 4096;

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Try {
    Right,
    Wrong,
    /// Too many tries of this address wait.
    Refused,
}

/// The wrong passwords of all connections.
#[derive(Clone, Default)]
pub(super) struct Tries(Arc<Mutex<HashMap<IpAddr, Arc<Guesser>>>>);

/// One address.
struct Guesser {
    /// Waiting tries, and the one that is being made.
    places: Semaphore,
    turn: Semaphore,
    wrong: Mutex<WrongPasswords>,
}

#[derive(Clone, Copy)]
struct WrongPasswords {
    count: u32,
    /// When the next may be tried.
    next_at: Instant,
}

impl Tries {
    /// Waits for the address's turn, then compares.
    pub(super) async fn compare(&self, addr: IpAddr, is_right: impl FnOnce() -> bool) -> Try {
        let addr = network_of(addr);
        let guesser = self.guesser(addr);
        let Ok(_place) = guesser.places.try_acquire() else { return Try::Refused };
        let _turn = guesser.turn.acquire().await;
        let next_at = lock(&guesser.wrong).next_at;
        tokio::time::sleep_until(next_at).await;
        if is_right() {
            lock(&self.0).remove(&addr);
            return Try::Right;
        }
        lock(&guesser.wrong).add(Instant::now());
        Try::Wrong
    }

    fn guesser(&self, addr: IpAddr) -> Arc<Guesser> {
        let mut all = lock(&self.0);
        if let Some(known) = all.get(&addr) {
            return known.clone();
        }
        if all.len() >= ADDRESSES_MAX {
            let oldest = all.iter().min_by_key(|(_, guesser)| lock(&guesser.wrong).next_at);
            if let Some(oldest) = oldest.map(|(addr, _)| *addr) {
                all.remove(&oldest);
            }
        }
        let guesser = Arc::new(Guesser {
            places: Semaphore::new(WAITING_MAX),
            turn: Semaphore::new(1),
            wrong: Mutex::new(WrongPasswords { count: 0, next_at: Instant::now() }),
        });
        all.insert(addr, guesser.clone());
        guesser
    }
}

impl WrongPasswords {
    fn add(&mut self, now: Instant) {
        if now > self.next_at + FORGET_AFTER {
            self.count = 0;
        }
        let wait = WAIT_MIN.saturating_mul(2_u32.saturating_pow(self.count)).min(WAIT_MAX);
        self.count = self.count.saturating_add(1);
        self.next_at = now + wait;
    }
}

/// A client with IPv6 usually has a whole network of addresses.
fn network_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => {
            let [a, b, c, d, ..] = addr.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        addr => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    async fn wait_of(tries: &Tries, from: &str, is_right: bool) -> (Try, Duration) {
        let began = Instant::now();
        (tries.compare(addr(from), || is_right).await, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn each_wrong_password_doubles_the_wait_of_its_address() {
        let tries = Tries::default();
        let mut waits = Vec::new();
        for _ in 0..10 {
            waits.push(wait_of(&tries, "10.0.0.1", false).await.1.as_millis());
        }
        let expected = [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
        assert!(waits.iter().zip(expected).all(|(wait, at_least)| *wait >= at_least), "{waits:?}");
        assert!(*waits.last().unwrap() < 11_000, "{waits:?}");
        assert_eq!(wait_of(&tries, "10.0.0.2", true).await, (Try::Right, Duration::ZERO));
        let (last, waited) = wait_of(&tries, "10.0.0.1", true).await;
        assert!(last == Try::Right && waited >= Duration::from_secs(9), "{waited:?}");
        let forgotten = wait_of(&tries, "10.0.0.1", false).await;
        assert_eq!(forgotten, (Try::Wrong, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn tries_of_one_address_wait_for_each_other_and_have_a_bound() {
        let tries = Tries::default();
        let guess = || {
            let tries = tries.clone();
            tokio::spawn(async move { tries.compare(addr("10.0.0.1"), || false).await })
        };
        let began = Instant::now();
        let all: Vec<_> = (0..100).map(|_| guess()).collect();
        let mut ends = Vec::new();
        for one in all {
            ends.push(one.await.unwrap());
        }
        let compared = ends.iter().filter(|end| **end == Try::Wrong).count();
        let refused = ends.iter().filter(|end| **end == Try::Refused).count();
        assert_eq!(compared + refused, 100);
        assert!(compared <= WAITING_MAX + 1, "{compared}");
        assert!(began.elapsed() >= WAIT_MAX * (compared as u32 - 9));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_have_a_bound_and_networks_of_ipv6_count_once() {
        let tries = Tries::default();
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            tries.compare(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), || false).await;
        }
        assert_eq!(lock(&tries.0).len(), ADDRESSES_MAX);
        assert_eq!(wait_of(&tries, "2001:db8::1", false).await, (Try::Wrong, Duration::ZERO));
        assert!(wait_of(&tries, "2001:db8::2", false).await.1 >= WAIT_MIN);
        assert_eq!(wait_of(&tries, "2001:db8:0:1::1", false).await.1, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_passwords_are_forgotten_in_time() {
        let tries = Tries::default();
        for _ in 0..5 {
            tries.compare(addr("10.0.0.1"), || false).await;
        }
        tokio::time::advance(FORGET_AFTER * 2).await;
        tries.compare(addr("10.0.0.1"), || false).await;
        let waited = wait_of(&tries, "10.0.0.1", false).await.1;
        assert!(waited >= WAIT_MIN && waited < WAIT_MIN * 2, "{waited:?}");
    }
}
