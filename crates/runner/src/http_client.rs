//! The connections of `http` handlers. Every address is decided by the handler's policy before it
//! is connected to, and no other one is used: names are resolved here, once.
//!
//! Open connections are kept for later requests, but only for handlers with the same
//! `options.network` and for the same port: what one handler may use says nothing about another.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::ConfigVerifierExt;
use windlass_core::Network;
use windlass_core::sync::lock;

use crate::Error;
use crate::network::{Policies, Why};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_PER_HOST_MAX: usize = 32;
/// Clients that are kept, each with its connections; the one that was not used for longest goes
/// first.
const CLIENTS_MAX: usize = 64;

/// The clients of a runner, the last used at the end.
pub(crate) struct HttpClients {
    policies: Arc<Policies>,
    /// Shared by all clients: loading the certificate authorities takes milliseconds.
    tls: ClientConfig,
    kept: Mutex<Vec<(Guard, Client)>>,
}

/// Decides the addresses of one client. A client has one port because the resolver of a client is
/// not told for which port it resolves a name.
#[derive(Clone)]
struct Guard {
    policies: Arc<Policies>,
    network: Option<Network>,
    port: u16,
}

impl HttpClients {
    pub(crate) fn new(policies: Arc<Policies>) -> Result<HttpClients, Error> {
        // This fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = HttpClients { policies, tls: tls(), kept: Mutex::default() };
        // Shows at the start whether clients can be made.
        clients.find(clients.guard(None, 443)).map_err(Error::Http)?;
        Ok(clients)
    }

    /// A client that may connect to this URL, or why there is none.
    pub(crate) async fn client(
        &self,
        url: &Url,
        network: Option<&Network>,
    ) -> Result<Client, String> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let guard = self.guard(network, port);
        if network == Some(&Network::None) {
            let why = Why::NoNetwork;
            return Err(format!("refused: connection to {host}:{port} ({why})"));
        }
        // A client does not ask its resolver about these.
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            let policy = guard.policies.connections(network).await;
            let decided = guard.policies.decide(&policy, (address, port).into());
            decided.map_err(|refusal| refusal.to_string())?;
        }
        self.find(guard)
    }

    /// What is open by default is the same as what is open to `"public"`.
    fn guard(&self, network: Option<&Network>, port: u16) -> Guard {
        let network = network.filter(|network| **network != Network::Public).cloned();
        Guard { policies: Arc::clone(&self.policies), network, port }
    }

    fn find(&self, guard: Guard) -> Result<Client, String> {
        let mut kept = lock(&self.kept);
        let same = |(other, _): &(Guard, Client)| {
            (other.port, &other.network) == (guard.port, &guard.network)
        };
        let found = match kept.iter().position(same) {
            Some(index) => kept.remove(index),
            None => {
                let client = build(&guard, self.tls.clone())?;
                (guard, client)
            }
        };
        let client = found.1.clone();
        kept.push(found);
        if kept.len() > CLIENTS_MAX {
            kept.remove(0);
        }
        Ok(client)
    }
}

/// TLS with the certificate authorities of this machine.
fn tls() -> ClientConfig {
    let with_authorities = ClientConfig::with_platform_verifier();
    let mut tls = with_authorities.unwrap_or_else(|reason| {
        tracing::warn!(%reason, "no certificate authorities were found: https will not work");
        let none = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        none.with_no_client_auth()
    });
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}

fn build(guard: &Guard, tls: ClientConfig) -> Result<Client, String> {
    let client = Client::builder()
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(guard.clone()))
        .build();
    client.map_err(|reason| reason.to_string())
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let network = guard.network.as_ref();
            let found = guard.policies.lookup(name.as_str(), network).await?;
            let policy = guard.policies.connections(network).await;
            let mut open = Vec::new();
            let mut refused = None;
            for address in found {
                let to = SocketAddr::new(address, guard.port);
                match guard.policies.decide(&policy, to) {
                    Ok(()) => open.push(to),
                    Err(refusal) => refused = refused.or(Some(refusal)),
                }
            }
            match refused {
                Some(refusal) if open.is_empty() => Err(refusal.into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}
