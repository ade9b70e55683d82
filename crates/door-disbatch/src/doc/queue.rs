//! A queue's document.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

use super::{Invalid, Limit, first, is_nothing, object_id, ours, text, whole};
use crate::dialect::Dialect;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Queue {
    pub id: ObjectId,
    pub name: String,
    pub plugin: String,
    /// Per node in the seed's dialect, across all nodes in the released one.
    pub limit: Limit,
    pub limit_stored: LimitStored,
    pub sort: Sort,
    /// Whether any task of the queue may have a priority.
    pub priorities: bool,
    /// The slots that our nodes have taken, in order.
    pub holds: Vec<Hold>,
    /// The seed's counters; `None` if not set yet. Text cannot be incremented.
    pub count_todo: Option<i64>,
    pub count_total: Option<i64>,
}

/// A limit as stored, of any type, for use in filters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LimitStored {
    pub field: &'static str,
    pub value: Bson,
}

impl LimitStored {
    /// The dialect's own field applies if present, even as null; otherwise the other dialect's.
    pub(crate) fn of(document: &Document, dialect: Dialect) -> Self {
        let fields = match dialect {
            Dialect::Seed => ["maxthreads", "threads"],
            Dialect::Released => ["threads", "maxthreads"],
        };
        let present = fields.into_iter().find(|field| document.contains_key(field));
        let field = present.unwrap_or(fields[0]);
        Self { field, value: document.get(field).cloned().unwrap_or(Bson::Null) }
    }
}

/// One slot of a queue's limit that a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub id: String,
    pub boot: String,
}

/// The order in which a queue's tasks are claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sort {
    Fifo,
    Lifo,
    /// In the database's order.
    Default,
    /// An unknown value: logged as a warning, and the order is the database's.
    Unknown(String),
}

impl Queue {
    pub(crate) fn read(document: &Document, dialect: Dialect) -> Result<Self, Invalid> {
        let ours = ours(document)?;
        let (limit, limit_stored) = read_limit(document, dialect)?;
        let counter = |field: &str| {
            document.get(field).filter(|value| value.as_str().is_none()).and_then(whole)
        };
        Ok(Self {
            id: object_id(document, "_id")?,
            name: text(document, "name")?,
            plugin: read_plugin(document, dialect)?,
            limit,
            limit_stored,
            sort: Sort::read(document.get("sort")),
            priorities: ours.get("priorities") == Some(&Bson::Boolean(true)),
            holds: read_holds(&ours)?,
            count_todo: counter("count_todo"),
            count_total: counter("count_total"),
        })
    }
}

fn read_plugin(document: &Document, dialect: Dialect) -> Result<String, Invalid> {
    let other = match dialect {
        Dialect::Seed => Dialect::Released,
        Dialect::Released => Dialect::Seed,
    };
    match first(document, &[dialect.plugin(), other.plugin()]) {
        Some((field, _)) => text(document, field),
        None => text(document, dialect.plugin()),
    }
}

fn read_limit(document: &Document, dialect: Dialect) -> Result<(Limit, LimitStored), Invalid> {
    let absent = match dialect {
        Dialect::Seed => Limit::Unlimited,
        Dialect::Released => Limit::At(0),
    };
    let stored = LimitStored::of(document, dialect);
    Ok((Limit::read(stored.field, Some(&stored.value), absent)?, stored))
}

fn read_holds(ours: &Document) -> Result<Vec<Hold>, Invalid> {
    const FIELD: &str = "windlass.holds";
    let holds = match ours.get("holds") {
        None => return Ok(Vec::new()),
        Some(Bson::Array(holds)) => holds,
        Some(other) => return Err(Invalid::not(FIELD, "an array", other)),
    };
    let read = |hold: &Bson| {
        let Bson::Document(hold) = hold else {
            return Err(Invalid::not(FIELD, "an array of documents", hold));
        };
        Ok(Hold { id: text(hold, "id")?, boot: text(hold, "boot")? })
    };
    holds.iter().map(read).collect()
}

impl Sort {
    fn read(value: Option<&Bson>) -> Self {
        match value {
            None => Self::Default,
            Some(nothing) if is_nothing(nothing) => Self::Default,
            Some(Bson::String(word)) => match word.as_str() {
                "fifo" => Self::Fifo,
                "lifo" => Self::Lifo,
                "default" => Self::Default,
                _ => Self::Unknown(word.clone()),
            },
            Some(other) => Self::Unknown(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{DateTime, doc};

    fn seed() -> Document {
        doc! {
            "_id": ObjectId::new(), "name": "demo", "constructor": "Disbatch::Plugin::Demo",
            "maxthreads": 2, "sort": "fifo", "count_todo": 3_i64, "count_total": 4.0,
        }
    }

    #[test]
    fn both_dialects_are_read_in_both() {
        let released = doc! {
            "_id": ObjectId::new(), "name": "demo", "plugin": "P", "threads": 7_i64,
        };
        for dialect in [Dialect::Seed, Dialect::Released] {
            assert_eq!(Queue::read(&seed(), dialect).unwrap().plugin, "Disbatch::Plugin::Demo");
            let queue = Queue::read(&released, dialect).unwrap();
            assert_eq!((queue.plugin.as_str(), queue.limit), ("P", Limit::At(7)));
        }
        let queue = Queue::read(&seed(), Dialect::Released).unwrap();
        assert_eq!(queue.limit, Limit::At(2));
        let queue = Queue::read(&seed(), Dialect::Seed).unwrap();
        assert_eq!(queue.limit, Limit::At(2));
        assert_eq!(queue.sort, Sort::Fifo);
        assert_eq!((queue.count_todo, queue.count_total), (Some(3), Some(4)));
    }

    #[test]
    fn a_limit_that_is_not_there_differs_between_the_dialects() {
        let mut queue = seed();
        queue.remove("maxthreads");
        for field in ["sort", "maxthreads", "threads"] {
            queue.insert(field, Bson::Null);
            assert_eq!(Queue::read(&queue, Dialect::Seed).unwrap().limit, Limit::Unlimited);
            assert_eq!(Queue::read(&queue, Dialect::Released).unwrap().limit, Limit::At(0));
        }
    }

    #[test]
    fn the_field_of_the_dialect_in_force_wins() {
        let mut queue = seed();
        queue.insert("plugin", "Other");
        queue.insert("threads", 9);
        let read = Queue::read(&queue, Dialect::Seed).unwrap();
        assert_eq!((read.plugin.as_str(), read.limit), ("Disbatch::Plugin::Demo", Limit::At(2)));
        let read = Queue::read(&queue, Dialect::Released).unwrap();
        assert_eq!((read.plugin.as_str(), read.limit), ("Other", Limit::At(9)));
        // Null is a value, too: nothing runs, whatever the old field says.
        queue.insert("threads", Bson::Null);
        assert_eq!(Queue::read(&queue, Dialect::Released).unwrap().limit, Limit::At(0));
    }

    #[test]
    fn a_limit_is_kept_as_it_is_stored() {
        let mut queue = seed();
        queue.insert("threads", "4");
        let read = Queue::read(&queue, Dialect::Released).unwrap();
        let stored = LimitStored { field: "threads", value: Bson::from("4") };
        assert_eq!((read.limit, read.limit_stored), (Limit::At(4), stored));
    }

    #[test]
    fn an_unknown_order_is_told_and_not_refused() {
        for (stored, sort) in [
            (Bson::from("lifo"), Sort::Lifo),
            (Bson::from("default"), Sort::Default),
            (Bson::Null, Sort::Default),
            (Bson::from("FIFO"), Sort::Unknown("FIFO".to_owned())),
            (Bson::Int32(1), Sort::Unknown("1".to_owned())),
        ] {
            let mut queue = seed();
            queue.insert("sort", stored);
            assert_eq!(Queue::read(&queue, Dialect::Seed).unwrap().sort, sort);
        }
    }

    #[test]
    fn holds_come_in_their_order() {
        let mut queue = seed();
        let holds = vec![doc! { "id": "1", "boot": "a" }, doc! { "id": "2", "boot": "b" }];
        queue.insert("windlass", doc! { "holds": holds, "priorities": true });
        let read = Queue::read(&queue, Dialect::Released).unwrap();
        let ids: Vec<_> = read.holds.iter().map(|hold| hold.id.as_str()).collect();
        assert_eq!((ids, read.priorities), (vec!["1", "2"], true));
    }

    #[test]
    fn every_field_may_have_every_type() {
        let values = [
            Bson::Null,
            Bson::Undefined,
            Bson::Int32(-7),
            Bson::Double(1.5),
            Bson::from("x"),
            Bson::Boolean(false),
            Bson::from(vec![1]),
            Bson::from(doc! { "a": 1 }),
            Bson::from(doc! { "holds": 5, "priorities": "yes" }),
            Bson::from(doc! { "holds": [5] }),
            Bson::from(doc! { "holds": [{ "id": 1, "boot": 2 }] }),
            Bson::from(DateTime::MIN),
            Bson::from(ObjectId::new()),
        ];
        let fields: Vec<String> = seed()
            .keys()
            .cloned()
            .chain(["threads", "plugin", "windlass"].map(str::to_owned))
            .collect();
        for field in &fields {
            for value in &values {
                let mut queue = seed();
                queue.insert(field, value.clone());
                for dialect in [Dialect::Seed, Dialect::Released] {
                    if let Err(odd) = Queue::read(&queue, dialect) {
                        assert!(!odd.why.is_empty() && !odd.field.is_empty());
                    }
                }
            }
        }
        for field in ["_id", "name", "constructor", "maxthreads", "windlass"] {
            let mut queue = seed();
            queue.insert(field, true);
            let odd = Queue::read(&queue, Dialect::Seed).unwrap_err();
            assert_eq!(odd.field, field);
        }
    }
}
