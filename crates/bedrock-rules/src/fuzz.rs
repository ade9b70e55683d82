//! The rules that every text keeps, for the fuzzer and the tests: edits of JSON do what they would
//! do to parsed values, and texts of times are ordered as Bedrock orders them.

use std::collections::HashSet;

use serde_json::Value;
use windlass_core::Timestamp;

use crate::date_text::{FIRST, due_at, millis_text, order_key};
use crate::merge::{
    is_object, json_get_top, json_remove_top, json_set_top, members, merge_patch, unquoted,
};

/// Two lines: JSON text, and a patch of it. Accepts them if both are JSON.
pub fn merge(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let (old, patch) = text.split_once('\n').unwrap_or((text, "{}"));
    let Some(merged) = merge_patch(old, patch) else { return false };
    let (old_value, patch_value) = (value(old), value(patch));
    if let (Some(old_value), Some(patch_value)) = (old_value, patch_value)
        && !has_twins(old)
        && !has_twins(patch)
    {
        assert_eq!(value(&merged), Some(reference(old_value, patch_value)));
    }
    if is_object(old) {
        check_top(old);
    } else {
        assert_eq!(json_set_top(old, "k", "1"), old);
        assert_eq!(json_remove_top(old, "k"), old);
    }
    true
}

fn check_top(old: &str) {
    let set = json_set_top(old, "k", "[1]");
    assert!(is_object(&set), "{set}");
    assert_eq!(json_get_top(&set, "k"), Some("[1]"));
    let removed = json_remove_top(&set, "k");
    assert_eq!(json_get_top(&removed, "k"), None);
    assert_eq!(removed, json_remove_top(old, "k"), "everything else stays");
    assert_eq!(json_remove_top(&removed, "k"), removed);
}

/// JSON that serde reads; strings with half of a surrogate pair are not.
fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Whether a name appears twice in one object, where parsed values keep the last, not the first.
fn has_twins(text: &str) -> bool {
    let members = members(text).unwrap_or_default();
    let mut names = HashSet::new();
    members.iter().any(|member| !names.insert(unquoted(member.key)) || has_twins(member.value))
}

/// RFC 7396.
fn reference(old: Value, patch: Value) -> Value {
    let Value::Object(changes) = patch else { return patch };
    let mut merged = if let Value::Object(old) = old { old } else { serde_json::Map::new() };
    for (name, change) in changes {
        let old = merged.remove(&name);
        if !change.is_null() {
            merged.insert(name, reference(old.unwrap_or_default(), change));
        }
    }
    Value::Object(merged)
}

/// Two lines, each the text of a time. Accepts them if both are due at some time.
pub fn next_run(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let (one, other) = text.split_once('\n').unwrap_or((text, ""));
    let due = [due_at(one), due_at(other)];
    for (text, due) in [one, other].into_iter().zip(due) {
        let before = millis_text(due.shifted(-1));
        assert!(due == FIRST || before.as_str() < text, "{text:?} is due before {due:?}");
        assert!(due == Timestamp::NEVER || millis_text(due).as_str() >= text);
        assert!(order_key(text, due) <= 0);
    }
    if one <= other {
        assert!(due[0] <= due[1], "{one:?} and {other:?}");
        // Letters and control characters are not told apart.
        let is_plain = |text: &str| text.bytes().all(|byte| (b' '..b'^').contains(&byte));
        if due[0] == due[1] && is_plain(one) && is_plain(other) {
            assert!(order_key(one, due[0]) <= order_key(other, due[1]), "{one:?} and {other:?}");
        }
    }
    due.iter().all(|due| *due < Timestamp::NEVER)
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn merges() {
        corpus::check("bedrock_merge", 20_000, super::merge);
    }

    #[test]
    fn next_runs() {
        corpus::check("bedrock_next_run", 20_000, super::next_run);
    }
}
