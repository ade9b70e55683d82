//! The text form in which stores keep handlers' options and settings of types and tenants: JSON
//! objects with durations in milliseconds. Absent fields are left out; unknown ones are ignored, so
//! that an older daemon can read what a newer one wrote. Numbers outside their ranges, which an
//! older version accepted, are clamped.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::handler::{HandlerOptions, Limits, TypeSettings};
use crate::network::{Destination, Network};
use crate::retry::RetryPolicy;
use crate::secret::SecretName;
use crate::tenant::TenantSettings;

pub fn options_to_text(options: &HandlerOptions) -> String {
    let mut map = Map::new();
    put_duration(&mut map, "timeout_ms", options.timeout);
    put_number(&mut map, "batch", options.batch);
    put_number(&mut map, "contexts", options.contexts);
    put_number(&mut map, "context_jobs", options.context_jobs);
    put_duration(&mut map, "idle_ms", options.idle);
    if !options.env.is_empty() {
        let env: Map<String, Value> =
            options.env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        map.insert("env".into(), env.into());
    }
    if !options.secrets.is_empty() {
        let names: Vec<Value> = options.secrets.iter().map(|name| name.as_str().into()).collect();
        map.insert("secrets".into(), names.into());
    }
    put_retry(&mut map, options.retry.as_ref());
    let limits = &options.limits;
    put_size(&mut map, "memory_bytes", limits.memory);
    put_duration(&mut map, "cpu_ms", limits.cpu);
    put_number(&mut map, "processes", limits.processes);
    put_size(&mut map, "file_bytes", limits.file_size);
    put_size(&mut map, "scratch_bytes", limits.scratch);
    put_network(&mut map, options.network.as_ref());
    Value::from(map).to_string()
}

pub fn options_from_text(text: &str) -> Result<HandlerOptions, String> {
    let map = object(text)?;
    let env = match map.get("env").and_then(Value::as_object) {
        None => BTreeMap::new(),
        Some(env) => env
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect(),
    };
    let options = HandlerOptions {
        timeout: duration(&map, "timeout_ms"),
        batch: number(&map, "batch"),
        contexts: number(&map, "contexts"),
        context_jobs: number(&map, "context_jobs"),
        idle: duration(&map, "idle_ms"),
        env,
        secrets: secrets(&map)?,
        retry: retry(&map),
        limits: Limits {
            memory: map.get("memory_bytes").and_then(Value::as_u64),
            cpu: duration(&map, "cpu_ms"),
            processes: number(&map, "processes"),
            file_size: map.get("file_bytes").and_then(Value::as_u64),
            scratch: map.get("scratch_bytes").and_then(Value::as_u64),
        },
        network: network(&map),
    };
    Ok(options.clamped())
}

pub fn settings_to_text(settings: &TypeSettings) -> String {
    let mut map = Map::new();
    put_number(&mut map, "weight", settings.weight);
    put_number(&mut map, "concurrency", settings.concurrency);
    if let Some(rate) = settings.rate {
        map.insert("rate".into(), rate.into());
    }
    put_duration(&mut map, "timeout_ms", settings.timeout);
    put_retry(&mut map, settings.retry.as_ref());
    put_duration(&mut map, "retention_ms", settings.retention);
    Value::from(map).to_string()
}

pub fn settings_from_text(text: &str) -> Result<TypeSettings, String> {
    let map = object(text)?;
    let settings = TypeSettings {
        weight: number(&map, "weight"),
        concurrency: number(&map, "concurrency"),
        rate: map.get("rate").and_then(Value::as_f64),
        timeout: duration(&map, "timeout_ms"),
        retry: retry(&map),
        retention: duration(&map, "retention_ms"),
    };
    Ok(settings.clamped())
}

pub fn tenant_to_text(settings: &TenantSettings) -> String {
    let mut map = Map::new();
    put_number(&mut map, "weight", settings.weight);
    put_number(&mut map, "slots_min", settings.slots_min);
    put_number(&mut map, "slots_max", settings.slots_max);
    Value::from(map).to_string()
}

pub fn tenant_from_text(text: &str) -> Result<TenantSettings, String> {
    let map = object(text)?;
    let settings = TenantSettings {
        weight: number(&map, "weight"),
        slots_min: number(&map, "slots_min"),
        slots_max: number(&map, "slots_max"),
    };
    Ok(settings.clamped())
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("not a JSON object".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn put_number(map: &mut Map<String, Value>, name: &str, number: Option<u32>) {
    if let Some(number) = number {
        map.insert(name.into(), number.into());
    }
}

fn put_size(map: &mut Map<String, Value>, name: &str, bytes: Option<u64>) {
    if let Some(bytes) = bytes {
        map.insert(name.into(), bytes.into());
    }
}

fn put_duration(map: &mut Map<String, Value>, name: &str, duration: Option<Duration>) {
    if let Some(duration) = duration {
        map.insert(name.into(), (duration.as_millis() as u64).into());
    }
}

fn put_retry(map: &mut Map<String, Value>, policy: Option<&RetryPolicy>) {
    let Some(policy) = policy else { return };
    let mut retry = Map::new();
    put_duration(&mut retry, "delay_ms", Some(policy.delay));
    retry.insert("factor".into(), policy.factor.into());
    put_duration(&mut retry, "delay_max_ms", Some(policy.delay_max));
    put_number(&mut retry, "attempts", Some(policy.attempts));
    put_duration(&mut retry, "age_ms", Some(policy.age));
    map.insert("retry".into(), retry.into());
}

fn put_network(map: &mut Map<String, Value>, network: Option<&Network>) {
    let value = match network {
        None => return,
        Some(Network::None) => "none".into(),
        Some(Network::Public) => "public".into(),
        Some(Network::Only(list)) => list.iter().map(Destination::to_string).collect(),
    };
    map.insert("network".into(), value);
}

/// Text that this version does not know opens nothing.
fn network(map: &Map<String, Value>) -> Option<Network> {
    Some(match map.get("network")? {
        Value::String(word) if word == "public" => Network::Public,
        Value::Array(list) => {
            let entries = list.iter().filter_map(|entry| entry.as_str()?.parse().ok());
            Network::Only(entries.collect())
        }
        _ => Network::None,
    })
}

/// A name that this version does not accept is an error: without it, a handler would run without
/// something that it needs.
fn secrets(map: &Map<String, Value>) -> Result<Vec<SecretName>, String> {
    let names = map.get("secrets").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |value: &Value| {
        let name = SecretName::new(value.as_str().unwrap_or_default());
        name.map_err(|invalid| format!("secrets: {}", invalid.reason))
    };
    names.iter().map(name).collect()
}

fn number(map: &Map<String, Value>, name: &str) -> Option<u32> {
    map.get(name).and_then(Value::as_u64).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn duration(map: &Map<String, Value>, name: &str) -> Option<Duration> {
    map.get(name).and_then(Value::as_u64).map(Duration::from_millis)
}

fn retry(map: &Map<String, Value>) -> Option<RetryPolicy> {
    let retry = map.get("retry")?.as_object()?;
    Some(RetryPolicy {
        delay: duration(retry, "delay_ms")?,
        factor: retry.get("factor")?.as_f64()?,
        delay_max: duration(retry, "delay_max_ms")?,
        attempts: number(retry, "attempts")?,
        age: duration(retry, "age_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{CONCURRENCY, CONTEXTS, RATE};

    #[test]
    fn everything_reads_back_as_written() {
        let retry = RetryPolicy { attempts: 3, factor: 1.5, ..RetryPolicy::default() };
        let options = HandlerOptions {
            timeout: Some(Duration::from_millis(1500)),
            batch: Some(7),
            contexts: Some(2),
            context_jobs: Some(100),
            idle: Some(Duration::from_secs(9)),
            env: [("A".to_owned(), "b=\"c\"".to_owned())].into(),
            secrets: vec![SecretName::new("STRIPE_KEY").unwrap()],
            retry: Some(retry.clone()),
            limits: Limits {
                memory: Some(u64::MAX),
                cpu: Some(Duration::from_secs(30)),
                processes: Some(5),
                file_size: Some(1 << 40),
                scratch: Some(1 << 30),
            },
            network: Some(Network::Only(vec!["10.0.0.0/8:5432".parse().unwrap()])),
        };
        assert_eq!(options_from_text(&options_to_text(&options)), Ok(options));
        let settings = TypeSettings {
            weight: Some(10),
            concurrency: Some(3),
            rate: Some(0.5),
            timeout: Some(Duration::from_secs(1)),
            retry: Some(retry),
            retention: Some(Duration::from_secs(2)),
        };
        assert_eq!(settings_from_text(&settings_to_text(&settings)), Ok(settings));
        assert_eq!(settings_from_text("{}"), Ok(TypeSettings::default()));
        assert!(settings_from_text("[]").is_err());
    }

    #[test]
    fn a_secret_that_cannot_be_named_is_not_left_out() {
        assert!(options_from_text(r#"{"secrets":["STRIPE_KEY","PATH"]}"#).is_err());
        assert!(options_from_text(r#"{"secrets":[7]}"#).is_err());
        assert_eq!(options_from_text("{}").unwrap().secrets, []);
    }

    #[test]
    fn what_is_unknown_about_the_network_opens_nothing() {
        let read = |text: &str| options_from_text(text).unwrap().network;
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"network":"public"}"#), Some(Network::Public));
        for text in [r#"{"network":"none"}"#, r#"{"network":"all"}"#, r#"{"network":7}"#] {
            assert_eq!(read(text), Some(Network::None), "{text}");
        }
        assert_eq!(read(r#"{"network":["*",5]}"#), Some(Network::Only(Vec::new())));
    }

    #[test]
    fn numbers_out_of_range_are_read_as_the_nearest_within() {
        let settings = r#"{"weight":0,"concurrency":9999999999,"rate":1e-20,"timeout_ms":0,
            "retention_ms":18446744073709551615,"retry":{"delay_ms":18446744073709551615,
            "factor":-5,"delay_max_ms":18446744073709551615,"attempts":0,"age_ms":0}}"#;
        let settings = settings_from_text(settings).unwrap();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!((settings.weight, settings.rate), (Some(1), Some(RATE.min)));
        assert_eq!(settings.concurrency, Some(CONCURRENCY.max), "a limit stays a limit");
        let options = r#"{"timeout_ms":0,"batch":0,"contexts":4294967295,"context_jobs":0,
            "memory_bytes":1,"cpu_ms":0,"processes":0,"file_bytes":0,"scratch_bytes":0}"#;
        let options = options_from_text(options).unwrap();
        assert_eq!(options.check(), Ok(()));
        assert_eq!((options.batch, options.contexts), (Some(1), Some(CONTEXTS.max)));
    }
}
