//! The log lines of one daemon.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_test_kit::folder::whole_lines;

/// Read from the file that the daemon prints to.
pub(crate) struct LogBook {
    file: PathBuf,
}

impl LogBook {
    pub(crate) fn of(file: &Path) -> LogBook {
        LogBook { file: file.to_owned() }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        whole_lines(&self.file)
    }

    /// All lines that are JSON, in order.
    pub(crate) fn entries(&self) -> Vec<Value> {
        self.lines().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The entries about jobs: `job_entered`, `job_started`, `job_ended`.
    pub(crate) fn job_events(&self) -> Vec<Value> {
        let is_job = |entry: &Value| {
            field(entry, "event").as_str().is_some_and(|event| event.starts_with("job_"))
        };
        self.entries().into_iter().filter(is_job).collect()
    }

    /// The events of one kind.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.job_events().into_iter().filter(|entry| field(entry, "event") == event).collect()
    }

    /// The names of one job's events, in order.
    pub(crate) fn story(&self, id: &str) -> Vec<String> {
        let events = self.job_events();
        let own = events.iter().filter(|entry| field(entry, "id") == id);
        own.map(|entry| field(entry, "event").as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A value of a log line, whether the line is flat or has its values in `fields`.
pub(crate) fn field<'a>(entry: &'a Value, name: &str) -> &'a Value {
    match &entry[name] {
        Value::Null => &entry["fields"][name],
        value => value,
    }
}
