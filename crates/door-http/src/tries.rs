//! Wrong keys, counted by address, so that guessing and misconfigured clients are told to slow
//! down. Keys have 256 random bits, so nothing has to be locked out: a valid key is never
//! throttled, whatever else its address sends.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use windlass_core::audit::source;
use windlass_core::sync::lock;

/// Addresses that are counted at the same time. A new one takes the place of an older one.
const ADDRESSES_MAX: usize = 4096;
/// Wrong keys that an address may send in one window; the others are answered with `429`.
const WRONG_MAX: u32 = 30;
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

pub(crate) struct Tries(Mutex<Vec<Slot>>);

#[derive(Clone, Copy, Default)]
struct Slot {
    address: u128,
    window: u64,
    wrong: u32,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries(Mutex::new(vec![Slot::default(); ADDRESSES_MAX]))
    }
}

impl Tries {
    /// Counts a wrong key; false if there were too many. `now` is a steady time.
    pub(crate) fn wrong(&self, address: Option<IpAddr>, now: Duration) -> bool {
        let group = source(address);
        let window = now.as_secs() / WINDOW.as_secs();
        let mut slots = lock(&self.0);
        let slot = &mut slots[place(group)];
        if (slot.address, slot.window) != (group, window) {
            *slot = Slot { address: group, window, wrong: 0 };
        }
        slot.wrong = slot.wrong.saturating_add(1);
        if slot.wrong == WRONG_MAX + 1 {
            let address = address.map(tracing::field::display);
            tracing::warn!(address, "many wrong keys; further ones are answered with 429");
        }
        slot.wrong <= WRONG_MAX
    }
}

/// Spreads neighbouring addresses over the table (Fibonacci hashing).
fn place(group: u128) -> usize {
    let folded = (group >> 64) as u64 ^ group as u64;
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % ADDRESSES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn allowed(tries: &Tries, address: &str, now: Duration, count: usize) -> usize {
        let address = Some(address.parse().unwrap());
        (0..count).filter(|_| tries.wrong(address, now)).count()
    }

    #[test]
    fn an_address_is_slowed_until_the_next_window_and_no_other_is() {
        let tries = Tries::default();
        assert_eq!(allowed(&tries, "192.0.2.7", NOW, 10_000), WRONG_MAX as usize);
        assert_eq!(allowed(&tries, "192.0.2.8", NOW, 1), 1);
        assert_eq!(allowed(&tries, "192.0.2.7", NOW + WINDOW, 10_000), WRONG_MAX as usize);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one() {
        let tries = Tries::default();
        assert_eq!(allowed(&tries, "2001:db8::1", NOW, 100), WRONG_MAX as usize);
        assert_eq!(allowed(&tries, "2001:db8::ffff:2", NOW, 1), 0);
        assert_eq!(allowed(&tries, "2001:db8:0:1::1", NOW, 1), 1);
    }

    #[test]
    fn an_address_in_both_forms_is_one() {
        let tries = Tries::default();
        assert_eq!(allowed(&tries, "192.0.2.7", NOW, 100), WRONG_MAX as usize);
        assert_eq!(allowed(&tries, "::ffff:192.0.2.7", NOW, 1), 0);
        assert_eq!(allowed(&tries, "::ffff:192.0.2.8", NOW, 1), 1);
    }

    #[test]
    fn very_many_addresses_take_no_more_room() {
        let tries = Tries::default();
        for number in 0..100_000u32 {
            tries.wrong(Some(IpAddr::V4(number.into())), NOW);
        }
        assert_eq!(lock(&tries.0).len(), ADDRESSES_MAX);
        let used = lock(&tries.0).iter().filter(|slot| slot.wrong > 0).count();
        assert!(used > ADDRESSES_MAX * 9 / 10, "spread over {used} slots");
    }
}
