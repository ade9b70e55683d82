//! Whether a handler is the same as the current one. The daemon normalizes handlers: it shows 60s
//! as 1m, and a retry with all its fields.

use serde_json::{Map, Value};

use windlass_core::RetryPolicy;
use windlass_core::size::parse_size;
use windlass_core::time::parse_duration;

/// The fields that make up a handler; the daemon's other fields describe its version.
const FIELDS: [&str; 6] = ["lang", "body", "before", "beforeEach", "afterEach", "eid"];

pub(crate) fn is_same(wanted: &Value, in_force: &Value) -> bool {
    FIELDS.iter().all(|field| wanted[field] == in_force[field])
        && options(&wanted["options"]) == options(&in_force["options"])
}

/// The given options in normalized form.
fn options(options: &Value) -> Map<String, Value> {
    let mut given = Map::new();
    for (name, value) in options.as_object().into_iter().flatten() {
        let value = match (name.as_str(), value) {
            (_, Value::Null) => continue,
            ("env", Value::Object(env)) if env.is_empty() => continue,
            ("env", env) => env.clone(),
            ("secrets", Value::Array(names)) if names.is_empty() => continue,
            ("retry", retry) => whole_retry(retry),
            (_, value) => normalized(value),
        };
        given.insert(name.clone(), value);
    }
    given
}

/// Fills in defaults.
fn whole_retry(retry: &Value) -> Value {
    let default = RetryPolicy::default();
    let ms = |duration: std::time::Duration| Value::from(duration.as_millis() as f64);
    let parts = [
        ("delay", ms(default.delay)),
        ("factor", default.factor.into()),
        ("delay_max", ms(default.delay_max)),
        ("attempts", f64::from(default.attempts).into()),
        ("age", ms(default.age)),
    ];
    let part = |(name, default): (&str, Value)| {
        let given = &retry[name];
        (name.to_owned(), if given.is_null() { default } else { normalized(given) })
    };
    Value::Object(parts.into_iter().map(part).collect())
}

/// Durations become milliseconds, sizes bytes, and 2 becomes 2.0.
fn normalized(value: &Value) -> Value {
    let Some(text) = value.as_str() else {
        return value.as_f64().map_or_else(|| value.clone(), Value::from);
    };
    let duration = parse_duration(text).map(|duration| Value::from(duration.as_millis() as f64));
    duration.or_else(|_| parse_size(text).map(Value::from)).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(options: Value) -> Value {
        json!({
            "id": "7", "type": "t", "created_at": "2026-11-15T20:00:00.000Z",
            "lang": "sh", "body": "true", "before": null, "beforeEach": null, "afterEach": null,
            "eid": null, "options": options,
        })
    }

    fn absent() -> Value {
        json!({
            "timeout": null, "batch": null, "contexts": null, "env": {}, "secrets": [],
            "retry": null,
        })
    }

    #[test]
    fn what_is_not_given_is_absent() {
        assert!(is_same(&json!({ "lang": "sh", "body": "true" }), &shown(absent())));
        let others = [
            json!({ "lang": "sh", "body": "false" }),
            json!({ "lang": "sh", "body": "true", "before": "true" }),
            json!({ "lang": "sh", "body": "true", "eid": "e" }),
            json!({ "lang": "sh", "body": "true", "options": { "batch": 1 } }),
            json!({ "lang": "sh", "body": "true", "options": { "secrets": ["A"] } }),
            json!({ "lang": "sh", "body": "true", "options": { "env": { "A": "1s" } } }),
        ];
        for other in others {
            assert!(!is_same(&other, &shown(absent())), "{other}");
        }
    }

    #[test]
    fn the_same_in_other_words_is_the_same() {
        let wanted = json!({ "lang": "sh", "body": "true", "options": {
            "timeout": "60s", "memory": "1024MB", "env": { "A": "60s" },
            "retry": { "attempts": 3, "factor": 2 },
        }});
        let retry = json!({
            "delay": "10s", "factor": 2.0, "delay_max": "1h", "attempts": 3, "age": "1d",
        });
        let same =
            json!({ "timeout": "1m", "memory": "1GB", "env": { "A": "60s" }, "retry": retry });
        assert!(is_same(&wanted, &shown(same)));
        let other =
            json!({ "timeout": "1m", "memory": "1GB", "env": { "A": "1m" }, "retry": retry });
        assert!(!is_same(&wanted, &shown(other)));
        let other =
            json!({ "timeout": "1m", "memory": "1GB", "env": { "A": "60s" }, "retry": null });
        assert!(!is_same(&wanted, &shown(other)));
    }
}
