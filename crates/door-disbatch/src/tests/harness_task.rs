//! Tasks run by small shell scripts. The test itself writes what a plugin would write to the
//! database, while the script waits at its gate.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::config::{Gfs, Plugin, PluginKind};
use crate::database::{Clock, Database, NodeBoot, token};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::task::{EndHandle, RunContext, RunEnd, TaskToRun, Temp, end_signal, run};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use windlass_core::launch::{BootTime, Fence};
use windlass_runner::CommandLauncher;
use windlass_test_kit::process;
pub(crate) use windlass_test_kit::wait::eventually as until;

use crate::tests::base::{Background, collection, fresh};

/// `$dir` is the test's directory, `$task` the value of `--task`.
const PROLOGUE: &str = r#"#!/bin/sh
dir='DIR'
printf '%s\n' "$*" > "$dir/args"
while [ $# -gt 0 ]; do
    case "$1" in --task) task=$2; shift;; esac
    shift
done
answer() { case "$task" in /*) printf '%s' "$1" > "${task%.json}-response.json";; esac; }
begin() { echo $$ > "$dir/part"; mv "$dir/part" "$dir/began"; }
gate() { begin; while [ -e "$dir" ] && [ ! -e "$dir/open" ]; do sleep 0.02; done; }
"#;

/// A fence that only records calls.
#[derive(Default)]
pub(crate) struct RecordingFence {
    pub(crate) fired: AtomicU64,
    pub(crate) gone: AtomicBool,
    pub(crate) over: AtomicBool,
    /// How often it was checked for a process.
    pub(crate) asked: AtomicU64,
}

impl Fence for RecordingFence {
    fn mark(&self) -> (String, String) {
        ("WINDLASS_FENCE".into(), "the-boot".into())
    }

    fn tick(&self, _: BootTime) {}

    fn fired(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }

    fn allows(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    fn process_id(&self) -> Option<u32> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (!self.gone.load(Ordering::SeqCst)).then_some(1)
    }

    fn end_left_by(&self, _: &str) {}
}

pub(crate) struct Bench {
    pub(crate) database: Database,
    pub(crate) dialect: Dialect,
    pub(crate) me: NodeBoot,
    pub(crate) fence: Arc<RecordingFence>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) context: Arc<RunContext>,
    dir: tempfile::TempDir,
}

/// A claimed task in progress.
pub(crate) struct Started {
    pub(crate) id: ObjectId,
    pub(crate) handle: EndHandle,
    pub(crate) ran: Background<RunEnd>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::on(fresh().await, Dialect::Released)
    }

    pub(crate) fn on(database: Database, dialect: Dialect) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fence = Arc::new(RecordingFence::default());
        let context = RunContext {
            database: database.speaking(dialect),
            launcher: Arc::new(CommandLauncher::new().unwrap()),
            fence: Some(fence.clone()),
            clock: Clock::system(),
            temp: Arc::new(Temp::open(&dir.path().join("temp"), 0o755).unwrap()),
            gfs: Gfs::Auto,
            quiet: true,
            plugin_config: "/etc/config.json-plugin".into(),
        };
        let me = NodeBoot { node: "here".into(), boot: token() };
        let context = Arc::new(context);
        Self { database, dialect, me, fence, timeout: None, context, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn plugin(&self, kind: PluginKind, script: &str) -> Plugin {
        let program = self.path("plugin");
        let prologue = PROLOGUE.replace("DIR", &self.dir.path().display().to_string());
        fs::write(&program, format!("{prologue}{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Plugin { name: "P".into(), program, kind, timeout: self.timeout }
    }

    /// Adds a task to a new queue.
    pub(crate) async fn add(&self, more: Document) -> (Queue, ObjectId) {
        let name = format!("queue-{:016x}", fastrand::u64(..));
        let mut document = doc! { "_id": ObjectId::new(), "name": name };
        document.extend(doc! { self.dialect.plugin(): "P", self.dialect.limit(): 9 });
        collection(&self.database, "queues").insert_one(&document).await.unwrap();
        let queue = Queue::read(&document, self.dialect).unwrap();
        let id = ObjectId::new();
        let mut task = doc! {
            "_id": id, "queue": queue.id, "status": -2, "node": self.dialect.unclaimed(),
            "ctime": mongodb::bson::DateTime::now(), "mtime": mongodb::bson::DateTime::now(),
            "stdout": Bson::Null, "stderr": Bson::Null,
        };
        task.extend(doc! { self.dialect.params(): { "user": "a" } });
        task.extend(more);
        collection(&self.database, "tasks").insert_one(task).await.unwrap();
        (queue, id)
    }

    pub(crate) async fn claim(&self, queue: &Queue, plugin: Plugin) -> TaskToRun {
        let now = self.context.clock.now();
        let task = self.database.claim(queue, &self.me, &token(), now).await.unwrap().unwrap();
        let (me, queue) = (self.me.clone(), queue.clone());
        TaskToRun { me, task, queue, plugin }
    }

    /// Claims a new task and starts to run it.
    pub(crate) async fn start(&self, kind: PluginKind, script: &str, more: Document) -> Started {
        let (queue, id) = self.add(more).await;
        let work = self.claim(&queue, self.plugin(kind, script)).await;
        self.start_work(id, work)
    }

    pub(crate) fn start_work(&self, id: ObjectId, work: TaskToRun) -> Started {
        let (handle, end_signal) = end_signal();
        let context = self.context.clone();
        Started {
            id,
            handle,
            ran: Background::spawn(async move { run(&context, work, end_signal).await }),
        }
    }

    /// Runs a new task to its end.
    pub(crate) async fn run(&self, kind: PluginKind, script: &str) -> (RunEnd, Document) {
        self.run_with(kind, script, doc! {}).await
    }

    pub(crate) async fn run_with(
        &self,
        kind: PluginKind,
        script: &str,
        more: Document,
    ) -> (RunEnd, Document) {
        let started = self.start(kind, script, more).await;
        let ran = started.ran.await.unwrap();
        (ran, self.task(started.id).await)
    }

    pub(crate) async fn task(&self, id: ObjectId) -> Document {
        self.database.task(id).await.unwrap().unwrap()
    }

    pub(crate) async fn update(&self, id: ObjectId, update: Document) {
        let tasks = collection(&self.database, "tasks");
        tasks.update_one(doc! { "_id": id }, update).await.unwrap();
    }

    /// Waits until the script is at its gate, and returns its process id.
    pub(crate) async fn began(&self) -> i32 {
        let path = self.path("began");
        until("the plugin begins", || fs::read_to_string(&path).ok()?.trim().parse().ok()).await
    }

    pub(crate) fn open(&self) {
        fs::write(self.path("open"), "").unwrap();
    }

    /// The remaining entries of the temporary directory.
    pub(crate) fn left(&self) -> Vec<String> {
        let dirs = fs::read_dir(self.path("temp")).unwrap();
        let files = dirs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }
}

pub(crate) fn is_alive(pid: i32) -> bool {
    process::is_alive(pid)
}

pub(crate) fn text<'a>(document: &'a Document, name: &str) -> Option<&'a str> {
    document.get(name).and_then(Bson::as_str)
}

pub(crate) fn number(document: &Document, name: &str) -> Option<i32> {
    document.get(name).and_then(Bson::as_i32)
}
