//! Execution nodes, and plugins that are small shell scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

use super::{Dialect, Home, Program, until, until_seen, when_some, windlass};

/// What every plugin of the tests can do. `$id` is the task, `$task` the value of `--task`. Gates
/// open when the test's folder is gone.
const PROLOGUE: &str = r#"#!/bin/sh
home='HOME'
args="$*"
config=
while [ $# -gt 0 ]; do
    case "$1" in
        --task) task=$2; shift;;
        --config) config=$2; shift;;
    esac
    shift
done
id=${task##*/}
id=${id%.json}
answer() { printf '%s' "$1" > "${task%.json}-response.json"; }
say() { answer "{\"status\":$1,\"stdout\":\"$2\",\"stderr\":\"$3\"}"; }
note() { echo "$1 $id" >> "$home/notes"; }
gate() {
    echo $$ > "$home/$id.tmp"; mv "$home/$id.tmp" "$home/$id.began"
    while [ -e "$home" ] && [ ! -e "$home/$id.open" ] && [ ! -e "$home/all.open" ]; do
        sleep 0.03
    done
}
"#;

/// Short, so that what depends on it happens within a test.
const HEARTBEAT: f64 = 0.4;

/// Long, because a node that cannot renew its lease on a busy machine kills what it runs.
const LONG_LEASE: f64 = 60.0;

/// For tests that wait until a node is considered dead. A fence has a fifth of it to kill what
/// runs, and a busy machine may need a second or two for that.
const SHORT_LEASE: f64 = 8.0;

/// The key of a node that is soon considered dead, and soon considers others dead.
pub(crate) fn short_lease() -> Value {
    json!({"orphan_after": SHORT_LEASE})
}

/// The same for a node that is considered dead later than those.
pub(crate) fn longer_lease() -> Value {
    json!({"orphan_after": 2.0 * SHORT_LEASE})
}

impl Home {
    /// A program with this kind of hand-over; returns its path, which is also its name.
    pub(crate) fn plugin(&self, kind: &str, script: &str) -> String {
        self.plugin_with(json!({"type": kind}), script)
    }

    pub(crate) fn plugin_with(&self, keys: Value, script: &str) -> String {
        let program = self.program(script);
        self.plugins.lock().unwrap().insert(program.clone(), keys);
        program
    }

    /// A program that no config lists.
    pub(crate) fn program(&self, script: &str) -> String {
        let file = self.path(&format!("plugin-{:08x}", fastrand::u32(..)));
        let prologue = PROLOGUE.replace("HOME", &self.folder().display().to_string());
        fs::write(&file, format!("{prologue}{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    }

    /// A plugin that succeeds and says so.
    pub(crate) fn ok(&self) -> String {
        self.plugin("default", "say 1 out err")
    }

    /// A plugin that starts, waits for its gate, and succeeds.
    pub(crate) fn gated(&self) -> String {
        self.plugin("default", "gate; say 1 out err")
    }

    /// A queue of a plugin with a limit.
    pub(crate) fn line(&self, plugin: &str, limit: i32) -> ObjectId {
        self.line_with(plugin, doc! {self.dialect.limit(): limit})
    }

    pub(crate) fn line_with(&self, plugin: &str, more: Document) -> ObjectId {
        let mut queue = doc! {
            "name": format!("queue-{:08x}", fastrand::u32(..)),
            self.dialect.plugin(): plugin,
        };
        queue.extend(more);
        self.mongo.insert("queues", queue)
    }

    /// Queued tasks.
    pub(crate) fn add(&self, queue: ObjectId, count: usize) -> Vec<ObjectId> {
        (0..count).map(|_| self.task(queue, -2)).collect()
    }

    /// The config of a node with this name; the plugins are those created before.
    pub(crate) fn den_config(&self, name: &str) -> Value {
        json!({
            "mongohost": self.mongo.host(),
            "database": self.mongo.name(),
            "dialect": self.dialect.word(),
            "node": name,
            "plugins": &*self.plugins.lock().unwrap(),
            "temp_dir": self.path("temp"),
            "heartbeat": HEARTBEAT,
            "orphan_after": LONG_LEASE,
            "stop_timeout": 1,
        })
    }

    /// A node that has entered the network.
    pub(crate) fn den(&self, name: &str) -> Program {
        self.den_with(name, json!({}))
    }

    /// A node whose config has these keys over the usual ones; null removes a key.
    pub(crate) fn den_with(&self, name: &str, keys: Value) -> Program {
        let mut den = self.den_unentered(name, keys);
        self.entered(name, &mut den);
        den
    }

    /// A node that may still be starting, or may never start.
    pub(crate) fn den_unentered(&self, name: &str, keys: Value) -> Program {
        let mut config = self.den_config(name);
        for (key, value) in keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        config.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.den_of(&self.write(&config))
    }

    pub(crate) fn den_of(&self, file: &Path) -> Program {
        Program::spawn(windlass(&["den", "--config", file.to_str().unwrap()]), self.folder())
    }

    /// Waits until the entry of this process is in `nodes`.
    pub(crate) fn entered(&self, name: &str, den: &mut Program) {
        let own = doc! {"node": name, "windlass.pid": i64::from(den.pid())};
        den.until_some("the node enters", || {
            let entry = self.mongo.one("nodes", own.clone())?;
            entry.contains_key("timestamp").then_some(())
        });
    }

    /// The node's entry.
    #[track_caller]
    pub(crate) fn entry(&self, name: &str) -> Document {
        self.mongo.one("nodes", doc! {"node": name}).unwrap_or_else(|| panic!("no node {name}"))
    }

    /// Waits until this many passes of the node have begun and ended: by then it has done what it
    /// is going to do.
    pub(crate) fn passes(&self, name: &str, count: usize) {
        for _ in 0..=count {
            let stamp = || self.entry(name).get("timestamp").cloned();
            let before = stamp();
            until("the node passes", || stamp() != before);
        }
    }

    /// Waits until the node has had the time to find everything dead: whatever was silent from now
    /// on, and something that was, is found. For nodes with a short lease.
    pub(crate) fn outlasts_a_lease(&self, name: &str) {
        let boot = format!("silent-{:08x}", fastrand::u32(..));
        let own = doc! {"boot": &boot, "beat": 1, "orphan_after": SHORT_LEASE, "host": "elsewhere"};
        self.mongo.insert("nodes", doc! {"node": &boot, "windlass": own});
        let held = doc! {"node": &boot, "windlass": {"boot": &boot, "node": &boot, "run": "r"}};
        let silent = self.task_with(self.line("/not/listed", 1), 0, held);
        self.reaches(silent, -6);
        self.passes(name, 1);
    }

    /// Waits until the task has this status; returns its document.
    #[track_caller]
    pub(crate) fn reaches(&self, task: ObjectId, status: i32) -> Document {
        let look = || self.mongo.get("tasks", task);
        until_seen(&format!("{task} becomes {status}"), look, |found| status_of(found) == status)
    }

    /// Waits until the task has ended in any way.
    #[track_caller]
    pub(crate) fn ends(&self, task: ObjectId) -> Document {
        let look = || self.mongo.get("tasks", task);
        let has_ended = |found: &Document| status_of(found) > 0 || status_of(found) < -2;
        until_seen(&format!("{task} ends"), look, has_ended)
    }

    /// Waits until all of them have this status.
    #[track_caller]
    pub(crate) fn all_reach(&self, tasks: &[ObjectId], status: i32) {
        for task in tasks {
            self.reaches(*task, status);
        }
    }

    pub(crate) fn status(&self, task: ObjectId) -> i32 {
        status_of(&self.mongo.get("tasks", task))
    }

    /// How many tasks of a queue are claimed or run.
    pub(crate) fn active(&self, queue: ObjectId) -> u64 {
        let filter = doc! {"queue": queue, "status": {"$in": [-1, 0]}};
        self.mongo.count_now("tasks", filter)
    }

    /// Waits until a gated task runs; returns the process id of its plugin.
    pub(crate) fn began(&self, task: ObjectId) -> i32 {
        let file = self.path(&format!("{task}.began"));
        let began = when_some(|| fs::read_to_string(&file).ok()?.trim().parse().ok());
        began.unwrap_or_else(|| {
            panic!("waited in vain: {task} begins: {}", self.mongo.get("tasks", task))
        })
    }

    pub(crate) fn has_begun(&self, task: ObjectId) -> bool {
        self.path(&format!("{task}.began")).exists()
    }

    pub(crate) fn open(&self, task: ObjectId) {
        fs::write(self.path(&format!("{task}.open")), "").unwrap();
    }

    pub(crate) fn open_all(&self) {
        fs::write(self.path("all.open"), "").unwrap();
    }

    /// What plugins recorded: a word and the task.
    pub(crate) fn notes(&self) -> Vec<(String, ObjectId)> {
        let text = fs::read_to_string(self.path("notes")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let pairs = whole.lines().map(|line| line.split_once(' ').unwrap());
        pairs.map(|(word, id)| (word.to_owned(), ObjectId::parse_str(id).unwrap())).collect()
    }
}

/// The status of a task.
#[track_caller]
pub(crate) fn status_of(task: &Document) -> i32 {
    let status = task.int("status").unwrap_or_else(|| panic!("no status: {task}"));
    i32::try_from(status).unwrap()
}

/// Fields by type; none if missing or of another type.
pub(crate) trait Fields {
    fn text(&self, key: &str) -> Option<&str>;
    /// Of any of the types of whole numbers.
    fn int(&self, key: &str) -> Option<i64>;
    fn oid(&self, key: &str) -> Option<ObjectId>;
    fn date(&self, key: &str) -> Option<DateTime>;
}

impl Fields for Document {
    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    fn int(&self, key: &str) -> Option<i64> {
        let value = self.get(key)?;
        value.as_i64().or(value.as_i32().map(i64::from))
    }

    fn oid(&self, key: &str) -> Option<ObjectId> {
        self.get(key)?.as_object_id()
    }

    fn date(&self, key: &str) -> Option<DateTime> {
        self.get(key)?.as_datetime().copied()
    }
}

/// Runs a test in both dialects at the same time.
pub(crate) fn in_both(test: impl Fn(Home) + Sync) {
    std::thread::scope(|scope| {
        for dialect in [Dialect::Seed, Dialect::Released] {
            let test = &test;
            let named = std::thread::Builder::new().name(dialect.word().to_owned());
            named.spawn_scoped(scope, move || test(Home::new(dialect))).unwrap();
        }
    });
}
