//! Times in which a daemon lost contact with its store, as it says itself: stopped by a fault, or
//! kept waiting by a machine that is too busy. Both may cost it its leases, so they are written
//! down as what they are to the checker: a store that hung. The report counts them. Logs have the
//! time of the daemons' clock, which may have been set.

use std::time::Duration;

use anyhow::{Context, Result};
use windlass_proof::history::{Event, FaultKind, Target};

use crate::clock::Steps;
use crate::daemon::LEASE;
use crate::door::time;
use crate::site::Site;

/// What daemons say when they are back.
const BACK: &str = "contact with the store was lost for a while and is back";
/// How long before that the contact was lost at most.
const LOST: Duration = LEASE.saturating_mul(2);
/// Numbers that other faults do not reach.
const FAULT_NUMBERS: u64 = 1 << 61;

/// Writes them down when the daemons of a site have ended. Returns how many there are.
pub(crate) fn note(site: &Site, clock: &Steps) -> Result<u64> {
    let mut witness = site.witness(&format!("contact-{}", site.daemon_name(0)))?;
    let mut count = 0;
    for number in 0..site.daemon_count() {
        for at_ns in back_at(site, number, clock)? {
            let fault = FAULT_NUMBERS + site.next_op();
            let target = Target::Daemon(site.daemon_name(number).to_owned());
            let kind = FaultKind::StoreHang;
            let from_ns = at_ns.saturating_sub(LOST.as_nanos() as u64);
            witness.record_at(from_ns, &Event::FaultBegan { fault, kind, target })?;
            witness.record_at(at_ns, &Event::FaultEnded { fault })?;
            count += 1;
        }
    }
    Ok(count)
}

/// When a daemon was back in contact, in the time of the run.
fn back_at(site: &Site, number: usize, clock: &Steps) -> Result<Vec<u64>> {
    let now_ns = site.now_ns();
    let zero_ms = time::now_ms().saturating_sub(now_ns / 1_000_000);
    let mut back = Vec::new();
    for text in site.consoles(number)? {
        for line in text.lines().filter(|line| line.contains(BACK)) {
            let Some(ms) = line.split(' ').next().and_then(time::read) else { continue };
            let real_ms = clock.real_ms(ms.cast_signed() - zero_ms.cast_signed(), now_ns);
            let real_ms = real_ms.with_context(|| format!("no clock of the run says: {line}"))?;
            back.push(real_ms * 1_000_000);
        }
    }
    Ok(back)
}
