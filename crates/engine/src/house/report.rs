//! What this daemon says of itself with each beat, for operators at other daemons.

use std::sync::atomic::Ordering;

use windlass_core::store::{Backlog, DaemonReport};

use crate::shared::Shared;

pub(crate) fn report(shared: &Shared) -> DaemonReport {
    let (identity, journal) = (shared.options.identity.clone(), shared.journal.stats());
    let report = DaemonReport {
        journal: shared.daemon.journal_id(shared.daemon.sysid()),
        host: identity.host,
        version: identity.version,
        listen: identity.listen,
        started_at: shared.daemon.started_at,
        picking: shared.picking.load(Ordering::SeqCst),
        running: shared.running.len() as u64,
        backlog: Backlog {
            jobs: journal.unread_records,
            bytes: journal.unread_bytes,
            oldest: journal.unread_oldest,
            newest: journal.unread_newest,
        },
        layers_missing: shared.runner.layers_missing(),
    };
    report.within_limits()
}
