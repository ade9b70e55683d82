//! The table of every configuration key: its name, what it takes, its default and its sentence of
//! help. Flags, environment names, the checks, `windlass help serve` and the reference page are
//! all made from this table, so a key exists either everywhere or nowhere.

use std::time::Duration;

use windlass_core::limit::{DURATION_MAX, MEMORY_BYTES_MIN, PROCESSES_MAX, SYSID_MAX};

use super::kind::Kind;

/// Environment names begin with this.
const ENVIRONMENT_PREFIX: &str = "WINDLASS_";

pub(crate) struct Key {
    /// With dots, as in the reference; a dot is a table of the file.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    flag: Flag,
    pub(crate) help: &'static str,
}

/// The flag of `serve` for a key.
enum Flag {
    None,
    /// Called like the key.
    OfName,
    Called(&'static str),
}

pub(crate) enum Default {
    /// Read like a value from the environment.
    Fixed(&'static str),
    /// Found out at start; the words say how.
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

pub(crate) const FAIRNESS: &[&str] = &["tenant", "type"];
pub(crate) const LANDLOCK: &[&str] = &["preferred", "required", "off"];
pub(crate) const LOG_FORMATS: &[&str] = &["auto", "human", "json"];
pub(crate) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug"];

/// Most jobs that one daemon may be told to run at once.
const SLOTS_MAX: u64 = 10_000;
const MIB: u64 = 1024 * 1024;
/// Largest size that is accepted: more than any machine has.
const SIZE_MAX: u64 = 1024 * 1024 * 1024 * MIB;

pub(crate) const KEYS: &[Key] = &[
    Key::new("listen", Kind::Address, "127.0.0.1:7600")
        .with_flag()
        .help("Address and port of the HTTP door; port 0 picks a free one."),
    Key::new("bedrock.listen", Kind::Address, "")
        .computed("no such door")
        .with_flag_called("--bedrock")
        .help(
            "Address and port of the door for clients of Bedrock::Jobs; port 0 picks a free one.",
        ),
    Key::new("bedrock.tenant", Kind::Tenant, "default")
        .help("Whose jobs clients of Bedrock::Jobs work on."),
    Key::new("data_dir", Kind::Text, "windlass-data").with_flag().help(
        "Directory of the journal, of large payloads and of the embedded store; made when it \
         is not there.",
    ),
    Key::new("store", Kind::Store, "")
        .computed("sqlite:<data_dir>/store.db")
        .with_flag()
        .help("Where jobs and handlers are kept: sqlite:PATH."),
    Key::new("insecure", Kind::Switch, "false")
        .with_flag()
        .help("Allow an address that other machines can reach, although there are no API keys."),
    Key::new("sysid", whole(1, SYSID_MAX as u64), "")
        .computed("any free number")
        .with_flag()
        .help("Insist on this daemon number; a number that another daemon holds is refused."),
    Key::new("log.format", Kind::Choice(LOG_FORMATS), "auto").with_flag().help(
        "Form of the log on standard error; auto is human on a terminal and JSON lines \
         otherwise.",
    ),
    Key::new("log.level", Kind::Choice(LOG_LEVELS), "info")
        .with_flag()
        .help("How much is logged; the three lines of each job are info."),
    Key::new("tenants", Kind::Tenants, "").help(
        "Run jobs of these tenants only; empty runs all. Adds are accepted for every tenant.",
    ),
    Key::new("scheduler.fairness", Kind::Choice(FAIRNESS), "tenant").help(
        "How picks are shared out: between tenants and then their types, or between all \
         types alike.",
    ),
    Key::new("scheduler.slots", whole(1, SLOTS_MAX), "")
        .computed("4 for each core, at least 8")
        .help("Batches of jobs that run at once."),
    Key::new("scheduler.slots_reserved", whole(0, SLOTS_MAX), "16").help(
        "Further slots, and as many of contexts.max (at most a quarter of it), only for \
             tenants that have less than tenant_slots_min of them.",
    ),
    Key::new("scheduler.tenant_slots_min", whole(1, SLOTS_MAX), "2")
        .help("Below so many running batches or contexts a tenant may use the reserved ones."),
    Key::new("contexts.max", whole(1, SLOTS_MAX), "64")
        .help("Warm processes of node, python and php that live at once."),
    Key::new("contexts.tenant_max", whole(1, SLOTS_MAX), "32")
        .help("Such processes of one tenant."),
    Key::new("lease.duration", span(MS.saturating_mul(100), HOUR), "10s")
        .help("How long a job stays with a daemon that has died before another one takes it."),
    Key::new("lease.reap_interval", span(MS.saturating_mul(10), HOUR), "1s")
        .help("How often dead leases and overdue jobs are looked for."),
    Key::new("poll.min", span(MS, HOUR), "50ms")
        .help("First pause before the store is looked at again for the work of other daemons."),
    Key::new("poll.max", span(MS, HOUR), "1s")
        .help("Longest such pause, reached while nothing happens."),
    Key::new("retry.delay", span(Duration::ZERO, DURATION_MAX), "10s")
        .help("Pause before the second attempt."),
    Key::new("retry.factor", Kind::Number { min: 1.0, max: 100.0 }, "2.0")
        .help("By this much each pause is longer than the one before."),
    Key::new("retry.delay_max", span(Duration::ZERO, DURATION_MAX), "1h")
        .help("Longest pause between two attempts."),
    Key::new("retry.attempts", whole(1, u32::MAX as u64), "25")
        .help("Attempts in all, the first included."),
    Key::new("retry.age", span(MS, DURATION_MAX), "24h")
        .help("No further attempt when the job has been due for so long."),
    Key::new("job.timeout", span(MS, DURATION_MAX), "120s")
        .help("Time limit of one attempt where neither job, handler nor type has one."),
    Key::new("job.retention", span(Duration::ZERO, DURATION_MAX), "3d")
        .help("How long an ended job is kept."),
    Key::new("job.purge_interval", span(MS.saturating_mul(10), DAY), "30s")
        .help("How often ended jobs past that time are removed."),
    Key::new("job.log_bytes_max", whole(1024, 64 * MIB), "65536")
        .help("Bytes kept of the output of one attempt, from its end."),
    Key::new("isolation.landlock", Kind::Choice(LANDLOCK), "preferred").help(
        "Whether the kernel keeps handlers from files that are not theirs: where it can, or the \
         daemon does not start, or never.",
    ),
    Key::new("isolation.read", Kind::Paths, "")
        .help("Further directories and files that handlers may read and execute."),
    Key::new("isolation.write", Kind::Paths, "")
        .help("Further directories and files that handlers may also write."),
    Key::new("isolation.memory", size(MEMORY_BYTES_MIN), "1GB")
        .help("Memory of each process of a handler that says nothing else."),
    Key::new("isolation.cpu", span(Duration::from_secs(1), DURATION_MAX), "")
        .computed("no limit")
        .help("Processor time of each process of a handler that says nothing else."),
    Key::new("isolation.processes", whole(1, PROCESSES_MAX as u64), "256")
        .help("Processes at the same time of a handler that says nothing else."),
    Key::new("isolation.file_size", size(1), "1GB")
        .help("Largest file that a handler may write that says nothing else."),
    Key::new("journal.segment_bytes_max", whole(64 * 1024, 1024 * MIB), "67108864")
        .help("Size at which the journal begins a new file."),
    Key::new("stop_grace", span(Duration::ZERO, HOUR), "30s")
        .help("How long running jobs may go on at a stop before they are ended and handed back."),
    Key::new("http.body_bytes_max", whole(1024, 1024 * 1024 * MIB), "1073741824")
        .help("Largest body of a request."),
    Key::new("http.header_timeout", span(MS.saturating_mul(100), HOUR), "10s")
        .help("How long a client may take to send the head of a request."),
    Key::new("http.body_timeout", span(MS.saturating_mul(100), HOUR), "60s")
        .help("A request whose body brings no byte for this long is ended."),
    Key::new("http.connections_max", whole(1, 1_000_000), "10000")
        .help("Connections at the same time."),
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
