//! All settings, from four sources: flags override the environment, which overrides the file, which
//! overrides the defaults. Only this module knows the sources; the rest of the binary sees one
//! checked `Config`.

mod file;
mod key;
mod kind;
mod source;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::add::Durable;
use windlass_core::network::Destination;
use windlass_core::time::format_duration;
use windlass_core::{Limits, Maxima, RetryPolicy, Sysid, Tenant};
use windlass_door_bedrock::Network;
use windlass_door_http::tls;
use windlass_engine::Fairness;
use windlass_runner::{Landlock, Level};

use self::file::Settings;
pub(crate) use self::key::{Default, KEYS, Key};
use self::kind::Value;
pub(crate) use self::source::{Error, Source};
pub(crate) use self::store::StorePlace;
use crate::secrets;

/// Names the configuration file.
pub(crate) const CONFIG_ENVIRONMENT: &str = "WINDLASS_CONFIG";

/// Default number of slots per core, and its minimum.
const SLOTS_PER_CORE: usize = 4;
const SLOTS_MIN: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// The HTTP door speaks TLS if there is a certificate.
    pub(crate) tls: Option<tls::Files>,
    pub(crate) bedrock: Bedrock,
    pub(crate) data_dir: PathBuf,
    pub(crate) store: StorePlace,
    /// The file with the keys of secrets.
    pub(crate) secrets_key_file: PathBuf,
    pub(crate) insecure: bool,
    pub(crate) sysid: Option<Sysid>,
    pub(crate) log: Log,
    /// What the answer to an add promises.
    pub(crate) accept: Durable,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) scheduler: Scheduler,
    pub(crate) contexts: Contexts,
    pub(crate) lease: Lease,
    pub(crate) poll: Poll,
    pub(crate) retry: RetryPolicy,
    pub(crate) job: Job,
    pub(crate) isolation: Isolation,
    pub(crate) maxima: Maxima,
    pub(crate) audit_retention: Duration,
    pub(crate) journal_segment_bytes_max: u64,
    pub(crate) stop_grace: Duration,
    pub(crate) http: Http,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bedrock {
    /// The door is open only if it has an address.
    pub(crate) listen: Option<SocketAddr>,
    /// Clients on other machines that may connect.
    pub(crate) allow: Vec<Network>,
    pub(crate) tenant: Tenant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: tracing::Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON lines otherwise.
    Auto,
    Human,
    Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scheduler {
    pub(crate) fairness: Fairness,
    pub(crate) slots: usize,
    pub(crate) slots_reserved: usize,
    pub(crate) tenant_slots_min: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contexts {
    pub(crate) max: usize,
    pub(crate) tenant_max: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lease {
    pub(crate) duration: Duration,
    pub(crate) reap_interval: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Poll {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) purge_interval: Duration,
    pub(crate) log_bytes_max: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Isolation {
    pub(crate) level: Level,
    pub(crate) landlock: Landlock,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) network_allow: Vec<Destination>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Http {
    pub(crate) body_bytes_max: u64,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) connections_max: usize,
    /// Names of this server, besides addresses and the machine's own name.
    pub(crate) hosts: Vec<String>,
    /// Sites whose web pages may use it.
    pub(crate) origins: Vec<String>,
    /// Clients that may read the metrics without a key.
    pub(crate) metrics_allow: Vec<Network>,
}

impl Http {
    fn of(of: &Resolved<'_>) -> Http {
        Http {
            body_bytes_max: of.whole("http.body_bytes_max"),
            header_timeout: of.span("http.header_timeout"),
            body_timeout: of.span("http.body_timeout"),
            connections_max: of.whole("http.connections_max") as usize,
            hosts: of.texts("http.hosts"),
            origins: of.texts("http.origins"),
            metrics_allow: of.networks("http.metrics_allow"),
        }
    }
}

/// The inputs of the process, gathered once so that everything below is a pure function.
pub(crate) struct Inputs<'a> {
    /// Name of a key and the text of its flag.
    pub(crate) flags: Vec<(&'static str, String)>,
    pub(crate) config_flag: Option<&'a Path>,
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) cores: usize,
}

impl Config {
    pub(crate) fn load(inputs: &Inputs<'_>) -> Result<Config, Error> {
        let from_environment = (inputs.environment)(CONFIG_ENVIRONMENT).map(PathBuf::from);
        let named = inputs.config_flag.or(from_environment.as_deref());
        Config::merge(inputs, file::read(named)?)
    }

    /// The defaults.
    pub(crate) fn defaults(cores: usize) -> Config {
        let nothing = |_: &str| None;
        let inputs = Inputs { flags: Vec::new(), config_flag: None, environment: &nothing, cores };
        Config::merge(&inputs, Settings::new()).expect("the defaults are accepted")
    }

    fn merge(inputs: &Inputs<'_>, mut settings: Settings) -> Result<Config, Error> {
        for key in KEYS {
            let environment = key.environment();
            let (text, source) = if let Some(text) = flag_of(key, &inputs.flags) {
                (text.to_owned(), Source::Flag(key.flag().expect("it was given by its flag")))
            } else if let Some(text) = (inputs.environment)(&environment) {
                (text, Source::Environment(environment))
            } else if settings.contains_key(key.name) {
                continue;
            } else if let Default::Fixed(text) = key.default {
                (text.to_owned(), Source::Default)
            } else {
                continue;
            };
            let value = key.kind.read(&text).map_err(|wrong| Error::value(key, &source, &wrong))?;
            settings.insert(key.name, (value, source));
        }
        let config = Config::build(&Resolved(&settings), inputs.cores);
        config.check(&settings)?;
        Ok(config)
    }

    fn build(of: &Resolved<'_>, cores: usize) -> Config {
        let data_dir = PathBuf::from(of.text("data_dir"));
        let maxima = maxima(of);
        let slots_default = (SLOTS_PER_CORE * cores).max(SLOTS_MIN);
        Config {
            listen: of.address("listen"),
            tls: tls_files(of),
            bedrock: Bedrock {
                listen: of.address_if_set("bedrock.listen"),
                allow: of.networks("bedrock.allow"),
                tenant: of.tenant("bedrock.tenant"),
            },
            store: of.store("store").unwrap_or_else(|| StorePlace::File(data_dir.join("store.db"))),
            secrets_key_file: of
                .text_if_set("secrets.key_file")
                .map_or_else(|| data_dir.join(secrets::FILE), PathBuf::from),
            data_dir,
            insecure: of.switch("insecure"),
            sysid: of.whole_if_set("sysid").and_then(|number| Sysid::new(number as u16)),
            log: Log {
                format: log_format(of.text("log.format")),
                level: level(of.text("log.level")),
            },
            tenants: of.tenants("tenants"),
            // The table has no other words.
            accept: Durable::parse(of.text("accept")).unwrap_or_default(),
            scheduler: Scheduler {
                fairness: fairness(of.text("scheduler.fairness")),
                slots: of.whole_if_set("scheduler.slots").map_or(slots_default, |n| n as usize),
                slots_reserved: of.whole("scheduler.slots_reserved") as usize,
                tenant_slots_min: of.whole("scheduler.tenant_slots_min") as usize,
            },
            contexts: Contexts {
                max: of.whole("contexts.max") as usize,
                tenant_max: of.whole("contexts.tenant_max") as usize,
            },
            lease: Lease {
                duration: of.span("lease.duration"),
                reap_interval: of.span("lease.reap_interval"),
            },
            poll: Poll { min: of.span("poll.min"), max: of.span("poll.max") },
            retry: RetryPolicy {
                delay: of.span("retry.delay"),
                factor: of.number("retry.factor"),
                delay_max: of.span("retry.delay_max"),
                attempts: of.whole("retry.attempts") as u32,
                age: of.span("retry.age"),
            },
            job: Job {
                timeout: of.span("job.timeout").min(maxima.timeout),
                retention: of.span("job.retention").min(maxima.retention),
                purge_interval: of.span("job.purge_interval"),
                log_bytes_max: of.whole("job.log_bytes_max") as usize,
            },
            isolation: Isolation {
                level: level_of_isolation(of.text("isolation.level")),
                landlock: landlock(of.text("isolation.landlock")),
                read: of.paths("isolation.read"),
                write: of.paths("isolation.write"),
                limits: default_limits(of, &maxima),
                network_allow: of.destinations("isolation.network.allow"),
            },
            maxima,
            audit_retention: of.span("audit.retention"),
            journal_segment_bytes_max: of.whole("journal.segment_bytes_max"),
            stop_grace: of.span("stop_grace"),
            http: Http::of(of),
        }
    }

    /// The rules that bind two keys together.
    fn check(&self, settings: &Settings) -> Result<(), Error> {
        if self.poll.min > self.poll.max {
            let sources = [&settings["poll.min"].1, &settings["poll.max"].1];
            let chosen = sources.into_iter().find(|source| **source != Source::Default);
            let source = chosen.expect("the defaults do not contradict each other");
            let [min, max] = [self.poll.min, self.poll.max].map(format_duration);
            let rule = format!("poll.min ({min}) may not be longer than poll.max ({max})");
            return Err(Error::rule(source, &rule));
        }
        for (key, paths) in
            [("isolation.read", &self.isolation.read), ("isolation.write", &self.isolation.write)]
        {
            // Reading the store means reading every tenant's jobs.
            let opened = paths.iter().find(|path| {
                let key = self.tls.as_ref().map(|tls| tls.key.as_path());
                let ours = [self.data_dir.as_path(), &self.secrets_key_file];
                ours.into_iter()
                    .chain(self.store.file())
                    .chain(key)
                    .flat_map(std::path::absolute)
                    .any(|own| own.starts_with(path) || path.starts_with(own))
            });
            if let Some(path) = opened.filter(|_| self.isolation.landlock != Landlock::Off) {
                let path = path.display();
                let rule = format!("{key} allows {path}, which holds the daemon's own data");
                return Err(Error::rule(&settings[key].1, &rule));
            }
        }
        self.check_tls(settings)?;
        self.check_reach(settings)
    }

    fn check_tls(&self, settings: &Settings) -> Result<(), Error> {
        let is_set = |name: &str| settings.contains_key(name);
        for (name, needed) in
            [("tls.cert", "tls.key"), ("tls.key", "tls.cert"), ("tls.client_ca", "tls.cert")]
        {
            if is_set(name) && !is_set(needed) {
                let rule = format!("{name} is set, but {needed} is not; TLS needs both");
                return Err(Error::rule(&settings[name].1, &rule));
            }
        }
        Ok(())
    }

    /// Doors that other machines can reach.
    fn check_reach(&self, settings: &Settings) -> Result<(), Error> {
        let is_reached = |listen: &SocketAddr| !listen.ip().is_loopback();
        if is_reached(&self.listen) && self.tls.is_none() && !self.insecure {
            let (listen, port) = (self.listen, self.listen.port());
            let rule = format!(
                "{listen} can be reached from other machines, and without TLS keys would travel \
                 there in plain text; set tls.cert and tls.key, listen on a loopback address such \
                 as 127.0.0.1:{port}, or use --insecure, which switches keys off"
            );
            return Err(Error::rule(&settings["listen"].1, &rule));
        }
        let bedrock = self.bedrock.listen.filter(is_reached);
        if let Some(listen) = bedrock.filter(|_| self.bedrock.allow.is_empty()) {
            let port = listen.port();
            let rule = format!(
                "{listen} can be reached from other machines, and Bedrock's protocol has no \
                 passwords; list the networks of its clients in bedrock.allow, or listen on a \
                 loopback address such as 127.0.0.1:{port}"
            );
            return Err(Error::rule(&settings["bedrock.listen"].1, &rule));
        }
        Ok(())
    }
}

/// Variables for the commands that talk to a daemon.
const OTHER_ENVIRONMENT: [&str; 7] = [
    CONFIG_ENVIRONMENT,
    "WINDLASS_URL",
    "WINDLASS_TENANT",
    "WINDLASS_KEY",
    "WINDLASS_CA",
    "WINDLASS_CERT",
    "WINDLASS_CERT_KEY",
];
/// Maximum edit distance of a misspelt variable.
const MISSPELT_MAX: usize = 2;

/// The variable that a misspelt one probably means. Other variables with our prefix are ignored:
/// Kubernetes and others set some.
pub(crate) fn misspelt(variable: &str) -> Option<String> {
    let known: Vec<_> = KEYS.iter().map(Key::environment).collect();
    if known.iter().any(|name| name == variable) || OTHER_ENVIRONMENT.contains(&variable) {
        return None;
    }
    let near = |name: &String| strsim::osa_distance(name, variable) <= MISSPELT_MAX;
    known.into_iter().find(near)
}

fn flag_of<'a>(key: &Key, flags: &'a [(&'static str, String)]) -> Option<&'a str> {
    flags.iter().find(|(name, _)| *name == key.name).map(|(_, text)| text.as_str())
}

fn log_format(word: &str) -> LogFormat {
    match word {
        "human" => LogFormat::Human,
        "json" => LogFormat::Json,
        _ => LogFormat::Auto,
    }
}

fn level_of_isolation(word: &str) -> Level {
    match word {
        "required" => Level::Required,
        "off" => Level::Off,
        _ => Level::Auto,
    }
}

fn maxima(of: &Resolved<'_>) -> Maxima {
    Maxima {
        timeout: of.span("job.timeout_max"),
        retention: of.span("job.retention_max"),
        lease: of.span("lease.worker_max"),
        batch: of.whole("job.batch_max") as u32,
        contexts: of.whole("contexts.handler_max") as u32,
        idle: of.span("contexts.idle_max"),
        limits: Limits {
            memory: Some(of.size("isolation.memory_max")),
            cpu: of.span_if_set("isolation.cpu_max"),
            processes: Some(of.whole("isolation.processes_max") as u32),
            file_size: Some(of.size("isolation.file_size_max")),
            scratch: Some(of.size("isolation.scratch_max")),
        },
    }
}

/// The limits of handlers that set none. None is above its maximum.
fn default_limits(of: &Resolved<'_>, maxima: &Maxima) -> Limits {
    let mut limits = Limits {
        memory: Some(of.size("isolation.memory")),
        cpu: of.span_if_set("isolation.cpu").or(maxima.limits.cpu),
        processes: Some(of.whole("isolation.processes") as u32),
        file_size: Some(of.size("isolation.file_size")),
        scratch: Some(of.size("isolation.scratch")),
    };
    maxima.lower_limits(&mut limits);
    limits
}

/// One without the other is refused by `check_tls`.
fn tls_files(of: &Resolved<'_>) -> Option<tls::Files> {
    let file = |name| of.text_if_set(name).map(PathBuf::from);
    let (cert, key) = (file("tls.cert")?, file("tls.key")?);
    Some(tls::Files { cert, key, client_ca: file("tls.client_ca") })
}

fn landlock(word: &str) -> Landlock {
    match word {
        "required" => Landlock::Required,
        "off" => Landlock::Off,
        _ => Landlock::Preferred,
    }
}

fn level(word: &str) -> tracing::Level {
    word.parse().expect("the table lists only words that tracing knows")
}

fn fairness(word: &str) -> Fairness {
    match word {
        "draw" => Fairness::Draw,
        "type" => Fairness::Type,
        _ => Fairness::Tenant,
    }
}

/// Final values by name. A key with the wrong kind is a bug in the table, which every start would
/// show.
struct Resolved<'a>(&'a Settings);

macro_rules! values_of_kind {
    ($($method:ident, $variant:ident, $type:ty;)*) => {
        impl Resolved<'_> {$(
            fn $method(&self, name: &str) -> $type {
                match self.0.get(name) {
                    Some((Value::$variant(value), _)) => value.clone(),
                    _ => panic!("the key {name} is in the table, with this kind and a default"),
                }
            }
        )*}
    };
}
values_of_kind! {
    switch, Switch, bool;
    whole, Whole, u64;
    number, Number, f64;
    span, Span, Duration;
    address, Address, SocketAddr;
    tenant, Tenant, Tenant;
    tenants, Tenants, Vec<Tenant>;
    size, Size, u64;
    paths, Paths, Vec<PathBuf>;
    texts, Texts, Vec<String>;
    destinations, Destinations, Vec<Destination>;
    networks, Networks, Vec<Network>;
}

impl Resolved<'_> {
    fn text(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some((Value::Text(text), _)) => text,
            _ => panic!("the key {name} is in the table, with this kind and a default"),
        }
    }

    fn text_if_set(&self, name: &str) -> Option<&str> {
        self.0.contains_key(name).then(|| self.text(name))
    }

    fn whole_if_set(&self, name: &str) -> Option<u64> {
        self.0.contains_key(name).then(|| self.whole(name))
    }

    fn address_if_set(&self, name: &str) -> Option<SocketAddr> {
        self.0.contains_key(name).then(|| self.address(name))
    }

    fn span_if_set(&self, name: &str) -> Option<Duration> {
        self.0.contains_key(name).then(|| self.span(name))
    }

    fn store(&self, name: &str) -> Option<StorePlace> {
        match self.0.get(name) {
            Some((Value::Store(place), _)) => Some(place.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
