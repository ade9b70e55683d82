//! The kinds of values: parsing from text or TOML, and describing what is accepted.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use windlass_core::Tenant;
use windlass_core::network::Destination;
use windlass_core::size::{format_size, parse_size};
use windlass_core::time::{format_duration, parse_duration};
use windlass_door_bedrock::Network;

use super::store::StorePlace;

/// Bounds are inclusive.
pub(crate) enum Kind {
    Text,
    /// The path of a file.
    File,
    Switch,
    Whole {
        min: u64,
        max: u64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Span {
        min: Duration,
        max: Duration,
    },
    Choice(&'static [&'static str]),
    Address,
    Store,
    Tenant,
    Tenants,
    Size {
        min: u64,
        max: u64,
    },
    /// Absolute paths.
    Paths,
    /// Names of machines.
    Hosts,
    /// Networks and addresses.
    Networks,
    /// Scheme, host and port of web pages.
    Origins,
    /// Networks and names of machines, with optional ports.
    Destinations,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Switch(bool),
    Whole(u64),
    Number(f64),
    Span(Duration),
    Address(SocketAddr),
    Store(StorePlace),
    Tenant(Tenant),
    Tenants(Vec<Tenant>),
    Size(u64),
    Paths(Vec<PathBuf>),
    Texts(Vec<String>),
    Destinations(Vec<Destination>),
    Networks(Vec<Network>),
}

/// Longest part of a wrong value that an error shows.
const SHOWN_CHARS_MAX: usize = 40;

impl Kind {
    /// Completes the sentence "this key takes …".
    pub(crate) fn accepted(&self) -> String {
        match self {
            Kind::Text => "text that is not empty".into(),
            Kind::File => "the path of a file".into(),
            Kind::Switch => "true or false".into(),
            Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Span { min, max } => {
                let (min, max) = (format_duration(*min), format_duration(*max));
                format!("a duration from {min} to {max}, such as 250ms, 90s, 5m, 2h or 1d")
            }
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Address => "an IP address and a port, such as 127.0.0.1:7600".into(),
            Kind::Store => "sqlite:PATH or postgres://USER@HOST/DATABASE".into(),
            Kind::Tenant => "the name of a tenant, such as acme".into(),
            Kind::Tenants => "names of tenants, such as acme".into(),
            Kind::Size { min, max } => {
                let (min, max) = (format_size(*min), format_size(*max));
                format!("a size from {min} to {max}, such as 64KB, 512MB or 2GB")
            }
            Kind::Paths => "absolute paths, such as /srv/models".into(),
            Kind::Hosts => "names of machines without ports, such as jobs.example".into(),
            Kind::Networks => "networks or addresses, such as 10.1.0.0/16 or 10.1.2.3".into(),
            Kind::Origins => "origins of web pages, such as https://app.example".into(),
            Kind::Destinations => {
                "networks and names with optional ports, such as 10.1.2.0/24:5432 or db.internal"
                    .into()
            }
        }
    }

    /// Parses the text of a flag, a variable or a default. The error is the value as it
    /// may be shown.
    pub(crate) fn read(&self, text: &str) -> Result<Value, String> {
        let wrong = || shown(text);
        match self {
            Kind::Text | Kind::File if text.is_empty() => Err(wrong()),
            Kind::Text | Kind::File => Ok(Value::Text(text.to_owned())),
            Kind::Switch => text.parse().map(Value::Switch).map_err(|_| wrong()),
            Kind::Whole { min, max } => match text.parse() {
                Ok(number) if (*min..=*max).contains(&number) => Ok(Value::Whole(number)),
                _ => Err(wrong()),
            },
            Kind::Number { min, max } => match text.parse() {
                Ok(number) if (*min..=*max).contains(&number) => Ok(Value::Number(number)),
                _ => Err(wrong()),
            },
            Kind::Span { min, max } => match parse_duration(text) {
                Ok(span) if (*min..=*max).contains(&span) => Ok(Value::Span(span)),
                _ => Err(wrong()),
            },
            Kind::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Choice(_) => Err(wrong()),
            Kind::Address => read_address(text).map(Value::Address).ok_or_else(wrong),
            Kind::Store => StorePlace::read(text).map(Value::Store),
            Kind::Tenant => read_tenant(text).map(Value::Tenant),
            Kind::Size { min, max } => match parse_size(text) {
                Ok(size) if (*min..=*max).contains(&size) => Ok(Value::Size(size)),
                _ => Err(wrong()),
            },
            Kind::Tenants
            | Kind::Paths
            | Kind::Hosts
            | Kind::Origins
            | Kind::Networks
            | Kind::Destinations => {
                self.read_list(text.split(',').map(str::trim).filter(|item| !item.is_empty()))
            }
        }
    }

    fn read_list<'a>(&self, items: impl Iterator<Item = &'a str>) -> Result<Value, String> {
        match self {
            Kind::Tenants => items.map(read_tenant).collect::<Result<_, _>>().map(Value::Tenants),
            Kind::Hosts => items.map(read_host).collect::<Result<_, _>>().map(Value::Texts),
            Kind::Origins => items.map(read_origin).collect::<Result<_, _>>().map(Value::Texts),
            Kind::Destinations => {
                items.map(read_destination).collect::<Result<_, _>>().map(Value::Destinations)
            }
            Kind::Networks => {
                items.map(read_network).collect::<Result<_, _>>().map(Value::Networks)
            }
            _ => items.map(read_path).collect::<Result<_, _>>().map(Value::Paths),
        }
    }

    pub(crate) fn read_toml(&self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Kind::Switch, DeValue::Boolean(value)) => Ok(Value::Switch(*value)),
            (Kind::Whole { .. }, DeValue::Integer(number)) if number.radix() == 10 => {
                self.read(number.as_str())
            }
            (Kind::Number { .. }, DeValue::Integer(number)) => self.read(number.as_str()),
            (Kind::Number { .. }, DeValue::Float(number)) => self.read(number.as_str()),
            (
                Kind::Tenants
                | Kind::Paths
                | Kind::Hosts
                | Kind::Origins
                | Kind::Networks
                | Kind::Destinations,
                DeValue::Array(items),
            ) => {
                let texts: Option<Vec<_>> =
                    items.iter().map(|item| item.get_ref().as_str()).collect();
                self.read_list(texts.ok_or("a list with items that are not text")?.into_iter())
            }
            (
                Kind::Switch
                | Kind::Whole { .. }
                | Kind::Number { .. }
                | Kind::Tenants
                | Kind::Paths
                | Kind::Hosts
                | Kind::Origins
                | Kind::Networks
                | Kind::Destinations,
                other,
            ) => Err(described(other)),
            (_, DeValue::String(text)) => self.read(text),
            (_, other) => Err(described(other)),
        }
    }
}

fn read_network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|_| shown(text))
}

fn read_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

fn read_tenant(name: &str) -> Result<Tenant, String> {
    Tenant::new(name).map_err(|why| format!("{}: {}", shown(name), why.reason))
}

fn read_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(shown(text)) }
}

fn read_host(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_host = !text.is_empty() && text.chars().all(fits);
    is_host.then(|| text.to_owned()).ok_or_else(|| shown(text))
}

/// As a browser sends it: without a path, in small letters.
fn read_origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = host.map(|host| match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => host,
    });
    let is_small = !text.contains(|c: char| c.is_ascii_uppercase());
    let is_origin = is_small && host.is_some_and(|host| read_host(host).is_ok());
    is_origin.then(|| text.to_owned()).ok_or_else(|| shown(text))
}

fn read_destination(text: &str) -> Result<Destination, String> {
    text.parse().map_err(|_| shown(text))
}

fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => shown(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        other => format!("a value of the type {}", other.type_str()),
    }
}

pub(super) fn shown(text: &str) -> String {
    let mut cut: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().count() > SHOWN_CHARS_MAX {
        cut.push('…');
    }
    format!("'{cut}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_or_of_another_kind_are_refused() {
        let slots = Kind::Whole { min: 1, max: 10 };
        assert_eq!(slots.read("10"), Ok(Value::Whole(10)));
        for wrong in ["0", "11", "-1", "x", "", "1.0"] {
            assert!(slots.read(wrong).is_err(), "{wrong}");
        }
        let span = Kind::Span { min: Duration::from_secs(1), max: Duration::from_secs(60) };
        assert_eq!(span.read("1m"), Ok(Value::Span(Duration::from_secs(60))));
        for wrong in ["999ms", "61s", "10", "1 m"] {
            assert!(span.read(wrong).is_err(), "{wrong}");
        }
        let number = Kind::Number { min: 1.0, max: 2.0 };
        assert!(number.read("NaN").is_err() && number.read("inf").is_err());
    }

    #[test]
    fn localhost_is_an_address_and_other_host_names_are_not() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        assert_eq!(Kind::Address.read("localhost:80"), Ok(Value::Address(local)));
        assert!(Kind::Address.read("example.org:80").is_err());
        assert!(Kind::Address.read("127.0.0.1").is_err());
    }

    #[test]
    fn sizes_have_a_unit_and_paths_begin_at_the_root() {
        let size = Kind::Size { min: 1 << 20, max: 1 << 30 };
        assert_eq!(size.read("512MB"), Ok(Value::Size(512 << 20)));
        for wrong in ["512", "1KB", "2GB", "", "1 MB"] {
            assert!(size.read(wrong).is_err(), "{wrong}");
        }
        let paths = Value::Paths(vec!["/srv/a b".into(), "/x".into()]);
        assert_eq!(Kind::Paths.read("/srv/a b, /x"), Ok(paths));
        assert_eq!(Kind::Paths.read(""), Ok(Value::Paths(Vec::new())));
        assert!(Kind::Paths.read("/x,relative").is_err());
    }

    #[test]
    fn hosts_have_no_port_and_origins_no_path() {
        let hosts = Value::Texts(vec!["jobs.example".into(), "box".into()]);
        assert_eq!(Kind::Hosts.read("jobs.example, box"), Ok(hosts));
        for wrong in ["jobs.example:80", "http://jobs.example", "a b", "a/b"] {
            assert!(Kind::Hosts.read(wrong).is_err(), "{wrong}");
        }
        let origin = "https://app.example:8443";
        assert_eq!(Kind::Origins.read(origin), Ok(Value::Texts(vec![origin.into()])));
        for wrong in ["app.example", "https://app.example/", "*", "https://App.example", "ftp://a"]
        {
            assert!(Kind::Origins.read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_have_a_prefix_or_are_one_address() {
        let networks = ["10.1.0.0/16", "10.1.2.3", "fd00::/8"];
        let parsed = networks.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(Kind::Networks.read(&networks.join(", ")), Ok(Value::Networks(parsed)));
        for wrong in ["10.0.0.0/33", "example.org", "10.1.2.3/8", "10.1.2.3:80"] {
            assert!(Kind::Networks.read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tenants_are_separated_by_commas_and_checked() {
        let tenants = |names: &[&str]| {
            Value::Tenants(names.iter().map(|name| Tenant::new(name).unwrap()).collect())
        };
        assert_eq!(Kind::Tenants.read(""), Ok(tenants(&[])));
        assert_eq!(Kind::Tenants.read("a, b"), Ok(tenants(&["a", "b"])));
        assert!(Kind::Tenants.read("a,v1").is_err());
    }
}
