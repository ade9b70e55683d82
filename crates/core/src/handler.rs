//! How a type is run (its handler) and how its jobs are treated (its settings).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::id::JobId;
use crate::limit::{
    BATCH, CONCURRENCY, CONTEXT_JOBS, CONTEXTS, CPU, FILE_SIZE, HANDLER_BYTES_MAX,
    HANDLER_SECRETS_MAX, IDLE, MEMORY, PROCESSES, RATE, RETENTION, SCRATCH, TIMEOUT, WEIGHT,
};
use crate::name::{Invalid, TypeKey};
use crate::network::Network;
use crate::retry::RetryPolicy;
use crate::secret::SecretName;
use crate::time::Timestamp;

/// Names one version of one handler; made by the same generator as job ids.
pub type HandlerId = JobId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lang {
    Node,
    Python,
    Php,
    Sh,
    Exec,
    Http,
}

impl Lang {
    pub const ALL: [Lang; 6] =
        [Lang::Node, Lang::Python, Lang::Php, Lang::Sh, Lang::Exec, Lang::Http];

    pub fn as_str(self) -> &'static str {
        match self {
            Lang::Node => "node",
            Lang::Python => "python",
            Lang::Php => "php",
            Lang::Sh => "sh",
            Lang::Exec => "exec",
            Lang::Http => "http",
        }
    }

    pub fn parse(name: &str) -> Result<Lang, Invalid> {
        Lang::ALL.into_iter().find(|lang| lang.as_str() == name).ok_or_else(|| {
            let known: Vec<_> = Lang::ALL.iter().map(|lang| lang.as_str()).collect();
            Invalid::new("lang", format!("'{name}' is not one of {}", known.join(", ")))
        })
    }
}

impl fmt::Display for Lang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A handler as a client defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerSpec {
    pub lang: Lang,
    /// Source, URL or command line.
    pub body: String,
    /// Runs once when a context starts.
    pub before: Option<String>,
    /// Runs before each batch.
    pub before_each: Option<String>,
    /// Runs after each batch.
    pub after_each: Option<String>,
    /// Handlers of one tenant with equal `lang` and `eid` share contexts.
    pub eid: Option<String>,
    pub options: HandlerOptions,
}

/// Absent values default to the type's settings, then to the daemon's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HandlerOptions {
    pub timeout: Option<Duration>,
    pub batch: Option<u32>,
    pub contexts: Option<u32>,
    pub context_jobs: Option<u32>,
    pub idle: Option<Duration>,
    pub env: BTreeMap<String, String>,
    /// Secrets of the tenant that become environment variables.
    pub secrets: Vec<SecretName>,
    pub retry: Option<RetryPolicy>,
    pub limits: Limits,
    /// What it may connect to; `Public` when absent.
    pub network: Option<Network>,
}

/// Resource limits of a handler's processes. Absent values default to the daemon's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Memory of each process, in bytes.
    pub memory: Option<u64>,
    /// Processor time of each process.
    pub cpu: Option<Duration>,
    /// Processes at the same time.
    pub processes: Option<u32>,
    /// Bytes of the largest file that may be written.
    pub file_size: Option<u64>,
    /// Bytes of the private space that may be written to.
    pub scratch: Option<u64>,
}

impl Limits {
    /// Refuses limits under which no process can start: every attempt would fail without an
    /// explanation.
    pub fn check(&self) -> Result<(), Invalid> {
        MEMORY.check_if_set("options.memory", self.memory)?;
        CPU.check_if_set("options.cpu", self.cpu)?;
        PROCESSES.check_if_set("options.processes", self.processes)?;
        FILE_SIZE.check_if_set("options.file_size", self.file_size)?;
        SCRATCH.check_if_set("options.scratch", self.scratch)
    }

    fn clamp(&mut self) {
        self.memory = self.memory.map(|bytes| MEMORY.clamp(bytes));
        self.cpu = self.cpu.map(|cpu| CPU.clamp(cpu));
        self.processes = self.processes.map(|number| PROCESSES.clamp(number));
        self.file_size = self.file_size.map(|bytes| FILE_SIZE.clamp(bytes));
        self.scratch = self.scratch.map(|bytes| SCRATCH.clamp(bytes));
    }
}

impl HandlerOptions {
    pub fn check(&self) -> Result<(), Invalid> {
        TIMEOUT.check_if_set("options.timeout", self.timeout)?;
        BATCH.check_if_set("options.batch", self.batch)?;
        CONTEXTS.check_if_set("options.contexts", self.contexts)?;
        CONTEXT_JOBS.check_if_set("options.context_jobs", self.context_jobs)?;
        IDLE.check_if_set("options.idle", self.idle)?;
        self.retry.as_ref().map_or(Ok(()), |retry| retry.check("options.retry"))?;
        let ours = self.env.keys().find(|name| {
            name.is_empty() || name.contains(['=', '\0']) || name.starts_with("WINDLASS_")
        });
        if let Some(name) = ours {
            let reason = format!("'{name}' is empty, has '=' or begins with WINDLASS_");
            return Err(Invalid::new("options.env", reason));
        }
        self.check_secrets()?;
        self.network.as_ref().map_or(Ok(()), Network::check)?;
        self.limits.check()
    }

    fn check_secrets(&self) -> Result<(), Invalid> {
        let invalid = |reason: String| Err(Invalid::new("options.secrets", reason));
        if self.secrets.len() > HANDLER_SECRETS_MAX {
            return invalid(format!("a handler has at most {HANDLER_SECRETS_MAX} secrets"));
        }
        for (at, name) in self.secrets.iter().enumerate() {
            if self.secrets[..at].contains(name) {
                return invalid(format!("{name} is named twice"));
            }
            if self.env.contains_key(name.as_str()) {
                return invalid(format!("{name} is set in options.env, too"));
            }
        }
        Ok(())
    }

    /// The options with every number clamped to its range, for values from a store.
    pub fn clamped(mut self) -> HandlerOptions {
        self.timeout = self.timeout.map(|timeout| TIMEOUT.clamp(timeout));
        self.batch = self.batch.map(|jobs| BATCH.clamp(jobs));
        self.contexts = self.contexts.map(|number| CONTEXTS.clamp(number));
        self.context_jobs = self.context_jobs.map(|jobs| CONTEXT_JOBS.clamp(jobs));
        self.idle = self.idle.map(|idle| IDLE.clamp(idle));
        self.retry = self.retry.map(RetryPolicy::clamped);
        self.limits.clamp();
        self
    }
}

impl HandlerSpec {
    /// A handler with only the required fields.
    pub fn new(lang: Lang, body: impl Into<String>) -> HandlerSpec {
        HandlerSpec {
            lang,
            body: body.into(),
            before: None,
            before_each: None,
            after_each: None,
            eid: None,
            options: HandlerOptions::default(),
        }
    }

    /// The rules that hold for every language; a runner adds its own.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.body.trim().is_empty() {
            return Err(Invalid::new("body", "a handler's body must not be empty"));
        }
        let scripts = [&self.before, &self.before_each, &self.after_each];
        let bytes = self.body.len() + scripts.into_iter().flatten().map(String::len).sum::<usize>();
        if bytes > HANDLER_BYTES_MAX {
            let reason = format!("a handler has at most {HANDLER_BYTES_MAX} bytes, not {bytes}");
            return Err(Invalid::new("body", reason));
        }
        self.options.check()
    }
}

/// One version of a handler, as a store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    pub id: HandlerId,
    pub key: TypeKey,
    pub created_at: Timestamp,
    pub spec: HandlerSpec,
}

/// How the jobs of a type are treated, with or without a handler.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TypeSettings {
    /// Share of picks relative to the tenant's other types, 1 to 1000; 1 when absent.
    pub weight: Option<u32>,
    /// Maximum number of running jobs of the type, in all daemons together.
    pub concurrency: Option<u32>,
    /// Maximum number of starts per second, in all daemons together.
    pub rate: Option<f64>,
    pub timeout: Option<Duration>,
    pub retry: Option<RetryPolicy>,
    /// How long an ended job is kept.
    pub retention: Option<Duration>,
}

impl TypeSettings {
    pub fn check(&self) -> Result<(), Invalid> {
        WEIGHT.check_if_set("weight", self.weight)?;
        CONCURRENCY.check_if_set("concurrency", self.concurrency)?;
        RATE.check_if_set("rate", self.rate)?;
        TIMEOUT.check_if_set("timeout", self.timeout)?;
        self.retry.as_ref().map_or(Ok(()), |retry| retry.check("retry"))?;
        RETENTION.check_if_set("retention", self.retention)
    }

    /// The settings with every number clamped to its range, for values from a store.
    pub fn clamped(self) -> TypeSettings {
        TypeSettings {
            weight: self.weight.map(|weight| WEIGHT.clamp(weight)),
            concurrency: self.concurrency.map(|jobs| CONCURRENCY.clamp(jobs)),
            rate: self.rate.map(|rate| RATE.clamp(rate)),
            timeout: self.timeout.map(|timeout| TIMEOUT.clamp(timeout)),
            retry: self.retry.map(RetryPolicy::clamped),
            retention: self.retention.map(|retention| RETENTION.clamp(retention)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{RETRY_FACTOR, SCRATCH_BYTES_MIN};

    #[test]
    fn languages_are_read_as_they_are_written() {
        let names = Lang::ALL.map(|lang| lang.to_string());
        assert_eq!(names, ["node", "python", "php", "sh", "exec", "http"]);
        for lang in Lang::ALL {
            assert_eq!(Lang::parse(lang.as_str()), Ok(lang));
        }
        let reason = "'Perl' is not one of node, python, php, sh, exec, http";
        assert_eq!(Lang::parse("Perl"), Err(Invalid::new("lang", reason)));
    }

    #[test]
    fn a_handler_has_a_body_and_with_its_scripts_a_bounded_size() {
        let refused = |spec: HandlerSpec| spec.check().unwrap_err().field;
        assert_eq!(refused(HandlerSpec::new(Lang::Sh, "")), "body");
        assert_eq!(refused(HandlerSpec::new(Lang::Sh, " \n")), "body");
        let longest = HandlerSpec {
            before: Some("b".into()),
            before_each: Some("bb".into()),
            after_each: Some("bbb".into()),
            ..HandlerSpec::new(Lang::Sh, "b".repeat(HANDLER_BYTES_MAX - 6))
        };
        assert_eq!(longest.check(), Ok(()));
        assert_eq!(refused(HandlerSpec { before: Some("bb".into()), ..longest }), "body");
        let timeout = Some(Duration::ZERO);
        let options = HandlerOptions { timeout, ..HandlerOptions::default() };
        assert_eq!(
            refused(HandlerSpec { options, ..HandlerSpec::new(Lang::Sh, "b") }),
            "options.timeout"
        );
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_name() {
        let options = |change: fn(&mut HandlerOptions)| {
            let mut options = HandlerOptions::default();
            change(&mut options);
            options.check().unwrap_err().field
        };
        assert_eq!(options(|of| of.timeout = Some(Duration::ZERO)), "options.timeout");
        assert_eq!(options(|of| of.batch = Some(0)), "options.batch");
        assert_eq!(options(|of| of.contexts = Some(0)), "options.contexts");
        assert_eq!(options(|of| of.context_jobs = Some(0)), "options.context_jobs");
        assert_eq!(options(|of| of.idle = Some(Duration::MAX)), "options.idle");
        assert_eq!(options(|of| of.retry = Some(wild_retry())), "options.retry.factor");
        assert_eq!(options(|of| of.limits.memory = Some(1)), "options.memory");
        assert_eq!(options(|of| of.limits.cpu = Some(Duration::ZERO)), "options.cpu");
        assert_eq!(options(|of| of.limits.processes = Some(0)), "options.processes");
        assert_eq!(options(|of| of.limits.file_size = Some(0)), "options.file_size");
        let too_small = |of: &mut HandlerOptions| of.limits.scratch = Some(SCRATCH_BYTES_MIN - 1);
        assert_eq!(options(too_small), "options.scratch");
        let settings = |settings: TypeSettings| settings.check().unwrap_err().field;
        let none = TypeSettings::default;
        assert_eq!(settings(TypeSettings { weight: Some(0), ..none() }), "weight");
        assert_eq!(settings(TypeSettings { concurrency: Some(0), ..none() }), "concurrency");
        assert_eq!(settings(TypeSettings { rate: Some(0.0), ..none() }), "rate");
        assert_eq!(settings(TypeSettings { timeout: Some(Duration::ZERO), ..none() }), "timeout");
        assert_eq!(settings(TypeSettings { retry: Some(wild_retry()), ..none() }), "retry.factor");
        assert_eq!(
            settings(TypeSettings { retention: Some(Duration::MAX), ..none() }),
            "retention"
        );
    }

    fn wild_retry() -> RetryPolicy {
        RetryPolicy { factor: RETRY_FACTOR.max * 2.0, ..RetryPolicy::default() }
    }

    #[test]
    fn variables_of_windlass_and_names_that_no_environment_has_are_refused() {
        let check = |name: &str| {
            let env = [(name.to_owned(), "x".to_owned())].into();
            HandlerOptions { env, ..HandlerOptions::default() }.check()
        };
        assert_eq!(
            (check("PATH"), check("A_WINDLASS_"), check("WINDLASS")),
            (Ok(()), Ok(()), Ok(()))
        );
        for name in ["", "A=B", "=", "A\0", "WINDLASS_", "WINDLASS_JOB_ID"] {
            assert_eq!(check(name).unwrap_err().field, "options.env", "{name:?}");
        }
    }

    #[test]
    fn secrets_are_bounded_and_each_has_a_variable_of_its_own() {
        let name = |number: usize| SecretName::new(&format!("S{number}")).unwrap();
        let with = |count| HandlerOptions {
            secrets: (0..count).map(name).collect(),
            ..HandlerOptions::default()
        };
        assert_eq!(with(HANDLER_SECRETS_MAX).check(), Ok(()));
        let field = |options: HandlerOptions| options.check().unwrap_err().field;
        assert_eq!(field(with(HANDLER_SECRETS_MAX + 1)), "options.secrets");
        let twice = HandlerOptions { secrets: vec![name(1), name(1)], ..with(0) };
        assert_eq!(field(twice), "options.secrets");
        let env = [("S0".to_owned(), "x".to_owned())].into();
        assert_eq!(field(HandlerOptions { env, ..with(1) }), "options.secrets");
    }
}
