//! A whole node in the process of the test, whose way to the database is the proxy's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::Config;
use crate::database::{Database, NewQueue, NewTask};
use crate::den::{self, Tools};
use crate::dialect::Dialect;
use crate::doc::Queue;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use serde_json::json;
use windlass_program::Stop;
use windlass_runner::CommandLauncher;
use windlass_test_servers::mongodb;

use crate::tests::base::{Beside, collection, connect};
use crate::tests::harness::{happens, read, read_queue};
use crate::tests::harness_task::Watcher;
use crate::tests::proxy::{Fate, Handle, Proxy, server_address};

/// Ends well at once.
pub(crate) const GOOD: &str = "";
/// Begins, and ends well when its gate is open.
pub(crate) const GATED: &str = r#"
echo > "$dir/$id.began"
while [ -e "$dir" ] && [ ! -e "$dir/$id.open" ]; do sleep 0.02; done
"#;

const PLUGIN: &str = r#"#!/bin/sh
dir='DIR'
file=$2
id=${file##*/}
id=${id%.json}
echo "$id" >> "$dir/ran"
SCRIPT
printf '{"status":1,"stdout":"out"}' > "${file%.json}-response.json"
"#;

/// The world of one node, which is not started yet.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    /// The same database, by a way on which nothing is lost.
    pub(crate) sure: Database,
    pub(crate) dialect: Dialect,
    pub(crate) fence: Arc<Watcher>,
    pub(crate) stop: Stop,
    name: String,
    passes: Handle,
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new(dialect: Dialect, script: &str) -> Self {
        let name = mongodb().new_database();
        let proxy = Proxy::start(server_address().await).await;
        let sure = connect(&mongodb().url(), &name).await;
        let passes = proxy.each(Fate::Pass, |it| {
            it.is_on("findAndModify", "nodes") && !it.mentions("orphan_after")
        });
        let dir = tempfile::tempdir().unwrap();
        let (fence, stop) = (Arc::new(Watcher::default()), Stop::default());
        let world = Self { proxy, sure, dialect, fence, stop, name, passes, dir };
        let text = PLUGIN.replace("DIR", &world.dir.path().display().to_string());
        fs::write(world.path("plugin"), text.replace("SCRIPT", script)).unwrap();
        fs::set_permissions(world.path("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn queue(&self, limit: i64) -> Queue {
        let new = NewQueue {
            name: format!("queue-{:08x}", fastrand::u32(..)),
            plugin: self.path("plugin").display().to_string(),
            limit: Some(limit),
            sort: None,
        };
        let id = self.sure.speaking(self.dialect).queue_insert(&new).await.unwrap();
        self.read_queue(id).await
    }

    pub(crate) async fn read_queue(&self, id: ObjectId) -> Queue {
        read_queue(&self.sure, id, self.dialect).await
    }

    pub(crate) async fn tasks(&self, queue: &Queue, count: usize) -> Vec<ObjectId> {
        let (new, now) = (vec![NewTask::default(); count], mongodb::bson::DateTime::now());
        self.sure.speaking(self.dialect).tasks_create(queue.id, &new, now).await.unwrap()
    }

    /// Starts the node. Where its times do not matter they are long.
    pub(crate) fn start(&self) -> Beside<Result<(), String>> {
        self.start_with(5.0, 3600.0)
    }

    pub(crate) fn start_with(
        &self,
        heartbeat: f64,
        orphan_after: f64,
    ) -> Beside<Result<(), String>> {
        let plugin = self.path("plugin").display().to_string();
        let config = json!({
            "mongohost": self.proxy.url(), "database": self.name, "node": "here",
            "dialect": self.dialect.name(), "plugins": { plugin: { "type": "nomongo" } },
            "temp_dir": self.path("temp"), "heartbeat": heartbeat, "orphan_after": orphan_after,
            "stop_timeout": 0.1,
        });
        let (config, _) = Config::parse(&config.to_string(), &self.path("config")).unwrap();
        let tools = Tools {
            launcher: Arc::new(CommandLauncher::new().unwrap()),
            fence: self.fence.clone(),
            version: "test".to_owned(),
            runs_max: 100,
        };
        Beside::spawn(den::run(config, tools, self.stop.clone()))
    }

    /// Waits for so many whole passes of the node.
    pub(crate) async fn passes(&self, count: usize) {
        // The one in progress may have begun before.
        self.passes.more(count + 1).await;
    }

    pub(crate) async fn task(&self, id: ObjectId) -> Document {
        read(&self.sure, id).await
    }

    pub(crate) async fn status(&self, id: ObjectId) -> i32 {
        self.task(id).await.get_i32("status").unwrap()
    }

    /// Waits until the task has this status.
    pub(crate) async fn reaches(&self, id: ObjectId, status: i32) {
        let what = format!("{id} becomes {status}");
        self.until(&what, async || self.status(id).await == status).await;
    }

    /// Waits until the plugin of a task stands at its gate.
    pub(crate) async fn began(&self, id: ObjectId) {
        let file = self.path(&format!("{id}.began"));
        self.until("the plugin begins", async || file.exists()).await;
    }

    pub(crate) fn open(&self, id: ObjectId) {
        fs::write(self.path(&format!("{id}.open")), "").unwrap();
    }

    pub(crate) async fn until(&self, what: &str, happened: impl AsyncFnMut() -> bool) {
        happens(what, happened).await;
    }

    pub(crate) async fn active(&self) -> u64 {
        let tasks = collection(&self.sure, "tasks");
        tasks.count_documents(doc! { "status": { "$in": [-1, 0] } }).await.unwrap()
    }

    /// The tasks of which a program was started, as often as it was.
    pub(crate) fn ran(&self) -> Vec<ObjectId> {
        let text = fs::read_to_string(self.path("ran")).unwrap_or_default();
        text.lines().map(|id| ObjectId::parse_str(id).unwrap()).collect()
    }
}
