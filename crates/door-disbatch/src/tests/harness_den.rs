//! A complete node inside the test process, connected to the database through the proxy.

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

use crate::tests::base::{Background, collection, connect};
use crate::tests::harness::{happens, read, read_queue};
use crate::tests::harness_task::RecordingFence;
use crate::tests::proxy::{Fate, Handle, Proxy, server_address};

/// Succeeds at once.
pub(crate) const GOOD: &str = "";
/// Starts, and succeeds when its gate opens.
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

/// A node that is not started yet, and its environment.
pub(crate) struct World {
    pub(crate) proxy: Proxy,
    /// The same database over a reliable connection.
    pub(crate) sure: Database,
    pub(crate) dialect: Dialect,
    pub(crate) fence: Arc<RecordingFence>,
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
        let (fence, stop) = (Arc::new(RecordingFence::default()), Stop::default());
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

    /// Starts the node, with long times where they do not matter.
    pub(crate) fn start(&self) -> Background<Result<(), String>> {
        self.start_with(5.0, 3600.0)
    }

    pub(crate) fn start_with(
        &self,
        heartbeat: f64,
        orphan_after: f64,
    ) -> Background<Result<(), String>> {
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
        Background::spawn(den::run(config, tools, self.stop.clone()))
    }

    /// Waits for this many complete passes of the node.
    pub(crate) async fn passes(&self, count: usize) {
        // The pass in progress may have begun before.
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

    /// Waits until the plugin of a task is at its gate.
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

    /// The tasks whose programs were started, once per start.
    pub(crate) fn ran(&self) -> Vec<ObjectId> {
        let text = fs::read_to_string(self.path("ran")).unwrap_or_default();
        text.lines().map(|id| ObjectId::parse_str(id).unwrap()).collect()
    }
}
