//! The history itself is whole: no answer without a request, no end without a begin, nothing out of
//! order. Otherwise a witness is broken, and the verdict of the other rules is worth nothing.
//!
//! Cannot see: a witness that wrote nothing down.

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::Ledger;

pub(super) fn check(ledger: &Ledger, _: &Terms, found: &mut Findings) {
    found.judged += ledger.events;
    for (moment, what) in &ledger.oddities {
        found.add([], what.as_str(), [Evidence::new(*moment, what.as_str())]);
    }
}
