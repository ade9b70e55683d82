//! What a worker waits for.

use windlass_core::edit::Names;
use windlass_core::{Priority, Tenant, TypeName};

#[derive(Debug, Clone)]
pub(crate) struct Interest {
    pub tenant: Tenant,
    pub names: Vec<Pattern>,
    pub priority: Option<Priority>,
    /// Jobs with larger payloads are not for this worker.
    pub payload_bytes_max: u64,
    /// Hidden jobs too.
    pub hidden: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Pattern {
    Name(TypeName),
    Glob(String),
}

impl Pattern {
    /// Most patterns are plain names, which are found by lookup.
    pub(crate) fn of(text: &str) -> Pattern {
        let name = (!text.contains(['*', '?', '['])).then(|| TypeName::new(text).ok()).flatten();
        name.map_or_else(|| Pattern::Glob(text.to_owned()), Pattern::Name)
    }

    pub(crate) fn of_names(names: &Names) -> Vec<Pattern> {
        match names {
            Names::Glob(text) => vec![Pattern::of(text)],
            Names::AnyOf(names) => names.iter().cloned().map(Pattern::Name).collect(),
        }
    }
}

impl Interest {
    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |pattern: &Pattern| {
            let text = match pattern {
                Pattern::Name(name) => name.as_str(),
                Pattern::Glob(text) => text,
            };
            size_of::<Pattern>() + text.len()
        };
        self.names.iter().map(bytes).sum()
    }
}
