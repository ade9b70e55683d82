//! The stand-alone task runner with an unreliable connection to the database.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Config, Gfs};
use crate::database::Database;
use crate::task::{RunnerArgs, runner};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use serde_json::json;
use windlass_program::Stop;
use windlass_runner::CommandLauncher;
use windlass_test_kit::wait::in_time;
use windlass_test_servers::mongodb;

use crate::tests::base::connect;
use crate::tests::harness_task::{number, text};
use crate::tests::proxy::{Fate, Proxy, server_address};

/// The foreign node.
const NODE: &str = "foreign";

const PLUGIN: &str = r#"#!/bin/sh
echo >> "${0%/*}/ran"
printf '{"status":1,"stdout":"out"}' > "${2%.json}-response.json"
"#;

/// A task claimed by a foreign node, and the runner that it calls.
struct World {
    proxy: Proxy,
    /// The same database over a reliable connection.
    sure: Database,
    name: String,
    dir: tempfile::TempDir,
    task: ObjectId,
}

impl World {
    async fn new() -> Self {
        let name = mongodb().new_database();
        let proxy = Proxy::start(server_address().await).await;
        let sure = connect(&mongodb().url(), &name).await;
        let dir = tempfile::tempdir().unwrap();
        let world = Self { proxy, sure, name, dir, task: ObjectId::new() };
        let plugin = world.path("plugin");
        fs::write(&plugin, PLUGIN).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn insert(&self, collection: &str, document: Document) {
        let collection = self.sure.raw().collection::<Document>(collection);
        self.sure.ask(collection.insert_one(document)).await.unwrap();
    }

    /// Puts the task into a queue with this plugin.
    async fn claimed(&self, plugin: &str) {
        let queue = ObjectId::new();
        self.insert("queues", doc! { "_id": queue, "name": "q", "plugin": plugin }).await;
        let task = doc! {
            "_id": self.task, "queue": queue, "status": -1, "node": NODE, "params": { "a": 1 },
        };
        self.insert("tasks", task).await;
    }

    /// Calls the runner. Some configured plugins have no program.
    async fn call(&self) -> Result<(), String> {
        let plugin = self.path("plugin").display().to_string();
        let config = json!({
            "mongohost": self.proxy.url(), "database": self.name, "node": NODE,
            "dialect": "released", "temp_dir": self.path("temp"),
            "plugins": { plugin: { "type": "nomongo" }, "Some::Plugin": null },
        });
        let (config, _) = Config::parse(&config.to_string(), &self.path("config")).unwrap();
        let args = RunnerArgs {
            config: self.path("config"),
            task: self.task,
            plugin: None,
            gfs: Gfs::Never,
            quiet: false,
            handoff: false,
        };
        let launcher = Arc::new(CommandLauncher::new().unwrap());
        let stop = Stop::default();
        in_time("the runner ends", runner(&config, &args, launcher, stop)).await
    }

    async fn read(&self) -> Document {
        self.sure.task(self.task).await.unwrap().unwrap()
    }

    fn ran(&self) -> usize {
        fs::read_to_string(self.path("ran")).unwrap_or_default().lines().count()
    }
}

#[tokio::test]
async fn a_task_is_run_once_whatever_is_lost_at_its_start() {
    for (fate, command, collection) in [
        (Fate::LoseAnswer, "update", "tasks"),
        (Fate::Lose, "update", "tasks"),
        (Fate::LoseAnswer, "find", "queues"),
    ] {
        let world = World::new().await;
        world.claimed(world.path("plugin").to_str().unwrap()).await;
        let lost = world.proxy.next(fate, move |it| it.is_on(command, collection));
        assert_eq!(world.call().await, Ok(()), "{fate:?} {command}");
        assert_eq!((lost.count(), world.ran()), (1, 1), "{fate:?} {command}");
        let task = world.read().await;
        assert_eq!((number(&task, "status"), text(&task, "stdout")), (Some(1), Some("out")));
        assert!(!task.contains_key("windlass"), "{task}");
    }
}

/// Another runner started it between our two attempts, of which the first was lost.
#[tokio::test]
async fn a_task_that_another_runner_started_is_not_taken_for_ones_own() {
    let world = World::new().await;
    world.claimed(world.path("plugin").to_str().unwrap()).await;
    let late = world.proxy.next(Fate::Hold, |it| it.is_on("update", "tasks"));
    let lost = world.proxy.next(Fate::Lose, |it| it.is_on("update", "tasks"));
    let other = async {
        late.met().await;
        let tasks = world.sure.raw().collection::<Document>("tasks");
        let started = doc! { "$set": { "status": 0, "mtime": mongodb::bson::DateTime::now() } };
        world.sure.ask(tasks.update_one(doc! { "_id": world.task }, started)).await.unwrap();
        late.release();
    };
    let (called, ()) = tokio::join!(world.call(), other);
    assert!(called.unwrap_err().contains("could not find task"));
    assert_eq!((lost.count(), world.ran()), (1, 0));
    assert_eq!(number(&world.read().await, "status"), Some(0));
}

/// A node that has the program may still run it.
#[tokio::test]
async fn a_task_whose_plugin_has_no_program_here_stays_claimed() {
    let world = World::new().await;
    world.claimed("Some::Plugin").await;
    let before = world.read().await;
    let error = world.call().await.unwrap_err();
    assert!(error.contains("Some::Plugin") && error.contains("no program"), "{error}");
    assert_eq!(world.read().await, before);
    assert_eq!(before.get("status"), Some(&Bson::Int32(-1)));
}
