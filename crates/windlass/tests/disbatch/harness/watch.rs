//! Looks at limits again and again while a test goes on. What it complains of was true at one
//! moment: everything it counts was there when it began to look and when it looked again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::{Fields, Home, Mongo};

/// Whether a process is there and not only waiting to be collected.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// The processes of a plugin, by the task that they run.
fn processes(program: &str) -> HashMap<ObjectId, i32> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let found = listed.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8(line).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let at = words.iter().position(|word| *word == "--task")?;
        let task = words.get(at + 1)?.rsplit('/').next()?.trim_end_matches(".json");
        let is_it = words.iter().take(at).any(|word| *word == program) && is_alive(pid);
        Some((ObjectId::parse_str(task).ok().filter(|_| is_it)?, pid))
    });
    found.collect()
}

/// What must never be passed.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) what: String,
    /// Which tasks it counts while they are claimed or run.
    pub(crate) of: Document,
    pub(crate) max: usize,
    /// The plugin whose processes it counts too, over all nodes of ours.
    pub(crate) program: Option<String>,
}

/// Looks until it is asked for what it saw.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<Seen>,
}

/// What a watch has to tell.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) looks: usize,
    /// The most that each rule ever counted, by its name.
    pub(crate) most: HashMap<String, usize>,
    pub(crate) complaints: Vec<String>,
}

impl Watch {
    /// `programs` are those whose processes must be gone when their task is orphaned.
    pub(crate) fn start(home: &Home, rules: Vec<Rule>, programs: Vec<String>) -> Self {
        let mongo = home.mongo.handle();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handle = thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::Relaxed) {
                seen.looks += 1;
                rules.iter().for_each(|rule| look(&mongo, rule, &mut seen));
                orphans(&mongo, &programs, &mut seen);
                thread::yield_now();
            }
            seen
        });
        Self { stop, handle }
    }

    pub(crate) fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.join().unwrap()
    }
}

fn look(mongo: &Mongo, rule: &Rule, seen: &mut Seen) {
    let active = || {
        let mut filter = rule.of.clone();
        filter.insert("status", doc! {"$in": [-1, 0]});
        let found = mongo.all("tasks", filter);
        let claim = |task: &Document| (task.oid("_id"), task.text("node").map(str::to_owned));
        found.iter().map(claim).collect::<HashSet<_>>()
    };
    let first = active();
    let most = seen.most.entry(rule.what.clone()).or_default();
    if first.len() > *most {
        let still = first.intersection(&active()).count();
        *most = still.max(*most);
        if still > rule.max {
            seen.complaints.push(format!("{}: {still} tasks are active", rule.what));
        }
    }
    let Some(program) = &rule.program else { return };
    let first = processes(program);
    if first.len() > rule.max {
        let still = first.values().filter(|pid| is_alive(**pid)).count();
        if still > rule.max {
            seen.complaints.push(format!("{}: {still} processes run", rule.what));
        }
    }
}

fn orphans(mongo: &Mongo, programs: &[String], seen: &mut Seen) {
    let orphaned = mongo.all("tasks", doc! {"status": -6});
    let orphaned: HashSet<ObjectId> = orphaned.iter().filter_map(|task| task.oid("_id")).collect();
    for (task, pid) in programs.iter().flat_map(|program| processes(program)) {
        if orphaned.contains(&task) && is_alive(pid) {
            seen.complaints.push(format!("{task} is orphaned and runs"));
        }
    }
}
