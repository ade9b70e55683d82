//! The two dialects of Disbatch's documents. Both are read everywhere; the one that is in force for
//! a database is written.

use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::bson::{Bson, Document};

/// That of a database which shows none.
pub const UNTOLD: Dialect = Dialect::Seed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The draft of 2016: `constructor`, `maxthreads` for each node, `parameters`, counters.
    Seed,
    /// Releases 4.0 to 4.4: `plugin`, `threads` over all nodes, `params`.
    Released,
}

impl Dialect {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "seed" => Some(Self::Seed),
            "released" => Some(Self::Released),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Released => "released",
        }
    }

    /// The field of a queue that names its plugin.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Seed => "constructor",
            Self::Released => "plugin",
        }
    }

    /// The field of a queue that limits how many of its tasks run at once.
    pub fn limit(self) -> &'static str {
        match self {
            Self::Seed => "maxthreads",
            Self::Released => "threads",
        }
    }

    /// The field of a task that holds its arguments.
    pub fn params(self) -> &'static str {
        match self {
            Self::Seed => "parameters",
            Self::Released => "params",
        }
    }

    /// The `node` of a task that nobody has.
    pub fn unclaimed(self) -> Bson {
        match self {
            Self::Seed => Bson::Int32(-1),
            Self::Released => Bson::Null,
        }
    }

    /// Tells from what a queue looks like; `None` when it could be either.
    pub fn of_queue(queue: &Document) -> Option<Self> {
        let has = |field| queue.contains_key(field);
        if has("constructor") || has("count_todo") {
            Some(Self::Seed)
        } else if has("plugin") || has("threads") {
            Some(Self::Released)
        } else {
            None
        }
    }

    /// Tells from what a task looks like; `None` when it could be either.
    pub fn of_task(task: &Document) -> Option<Self> {
        if task.contains_key("parameters") {
            Some(Self::Seed)
        } else if task.contains_key("params") {
            Some(Self::Released)
        } else {
            None
        }
    }
}

/// The dialect in force for a database, which may become known only later.
#[derive(Debug)]
pub(crate) struct Spoken {
    /// By the configuration, for good.
    pub(crate) is_set: bool,
    is_seed: AtomicBool,
}

impl Spoken {
    pub(crate) fn new(set: Option<Dialect>) -> Self {
        let dialect = set.unwrap_or(UNTOLD);
        Self { is_set: set.is_some(), is_seed: AtomicBool::new(dialect == Dialect::Seed) }
    }

    pub(crate) fn get(&self) -> Dialect {
        if self.is_seed.load(Ordering::Relaxed) { Dialect::Seed } else { Dialect::Released }
    }

    pub(crate) fn learn(&self, dialect: Dialect) {
        self.is_seed.store(dialect == Dialect::Seed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn a_queue_tells_its_dialect() {
        let seed = doc! { "name": "a", "constructor": "X" };
        assert_eq!(Dialect::of_queue(&seed), Some(Dialect::Seed));
        let counted = doc! { "name": "a", "plugin": "X", "count_todo": 0 };
        assert_eq!(Dialect::of_queue(&counted), Some(Dialect::Seed));
        let released = doc! { "name": "a", "plugin": "X", "threads": 1 };
        assert_eq!(Dialect::of_queue(&released), Some(Dialect::Released));
        assert_eq!(Dialect::of_queue(&doc! { "name": "a" }), None);
    }

    #[test]
    fn a_task_tells_its_dialect() {
        assert_eq!(Dialect::of_task(&doc! { "parameters": {} }), Some(Dialect::Seed));
        assert_eq!(Dialect::of_task(&doc! { "params": {} }), Some(Dialect::Released));
        assert_eq!(Dialect::of_task(&doc! {}), None);
    }

    #[test]
    fn names_come_back() {
        for dialect in [Dialect::Seed, Dialect::Released] {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        }
        assert_eq!(Dialect::from_name("3.9"), None);
    }
}
