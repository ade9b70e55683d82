//! What daemons say of themselves.

use crate::limit::{DAEMON_GONE_RETENTION, DAEMON_LEFT_RETENTION};
use crate::store::{DaemonRecord, DaemonReport, JournalId, SysidGrant};
use crate::time::Timestamp;

use super::State;

#[derive(Debug, Clone)]
pub(super) struct DaemonRow {
    grant: SysidGrant,
    beat_at: Timestamp,
    report: DaemonReport,
}

impl State {
    pub(super) fn daemon_put(&mut self, grant: SysidGrant, report: DaemonReport) {
        let row = DaemonRow { grant, beat_at: self.now, report };
        self.daemons.insert(row.report.journal, row);
    }

    /// The daemon gave its number back.
    pub(super) fn daemon_left(&mut self, grant: SysidGrant) {
        let gone: Vec<_> = self.daemon_records().filter(|daemon| daemon.grant == grant).collect();
        for daemon in gone.into_iter().filter(|daemon| daemon.left() == 0) {
            self.daemons.remove(&daemon.report.journal);
        }
    }

    pub(super) fn daemons_forget(&mut self) {
        let now = self.now;
        let outdated = |daemon: &DaemonRecord| {
            let kept =
                if daemon.left() == 0 { DAEMON_GONE_RETENTION } else { DAEMON_LEFT_RETENTION };
            !daemon.alive && daemon.beat_at + kept <= now
        };
        let gone: Vec<_> = self.daemon_records().filter(outdated).collect();
        for daemon in gone {
            self.daemons.remove(&daemon.report.journal);
        }
    }

    pub(super) fn daemon_list(&self, after: Option<JournalId>, limit: usize) -> Vec<DaemonRecord> {
        let place = |journal: JournalId| (journal.number(), journal);
        let is_behind = |daemon: &DaemonRecord| {
            after.is_none_or(|after| place(daemon.report.journal) > place(after))
        };
        let mut daemons: Vec<_> = self.daemon_records().filter(is_behind).collect();
        daemons.sort_by_key(|daemon| place(daemon.report.journal));
        daemons.truncate(limit);
        daemons
    }

    fn daemon_records(&self) -> impl Iterator<Item = DaemonRecord> {
        self.daemons.values().map(|row| DaemonRecord {
            grant: row.grant,
            beat_at: row.beat_at,
            alive: self.is_alive(row.grant),
            position: self.marks.get(&row.report.journal).copied(),
            report: row.report.clone(),
        })
    }
}
