//! When which limit was certainly in force: from the acknowledgement of a change until the next
//! change is sent. While a change is under way or unknown, nothing is certain.

use crate::ledger::{Limits, TypeAccount};

/// A time in which nothing changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) limits: Limits,
}

pub(super) fn segments(of: &TypeAccount) -> Vec<Segment> {
    let mut changes = of.limits.clone();
    changes.sort_by_key(|limits| limits.span.sent);
    let mut segments = Vec::new();
    // An unknown change may take effect at any later time.
    let mut settled = true;
    let mut busy_until = 0;
    for (index, limits) in changes.iter().enumerate() {
        settled &= limits.span.done.is_some();
        let alone = limits.span.sent.at >= busy_until;
        busy_until = busy_until.max(limits.span.until());
        let next = changes.get(index + 1).map_or(u64::MAX, |next| next.span.sent.at);
        if settled && alone && next > busy_until {
            segments.push(Segment { from: busy_until, to: next, limits: *limits });
        }
    }
    segments
}
