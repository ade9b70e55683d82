//! How a plugin gets its task: its command line, and the task as JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mongodb::bson::{Bson, Document};

use crate::config::{Plugin, PluginKind};
use crate::doc::{DateFormat, json};

/// The executable bits of a file's mode.
const RUNNABLE: u32 = 0o111;

/// The arguments of a plugin. `task` is the task's file, or its id for plugins that read it from
/// the database.
pub(crate) fn words(kind: PluginKind, config: &Path, task: &str, quiet: bool) -> Vec<String> {
    let mut words = Vec::new();
    if kind != PluginKind::NoMongo {
        words.extend(["--config".to_owned(), config.display().to_string()]);
    }
    words.extend(["--task".to_owned(), task.to_owned()]);
    if kind == PluginKind::Handoff && quiet {
        words.push("--quiet".to_owned());
    }
    words
}

pub(crate) fn is_by_file(kind: PluginKind) -> bool {
    matches!(kind, PluginKind::Default | PluginKind::NoMongo)
}

/// The claimed document without our own fields.
pub(crate) fn task_json(task: &Document) -> String {
    let mut task = task.clone();
    task.remove("windlass");
    json(&Bson::Document(task), DateFormat::Iso).to_string()
}

/// Why a plugin cannot run here, if so.
pub(crate) fn fault(plugin: &Plugin, task: &str) -> Option<String> {
    let program = &plugin.program;
    if !program.is_absolute() {
        let name = program.display();
        return Some(format!("plugin value '{name}' for task {task} must be a full path"));
    }
    let found = fs::metadata(program);
    let is_good =
        |found: fs::Metadata| found.is_file() && found.permissions().mode() & RUNNABLE != 0;
    if found.is_ok_and(is_good) {
        return None;
    }
    Some(format!("{} not found or not executable for task {task}", program.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::{DateTime, doc};

    use super::*;

    #[test]
    fn each_kind_of_plugin_has_its_own_words() {
        let words = |kind, quiet| words(kind, Path::new("/c-plugin"), "T", quiet).join(" ");
        for (kind, quiet, expected) in [
            (PluginKind::Default, true, "--config /c-plugin --task T"),
            (PluginKind::NoMongo, true, "--task T"),
            (PluginKind::Mongo, true, "--config /c-plugin --task T"),
            (PluginKind::Handoff, false, "--config /c-plugin --task T"),
            (PluginKind::Handoff, true, "--config /c-plugin --task T --quiet"),
        ] {
            assert_eq!(words(kind, quiet), expected);
        }
    }

    #[test]
    fn a_task_is_told_with_plain_ids_and_times_as_it_was_claimed() {
        let id = ObjectId::parse_str("571fac85ee63413233049fbd").unwrap();
        let mtime = DateTime::from_millis(1_461_693_573_000);
        let task = doc! {
            "_id": id, "status": -1, "node": "n", "mtime": mtime, "parameters": { "a": [1, "b"] },
            "stdout": Bson::Null, "windlass": { "boot": "b" },
        };
        let told: serde_json::Value = serde_json::from_str(&task_json(&task)).unwrap();
        let expected = serde_json::json!({
            "_id": "571fac85ee63413233049fbd", "status": -1, "node": "n",
            "mtime": "2016-04-26T17:59:33Z", "parameters": { "a": [1, "b"] }, "stdout": null,
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn a_plugin_is_an_executable_file_with_a_full_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugin");
        let fault = |program: PathBuf| {
            let name = "P".to_owned();
            fault(&Plugin { name, program, kind: PluginKind::Default, timeout: None }, "T")
        };
        let relative = fault("bin/x".into()).unwrap();
        assert_eq!(relative, "plugin value 'bin/x' for task T must be a full path");
        let not_there = format!("{} not found or not executable for task T", path.display());
        assert_eq!(fault(path.clone()), Some(not_there.clone()));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(fault(path.clone()), Some(not_there));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fault(path), None);
        assert!(fault(dir.path().into()).is_some());
    }
}
