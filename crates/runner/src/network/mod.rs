//! What handlers may connect to on this machine.
//!
//! | module | owns |
//! |---|---|
//! | `range` | which addresses are not public, and why |
//! | `text` | a policy as text, for the process that enforces it |
//! | `policies` | the policy of each handler: its own option within the operator's settings |
//! | `names` | the addresses of names, looked up from time to time |
//! | `machine` | the addresses and name servers of this machine |
//! | `route` | where the kernel sends packets |
//!
//! A `Policy` decides by the address that is really connected to, never by a name: a
//! name may resolve to another address the next time. It allows public addresses and what the
//! operator lists in `isolation.network.allow`; `options.network` of a handler can only narrow
//! that. Ports of the daemon itself are open only to an entry that names the port.
//!
//! Which addresses are this machine's is asked of the kernel at each decision; the addresses that
//! the daemon saw at its start are refused even if the kernel cannot be asked.

mod machine;
mod names;
mod policies;
mod range;
mod route;
mod text;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use windlass_core::network::Net;

pub use self::names::{Lookup, SystemLookup};
pub use self::policies::{NetworkOptions, Policies};
pub use self::range::Why;
pub(crate) use self::route::KernelRoutes;
pub use self::route::Routes;

/// Where machines ask for names.
const DNS_PORT: u16 = 53;

/// What one handler may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    /// What the operator allows besides public addresses.
    pub allow: Vec<Allow>,
    /// The addresses of this machine when the daemon started.
    pub own: Vec<IpAddr>,
    /// The ports on which the daemon listens.
    pub doors: Vec<u16>,
    /// The machine's name servers, allowed wherever they are: a handler has to look up names.
    pub resolvers: Vec<IpAddr>,
}

/// What the handler asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    None,
    Public,
    Only(Vec<Allow>),
}

/// A network at one port or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allow {
    pub net: Net,
    pub port: Option<u16>,
}

/// A connection that is not made. Its text is for the job's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub to: SocketAddr,
    pub why: Why,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: connection to {} ({})", self.to, self.why)
    }
}

impl Allow {
    fn matches(&self, address: IpAddr, port: u16) -> bool {
        self.net.contains(address) && self.port.is_none_or(|own| own == port)
    }
}

impl Policy {
    /// Whether a connection, or a datagram, to this address is allowed.
    pub fn decide(&self, to: SocketAddr, routes: &dyn Routes) -> Result<(), Refusal> {
        // The mapped form of an IPv4 address leads to the same place.
        let (address, port) = (to.ip().to_canonical(), to.port());
        let refuse = |why| Err(Refusal { to, why });
        if self.mode == Mode::None {
            return refuse(Why::NoNetwork);
        }
        if port == DNS_PORT && self.resolvers.contains(&address) {
            return Ok(());
        }
        if let Err(why) = self.operator_allows(address, port, routes) {
            return refuse(why);
        }
        match &self.mode {
            Mode::Only(list) if !list.iter().any(|allow| allow.matches(address, port)) => {
                refuse(Why::NotListed)
            }
            Mode::None | Mode::Public | Mode::Only(_) => Ok(()),
        }
    }

    fn operator_allows(&self, address: IpAddr, port: u16, routes: &dyn Routes) -> Result<(), Why> {
        let matching = || self.allow.iter().filter(|allow| allow.matches(address, port));
        if matching().any(|allow| allow.port.is_some()) {
            return Ok(());
        }
        if matching().next().is_none() {
            self.is_public(address, port, routes)?;
        }
        match self.doors.contains(&port) && self.is_local(address, routes) {
            true => Err(Why::Door),
            false => Ok(()),
        }
    }

    fn is_public(&self, address: IpAddr, port: u16, routes: &dyn Routes) -> Result<(), Why> {
        let embedded = match address {
            IpAddr::V6(v6) => range::embedded(v6),
            IpAddr::V4(_) => Vec::new(),
        };
        for v4 in &embedded {
            self.operator_allows(IpAddr::V4(*v4), port, routes)?;
        }
        // The address around another one may be this machine's, too.
        let special = range::special(address).filter(|_| embedded.is_empty());
        match special.or_else(|| self.stays_here(address, routes)) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn is_local(&self, address: IpAddr, routes: &dyn Routes) -> bool {
        let local = matches!(range::special(address), Some(Why::Loopback | Why::Unspecified));
        local || self.stays_here(address, routes).is_some()
    }

    /// Why packets to this address do not leave for another machine.
    fn stays_here(&self, address: IpAddr, routes: &dyn Routes) -> Option<Why> {
        let is_own = self.own.contains(&address);
        is_own.then_some(Why::Own).or_else(|| routes.refusal(address))
    }
}

#[cfg(test)]
mod tests;
