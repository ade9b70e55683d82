//! Configuration files as users of the programs write them.

use std::fmt::Write as _;
use std::path::Path;

/// Keys in their order, and the targets.
#[derive(Clone)]
pub(crate) struct Conf {
    keys: Vec<(String, String)>,
    targets: Option<Vec<(String, String)>>,
}

impl Conf {
    pub(crate) fn new(keys: &[(&str, &str)]) -> Self {
        let keys = keys.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Self { keys, targets: None }
    }

    pub(crate) fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.into(), value.to_string()));
        self
    }

    pub(crate) fn without(mut self, key: &str) -> Self {
        self.keys.retain(|(known, _)| known != key);
        self
    }

    pub(crate) fn targets(mut self, targets: &[(&str, &str)]) -> Self {
        let own = targets.iter().map(|(name, n)| ((*name).into(), (*n).into()));
        self.targets = Some(own.collect());
        self
    }

    pub(crate) fn without_targets(mut self) -> Self {
        self.targets = None;
        self
    }

    pub(crate) fn port(&self) -> u16 {
        let found = self.keys.iter().find(|(key, _)| key == "port").expect("a port");
        found.1.parse().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.keys {
            writeln!(text, "{key} = {value}").unwrap();
        }
        if let Some(targets) = &self.targets {
            text.push_str("[targets]\n");
            for (name, n) in targets {
                writeln!(text, "{name} = {n}").unwrap();
            }
        }
        text
    }

    pub(crate) fn write(&self, file: &Path) {
        std::fs::write(file, self.text()).unwrap();
    }
}
