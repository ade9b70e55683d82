//! A node's entry. Observers need its life sign even if other fields are invalid, so only the name
//! has to be valid.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use super::{Invalid, Limit, at, text, whole};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub name: String,
    /// As stored: observers only check whether it changes.
    pub timestamp: Bson,
    pub limit: Result<Limit, Invalid>,
    /// The boot of ours that holds the name; `None` for a foreign or stopped node.
    pub boot: Option<String>,
    /// The boot id of the kernel, which tells hosts apart.
    pub host: Option<String>,
    pub pid: Option<i64>,
    pub fence: Option<i64>,
    /// How long this node may be silent; `None` if unknown.
    pub orphan_after: Option<Duration>,
    pub version: Option<String>,
}

impl Node {
    pub(crate) fn read(document: &Document) -> Result<Self, Invalid> {
        let string = |path| at(document, path).and_then(Bson::as_str).map(str::to_owned);
        let number = |path| at(document, path).and_then(whole);
        Ok(Self {
            name: text(document, "node")?,
            timestamp: document.get("timestamp").cloned().unwrap_or(Bson::Null),
            limit: Limit::read("maxthreads", document.get("maxthreads"), Limit::Unlimited),
            boot: string("windlass.boot"),
            host: string("windlass.host"),
            pid: number("windlass.pid"),
            fence: number("windlass.fence"),
            orphan_after: at(document, "windlass.orphan_after")
                .and_then(Bson::as_f64)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            version: string("windlass.version"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{DateTime, doc, oid::ObjectId};

    fn entry() -> Document {
        doc! {
            "_id": ObjectId::new(), "node": "host", "timestamp": DateTime::from_millis(5),
            "maxthreads": 3,
            "windlass": { "boot": "b", "beat": 7_i64, "version": "1", "host": "k", "pid": 9 },
        }
    }

    #[test]
    fn an_entry_of_ours_and_a_foreign_one() {
        let node = Node::read(&entry()).unwrap();
        assert_eq!(node.limit, Ok(Limit::At(3)));
        assert_eq!((node.boot.as_deref(), node.pid), (Some("b"), Some(9)));
        let foreign = Node::read(&doc! { "node": "host" }).unwrap();
        assert_eq!((foreign.boot, foreign.limit), (None, Ok(Limit::Unlimited)));
    }

    #[test]
    fn an_odd_limit_does_not_hide_the_signs_of_life() {
        let mut document = entry();
        document.insert("maxthreads", "many");
        let node = Node::read(&document).unwrap();
        assert_eq!(node.limit.unwrap_err().field, "maxthreads");
        assert_eq!(node.boot.as_deref(), Some("b"));
    }

    #[test]
    fn every_field_may_have_every_type() {
        let values = [
            Bson::Null,
            Bson::Int32(-7),
            Bson::Double(1.5),
            Bson::from("x"),
            Bson::from(vec![1]),
            Bson::from(doc! { "boot": 1, "beat": "x", "host": 3, "pid": {}, "fence": [] }),
            Bson::from(DateTime::MIN),
        ];
        for field in ["_id", "timestamp", "maxthreads", "windlass", "queues"] {
            for value in &values {
                let mut document = entry();
                document.insert(field, value.clone());
                assert_eq!(Node::read(&document).unwrap().name, "host", "{field}: {value}");
            }
        }
        for value in values.into_iter().filter(|value| value.as_str().is_none()) {
            let mut document = entry();
            document.insert("node", value);
            assert_eq!(Node::read(&document).unwrap_err().field, "node");
        }
    }
}
