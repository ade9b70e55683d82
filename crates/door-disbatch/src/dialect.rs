//! The two dialects of Disbatch's documents. Both are read everywhere; only the dialect of the
//! database is written.

use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::bson::Bson;

/// Used until a database shows its dialect.
pub(crate) const DEFAULT_DIALECT: Dialect = Dialect::Seed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The draft of 2016: `constructor`, `maxthreads` for each node, `parameters`, counters.
    Seed,
    /// Releases 4.0 to 4.4: `plugin`, `threads` over all nodes, `params`.
    Released,
}

impl Dialect {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "seed" => Some(Self::Seed),
            "released" => Some(Self::Released),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Released => "released",
        }
    }

    /// The field of a queue that names its plugin.
    pub(crate) fn plugin(self) -> &'static str {
        match self {
            Self::Seed => "constructor",
            Self::Released => "plugin",
        }
    }

    /// The field of a queue that limits how many of its tasks run at once.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Self::Seed => "maxthreads",
            Self::Released => "threads",
        }
    }

    /// The field of a task that holds its arguments.
    pub(crate) fn params(self) -> &'static str {
        match self {
            Self::Seed => "parameters",
            Self::Released => "params",
        }
    }

    /// The `node` of a task that no node has.
    pub(crate) fn unclaimed(self) -> Bson {
        match self {
            Self::Seed => Bson::Int32(-1),
            Self::Released => Bson::Null,
        }
    }
}

/// The current dialect of a database, which may become known only later.
#[derive(Debug)]
pub(crate) struct CurrentDialect {
    /// Configured, so it never changes.
    pub(crate) is_set: bool,
    is_seed: AtomicBool,
}

impl CurrentDialect {
    pub(crate) fn new(set: Option<Dialect>) -> Self {
        let dialect = set.unwrap_or(DEFAULT_DIALECT);
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

    #[test]
    fn names_come_back() {
        for dialect in [Dialect::Seed, Dialect::Released] {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        }
        assert_eq!(Dialect::from_name("3.9"), None);
    }

    #[test]
    fn what_is_not_set_is_the_seeds_until_it_is_learnt() {
        let spoken = CurrentDialect::new(None);
        assert_eq!((spoken.is_set, spoken.get()), (false, Dialect::Seed));
        spoken.learn(Dialect::Released);
        assert_eq!(spoken.get(), Dialect::Released);
        let set = CurrentDialect::new(Some(Dialect::Released));
        assert_eq!((set.is_set, set.get()), (true, Dialect::Released));
    }
}
