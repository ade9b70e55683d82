//! This daemon's identity in the store: its number, its journals' names, its tokens, its contact.

use std::time::Duration;

use windlass_core::store::{JournalId, SysidGrant};
use windlass_core::{Clock, Sysid, Timestamp};

use crate::claim::abandoned::Abandoned;
use crate::claim::token::Tokens;
use crate::house::contact::Contact;

pub(crate) struct Daemon {
    pub grant: SysidGrant,
    pub tokens: Tokens,
    pub abandoned: Abandoned,
    pub contact: Contact,
    pub started_at: Timestamp,
    /// Identifies the data directory: see `JournalId`.
    place: u64,
}

impl Daemon {
    pub(crate) fn new(grant: SysidGrant, place: u64, lease: Duration, clock: &dyn Clock) -> Daemon {
        Daemon {
            grant,
            tokens: Tokens::new(grant.boot),
            abandoned: Abandoned::default(),
            contact: Contact::new(lease, grant.sysid, clock.steady()),
            started_at: clock.now(),
            place,
        }
    }

    pub(crate) fn sysid(&self) -> Sysid {
        self.grant.sysid
    }

    /// The store's name for the journal of a daemon on our data directory.
    pub(crate) fn journal_id(&self, sysid: Sysid) -> JournalId {
        JournalId::new(self.place, sysid)
    }
}
