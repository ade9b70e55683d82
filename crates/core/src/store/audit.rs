//! The audit.

use std::time::Duration;

use async_trait::async_trait;

use super::{Durability, Error};
use crate::audit::{AuditCursor, AuditEntry, AuditFilter};

#[async_trait]
pub trait Audits: Send + Sync {
    /// Stores entries, each in place of one with its time and id, if there is one.
    async fn audit_put(
        &self,
        entries: Vec<AuditEntry>,
        durability: Durability,
    ) -> Result<(), Error>;

    /// Entries, newest first. A page may have fewer than `limit` although others follow, because a
    /// store looks at `AUDIT_LOOK_MAX` entries at most: the cursor says whether it is the last.
    async fn audit_list(&self, list: AuditList) -> Result<AuditPage, Error>;

    /// Removes entries that are older than `keep`, the oldest first, at most `limit`. Returns their
    /// number. Relaxed.
    async fn audit_purge(&self, keep: Duration, limit: usize) -> Result<u64, Error>;
}

#[derive(Debug, Clone)]
pub struct AuditList {
    pub filter: AuditFilter,
    /// Only entries before this place, which are older.
    pub before: Option<AuditCursor>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<AuditCursor>,
}
