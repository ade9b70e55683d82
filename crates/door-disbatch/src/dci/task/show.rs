//! Tasks as answers show them: output shortened, times as text or numbers.

use mongodb::bson::{Bson, DateTime, Document};
use serde_json::{Map, Value, json};

const TERSE: &str = "[terse mode]";
pub(crate) const OUTPUT: [&str; 2] = ["stdout", "stderr"];
const TIMES: [&str; 2] = ["ctime", "mtime"];

/// Hides existing output; shows the id of a file.
pub(crate) fn shorten(task: &mut Document) {
    for name in OUTPUT {
        if let Some(Bson::String(text)) = task.get_mut(name)
            && !text.is_empty()
        {
            TERSE.clone_into(text);
        }
    }
}

/// Hides even missing output, as version 3 did.
pub(crate) fn shorten_all(task: &mut Document) {
    for name in OUTPUT {
        if !matches!(task.get(name), Some(Bson::ObjectId(_))) {
            task.insert(name, TERSE);
        }
    }
}

/// Shows times as version 3 did: seconds, and the same as text.
pub(crate) fn stamp(task: &Document, shown: &mut Map<String, Value>) {
    for name in TIMES {
        let seconds = match task.get(name) {
            None | Some(Bson::Null | Bson::Int32(0) | Bson::Int64(0)) => continue,
            Some(Bson::DateTime(date)) => Some(date.timestamp_millis().div_euclid(1000)),
            Some(Bson::Int32(number)) => Some(i64::from(*number)),
            Some(Bson::Int64(number)) => Some(*number),
            #[expect(clippy::cast_possible_truncation, reason = "what is no time is no text below")]
            Some(Bson::Double(number)) => Some(number.floor() as i64),
            Some(_) => None,
        };
        let text = seconds.and_then(text);
        let odd = || shown.get(name).map(Value::to_string);
        shown.insert(format!("{name}_str"), json!(text.clone().or_else(odd)));
        shown.insert(name.to_owned(), json!(text.and(seconds)));
    }
}

/// Text such as `2016-04-26T17:59:33Z`; `None` for an invalid year.
fn text(seconds: i64) -> Option<String> {
    DateTime::from_millis(seconds.checked_mul(1000)?).try_to_rfc3339_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{doc, oid::ObjectId};

    #[test]
    fn output_is_shortened_and_files_are_not() {
        let id = ObjectId::new();
        let check = |given: Document, short: Document, all: Document| {
            let (mut one, mut other) = (given.clone(), given);
            shorten(&mut one);
            shorten_all(&mut other);
            assert_eq!((one, other), (short, all));
        };
        let both = doc! { "stdout": TERSE, "stderr": TERSE };
        check(doc! { "stdout": "long", "stderr": "x" }, both.clone(), both.clone());
        check(
            doc! { "stdout": "", "stderr": null },
            doc! { "stdout": "", "stderr": null },
            both.clone(),
        );
        check(doc! {}, doc! {}, both);
        let files = doc! { "stdout": id, "stderr": id };
        check(files.clone(), files.clone(), files);
    }

    #[test]
    fn version_3_shows_times_twice() {
        let check = |time: Bson, expected: Value| {
            let mut shown = Map::from_iter([("ctime".to_owned(), json!("as it was"))]);
            stamp(&doc! { "ctime": time }, &mut shown);
            assert_eq!(Value::Object(shown), expected);
        };
        let both = json!({ "ctime": 1_461_693_573, "ctime_str": "2016-04-26T17:59:33Z" });
        check(Bson::from(DateTime::from_millis(1_461_693_573_250)), both.clone());
        check(Bson::Int32(1_461_693_573), both.clone());
        check(Bson::Int64(1_461_693_573), both.clone());
        check(Bson::Double(1_461_693_573.9), both);
        check(Bson::Int32(0), json!({ "ctime": "as it was" }));
        check(Bson::Null, json!({ "ctime": "as it was" }));
        let odd = json!({ "ctime": null, "ctime_str": "\"as it was\"" });
        check(Bson::String("x".into()), odd.clone());
        check(Bson::Int64(i64::MAX), odd);
    }
}
