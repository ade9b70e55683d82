//! The rules for whatever is in a request or a configuration file, for the fuzzer and the tests.

use std::path::Path;

use serde_json::Value;

use crate::config::Config;
use crate::dci::param::{Kind, OBJECT_BYTES, Params, VALUE_BYTES, json_weight, read};
use crate::relaxed;

/// A configuration file. Strict JSON is read as such, and errors point into the file. Accepts it if
/// it is relaxed JSON.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let read = relaxed::parse(text);
    if let Ok(strict) = serde_json::from_str::<Value>(text) {
        assert_eq!(read.as_ref(), Ok(&strict));
    }
    if let Err(error) = &read {
        let line = text.split('\n').nth(error.line.saturating_sub(1));
        let line = line.unwrap_or_else(|| panic!("{error} is behind the last line"));
        assert!(error.column <= line.len(), "{error} is behind the end of {line:?}");
    }
    match Config::parse(text, Path::new("/c.json")) {
        Ok((config, warnings)) => {
            assert!(read.is_ok() && warnings.iter().all(|warning| !warning.is_empty()));
            let (again, _) = Config::parse(text, Path::new("/c.json")).expect("as before");
            assert_eq!(again, config);
        }
        Err(error) => assert!(error.to_string().starts_with("the configuration /c.json")),
    }
    read.is_ok()
}

/// The body of a request, as a form or as JSON. Accepts it if it is one of them and has a
/// parameter.
pub fn request(bytes: &[u8]) -> bool {
    let form = read(Kind::Form, bytes, "");
    if let Ok(query) = str::from_utf8(bytes) {
        let by_query = read(Kind::Absent, b"", query);
        assert_eq!(form.as_ref().ok(), by_query.as_ref().ok(), "a form is a query");
    }
    let json = read(Kind::Json, bytes, "");
    if !bytes.is_empty() {
        assert_eq!(json.as_ref().ok(), serde_json::from_slice(bytes).ok().as_ref());
    }
    if let Ok(json) = &json {
        assert!(bytes.is_empty() || json_weight(bytes) >= weight(json), "{json}");
    }
    let has_parameter = |sent: &Value| sent.as_object().is_none_or(|fields| !fields.is_empty());
    let accepted = [&form, &json].into_iter().flatten().any(has_parameter);
    [form, json].into_iter().flatten().for_each(check_parameters);
    accepted
}

/// Fields and options are told apart by their names, and none is lost.
fn check_parameters(sent: Value) {
    let count = sent.as_object().map_or(0, serde_json::Map::len);
    let mut params = Params::of(sent);
    let names: Vec<String> = params.fields().map_or(Vec::new(), |fields| {
        assert!(fields.keys().all(|name| !name.starts_with('.')));
        fields.keys().cloned().collect()
    });
    assert!(params.options.keys().all(|name| name.starts_with('.')));
    assert_eq!(names.len() + params.options.len(), count);
    for name in names {
        let before = params.get(&name).cloned();
        let unfolded = params.unfold(&name);
        let after = params.get(&name).cloned();
        assert!(unfolded.is_ok() || after == before, "a text that is not JSON stays");
    }
    params.drop_empty();
}

/// The weight of a value in memory; its text may have more, of names that are given twice.
fn weight(value: &Value) -> u64 {
    let behind_first = |count: usize| VALUE_BYTES * count.saturating_sub(1) as u64;
    match value {
        Value::Object(fields) => {
            let inner: u64 = fields.values().map(weight).sum();
            OBJECT_BYTES + behind_first(fields.len()) + inner
        }
        Value::Array(items) => {
            let inner: u64 = items.iter().map(weight).sum();
            VALUE_BYTES + behind_first(items.len()) + inner
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn configurations() {
        corpus::check("disbatch_config", 5000, super::config);
    }

    #[test]
    fn requests() {
        corpus::check("disbatch_request", 10_000, super::request);
    }
}
