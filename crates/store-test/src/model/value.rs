//! Random values, from ranges so small that they often collide.
//!
//! The clock of this world has only even milliseconds. Times for which the contract is not precise
//! (is a key outdated at its last moment or after it?) are odd, so that they never equal the clock.

use std::time::Duration;

use windlass_core::job::{Progress, Token};
use windlass_core::store::{Durability, LeaseRef};
use windlass_core::{JobId, Priority, State, Status, Sysid, Tenant, Timestamp, TypeKey};

use super::world::World;
use crate::fixture::{id, sysid};

const TENANTS: [&str; 2] = ["acme", "globex"];
const TYPES: [&str; 3] = ["a", "b", "c"];
/// Jobs have ids from 1 to this.
pub(super) const IDS_MAX: i64 = 100;
pub(super) const SYSIDS_MAX: u16 = 4;
/// How many of the newest remembered leases are preferred.
const LEASES_NEW: usize = 10;

pub(super) fn tenants() -> impl Iterator<Item = Tenant> {
    TENANTS.into_iter().map(|name| Tenant::new(name).unwrap())
}

pub(super) fn keys() -> impl Iterator<Item = TypeKey> {
    let every = |tenant| TYPES.into_iter().map(move |name| TypeKey::new(tenant, name).unwrap());
    TENANTS.into_iter().flat_map(every)
}

impl World {
    pub(super) fn pause(&mut self) -> Duration {
        let ms = match self.random.u32(0..20) {
            0..9 => 0,
            9..16 => self.random.u64(0..1000),
            16..19 => self.random.u64(0..10_000),
            _ => self.random.u64(0..100_000),
        };
        Duration::from_millis(ms / 2 * 2)
    }

    /// Often now, sometimes a little earlier or later.
    pub(super) fn around(&mut self) -> Timestamp {
        match self.random.u32(0..4) {
            0 => self.now - Duration::from_secs(self.random.u64(0..10)),
            1 => self.soon(),
            _ => self.now,
        }
    }

    pub(super) fn soon(&mut self) -> Timestamp {
        self.now + Duration::from_secs(self.random.u64(1..60))
    }

    pub(super) fn later(&mut self) -> Timestamp {
        self.now + self.a_while()
    }

    pub(super) fn a_while(&mut self) -> Duration {
        Duration::from_secs(self.random.u64(1..600))
    }

    /// A lease that was granted at some time, sometimes with an error in it.
    pub(super) fn lease(&mut self) -> LeaseRef {
        let count = self.leases.len();
        if count == 0 {
            return LeaseRef { tenant: self.tenant(), id: self.id(), token: Token(1) };
        }
        // The newest ones are more often still valid.
        let oldest = if self.random.u32(0..4) == 0 { 0 } else { count.saturating_sub(LEASES_NEW) };
        let mut lease = self.leases[self.random.usize(oldest..count)].clone();
        match self.random.u32(0..12) {
            0 => lease.tenant = self.tenant(),
            1 => lease.id = self.id(),
            2 => lease.token = Token(lease.token.0 + 1),
            _ => {}
        }
        lease
    }

    pub(super) fn progress(&mut self) -> Progress {
        let percent = f64::from(self.random.u32(0..=200)) / 2.0;
        Progress { percent, message: self.text(), at: self.now }
    }

    pub(super) fn some<T>(&mut self, most: usize, mut one: impl FnMut(&mut World) -> T) -> Vec<T> {
        (0..self.random.usize(1..=most)).map(|_| one(self)).collect()
    }

    pub(super) fn maybe<T>(&mut self, one: impl FnOnce(&mut World) -> T) -> Option<T> {
        (self.random.u32(0..4) == 0).then(|| one(self))
    }

    pub(super) fn tenant(&mut self) -> Tenant {
        Tenant::new(TENANTS[self.random.usize(0..TENANTS.len())]).unwrap()
    }

    pub(super) fn key(&mut self) -> TypeKey {
        let (tenant, name) = (self.tenant(), TYPES[self.random.usize(0..TYPES.len())]);
        TypeKey::new(tenant.as_str(), name).unwrap()
    }

    pub(super) fn id(&mut self) -> JobId {
        id(self.random.i64(1..=IDS_MAX))
    }

    pub(super) fn sysid(&mut self) -> Sysid {
        sysid(self.random.u16(1..=SYSIDS_MAX))
    }

    pub(super) fn state(&mut self) -> State {
        State::ALL[self.random.usize(0..State::ALL.len())]
    }

    pub(super) fn status(&mut self) -> Status {
        Status::new(self.random.i64(100..600)).unwrap()
    }

    pub(super) fn priority(&mut self) -> Priority {
        Priority::new([0, 500, 500, 501, 1000][self.random.usize(0..5)]).unwrap()
    }

    pub(super) fn durability(&mut self) -> Durability {
        if self.random.bool() { Durability::Synced } else { Durability::Relaxed }
    }

    /// One of very few, so that jobs get in each other's way.
    pub(super) fn unique(&mut self) -> String {
        format!("unique {}", self.random.u32(0..2))
    }

    /// One of few texts, so that keys collide.
    pub(super) fn text(&mut self) -> String {
        format!("text {}", self.random.u32(0..6))
    }
}
