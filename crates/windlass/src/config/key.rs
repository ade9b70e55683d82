//! The table of all configuration keys: name, accepted values, default and help text. Flags,
//! environment variables, checks, `windlass help serve` and the reference page are all generated
//! from this table, so a key exists either everywhere or nowhere.

use std::time::Duration;

use windlass_core::add::Durable;
use windlass_core::limit::{
    BATCH, CONTEXTS, DURATION_MAX, MEMORY_BYTES_MIN, PROCESSES_MAX, SCRATCH_BYTES_MIN, SYSID_MAX,
};

use super::kind::Kind;

/// Prefix of all environment variables.
const ENVIRONMENT_PREFIX: &str = "WINDLASS_";

pub(crate) struct Key {
    /// Dotted, as in the reference; a dot is a table in the file.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    flag: Flag,
    pub(crate) help: &'static str,
}

/// The flag of `serve` for a key.
enum Flag {
    None,
    /// Named after the key.
    OfName,
    Called(&'static str),
}

pub(crate) enum Default {
    /// Parsed like a value from the environment.
    Fixed(&'static str),
    /// Determined at start; the text says how.
    Computed(&'static str),
}

impl Key {
    pub(crate) fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    pub(crate) fn flag(&self) -> Option<String> {
        match self.flag {
            Flag::None => None,
            Flag::OfName => Some(format!("--{}", self.name.replace(['.', '_'], "-"))),
            Flag::Called(name) => Some(name.to_owned()),
        }
    }

    pub(crate) fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    const fn new(name: &'static str, kind: Kind, default: &'static str) -> Key {
        Key { name, kind, default: Default::Fixed(default), flag: Flag::None, help: "" }
    }

    const fn help(mut self, help: &'static str) -> Key {
        self.help = help;
        self
    }

    const fn computed(mut self, how: &'static str) -> Key {
        self.default = Default::Computed(how);
        self
    }

    const fn with_flag(mut self) -> Key {
        self.flag = Flag::OfName;
        self
    }

    const fn with_flag_called(mut self, name: &'static str) -> Key {
        self.flag = Flag::Called(name);
        self
    }
}

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

const fn span(min: Duration, max: Duration) -> Kind {
    Kind::Span { min, max }
}

const fn whole(min: u64, max: u64) -> Kind {
    Kind::Whole { min, max }
}

const fn size(min: u64) -> Kind {
    Kind::Size { min, max: SIZE_MAX }
}

pub(crate) const FAIRNESS: &[&str] = &["tenant", "draw", "type"];
pub(crate) const ISOLATION_LEVELS: &[&str] = &["auto", "required", "off"];
pub(crate) const LANDLOCK: &[&str] = &["preferred", "required", "off"];
pub(crate) const LOG_FORMATS: &[&str] = &["auto", "human", "json"];
pub(crate) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug"];

/// The audit grows with every change, so it is not kept for ever.
const AUDIT_RETENTION_MAX: Duration = DAY.saturating_mul(1830);
/// Upper bound for the slots of one daemon.
const SLOTS_MAX: u64 = 10_000;
const MIB: u64 = 1024 * 1024;
/// Largest accepted size: more than any machine has.
const SIZE_MAX: u64 = 1024 * 1024 * 1024 * MIB;

pub(crate) const KEYS: &[Key] = &[
    Key::new("listen", Kind::Address, "127.0.0.1:7600")
        .with_flag()
        .help("Address and port of the HTTP door; port 0 picks a free one."),
    Key::new("tls.cert", Kind::File, "").computed("no TLS").with_flag().help(
        "Certificate of the HTTP door, and behind it those that lead to a known one, in PEM. \
         With it, all clients of the HTTP door speak TLS. Loaded again when the file changes.",
    ),
    Key::new("tls.key", Kind::File, "")
        .computed("none")
        .with_flag()
        .help("Private key of tls.cert, in PEM; a file that not every user can read."),
    Key::new("tls.client_ca", Kind::File, "")
        .computed("clients need no certificate")
        .with_flag()
        .help("Certificates in PEM; clients need one that one of these has signed (mutual TLS)."),
    Key::new("bedrock.listen", Kind::Address, "")
        .computed("disabled")
        .with_flag_called("--bedrock")
        .help("Address and port for clients of Bedrock::Jobs; port 0 picks a free one."),
    Key::new("bedrock.allow", Kind::Networks, "").help(
        "Networks and addresses whose clients may use the Bedrock door, such as 10.1.0.0/16, \
         besides this machine; others are disconnected. An address of bedrock.listen that other \
         machines can reach needs it: the protocol has no passwords.",
    ),
    Key::new("bedrock.tenant", Kind::Tenant, "default")
        .help("Tenant of all jobs of Bedrock::Jobs clients."),
    Key::new("data_dir", Kind::Text, "windlass-data").with_flag().help(
        "Directory for the journal, large payloads and the embedded store; created if missing.",
    ),
    Key::new("store", Kind::Store, "").computed("sqlite:<data_dir>/store.db").with_flag().help(
        "Store for jobs and handlers: a file (sqlite:PATH), or a PostgreSQL database that daemons \
         on several machines share. Keep a URL with a password out of the command line, which \
         other users can see: use the file or the environment.",
    ),
    Key::new("secrets.key_file", Kind::Text, "").computed("<data_dir>/secrets.key").help(
        "File with the keys that encrypt secrets; made if missing. Keep a copy outside of the \
         backups.",
    ),
    Key::new("insecure", Kind::Switch, "false").with_flag().help(
        "Switch API keys off: everybody who reaches the daemon may use it. Without TLS, needed to \
         listen on an address that other machines can reach.",
    ),
    Key::new("accept", Kind::Choice(Durable::WORDS), "journal").with_flag().help(
        "Where jobs are on disk when their add is answered: in this daemon's journal, or in the \
         store, which survives the loss of this machine; then adds need the store.",
    ),
    Key::new("sysid", whole(1, SYSID_MAX as u64), "")
        .computed("any free number")
        .with_flag()
        .help("Use this daemon number; the start fails if another daemon holds it."),
    Key::new("log.format", Kind::Choice(LOG_FORMATS), "auto").with_flag().help(
        "Format of the log on standard error; auto means human on a terminal and JSON lines \
         otherwise.",
    ),
    Key::new("log.level", Kind::Choice(LOG_LEVELS), "info")
        .with_flag()
        .help("Log level; each job logs three lines at level info."),
    Key::new("tenants", Kind::Tenants, "").help(
        "Run jobs of these tenants only; empty runs all. Adds are accepted for every tenant.",
    ),
    Key::new("scheduler.fairness", Kind::Choice(FAIRNESS), "tenant").help(
        "What gets an equal share: each tenant by the time of slots that it used, each tenant \
             in a random draw, or each type in a random draw.",
    ),
    Key::new("scheduler.slots", whole(1, SLOTS_MAX), "")
        .computed("4 per core, at least 8")
        .help("Maximum number of batches that run at the same time."),
    Key::new("scheduler.slots_reserved", whole(0, SLOTS_MAX), "256").help(
        "Additional slots and contexts for tenants that use fewer than tenant_slots_min: however \
         many jobs of other tenants hang, a tenant's first job finds one.",
    ),
    Key::new("scheduler.tenant_slots_min", whole(1, SLOTS_MAX), "1").help(
        "Tenants with fewer running batches or contexts than this may use the reserved ones.",
    ),
    Key::new("contexts.max", whole(1, SLOTS_MAX), "64").help(
        "Maximum number of warm node, python and php processes (contexts), without reserved ones.",
    ),
    Key::new("contexts.tenant_max", whole(1, SLOTS_MAX), "32")
        .help("Maximum number of contexts of one tenant."),
    Key::new("contexts.handler_max", whole(1, CONTEXTS.max as u64), "100")
        .help("Largest options.contexts of a handler."),
    Key::new("contexts.idle_max", span(Duration::ZERO, DURATION_MAX), "24h")
        .help("Longest options.idle of a handler."),
    Key::new("lease.duration", span(MS.saturating_mul(100), HOUR), "10s")
        .help("How long the jobs of a dead daemon stay leased before another daemon takes them."),
    Key::new("lease.worker_max", span(MS.saturating_mul(1000), DURATION_MAX), "24h")
        .help("Longest lease that a pull worker may ask for."),
    Key::new("lease.reap_interval", span(MS.saturating_mul(10), HOUR), "1s")
        .help("How often to look for expired leases and overdue jobs."),
    Key::new("poll.min", span(MS, HOUR), "50ms")
        .help("Shortest interval at which the store is polled for changes by other daemons."),
    Key::new("poll.max", span(MS, HOUR), "1s")
        .help("Longest polling interval, used while the queue is idle."),
    Key::new("retry.delay", span(Duration::ZERO, DURATION_MAX), "10s")
        .help("Delay before the second attempt."),
    Key::new("retry.factor", Kind::Number { min: 1.0, max: 100.0 }, "2.0")
        .help("Factor by which each delay grows."),
    Key::new("retry.delay_max", span(Duration::ZERO, DURATION_MAX), "1h")
        .help("Longest delay between two attempts."),
    Key::new("retry.attempts", whole(1, u32::MAX as u64), "25")
        .help("Maximum number of attempts, including the first."),
    Key::new("retry.age", span(MS, DURATION_MAX), "24h")
        .help("No more attempts once the job has been due for this long."),
    Key::new("job.timeout", span(MS, DURATION_MAX), "120s").help(
        "Default time limit of one attempt, unless the job, the handler or the type sets one.",
    ),
    Key::new("job.timeout_max", span(MS, DURATION_MAX), "24h")
        .help("Longest time limit that a job, a handler or a type may set."),
    Key::new("job.batch_max", whole(1, BATCH.max as u64), "1000")
        .help("Largest options.batch of a handler."),
    Key::new("job.retention", span(Duration::ZERO, DURATION_MAX), "3d")
        .help("How long a job is kept after it has ended."),
    Key::new("job.retention_max", span(Duration::ZERO, DURATION_MAX), "365d")
        .help("Longest retention that a type may set."),
    Key::new("job.purge_interval", span(MS.saturating_mul(10), DAY), "30s")
        .help("How often expired jobs are removed."),
    Key::new("job.log_bytes_max", whole(1024, 64 * MIB), "65536")
        .help("How many bytes of each attempt's output to keep, counted from its end."),
    Key::new("audit.retention", span(MS.saturating_mul(1000), AUDIT_RETENTION_MAX), "90d")
        .help("How long entries of the audit are kept."),
    Key::new("isolation.level", Kind::Choice(ISOLATION_LEVELS), "auto").help(
        "How handlers are isolated: with every layer that this machine allows (auto), with \
         namespaces, system call filters and network policy or not at all (required: the daemon \
         refuses to start without them), or as bare processes, for development (off).",
    ),
    Key::new("isolation.landlock", Kind::Choice(LANDLOCK), "preferred").help(
        "Restrict handlers' file access with Landlock: if the kernel supports it (preferred), \
         always (required: the daemon refuses to start without it), or never (off).",
    ),
    Key::new("isolation.read", Kind::Paths, "")
        .help("Additional directories and files that handlers may read and execute."),
    Key::new("isolation.write", Kind::Paths, "")
        .help("Additional directories and files that handlers may read, execute and write."),
    Key::new("isolation.memory", size(MEMORY_BYTES_MIN), "1GB").help(
        "Default memory limit of each handler process, and of all processes of a handler \
             together.",
    ),
    Key::new("isolation.memory_max", size(MEMORY_BYTES_MIN), "4GB")
        .help("Largest options.memory of a handler."),
    Key::new("isolation.cpu", span(Duration::from_secs(1), DURATION_MAX), "")
        .computed("no limit")
        .help("Default CPU time limit of each handler process."),
    Key::new("isolation.cpu_max", span(Duration::from_secs(1), DURATION_MAX), "")
        .computed("no limit")
        .help("Longest options.cpu of a handler; if set, also the limit of handlers without one."),
    Key::new("isolation.processes", whole(1, PROCESSES_MAX as u64), "256")
        .help("Default maximum number of simultaneous processes of a handler."),
    Key::new("isolation.processes_max", whole(1, PROCESSES_MAX as u64), "4096")
        .help("Largest options.processes of a handler."),
    Key::new("isolation.file_size", size(1), "1GB").help("Default maximum file size for handlers."),
    Key::new("isolation.file_size_max", size(1), "16GB")
        .help("Largest options.file_size of a handler."),
    Key::new("isolation.scratch", size(SCRATCH_BYTES_MIN), "256MB")
        .help("Default size of the private space that a handler may write to."),
    Key::new("isolation.scratch_max", size(SCRATCH_BYTES_MIN), "4GB")
        .help("Largest options.scratch of a handler."),
    Key::new("isolation.network.allow", Kind::Destinations, "").help(
        "What handlers may connect to besides public addresses. Without a port, an entry opens all \
         ports except the daemon's own.",
    ),
    Key::new("journal.segment_bytes_max", whole(64 * 1024, 1024 * MIB), "67108864")
        .help("Size at which the journal starts a new file."),
    Key::new("stop_grace", span(Duration::ZERO, HOUR), "30s").help(
        "How long running jobs may take to end on shutdown before they are stopped and requeued.",
    ),
    Key::new("http.body_bytes_max", whole(1024, 1024 * 1024 * MIB), "1073741824")
        .help("Maximum size of a request body, in bytes."),
    Key::new("http.header_timeout", span(MS.saturating_mul(100), HOUR), "10s")
        .help("How long a client may take for the TLS handshake, and to send the request head."),
    Key::new("http.body_timeout", span(MS.saturating_mul(100), HOUR), "60s")
        .help("Requests whose body makes no progress for this long are aborted."),
    Key::new("http.connections_max", whole(1, 1_000_000), "10000")
        .help("Maximum number of simultaneous connections."),
    Key::new("http.hosts", Kind::Hosts, "").help(
        "Names under which clients call the HTTP door, besides IP addresses, localhost and the \
         machine's own name. Requests for other names are refused.",
    ),
    Key::new("http.origins", Kind::Origins, "").help(
        "Sites whose web pages may use the HTTP door from a browser, such as https://app.example.",
    ),
    Key::new("http.metrics_allow", Kind::Networks, "").help(
        "Networks and addresses that may read /metrics without a key. Behind a proxy, the address \
         of every client is that of the proxy.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_flags_and_environment_names_follow_from_each_other() {
        let key = Key::find("log.format").unwrap();
        assert_eq!(key.flag().as_deref(), Some("--log-format"));
        assert_eq!(key.environment(), "WINDLASS_LOG_FORMAT");
        assert_eq!(Key::find("scheduler.slots").unwrap().flag(), None);
    }

    #[test]
    fn every_fixed_default_is_a_value_that_the_key_takes() {
        for key in KEYS {
            if let Default::Fixed(text) = key.default {
                assert!(key.kind.read(text).is_ok(), "{}", key.name);
            }
        }
    }

    #[test]
    fn no_two_keys_share_an_environment_name() {
        let mut names: Vec<_> = KEYS.iter().map(Key::environment).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }
}
