//! A scripted foreign node: it follows only the seed, through the wire protocol, and knows nothing
//! of ours.

use std::fs::OpenOptions;
use std::io::Write;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, doc};

use super::thread::{Thread, end};
use super::{Dialect, Fields, Home, Mongo};

/// Pause between two passes. The seed uses a second; this one competes harder.
const PASS: Duration = Duration::from_millis(150);

/// How long a task of a foreign node runs.
const WORK: Duration = Duration::from_millis(100);

const ORPHAN_MILLIS: i64 = 5 * 60 * 1000;

/// An entry in `nodes` whose timestamp moves, by a clock that may be wrong.
pub(crate) struct Beating {
    _thread: Thread,
}

impl Beating {
    /// `wrong` is how many milliseconds the clock is ahead.
    pub(crate) fn start(home: &Home, name: &str, wrong: i64) -> Self {
        let (mongo, name) = (home.mongo.handle(), name.to_owned());
        let beat = move || {
            let now = DateTime::from_millis(DateTime::now().timestamp_millis() + wrong);
            mongo.upsert("nodes", doc! {"node": &name}, doc! {"$set": {"timestamp": now}});
        };
        beat();
        Self { _thread: Thread::every(PASS, beat) }
    }
}

/// The whole node: entry, orphans, claims, and its runner.
pub(crate) struct Foreign {
    thread: Option<Thread>,
    node: Arc<Node>,
}

impl Foreign {
    pub(crate) fn start(home: &Home, name: &str) -> Self {
        let node = Node {
            mongo: home.mongo.handle(),
            dialect: home.dialect,
            name: name.to_owned(),
            notes: home.path("notes"),
            runs: Mutex::default(),
        };
        let node = Arc::new(node);
        let passing = Arc::clone(&node);
        Self { thread: Some(Thread::every(PASS, move || passing.pass())), node }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It starts no more, then waits for what it started.
        drop(self.thread.take());
        let runs = mem::take(&mut *self.node.runs.lock().unwrap());
        runs.into_iter().for_each(end);
    }
}

struct Node {
    mongo: Mongo,
    dialect: Dialect,
    name: String,
    notes: PathBuf,
    /// One for each task that it ever ran.
    runs: Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    fn pass(self: &Arc<Self>) {
        let now = DateTime::now();
        let mut entry = doc! {"node": &self.name, "timestamp": now};
        if self.dialect == Dialect::Seed {
            entry.insert("queues", Bson::Array(Vec::new()));
        }
        self.mongo.upsert("nodes", doc! {"node": &self.name}, doc! {"$set": entry});
        let old = DateTime::from_millis(now.timestamp_millis() - ORPHAN_MILLIS);
        let lost = doc! {"node": &self.name, "status": -1, "mtime": {"$lt": old}};
        self.mongo.update_many("tasks", lost, doc! {"$set": {"status": -6}});
        for queue in self.mongo.all("queues", doc! {}) {
            let limit = queue.int(self.dialect.limit()).unwrap_or_default();
            let queue = queue.oid("_id").unwrap();
            while self.running(queue) < limit {
                let Some(task) = self.claim(queue) else { break };
                let node = Arc::clone(self);
                let run = thread::spawn(move || node.run(task, queue));
                self.runs.lock().unwrap().push(run);
            }
        }
    }

    /// The seed's limit applies to each node, the released one to all.
    fn running(&self, queue: ObjectId) -> i64 {
        let mut active = doc! {"queue": queue, "status": {"$in": [-1, 0]}};
        if self.dialect == Dialect::Seed {
            active.insert("node", &self.name);
        }
        i64::try_from(self.mongo.count_now("tasks", active)).unwrap()
    }

    fn claim(&self, queue: ObjectId) -> Option<ObjectId> {
        let mut filter = doc! {"status": -2, "queue": queue};
        match self.dialect {
            Dialect::Seed => filter.insert("node", -1),
            Dialect::Released => filter.insert("$or", vec![doc! {"node": null}, doc! {"node": -1}]),
        };
        let mine = doc! {"node": &self.name, "status": -1, "mtime": DateTime::now()};
        let task = self.mongo.take("tasks", filter, doc! {"$set": mine}, doc! {"_id": 1})?;
        task.oid("_id")
    }

    /// The runner: running, the plugin, the result.
    fn run(&self, task: ObjectId, queue: ObjectId) {
        let claimed = doc! {"_id": task, "status": -1, "node": &self.name};
        if self.mongo.update_many("tasks", claimed, doc! {"$set": {"status": 0}}) == 0 {
            return;
        }
        self.note("start", task);
        thread::sleep(WORK);
        self.note("end", task);
        let running = doc! {"_id": task, "status": 0, "node": &self.name};
        let result = doc! {"status": 1, "stdout": "foreign", "stderr": ""};
        let written = self.mongo.update_many("tasks", running, doc! {"$set": result});
        if written == 0 {
            self.note("robbed", task);
        }
        if self.dialect == Dialect::Seed {
            let queue = doc! {"_id": queue};
            self.mongo.update_many("queues", queue, doc! {"$inc": {"count_todo": -1}});
        }
    }

    fn note(&self, word: &str, task: ObjectId) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.notes).unwrap();
        file.write_all(format!("{word} {task}\n").as_bytes()).unwrap();
    }
}
