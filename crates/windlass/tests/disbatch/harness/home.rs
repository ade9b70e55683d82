//! A test's own folder and database in one of the two dialects, and the interface on it.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Map, Value, json};
use windlass_test_kit::folder::Folder;

use super::{Http, Mongo, Program, free_port, windlass};

/// A plugin that every config of the tests allows.
pub(crate) const DEMO: &str = "Disbatch::Plugin::Demo";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Seed,
    Released,
}

impl Dialect {
    /// The word of the config.
    pub(crate) fn word(self) -> &'static str {
        if self == Self::Seed { "seed" } else { "released" }
    }

    /// A queue's field for its plugin.
    pub(crate) fn plugin(self) -> &'static str {
        if self == Self::Seed { "constructor" } else { "plugin" }
    }

    /// A queue's field for its limit.
    pub(crate) fn limit(self) -> &'static str {
        if self == Self::Seed { "maxthreads" } else { "threads" }
    }

    /// A task's field for its arguments.
    pub(crate) fn params(self) -> &'static str {
        if self == Self::Seed { "parameters" } else { "params" }
    }

    /// `node` of an unclaimed task.
    pub(crate) fn nobody(self) -> Bson {
        if self == Self::Seed { Bson::Int32(-1) } else { Bson::Null }
    }
}

pub(crate) struct Home {
    pub(crate) mongo: Mongo,
    pub(crate) dialect: Dialect,
    /// What the config of a node lists: programs and their kind of hand-over.
    pub(super) plugins: Mutex<Map<String, Value>>,
    folder: Folder,
}

/// A home in each of the dialects.
pub(crate) fn both() -> [Home; 2] {
    [Home::new(Dialect::Seed), Home::new(Dialect::Released)]
}

impl Home {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self::with(Mongo::new(), dialect)
    }

    /// With its own server.
    pub(crate) fn own(dialect: Dialect) -> Self {
        Self::with(Mongo::own(), dialect)
    }

    /// In the same server, in the other dialect.
    pub(crate) fn beside(&self) -> Self {
        let other = match self.dialect {
            Dialect::Seed => Dialect::Released,
            Dialect::Released => Dialect::Seed,
        };
        Self::with(self.mongo.beside(), other)
    }

    fn with(mongo: Mongo, dialect: Dialect) -> Self {
        let folder = Folder::new();
        Self { mongo, dialect, folder, plugins: Mutex::default() }
    }

    pub(crate) fn seed() -> Self {
        Self::new(Dialect::Seed)
    }

    pub(crate) fn released() -> Self {
        Self::new(Dialect::Released)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.dir()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// A config that both a node and an interface can start with.
    pub(crate) fn config(&self) -> Value {
        json!({
            "mongohost": self.mongo.host(),
            "database": self.mongo.name(),
            "dialect": self.dialect.word(),
            "listen": format!("127.0.0.1:{}", free_port()),
            "plugins": {DEMO: {"program": "/bin/true", "type": "nomongo"}},
        })
    }

    pub(crate) fn write(&self, config: &Value) -> PathBuf {
        let name = format!("config-{:08x}.json", fastrand::u32(..));
        self.folder.write(&name, config.to_string())
    }

    /// An interface with the usual config.
    pub(crate) fn dci(&self) -> Dci {
        self.dci_with(json!({}))
    }

    /// An interface whose config has these keys over the usual ones.
    pub(crate) fn dci_with(&self, keys: Value) -> Dci {
        let mut config = self.config();
        for (key, value) in keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        self.dci_of(&config)
    }

    /// An interface with exactly this config.
    pub(crate) fn dci_of(&self, config: &Value) -> Dci {
        let file = self.write(config);
        let command = windlass(&["dci", "--config", file.to_str().unwrap()]);
        let mut program = Program::spawn(command, self.folder());
        let port = config["listen"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        program
            .until_some("the interface listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        Dci { program, port, http: Http::new(port) }
    }

    /// The message of an interface that does not start with this config.
    #[track_caller]
    pub(crate) fn dci_refused(&self, config: &Value) -> String {
        let file = self.write(config);
        let command = windlass(&["dci", "--config", file.to_str().unwrap()]);
        let mut program = Program::spawn(command, self.folder());
        let status = program.ended();
        assert!(!status.success(), "{config}: {}", program.console());
        program.console()
    }

    /// A queue of the demo plugin, as created by a foreign interface.
    pub(crate) fn queue(&self, name: &str) -> ObjectId {
        self.queue_with(name, doc! {})
    }

    pub(crate) fn queue_with(&self, name: &str, more: Document) -> ObjectId {
        let mut queue = doc! {"name": name, self.dialect.plugin(): DEMO};
        if self.dialect == Dialect::Seed {
            queue.extend(doc! {"count_todo": 0, "count_total": 0});
        }
        queue.extend(more);
        self.mongo.insert("queues", queue)
    }

    /// A task with this status, as created by a foreign interface.
    pub(crate) fn task(&self, queue: ObjectId, status: i32) -> ObjectId {
        self.task_with(queue, status, doc! {})
    }

    pub(crate) fn task_with(&self, queue: ObjectId, status: i32, more: Document) -> ObjectId {
        let node = if status <= -2 { self.dialect.nobody() } else { Bson::from("elsewhere") };
        let mut task = doc! {
            "queue": queue, "status": status, "node": node,
            self.dialect.params(): {"commands": "a"},
            "ctime": DateTime::now(), "mtime": DateTime::now(),
            "stdout": Bson::Null, "stderr": Bson::Null,
        };
        task.extend(more);
        self.mongo.insert("tasks", task)
    }
}

/// A running command interface.
pub(crate) struct Dci {
    pub(crate) program: Program,
    pub(crate) port: u16,
    pub(crate) http: Http,
}

impl Dci {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
