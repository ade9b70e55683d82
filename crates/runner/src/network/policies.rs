//! The policy of each handler: what its author asks for, within what the operator allows.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::Invalid;
use windlass_core::network::{Destination, Host, Net, Network};

use super::names::{Lookup, Names, SystemLookup};
use super::{Allow, KernelRoutes, Mode, Policy, Refusal, Routes, machine, range};

/// What the operator allows, and what has to be known about the machine.
#[derive(Clone)]
pub struct NetworkOptions {
    /// Open besides public addresses.
    pub allow: Vec<Destination>,
    /// The addresses of this machine.
    pub own: Vec<IpAddr>,
    /// Where the daemon listens.
    pub doors: Vec<SocketAddr>,
    /// The list of name servers, read whenever a policy is made.
    pub resolvers_file: PathBuf,
    pub lookup: Arc<dyn Lookup>,
    pub routes: Arc<dyn Routes>,
}

impl NetworkOptions {
    /// The options for this machine.
    pub fn of_machine(allow: Vec<Destination>, doors: Vec<SocketAddr>) -> io::Result<Self> {
        let own = machine::addresses()?;
        let resolvers_file = machine::RESOLVERS_FILE.into();
        let routes = Arc::new(KernelRoutes::open()?);
        let lookup = Arc::new(SystemLookup);
        Ok(NetworkOptions { allow, own, doors, resolvers_file, lookup, routes })
    }
}

/// Makes the policies of handlers.
pub struct Policies {
    options: NetworkOptions,
    names: Names,
}

impl Policies {
    pub fn new(options: NetworkOptions) -> Policies {
        Policies { options, names: Names::default() }
    }

    /// Refuses a list with networks that the operator does not allow, so that its author is told
    /// when the handler is set. Every connection is decided again, by its address.
    pub fn check(&self, network: &Network) -> Result<(), Invalid> {
        network.check()?;
        let Network::Only(list) = network else { return Ok(()) };
        match list.iter().find(|entry| !self.may_name(entry)) {
            None => Ok(()),
            Some(entry) => {
                let reason = format!(
                    "'{entry}' has addresses that are not public, and the operator does not allow \
                     them (isolation.network.allow)"
                );
                Err(Invalid::new("options.network", reason))
            }
        }
    }

    fn may_name(&self, entry: &Destination) -> bool {
        let Host::Net(net) = &entry.host else { return true };
        let covers = |allowed: &Destination| match &allowed.host {
            Host::Net(wide) => {
                wide.covers(net) && allowed.port.is_none_or(|port| entry.port == Some(port))
            }
            Host::Name(_) => false,
        };
        self.options.allow.iter().any(covers) || !range::has_special(net)
    }

    /// The policy of a handler with this option, for processes that look up names themselves.
    pub async fn policy(&self, network: Option<&Network>) -> Policy {
        let resolvers = machine::resolvers(&self.options.resolvers_file);
        Policy { resolvers, ..self.connections(network).await }
    }

    /// The policy without the machine's name servers, with the addresses that names have now.
    pub(crate) async fn connections(&self, network: Option<&Network>) -> Policy {
        let mode = match network {
            None | Some(Network::Public) => Mode::Public,
            Some(Network::None) => Mode::None,
            Some(Network::Only(list)) => Mode::Only(self.addresses(list).await),
        };
        let mut own = self.options.own.clone();
        let listening = self.options.doors.iter().map(SocketAddr::ip);
        own.extend(listening.filter(|address| !address.is_unspecified()));
        own.sort_unstable();
        own.dedup();
        Policy {
            mode,
            allow: self.addresses(&self.options.allow).await,
            own,
            doors: self.options.doors.iter().map(SocketAddr::port).collect(),
            resolvers: Vec::new(),
        }
    }

    /// Decides about a connection that the daemon makes for a handler of this policy.
    pub(crate) fn decide(&self, policy: &Policy, to: SocketAddr) -> Result<(), Refusal> {
        policy.decide(to, &*self.options.routes)
    }

    /// The addresses of a name. A name on a list has those that the list opens.
    pub(crate) async fn lookup(
        &self,
        name: &str,
        network: Option<&Network>,
    ) -> io::Result<Vec<IpAddr>> {
        let own: &[Destination] = match network {
            Some(Network::Only(list)) => list,
            _ => &[],
        };
        let plain = name.trim_end_matches('.').to_ascii_lowercase();
        let is_it = |entry: &Destination| matches!(&entry.host, Host::Name(name) if *name == plain);
        if own.iter().chain(&self.options.allow).any(is_it) {
            return Ok(self.names.addresses(&plain, &*self.options.lookup).await);
        }
        self.options.lookup.addresses(name).await
    }

    async fn addresses(&self, list: &[Destination]) -> Vec<Allow> {
        let mut allow = Vec::with_capacity(list.len());
        for Destination { host, port } in list {
            match host {
                Host::Net(net) => allow.push(Allow { net: *net, port: *port }),
                Host::Name(name) => {
                    let found = self.names.addresses(name, &*self.options.lookup).await;
                    let single = |address: IpAddr| Net::single(address.to_canonical());
                    allow.extend(
                        found
                            .into_iter()
                            .map(|address| Allow { net: single(address), port: *port }),
                    );
                }
            }
        }
        allow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;

    /// Knows one name.
    struct Db;

    #[async_trait]
    impl Lookup for Db {
        async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            match name {
                "db.internal" => Ok(vec!["10.9.9.9".parse().unwrap(), "fd00::9".parse().unwrap()]),
                _ => Err(io::Error::other("unknown name")),
            }
        }
    }

    fn list(entries: &[&str]) -> Vec<Destination> {
        entries.iter().map(|entry| entry.parse().unwrap()).collect()
    }

    fn policies(allow: &[&str]) -> Policies {
        Policies::new(NetworkOptions {
            allow: list(allow),
            own: vec!["127.0.0.1".parse().unwrap(), "203.0.114.9".parse().unwrap()],
            doors: vec!["127.0.0.1:7600".parse().unwrap(), "0.0.0.0:8888".parse().unwrap()],
            resolvers_file: "/no/such/file".into(),
            lookup: Arc::new(Db),
            routes: Arc::new(None::<KernelRoutes>),
        })
    }

    #[tokio::test]
    async fn names_of_the_operator_become_their_addresses() {
        let policy = policies(&["db.internal:5432", "10.1.2.0/24"]).policy(None).await;
        let expected = "mode public\nallow 10.9.9.9:5432\nallow [fd00::9]:5432\n\
                        allow 10.1.2.0/24\nown 127.0.0.1\nown 203.0.114.9\ndoor 7600\ndoor 8888\n";
        assert_eq!(policy.to_string(), expected);
    }

    #[tokio::test]
    async fn a_name_without_an_address_opens_nothing() {
        let only = Network::Only(list(&["gone.internal"]));
        let policy = policies(&["gone.internal"]).policy(Some(&only)).await;
        assert_eq!((policy.mode, policy.allow), (Mode::Only(Vec::new()), Vec::new()));
    }

    #[tokio::test]
    async fn a_handler_gets_what_it_lists_and_its_operator_allows() {
        let policies = policies(&["db.internal:5432"]);
        let only = Network::Only(list(&["db.internal", "8.8.8.8:443"]));
        let policy = policies.policy(Some(&only)).await;
        let open = |to: &str| policies.decide(&policy, to.parse().unwrap()).is_ok();
        assert!(open("10.9.9.9:5432") && open("8.8.8.8:443"));
        assert!(!open("10.9.9.9:80") && !open("8.8.8.8:80") && !open("1.1.1.1:443"));
        assert_eq!(policies.policy(Some(&Network::None)).await.mode, Mode::None);
        assert_eq!(policies.policy(Some(&Network::Public)).await.mode, Mode::Public);
    }

    #[test]
    fn a_handler_can_only_name_what_the_operator_allows() {
        let policies = policies(&["10.1.0.0/16:5432", "10.2.0.0/16", "db.internal"]);
        let check = |entry: &str| policies.check(&Network::Only(list(&[entry])));
        for good in
            ["10.1.2.0/24:5432", "10.2.3.4", "10.2.3.4:1", "8.8.8.8", "db.internal", "x.org:1"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["10.1.2.0/24", "10.1.2.3:80", "10.0.0.0/8", "127.0.0.1:7600", "::/0", "8.0.0.0/5"]
        {
            let refused = check(bad).unwrap_err();
            assert_eq!(refused.field, "options.network");
            assert!(refused.reason.contains("isolation.network.allow"), "{refused}");
        }
        assert!(policies.check(&Network::Only(Vec::new())).is_err());
        assert!(policies.check(&Network::None).is_ok());
    }

    #[tokio::test]
    async fn a_name_on_a_list_has_the_addresses_that_the_list_opens() {
        let policies = policies(&["db.internal"]);
        let found = policies.lookup("DB.internal.", None).await.unwrap();
        assert_eq!(found.len(), 2);
        assert!(policies.lookup("gone.internal", None).await.is_err());
        let only = Network::Only(list(&["gone.internal"]));
        assert!(policies.lookup("gone.internal", Some(&only)).await.unwrap().is_empty());
    }
}
