//! Which fields a search for tasks may use: those that a prefix of an index covers. Anything else
//! would read the whole collection.

use mongodb::bson::Document;
use serde_json::{Map, Value};

/// The fields of one index, in order; `_id` is called `id`, as in a request.
pub(crate) type Index = Vec<String>;

/// The indexes that a node creates at its start, without prefixes of others.
const OWN: [&[&str]; 3] = [&["id"], &["node", "status", "queue", "id"], &["queue", "status"]];

/// The indexes of the collection: ours, and those added by hand.
pub(crate) fn merge(found: &[Document]) -> Vec<Index> {
    let own = OWN.map(|index| index.iter().map(|field| (*field).to_owned()).collect());
    let found = found.iter().map(|keys| keys.keys().map(|key| named(key)).collect());
    let mut all: Vec<Index> = own.into_iter().chain(found).collect();
    all.sort();
    all.dedup();
    let longer = |short: &Index| all.iter().any(|long| long != short && long.starts_with(short));
    all.iter().filter(|index| !longer(index)).cloned().collect()
}

fn named(key: &str) -> String {
    if key == "_id" { "id" } else { key }.to_owned()
}

/// The names that no index covers. An index covers a name if all fields to its left are parameters,
/// too.
pub(crate) fn invalid(params: &Map<String, Value>, indexes: &[Index]) -> Vec<String> {
    let found = |name: &str| {
        indexes.iter().any(|index| match index.iter().position(|field| field == name) {
            Some(place) => index[..place].iter().all(|field| params.contains_key(field)),
            None => false,
        })
    };
    params.keys().filter(|name| !found(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use serde_json::json;

    #[test]
    fn an_index_that_begins_another_is_not_named() {
        let found = [
            doc! { "_id": 1 },
            doc! { "node": 1, "status": 1, "queue": 1 },
            doc! { "node": 1, "status": 1, "queue": 1, "_id": -1 },
            doc! { "queue": 1, "status": 1 },
            doc! { "params.user": 1 },
        ];
        let expected = json!([
            ["id"],
            ["node", "status", "queue", "id"],
            ["params.user"],
            ["queue", "status"]
        ]);
        assert_eq!(json!(merge(&found)), expected);
        assert_eq!(merge(&[]).len(), 3);
    }

    #[test]
    fn only_fields_at_the_left_end_of_an_index_are_valid() {
        let check = |params: Value, expected: &[&str]| {
            let Value::Object(params) = params else { panic!("an object") };
            assert_eq!(invalid(&params, &merge(&[])), expected, "{params:?}");
        };
        check(json!({}), &[]);
        check(json!({ "id": "x" }), &[]);
        check(json!({ "queue": "x" }), &[]);
        check(json!({ "queue": "x", "status": 1 }), &[]);
        check(json!({ "node": "x" }), &[]);
        check(json!({ "node": "x", "status": 1, "queue": "y", "id": "z" }), &[]);
        check(json!({ "status": 1 }), &["status"]);
        check(json!({ "node": "x", "ctime": 1 }), &["ctime"]);
        check(json!({ "params": 1, "stdout": 1 }), &["params", "stdout"]);
    }
}
