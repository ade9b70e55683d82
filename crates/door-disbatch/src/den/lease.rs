//! A node's own side of its lease, as its fence counts it: pure.
//!
//! ```text
//! renewal sent   its fence ends its tasks      others may hold it dead
//!      │────────── 0.8 × orphan_after ──│              │
//!      │  first seen by others │──────── orphan_after ──│
//! ```
//! Time counts from when a successful renewal was sent, so that the lease expires here before any
//! other node can see it expire. While the database is down for all nodes, none can observe us, so
//! a refused connection counts as a renewal, too, if it is certain to mean that.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// The share of `orphan_after` that a fence waits; the rest is for killing what runs.
const FENCE_PERCENT: u32 = 80;

/// How long tasks may continue after a renewal was sent.
pub(crate) fn fence_time(orphan_after: Duration) -> Duration {
    orphan_after * FENCE_PERCENT / 100
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    time: Duration,
    from: Duration,
}

impl Lease {
    pub(crate) fn new(orphan_after: Duration, from: Duration) -> Lease {
        Lease { time: fence_time(orphan_after), from }
    }

    /// A renewal sent at that time succeeded, or no node could have observed us then.
    pub(crate) fn renewed(&mut self, sent: Duration) {
        self.from = self.from.max(sent);
    }

    pub(crate) fn is_fresh(&self, now: Duration) -> bool {
        now < self.from + self.time
    }
}

pub(crate) type Host = (String, u16);

/// What is known about the path to the database and its other users.
#[derive(Debug, Clone, Default)]
pub(crate) struct DatabasePath {
    /// Named by the configuration and by the servers themselves.
    pub(crate) hosts: BTreeSet<Host>,
    /// Every observer would notice a restart of the server. Routers hide it, and other nodes may
    /// use other routers.
    pub(crate) vouched: bool,
    /// Other nodes of ours run on other machines.
    pub(crate) far_nodes: bool,
}

impl DatabasePath {
    /// The hosts that must all refuse a connection to prove that no node reaches the database.
    /// `None` if no refusal proves it: it may be only a router, or the near end of a tunnel, that
    /// is down.
    pub(crate) fn witnesses(&self) -> Option<Vec<Host>> {
        let tunnel = self.far_nodes && self.hosts.iter().any(|(host, _)| is_loopback(host));
        (self.vouched && !tunnel && !self.hosts.is_empty())
            .then(|| self.hosts.iter().cloned().collect())
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || host.starts_with('/') || address.is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_counts_from_the_sending_of_the_newest_renewal() {
        let mut lease = Lease::new(30 * SECOND, 100 * SECOND);
        assert!(lease.is_fresh(123 * SECOND) && !lease.is_fresh(124 * SECOND));
        lease.renewed(105 * SECOND);
        lease.renewed(104 * SECOND);
        assert!(lease.is_fresh(128 * SECOND) && !lease.is_fresh(129 * SECOND));
    }

    fn database_path(hosts: &[&str]) -> DatabasePath {
        let hosts = hosts.iter().map(|host| ((*host).to_owned(), 27017)).collect();
        DatabasePath { hosts, vouched: true, far_nodes: false }
    }

    #[test]
    fn all_hosts_must_refuse() {
        assert_eq!(database_path(&["a", "b"]).witnesses().unwrap().len(), 2);
        assert_eq!(database_path(&[]).witnesses(), None);
    }

    #[test]
    fn a_router_and_a_tunnel_prove_nothing() {
        let routed = DatabasePath { vouched: false, ..database_path(&["a"]) };
        assert_eq!(routed.witnesses(), None);
        for host in ["localhost", "127.0.0.1", "::1", "[::1]", "/tmp/mongodb.sock"] {
            assert!(database_path(&[host]).witnesses().is_some(), "{host}");
            let far = DatabasePath { far_nodes: true, ..database_path(&[host]) };
            assert_eq!(far.witnesses(), None, "{host}");
        }
        let far = DatabasePath { far_nodes: true, ..database_path(&["db.example.com"]) };
        assert!(far.witnesses().is_some());
    }
}
