//! The addresses of names in lists of destinations. The daemon looks them up, from time to time:
//! a handler that resolves a name differently gains nothing.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use windlass_core::sync::lock;

/// How long the addresses of a name are used before it is looked up again.
const FRESH: Duration = Duration::from_secs(30);
/// How long an address still counts that a lookup did not return any more: servers of names with
/// many addresses return some of them, in turn.
const KEPT: Duration = Duration::from_secs(300);
/// A name server that takes longer does not answer.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Names that are remembered; beyond that, each use is a lookup.
const NAMES_MAX: usize = 10_000;

/// Looks up the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// As all programs of this machine do: `/etc/hosts`, then its name servers.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = timeout(LOOKUP_MAX, tokio::net::lookup_host((name, 0))).await??;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// What was last found for each name.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<String, Found>>);

struct Found {
    at: Instant,
    /// With the time when each was last returned.
    addresses: Vec<(IpAddr, Instant)>,
}

impl Found {
    fn list(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|(address, _)| *address).collect()
    }
}

impl Names {
    /// The addresses of a name. While it cannot be looked up, those that were found last.
    pub(super) async fn addresses(&self, name: &str, lookup: &dyn Lookup) -> Vec<IpAddr> {
        if let Some(found) = lock(&self.0).get(name).filter(|found| found.at.elapsed() < FRESH) {
            return found.list();
        }
        let looked_up = lookup.addresses(name).await;
        if let Err(reason) = &looked_up {
            tracing::warn!(name, %reason, "cannot look up a name that handlers may connect to");
        }
        self.remember(name, looked_up.ok())
    }

    fn remember(&self, name: &str, returned: Option<Vec<IpAddr>>) -> Vec<IpAddr> {
        let now = Instant::now();
        let mut names = lock(&self.0);
        let mut addresses = names.remove(name).map(|found| found.addresses).unwrap_or_default();
        if let Some(returned) = returned {
            addresses.retain(|(address, seen)| {
                now.duration_since(*seen) < KEPT && !returned.contains(address)
            });
            addresses.extend(returned.into_iter().map(|address| (address, now)));
        }
        let found = Found { at: now, addresses };
        let list = found.list();
        if names.len() >= NAMES_MAX {
            names.retain(|_, found| found.at.elapsed() < FRESH);
        }
        if names.len() < NAMES_MAX {
            names.insert(name.to_owned(), found);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Gives these answers, one after the other.
    struct Script(Mutex<VecDeque<io::Result<Vec<IpAddr>>>>);

    #[async_trait]
    impl Lookup for Script {
        async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            lock(&self.0).pop_front().expect("no further lookup")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_again_after_a_while_and_kept_while_that_fails() {
        let [first, second]: [Vec<IpAddr>; 2] =
            [vec!["10.0.0.1".parse().unwrap()], vec!["10.0.0.2".parse().unwrap()]];
        let broken = || Err(io::Error::other("no answer"));
        let both = [first.clone(), second.clone()].concat();
        let answers = [Ok(first.clone()), broken(), Ok(second.clone()), Ok(second.clone())];
        let script = Script(Mutex::new(answers.into_iter().collect()));
        let names = Names::default();
        assert_eq!(names.addresses("db", &script).await, first);
        assert_eq!(names.addresses("db", &script).await, first);
        tokio::time::advance(FRESH).await;
        assert_eq!(names.addresses("db", &script).await, first);
        tokio::time::advance(FRESH).await;
        assert_eq!(names.addresses("db", &script).await, both);
        tokio::time::advance(KEPT).await;
        assert_eq!(names.addresses("db", &script).await, second);
    }

    #[tokio::test]
    async fn the_machine_knows_localhost() {
        let found = SystemLookup.addresses("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }
}
