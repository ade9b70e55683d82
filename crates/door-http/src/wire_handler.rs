//! Wire forms of handlers, type settings and retry policies. The engine checks the ranges of
//! numbers, the same for all doors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use windlass_core::{
    Handler, HandlerOptions, HandlerSpec, Lang, Limits, RetryPolicy, TypeSettings,
};

use crate::error::Failure;
use crate::network::WireNetwork;
use crate::secrets::WireSecretName;
use crate::size::WireSize;
use crate::time::{WireDuration, WireTime};

/// A handler as sent by a client.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HandlerSpec)]
pub(crate) struct WireSpec {
    /// One of node, python, php, sh, exec, http. May be omitted if the query has it.
    pub(crate) lang: Option<String>,
    /// Source, URL or command line.
    body: String,
    /// Runs once when a context starts.
    before: Option<String>,
    /// Runs before each batch.
    #[serde(rename = "beforeEach")]
    before_each: Option<String>,
    /// Runs after each batch.
    #[serde(rename = "afterEach")]
    after_each: Option<String>,
    /// Handlers of a tenant with the same `lang` and `eid` share contexts.
    eid: Option<String>,
    options: Option<WireOptions>,
}

/// One version of a handler.
#[derive(Serialize, ToSchema)]
#[schema(as = Handler)]
pub(crate) struct WireHandler<'a> {
    id: String,
    r#type: &'a str,
    lang: &'static str,
    body: &'a str,
    before: Option<&'a str>,
    #[serde(rename = "beforeEach")]
    before_each: Option<&'a str>,
    #[serde(rename = "afterEach")]
    after_each: Option<&'a str>,
    eid: Option<&'a str>,
    options: WireOptions,
    created_at: WireTime,
}

/// Absent options default to the type's settings, then to the daemon's configuration.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = HandlerOptions)]
pub(crate) struct WireOptions {
    /// Time limit of one attempt.
    timeout: Option<WireDuration>,
    /// Maximum number of jobs per batch, 1 to 1000.
    batch: Option<u32>,
    /// Maximum number of contexts in one daemon, 1 to 100.
    contexts: Option<u32>,
    /// A context is replaced after this many jobs, 1 to 1000000.
    context_jobs: Option<u32>,
    /// How long an idle context is kept.
    idle: Option<WireDuration>,
    env: BTreeMap<String, String>,
    /// Names of secrets that become environment variables, at most 20.
    secrets: Vec<WireSecretName>,
    retry: Option<WireRetry>,
    /// Memory limit of each process, 4MB or more.
    memory: Option<WireSize>,
    /// CPU time limit of each process.
    cpu: Option<WireDuration>,
    /// Maximum number of simultaneous processes, 1 to 100000.
    processes: Option<u32>,
    /// Maximum size of written files.
    file_size: Option<WireSize>,
    /// Size of the private space that a handler may write to, 8MB or more.
    scratch: Option<WireSize>,
    /// What it may connect to.
    network: Option<WireNetwork>,
}

/// Omitted fields have their defaults: 10s, 2, 1h, 25, 24h.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Retry)]
pub(crate) struct WireRetry {
    delay: Option<WireDuration>,
    /// Factor by which each delay grows, 1 to 1000.
    factor: Option<f64>,
    delay_max: Option<WireDuration>,
    /// Maximum number of attempts, including the first, 1 to 1000000.
    attempts: Option<u32>,
    /// No more attempts once the job has been due for this long.
    age: Option<WireDuration>,
}

/// Settings of a type, with or without a handler.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = TypeSettings)]
pub(crate) struct WireSettings {
    /// Share relative to the tenant's other types, 1 to 1000.
    weight: Option<u32>,
    /// Maximum number of running jobs in all daemons together, 1 to 1000000.
    concurrency: Option<u32>,
    /// Maximum number of starts per second in each daemon, 0.000001 to 1000000.
    rate: Option<f64>,
    timeout: Option<WireDuration>,
    retry: Option<WireRetry>,
    /// How long a job is kept after it has ended.
    retention: Option<WireDuration>,
}

impl WireSpec {
    pub(crate) fn into_spec(self) -> Result<HandlerSpec, Failure> {
        let Some(lang) = &self.lang else {
            return Err(Failure::invalid("lang", "a handler needs its language in 'lang'"));
        };
        Ok(HandlerSpec {
            lang: Lang::parse(lang)?,
            body: self.body,
            before: self.before,
            before_each: self.before_each,
            after_each: self.after_each,
            eid: self.eid,
            options: self.options.unwrap_or_default().into_options(),
        })
    }
}

/// A handler with only a language and a body.
pub(crate) fn plain_spec(lang: &str, body: String) -> Result<HandlerSpec, Failure> {
    let lang = Lang::parse(lang).map_err(|invalid| Failure::invalid("method", invalid.reason))?;
    Ok(HandlerSpec::new(lang, body))
}

pub(crate) fn from_handler(handler: &Handler) -> WireHandler<'_> {
    let HandlerSpec { lang, body, before, before_each, after_each, eid, options } = &handler.spec;
    WireHandler {
        id: handler.id.to_string(),
        r#type: handler.key.name.as_str(),
        lang: lang.as_str(),
        body,
        before: before.as_deref(),
        before_each: before_each.as_deref(),
        after_each: after_each.as_deref(),
        eid: eid.as_deref(),
        options: from_options(options),
        created_at: WireTime(handler.created_at),
    }
}

impl WireOptions {
    fn into_options(self) -> HandlerOptions {
        HandlerOptions {
            timeout: self.timeout.map(|timeout| timeout.0),
            batch: self.batch,
            contexts: self.contexts,
            context_jobs: self.context_jobs,
            idle: self.idle.map(|idle| idle.0),
            env: self.env,
            secrets: self.secrets.into_iter().map(|name| name.0).collect(),
            retry: self.retry.map(WireRetry::into_policy),
            limits: Limits {
                memory: self.memory.map(|size| size.0),
                cpu: self.cpu.map(|cpu| cpu.0),
                processes: self.processes,
                file_size: self.file_size.map(|size| size.0),
                scratch: self.scratch.map(|size| size.0),
            },
            network: self.network.map(|network| network.0),
        }
    }
}

fn from_options(options: &HandlerOptions) -> WireOptions {
    WireOptions {
        timeout: options.timeout.map(WireDuration),
        batch: options.batch,
        contexts: options.contexts,
        context_jobs: options.context_jobs,
        idle: options.idle.map(WireDuration),
        env: options.env.clone(),
        secrets: options.secrets.iter().cloned().map(WireSecretName).collect(),
        retry: options.retry.as_ref().map(from_policy),
        memory: options.limits.memory.map(WireSize),
        cpu: options.limits.cpu.map(WireDuration),
        processes: options.limits.processes,
        file_size: options.limits.file_size.map(WireSize),
        scratch: options.limits.scratch.map(WireSize),
        network: options.network.clone().map(WireNetwork),
    }
}

impl WireRetry {
    fn into_policy(self) -> RetryPolicy {
        let default = RetryPolicy::default();
        let or = |given: Option<WireDuration>, default| given.map_or(default, |given| given.0);
        RetryPolicy {
            delay: or(self.delay, default.delay),
            factor: self.factor.unwrap_or(default.factor),
            delay_max: or(self.delay_max, default.delay_max),
            attempts: self.attempts.unwrap_or(default.attempts),
            age: or(self.age, default.age),
        }
    }
}

fn from_policy(policy: &RetryPolicy) -> WireRetry {
    WireRetry {
        delay: Some(WireDuration(policy.delay)),
        factor: Some(policy.factor),
        delay_max: Some(WireDuration(policy.delay_max)),
        attempts: Some(policy.attempts),
        age: Some(WireDuration(policy.age)),
    }
}

impl WireSettings {
    pub(crate) fn into_settings(self) -> TypeSettings {
        TypeSettings {
            weight: self.weight,
            concurrency: self.concurrency,
            rate: self.rate,
            timeout: self.timeout.map(|timeout| timeout.0),
            retry: self.retry.map(WireRetry::into_policy),
            retention: self.retention.map(|retention| retention.0),
        }
    }
}

pub(crate) fn from_settings(settings: &TypeSettings) -> WireSettings {
    WireSettings {
        weight: settings.weight,
        concurrency: settings.concurrency,
        rate: settings.rate,
        timeout: settings.timeout.map(WireDuration),
        retry: settings.retry.as_ref().map(from_policy),
        retention: settings.retention.map(WireDuration),
    }
}

/// A time limit of zero would end every attempt before it starts.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use windlass_core::{JobId, Timestamp, TypeKey};

    const FULL: &str = r#"{"lang":"node","body":"return 1","before":"b","beforeEach":"e",
        "afterEach":"a","eid":"x","options":{"timeout":"90s","batch":5,"contexts":2,
        "context_jobs":100,"idle":"1m","env":{"A":"b"},"secrets":["DOOR"],"retry":{"attempts":3},
        "memory":"512MB","cpu":"30s","processes":20,"file_size":"1GB","scratch":"64MB",
        "network":["10.1.2.0/24:5432","db.internal"]}}"#;

    fn refused<T>(read: Result<T, Failure>) -> String {
        let failure = read.err().expect("refused");
        assert_eq!(failure.code, "invalid_value");
        failure.field.unwrap()
    }

    fn spec(text: &str) -> Result<HandlerSpec, Failure> {
        let spec = json::parse::<WireSpec>(text.as_bytes())?.into_spec()?;
        spec.check()?;
        Ok(spec)
    }

    #[test]
    fn a_handler_comes_back_as_it_was_written() {
        let spec = spec(FULL).unwrap();
        let retry = spec.options.retry.clone().unwrap();
        assert_eq!(retry, RetryPolicy { attempts: 3, ..RetryPolicy::default() });
        let handler = Handler {
            id: JobId::new(5).unwrap(),
            key: TypeKey::new("acme", "t").unwrap(),
            created_at: Timestamp(0),
            spec,
        };
        let seen = serde_json::to_value(from_handler(&handler)).unwrap();
        let mut written: serde_json::Value = serde_json::from_str(FULL).unwrap();
        written["id"] = "5".into();
        written["type"] = "t".into();
        written["created_at"] = "1970-01-01T00:00:00.000Z".into();
        written["options"]["retry"] = serde_json::json!(
            {"delay": "10s", "factor": 2.0, "delay_max": "1h", "attempts": 3, "age": "1d"}
        );
        assert_eq!(seen, written);
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        let cases = [
            (r#"{"body":"x"}"#, "lang"),
            (r#"{"lang":"cobol","body":"x"}"#, "lang"),
            (r#"{"lang":"sh"}"#, "body"),
            (r#"{"lang":"sh","body":"x","id":"1"}"#, "id"),
            (r#"{"lang":"sh","body":"x","options":{"timeout":"0s"}}"#, "options.timeout"),
            (r#"{"lang":"sh","body":"x","options":{"timeout":90}}"#, "options.timeout"),
            (r#"{"lang":"sh","body":"x","options":{"batch":0}}"#, "options.batch"),
            (r#"{"lang":"sh","body":"x","options":{"batch":1001}}"#, "options.batch"),
            (r#"{"lang":"sh","body":"x","options":{"contexts":101}}"#, "options.contexts"),
            (r#"{"lang":"sh","body":"x","options":{"context_jobs":0}}"#, "options.context_jobs"),
            (r#"{"lang":"sh","body":"x","options":{"nice":1}}"#, "options.nice"),
            (r#"{"lang":"sh","body":"x","options":{"env":{"A":1}}}"#, "options.env.A"),
            (r#"{"lang":"sh","body":"x","options":{"secrets":["a"]}}"#, "options.secrets[0]"),
            (
                r#"{"lang":"sh","body":"x","options":{"secrets":["A","PATH"]}}"#,
                "options.secrets[1]",
            ),
            (r#"{"lang":"sh","body":"x","options":{"secrets":["A","A"]}}"#, "options.secrets"),
            (
                r#"{"lang":"sh","body":"x","options":{"retry":{"factor":0.5}}}"#,
                "options.retry.factor",
            ),
            (
                r#"{"lang":"sh","body":"x","options":{"retry":{"attempts":0}}}"#,
                "options.retry.attempts",
            ),
            (
                r#"{"lang":"sh","body":"x","options":{"retry":{"delay":"1"}}}"#,
                "options.retry.delay",
            ),
            (r#"{"lang":"sh","body":"x","options":{"retry":{"x":1}}}"#, "options.retry.x"),
            (r#"{"lang":"sh","body":"x","options":{"memory":512}}"#, "options.memory"),
            (r#"{"lang":"sh","body":"x","options":{"file_size":"1 GB"}}"#, "options.file_size"),
            (r#"{"lang":"sh","body":"x","options":{"processes":-1}}"#, "options.processes"),
            (r#"{"lang":"sh","body":"x","options":{"cpu":"1"}}"#, "options.cpu"),
            (r#"{"lang":"sh","body":"x","options":{"scratch":"1KB"}}"#, "options.scratch"),
            (r#"{"lang":"sh","body":"x","options":{"network":"all"}}"#, "options.network"),
            (r#"{"lang":"sh","body":"x","options":{"network":[]}}"#, "options.network"),
            (r#"{"lang":"sh","body":"x","options":{"network":["*.x"]}}"#, "options.network"),
            (r#"{"lang":"sh","body":"x","options":{"network":[7]}}"#, "options.network[0]"),
            (r#"{"lang":"sh","body":"x","options":{"network":{}}}"#, "options.network"),
        ];
        for (text, field) in cases {
            assert_eq!(refused(spec(text)), field, "{text}");
        }
        assert_eq!(refused(plain_spec("cobol", "x".into())), "method");
    }

    #[test]
    fn settings_come_back_as_written_and_are_checked() {
        let read = |text: &str| {
            let settings = json::parse::<WireSettings>(text.as_bytes())?.into_settings();
            settings.check()?;
            Ok::<_, Failure>(settings)
        };
        let settings = read(r#"{"weight":3,"rate":0.5,"timeout":"5s","retention":"2d"}"#).unwrap();
        let seen = serde_json::to_value(from_settings(&settings)).unwrap();
        let written = serde_json::json!({"weight": 3, "concurrency": null, "rate": 0.5,
            "timeout": "5s", "retry": null, "retention": "2d"});
        assert_eq!(seen, written);
        let cases = [
            (r#"{"timeout":"0s"}"#, "timeout"),
            (r#"{"retry":{"attempts":0}}"#, "retry.attempts"),
            (r#"{"weight":1001}"#, "weight"),
            (r#"{"concurrency":0}"#, "concurrency"),
            (r#"{"rate":1e-20}"#, "rate"),
            (r#"{"nice":1}"#, "nice"),
        ];
        for (text, field) in cases {
            assert_eq!(refused(read(text)), field, "{text}");
        }
    }
}
