//! Two of our nodes and a scripted foreign one share queues while ours are killed with -9 and
//! started again: no task is lost, none runs twice, none is orphaned unnecessarily, and no limit is
//! exceeded, not even by one.

use std::collections::{HashMap, HashSet};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};

use crate::harness::{
    Dialect, Fields, Foreign, Home, Program, Rule, Watch, in_both, short_lease, status_of, until,
};

const OURS: [&str; 2] = ["one", "two"];
const FOREIGN: &str = "foreign";

const TASKS: usize = 45;

/// How often a node is killed, in turns.
const KILLS: usize = 4;

/// Of each of the two queues: per node in the seed, for all nodes in the released dialect.
const QUEUE_MAX: i32 = 3;

/// Of each of our nodes over both queues.
const NODE_MAX: i32 = 4;

/// It records the node it runs on, at its start and at its end.
const PLUGIN: &str = r#"
who=$(sed -n 's/.*"node" *: *"\([a-z]*\)".*/\1/p' "$task")
note start; note "+$who"; sleep 0.15; note "-$who"; note end; say 1 ours
"#;

/// Two queues with the same number of tasks.
struct Load {
    queues: [ObjectId; 2],
    programs: [String; 2],
    tasks: Vec<ObjectId>,
}

fn load(home: &Home) -> Load {
    let programs = [(); 2].map(|()| home.plugin("default", PLUGIN));
    let queues = [0, 1].map(|at: usize| home.line(&programs[at], QUEUE_MAX));
    for node in OURS {
        let past = DateTime::from_millis(0);
        let entry = doc! {"node": node, "timestamp": past, "maxthreads": NODE_MAX};
        home.mongo.insert("nodes", entry);
    }
    let tasks = queues.iter().flat_map(|queue| home.add(*queue, TASKS)).collect();
    Load { queues, programs, tasks }
}

fn rules(home: &Home, load: &Load, with_foreign: bool) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut rule = |nodes: &[&'static str], queue: Option<usize>, max: i32| {
        rules.push(Rule {
            what: format!("queue {queue:?} at {nodes:?}"),
            nodes: nodes.to_vec(),
            queue: queue.map(|at| load.queues[at]),
            max: usize::try_from(max).unwrap(),
            program: queue.filter(|_| nodes == OURS).map(|at| load.programs[at].clone()),
        });
    };
    for node in OURS {
        rule(&[node], None, NODE_MAX);
    }
    for queue in [0, 1] {
        match home.dialect {
            Dialect::Seed => {
                OURS.iter().for_each(|node| rule(&[node], Some(queue), QUEUE_MAX));
                rule(&OURS, Some(queue), 2 * QUEUE_MAX);
            }
            Dialect::Released => {
                rule(&OURS, Some(queue), QUEUE_MAX);
                // A foreign node counts first and then claims: in between we may have claimed.
                let max = if with_foreign { QUEUE_MAX + 1 } else { QUEUE_MAX };
                rule(&[], Some(queue), max);
            }
        }
    }
    rules
}

fn ended(home: &Home) -> usize {
    let open = home.mongo.count_now("tasks", doc! {"status": {"$in": [-2, -1, 0]}});
    2 * TASKS - usize::try_from(open).unwrap()
}

/// Kills a node and starts it again at once, in turns; then waits for the end of all tasks.
fn kill_in_turns(home: &Home) {
    let mut dens: Vec<Program> =
        OURS.iter().map(|name| home.den_with(name, short_lease())).collect();
    for kill in 0..KILLS {
        let goal = (kill + 1) * 2 * TASKS / (KILLS + 2);
        until("some more have ended", || ended(home) >= goal);
        let victim = kill % dens.len();
        dens[victim].kill();
        dens[victim] = home.den_unentered(OURS[victim], short_lease());
    }
    until("all have ended", || ended(home) == 2 * TASKS);
}

/// How often each task began, according to the plugins themselves.
fn begun(home: &Home, word: &str) -> HashMap<ObjectId, usize> {
    let mut begun = HashMap::new();
    for (_, task) in home.notes().into_iter().filter(|(said, _)| said == word) {
        *begun.entry(task).or_default() += 1;
    }
    begun
}

/// Checks every moment, in the order in which the plugins wrote: polling could miss something, this
/// cannot. Killed plugins did not write their end; the watch counts those. Returns how many of a
/// queue ran at the same time.
fn check_history(home: &Home, load: &Load) -> usize {
    let notes = home.notes();
    let ended: HashSet<ObjectId> =
        notes.iter().filter(|(word, _)| word.starts_with('-')).map(|(_, task)| *task).collect();
    let queue_of = |task: ObjectId| load.tasks.iter().position(|id| *id == task).unwrap() / TASKS;
    let mut running: Vec<(String, usize, ObjectId)> = Vec::new();
    let mut most = 0;
    for (word, task) in notes.into_iter().filter(|(_, task)| ended.contains(task)) {
        if word.starts_with('-') {
            running.retain(|(_, _, id)| *id != task);
        }
        let Some(node) = word.strip_prefix('+') else { continue };
        assert!(OURS.contains(&node), "{node}");
        running.push((node.to_owned(), queue_of(task), task));
        let here = running.iter().filter(|(of, _, _)| of == node).count();
        assert!(here <= usize::try_from(NODE_MAX).unwrap(), "{node} has {running:?}");
        let seed = home.dialect == Dialect::Seed;
        let same = |(of, queue, _): &&(String, usize, ObjectId)| {
            *queue == queue_of(task) && (of == node || !seed)
        };
        let of_queue = running.iter().filter(same).count();
        assert!(of_queue <= usize::try_from(QUEUE_MAX).unwrap(), "{running:?}");
        most = most.max(of_queue);
    }
    most
}

fn check(home: &Home, load: &Load) {
    let (starts, ends) = (begun(home, "start"), begun(home, "end"));
    assert!(starts.values().all(|times| *times == 1), "run twice: {starts:?}");
    assert!(begun(home, "robbed").is_empty(), "a foreign node lost a task");
    let tasks = home.mongo.all("tasks", doc! {});
    assert_eq!(tasks.len(), load.tasks.len());
    let mut orphaned = 0;
    for task in &tasks {
        let id = task.oid("_id").unwrap();
        match status_of(task) {
            1 => assert!(ends.contains_key(&id), "it is done and did not run: {task}"),
            -6 => {
                assert_ne!(task.text("node"), Some(FOREIGN), "{task}");
                orphaned += 1;
            }
            _ => panic!("it has not ended: {task}"),
        }
    }
    // At most what the killed nodes can have held.
    let most = KILLS * usize::try_from(NODE_MAX).unwrap();
    assert!(orphaned <= most, "{orphaned} orphans of {KILLS} kills");
}

fn run(home: &Home, with_foreign: bool) {
    let load = load(home);
    let rules = rules(home, &load, with_foreign);
    let rules_count = rules.len();
    let watch = Watch::start(home, rules);
    let foreign = with_foreign.then(|| Foreign::start(home, FOREIGN));
    kill_in_turns(home);
    drop(foreign);
    let seen = watch.end();
    assert_eq!(seen.complaints, Vec::<String>::new());
    check(home, &load);
    let most = check_history(home, &load);
    // A foreign node may leave little for ours.
    assert!(most > usize::from(!with_foreign), "{most} of a queue at most");
    assert!(seen.looks > 20, "{seen:?}");
    // A foreign node may leave one of ours so little that no look finds it.
    let met = seen.most.values().filter(|most| **most > 0).count();
    assert!(met > 0 && (with_foreign || met == rules_count), "{seen:?}");
    if with_foreign {
        let theirs = home.mongo.count_now("tasks", doc! {"node": FOREIGN, "status": 1});
        let ours = home.mongo.count_now("tasks", doc! {"node": {"$in": OURS.to_vec()}});
        assert!(theirs > 0 && ours > 0, "{theirs} and {ours}: they did not share");
    }
}

#[test]
fn ours_and_a_foreign_node_share_queues_while_ours_are_killed() {
    in_both(|home| run(&home, true));
}

/// Without a foreign node the limit over all nodes is exact.
#[test]
fn a_limit_over_all_nodes_holds_while_they_are_killed() {
    run(&Home::released(), false);
}
