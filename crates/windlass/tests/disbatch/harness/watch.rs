//! Checks limits repeatedly during a test. Each complaint was true at one moment: everything it
//! counts existed when the look began and when it looked again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::thread::Thread;
use super::{Fields, Home, Mongo, is_alive};

/// The processes of plugins: the program, the task, and the process.
fn processes() -> Vec<(String, ObjectId, i32)> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let found = listed.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = String::from_utf8(fs::read(entry.path().join("cmdline")).ok()?).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let at = words.iter().position(|word| *word == "--task")?;
        let task = words.get(at + 1)?.rsplit('/').next()?.trim_end_matches(".json");
        let program = words[..at].iter().find(|word| word.contains("/plugin-"))?;
        Some((program.to_string(), ObjectId::parse_str(task).ok()?, pid))
    });
    found.filter(|(_, _, pid)| is_alive(*pid)).collect()
}

/// Which tasks of which plugin have a process, at one moment.
fn running(program: &str, seen: &[(String, ObjectId, i32)]) -> usize {
    let own = seen.iter().filter(|(of, _, pid)| of == program && is_alive(*pid));
    own.map(|(_, task, _)| task).collect::<HashSet<_>>().len()
}

/// A limit that must never be exceeded.
pub(crate) struct Rule {
    pub(crate) what: String,
    /// Counts what these nodes have claimed or run; without any, what all have.
    pub(crate) nodes: Vec<&'static str>,
    /// Only of this queue.
    pub(crate) queue: Option<ObjectId>,
    pub(crate) max: usize,
    /// The plugin whose processes are counted too.
    pub(crate) program: Option<String>,
}

impl Rule {
    fn counts(&self, claim: &Claim) -> bool {
        let node = self.nodes.is_empty() || self.nodes.contains(&claim.node.as_str());
        node && self.queue.is_none_or(|queue| claim.queue == Some(queue))
    }
}

/// A node's claim of a task.
#[derive(PartialEq, Eq, Hash)]
struct Claim {
    task: ObjectId,
    queue: Option<ObjectId>,
    node: String,
}

/// Looks until it is ended or dropped.
pub(crate) struct Watch {
    thread: Thread,
    seen: Arc<Mutex<Observations>>,
}

/// The results of a watch.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    pub(crate) looks: usize,
    /// The maximum that each rule ever counted, by its name.
    pub(crate) most: HashMap<String, usize>,
    pub(crate) complaints: Vec<String>,
}

impl Watch {
    pub(crate) fn start(home: &Home, rules: Vec<Rule>) -> Self {
        let mongo = home.mongo.handle();
        let seen = Arc::<Mutex<Observations>>::default();
        let sees = Arc::clone(&seen);
        let thread = Thread::every(Duration::ZERO, move || {
            let mut seen = sees.lock().unwrap();
            seen.looks += 1;
            look(&mongo, &rules, &mut seen);
        });
        Self { thread, seen }
    }

    pub(crate) fn end(self) -> Observations {
        drop(self.thread);
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn claims(tasks: &[Document]) -> HashSet<Claim> {
    let active = tasks.iter().filter(|task| matches!(task.int("status"), Some(-1 | 0)));
    let claim = |task: &Document| {
        let node = task.text("node")?.to_owned();
        Some(Claim { task: task.oid("_id")?, queue: task.oid("queue"), node })
    };
    active.filter_map(claim).collect()
}

fn look(mongo: &Mongo, rules: &[Rule], seen: &mut Observations) {
    let read = || mongo.all("tasks", doc! {"status": {"$in": [-6, -1, 0]}});
    let tasks = read();
    let orphaned: HashSet<ObjectId> = tasks
        .iter()
        .filter(|task| task.int("status") == Some(-6))
        .filter_map(|task| task.oid("_id"))
        .collect();
    let processes = processes();
    for (_, task, _) in processes.iter().filter(|(_, _, pid)| is_alive(*pid)) {
        if orphaned.contains(task) {
            seen.complaints.push(format!("{task} is orphaned and runs"));
        }
    }
    let first = claims(&tasks);
    for rule in rules {
        let running = rule.program.as_ref().map_or(0, |program| running(program, &processes));
        if running > rule.max {
            seen.complaints.push(format!("{}: {running} processes run", rule.what));
        }
        let most = seen.most.get(&rule.what).copied().unwrap_or_default();
        if first.iter().filter(|claim| rule.counts(claim)).count() <= most {
            continue;
        }
        let again = claims(&read());
        let still = first.intersection(&again).filter(|claim| rule.counts(claim)).count();
        seen.most.insert(rule.what.clone(), still.max(most));
        if still > rule.max {
            seen.complaints.push(format!("{}: {still} tasks are active", rule.what));
        }
    }
}
