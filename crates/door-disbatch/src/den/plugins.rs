//! Which queues this node serves, and by which programs.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;

use crate::config::{Config, Plugin};
use crate::doc::Queue;

/// How long the result of a program check stays valid.
const BELIEVED: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Programs {
    checked: HashMap<PathBuf, (Instant, Option<String>)>,
}

impl Programs {
    /// The program for a queue's tasks, or the reason why this node does not serve the queue.
    pub(super) fn of(&mut self, queue: &Queue, config: &Config) -> Result<Plugin, String> {
        if !is_served(queue.id, config) {
            return Err("the configuration excludes it on this node".into());
        }
        let name = &queue.plugin;
        let Some(plugin) = config.plugins.get(name) else {
            return Err(format!("its plugin {name} is not listed in `plugins`"));
        };
        if !plugin.program.is_absolute() {
            return Err(format!("its plugin {name} has no `program` in the configuration"));
        }
        match self.fault(&plugin.program) {
            Some(fault) => Err(format!("its plugin {name} cannot be used: {fault}")),
            None => Ok(plugin.clone()),
        }
    }

    fn fault(&mut self, program: &Path) -> Option<String> {
        if let Some((at, fault)) = self.checked.get(program)
            && at.elapsed() < BELIEVED
        {
            return fault.clone();
        }
        self.checked.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        let fault = fault_of(program);
        self.checked.insert(program.to_owned(), (Instant::now(), fault.clone()));
        fault
    }
}

/// `activequeues` takes precedence if both lists exist.
fn is_served(queue: ObjectId, config: &Config) -> bool {
    let id = queue.to_hex();
    match config.active_queues.is_empty() {
        false => config.active_queues.contains(&id),
        true => !config.ignore_queues.contains(&id),
    }
}

fn fault_of(program: &Path) -> Option<String> {
    let shown = program.display();
    match std::fs::metadata(program) {
        Err(error) => Some(format!("{shown}: {error}")),
        Ok(found) if !found.is_file() => Some(format!("{shown} is not a file")),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Some(format!("{shown} is not executable"))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use mongodb::bson::doc;

    fn config(keys: serde_json::Value) -> Config {
        let mut all = serde_json::json!({ "mongohost": "mongodb://h", "database": "d" });
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        Config::parse(&all.to_string(), Path::new("/c")).unwrap().0
    }

    fn queue(plugin: &str) -> Queue {
        let document = doc! { "_id": ObjectId::new(), "name": "q", "constructor": plugin };
        Queue::read(&document, Dialect::Seed).unwrap()
    }

    #[test]
    fn lists_of_queues_choose_and_the_first_wins() {
        let one = queue("/bin/true");
        let id = one.id.to_hex();
        let other = ObjectId::new().to_hex();
        for (active, ignore, served) in [
            (vec![], vec![], true),
            (vec![&id], vec![], true),
            (vec![&other], vec![], false),
            (vec![], vec![&id], false),
            (vec![], vec![&other], true),
            (vec![&id], vec![&id], true),
        ] {
            let keys = serde_json::json!({ "activequeues": active, "ignorequeues": ignore });
            assert_eq!(is_served(one.id, &config(keys)), served, "{active:?} {ignore:?}");
        }
    }

    #[test]
    fn a_plugin_must_be_listed_and_be_a_program() {
        let keys = serde_json::json!({ "plugins": {
            "/bin/sh": {}, "/dev/null": {}, "/no/such": {}, "/etc/passwd": {}, "Some::Package": {},
        } });
        let config = config(keys);
        let mut programs = Programs::default();
        let mut why = |plugin: &str| programs.of(&queue(plugin), &config).err();
        assert_eq!(why("/bin/sh"), None);
        for (plugin, part) in [
            ("/bin/true", "not listed in `plugins`"),
            ("/dev/null", "not a file"),
            ("/no/such", "No such file"),
            ("/etc/passwd", "not executable"),
            ("Some::Package", "no `program`"),
        ] {
            let said = why(plugin).unwrap();
            assert!(said.contains(part), "{plugin}: {said}");
        }
    }
}
