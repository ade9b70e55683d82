//! Simulates nodes that are paused, killed, cut off and delayed, driven by a seed: no running task
//! is ever orphaned, no limit is exceeded, and dead nodes are found. The environment is a model;
//! the decisions (liveness, lease, limits) are the node's real code.

mod base;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mongodb::bson::Bson;

use self::base::{Base, Boot, DatabaseAnswer, DatabaseRequest, Holder, Snapshot, Task, TaskId};
use super::lease::Lease;
use super::liveness::{Liveness, NodeIdentity, Observation};
use crate::database::last_position;

const STEP_MS: u64 = 100;
const HEARTBEAT: Duration = Duration::from_secs(5);
const ORPHAN_AFTER: Duration = Duration::from_secs(30);
const REPLY_WAIT_MS: u64 = 10_000;
/// How long a fence may take to kill what runs.
const KILL_MS: u64 = 3_000;
const NODES: usize = 3;
const THREADS: u64 = 9;
const TASKS: usize = 300;
const TROUBLE_MS: u64 = 15 * 60 * 1000;
const SEEDS: u64 = 24;
/// The only one of the first 200 seeds in which a claim is answered after its hold is gone.
const RARE_SEED: u64 = 122;

/// The concurrent activities of a node, each with one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Beat,
    Main,
    Task(u64),
}

#[derive(Debug, Clone)]
enum Activity {
    Rest,
    Look { sent: u64 },
    Evict(Vec<(usize, Boot, Option<i64>)>),
    Orphan(Vec<(usize, Boot, Option<i64>)>),
    Sweep,
    Foreign,
    Hold { id: u64 },
    Claim { id: u64 },
    Check { id: u64, task: TaskId },
    GiveBack { id: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Start,
    Program { until: u64 },
    Finish(i32),
    Drop,
}

#[derive(Debug, Clone)]
struct Run {
    task: TaskId,
    boot: Boot,
    stage: Stage,
}

struct Node {
    alive: bool,
    paused_until: u64,
    cut_until: u64,
    restart_at: u64,
    boot: Boot,
    /// Nothing is claimed before the entry is ours or after it was lost.
    entered: bool,
    lost: bool,
    take_over: Option<Boot>,
    beat_sent: u64,
    lease: Lease,
    liveness: Liveness,
    doing: Activity,
    stray: (BTreeSet<TaskId>, BTreeSet<u64>),
    next_pass: u64,
    next_beat: u64,
    runs: BTreeMap<u64, Run>,
    /// The pending request of each flow, and its timeout.
    waits: BTreeMap<Flow, (u64, u64)>,
    /// Live programs. The fence kills them at `kill_at`.
    programs: BTreeMap<TaskId, Boot>,
    kill_at: Option<u64>,
}

struct Message {
    at: u64,
    node: usize,
    flow: Flow,
    number: u64,
    process: i32,
    ask: Result<DatabaseRequest, DatabaseAnswer>,
}

struct World {
    random: fastrand::Rng,
    now: u64,
    base: Base,
    base_back: u64,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    numbers: u64,
    foreign_until: BTreeMap<TaskId, u64>,
    /// The database change up to which tasks were counted.
    counted: u64,
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let node = |boot| Node {
            alive: true,
            paused_until: 0,
            cut_until: 0,
            restart_at: 0,
            boot,
            entered: false,
            lost: false,
            take_over: None,
            beat_sent: 0,
            lease: Lease::new(ORPHAN_AFTER, Duration::ZERO),
            liveness: Liveness::new(HEARTBEAT),
            doing: Activity::Rest,
            stray: Default::default(),
            next_pass: 0,
            next_beat: 0,
            runs: BTreeMap::new(),
            waits: BTreeMap::new(),
            programs: BTreeMap::new(),
            kill_at: None,
        };
        let nodes = (0..NODES).map(|_| node(random.u64(..))).collect();
        let task = |_| Task { status: -2, holder: Holder::Nobody };
        let base = Base {
            up: true,
            process: 1,
            entries: vec![None; NODES],
            tasks: (0..TASKS).map(task).collect(),
            holds: Vec::new(),
            changes: 0,
        };
        let messages = Vec::new();
        let foreign_until = BTreeMap::new();
        World {
            random,
            now: 0,
            base,
            base_back: 0,
            nodes,
            messages,
            numbers: 0,
            foreign_until,
            counted: 0,
        }
    }

    fn delay(&mut self) -> u64 {
        if self.random.u8(..) < 2 { self.random.u64(0..15_000) } else { self.random.u64(0..300) }
    }

    fn ask(&mut self, node: usize, flow: Flow, ask: DatabaseRequest) {
        self.numbers += 1;
        let number = self.numbers;
        self.nodes[node].waits.insert(flow, (number, self.now + REPLY_WAIT_MS));
        let (at, process) = (self.now + self.delay(), self.base.process);
        if self.base.up {
            self.messages.push(Message { at, node, flow, number, process, ask: Ok(ask) });
        }
    }

    /// On a cut connection, messages wait until it recovers, or are lost.
    fn carry(&mut self) {
        let mut rest = std::mem::take(&mut self.messages);
        rest.sort_by_key(|message| (message.at, message.number));
        for mut message in rest {
            let cut = self.nodes[message.node].cut_until;
            if message.at > self.now {
                self.messages.push(message);
            } else if !self.base.up || message.process != self.base.process {
            } else if cut > self.now {
                message.at = cut + self.random.u64(0..1000);
                if self.random.bool() {
                    self.messages.push(message);
                }
            } else {
                match message.ask {
                    Ok(ask) => {
                        message.ask = Err(self.base.answer(message.node, ask));
                        message.at = self.now + self.delay();
                        self.messages.push(message);
                    }
                    Err(answer) => self.deliver(message.node, message.flow, message.number, answer),
                }
            }
        }
    }

    fn deliver(&mut self, at: usize, flow: Flow, number: u64, answer: DatabaseAnswer) {
        let node = &mut self.nodes[at];
        if !node.alive || node.waits.get(&flow).is_none_or(|(waits, _)| *waits != number) {
            return;
        }
        if node.paused_until > self.now {
            // It reads the answer when it resumes.
            let (until, process) = (node.paused_until, self.base.process);
            let ask = Err(answer);
            self.messages.push(Message { at: until, node: at, flow, number, process, ask });
            return;
        }
        node.waits.remove(&flow);
        match flow {
            Flow::Beat => self.beaten(at, answer),
            Flow::Main => self.go_on(at, Some(answer)),
            Flow::Task(id) => self.task_on(at, id, Some(answer)),
        }
    }

    fn beaten(&mut self, at: usize, answer: DatabaseAnswer) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let sent = ms(node.beat_sent);
        match answer {
            DatabaseAnswer::Yes(true) if !node.lost => {
                node.entered = true;
                node.lease.renewed(sent);
                node.next_beat = node.beat_sent + HEARTBEAT.as_millis() as u64;
            }
            DatabaseAnswer::Yes(_) => {
                // The entry was lost: end everything and start over.
                node.lost = true;
                node.programs.clear();
                node.next_beat = now + 1000;
            }
            DatabaseAnswer::Taken(other) => {
                let silent =
                    node.liveness.silent(&NodeIdentity::ours(&at.to_string(), &other.to_string()));
                let dead = silent.is_some_and(|(time, _)| time >= ORPHAN_AFTER);
                // On one machine it is known whether they are alive.
                node.take_over = (dead || node.programs.is_empty()).then_some(other);
                node.next_beat = now + 1000;
            }
            _ => unreachable!(),
        }
    }

    fn go_on(&mut self, at: usize, answer: Option<DatabaseAnswer>) {
        let doing = std::mem::replace(&mut self.nodes[at].doing, Activity::Rest);
        let boot = self.nodes[at].boot;
        let Some(answer) = answer else {
            if let Activity::Check { id, .. } | Activity::GiveBack { id } = doing {
                self.nodes[at].runs.remove(&id);
            }
            return;
        };
        match (doing, answer) {
            (Activity::Look { sent }, DatabaseAnswer::Snapshot(seen)) => {
                let dead = self.dead(at, sent, &seen);
                self.nodes[at].stray = self.stray(at, &seen);
                self.evict(at, dead);
            }
            (Activity::Evict(mut dead), DatabaseAnswer::Yes(buried)) => {
                if buried {
                    let (node, boot, _) = dead[0];
                    self.main(at, Activity::Orphan(dead), DatabaseRequest::Orphan(node, boot));
                } else {
                    dead.remove(0);
                    self.evict(at, dead);
                }
            }
            (Activity::Orphan(mut dead), _) => {
                dead.remove(0);
                self.evict(at, dead);
            }
            (Activity::Sweep, _) => self.begin_claim(at),
            (Activity::Foreign, DatabaseAnswer::Count(foreign)) => {
                if let Some(place) = last_position(THREADS, foreign) {
                    let id = self.random.u64(..);
                    self.main(at, Activity::Hold { id }, DatabaseRequest::Hold(id, boot, place));
                }
            }
            (Activity::Hold { id }, DatabaseAnswer::HoldPosition(Some(_))) => {
                self.main(at, Activity::Claim { id }, DatabaseRequest::Claim(boot));
            }
            (Activity::Claim { id }, DatabaseAnswer::Task(Some(task))) => {
                let run = Run { task, boot, stage: Stage::Start };
                self.nodes[at].runs.insert(id, run);
                self.main(at, Activity::Check { id, task }, DatabaseRequest::Fits(id));
            }
            (Activity::Check { id, task }, DatabaseAnswer::Yes(fits)) => {
                if !fits {
                    self.main(at, Activity::GiveBack { id }, DatabaseRequest::Unclaim(task, boot));
                } else {
                    self.ask(at, Flow::Task(id), DatabaseRequest::Start(task, boot));
                    self.begin_claim(at);
                }
            }
            (Activity::GiveBack { id }, _) => {
                self.nodes[at].runs.remove(&id);
            }
            _ => {}
        }
    }

    fn main(&mut self, at: usize, doing: Activity, ask: DatabaseRequest) {
        self.nodes[at].doing = doing;
        self.ask(at, Flow::Main, ask);
    }

    fn dead(&mut self, at: usize, sent: u64, seen: &Snapshot) -> Vec<(usize, Boot, Option<i64>)> {
        let mut signs = BTreeMap::new();
        // A hold does not name its owner's node, so it goes after the tasks of its boot.
        let busy: BTreeSet<Boot> = seen.active.iter().map(|(_, _, boot)| *boot).collect();
        let holds = seen.holds.iter().filter(|(_, boot)| !busy.contains(boot));
        let holds = holds.map(|(_, boot)| (NODES, *boot));
        for lease in seen.active.iter().map(|(_, node, boot)| (*node, *boot)).chain(holds) {
            signs.insert(lease, None);
        }
        for (node, entry) in seen.entries.iter().enumerate() {
            if let Some((boot, beat)) = entry {
                signs.insert((node, *boot), Some(Bson::Int64(*beat)));
                signs.remove(&(NODES, *boot));
            }
        }
        let who =
            |(node, boot): (usize, Boot)| NodeIdentity::ours(&node.to_string(), &boot.to_string());
        let signs: Vec<_> = signs.into_iter().map(|(it, sign)| (who(it), sign)).collect();
        let (sent, received, server) = (ms(sent), ms(self.now), Some(Bson::Int32(seen.process)));
        let node = &mut self.nodes[at];
        node.liveness.observe(Observation { sent, received, server, signs });
        let silent = node.liveness.silent_for(ORPHAN_AFTER);
        let dead = silent.map(|(who, sign)| {
            let boot = who.boot.as_ref().unwrap().parse().unwrap();
            (who.node.parse().unwrap(), boot, sign.as_ref().and_then(Bson::as_i64))
        });
        dead.filter(|(_, boot, _)| *boot != node.boot).collect()
    }

    /// Tasks and holds under our boot that we do not know: an answer was lost.
    fn stray(&self, at: usize, seen: &Snapshot) -> (BTreeSet<TaskId>, BTreeSet<u64>) {
        let node = &self.nodes[at];
        let known: BTreeSet<TaskId> = node.runs.values().map(|run| run.task).collect();
        let mine = seen.active.iter().filter(|(_, by, boot)| (*by, *boot) == (at, node.boot));
        let tasks = mine.map(|(task, ..)| *task).filter(|task| !known.contains(task));
        let holds = seen.holds.iter().filter(|(_, boot)| *boot == node.boot);
        let holds = holds.map(|(id, _)| *id).filter(|id| !node.runs.contains_key(id));
        (tasks.collect(), holds.collect())
    }

    fn evict(&mut self, at: usize, dead: Vec<(usize, Boot, Option<i64>)>) {
        if let Some((node, boot, beat)) = dead.first().copied() {
            self.main(at, Activity::Evict(dead), DatabaseRequest::Evict(node, boot, beat));
            return;
        }
        let (tasks, holds) = std::mem::take(&mut self.nodes[at].stray);
        let sweep = DatabaseRequest::Sweep(self.nodes[at].boot, tasks, holds);
        self.main(at, Activity::Sweep, sweep);
    }

    fn begin_claim(&mut self, at: usize) {
        let node = &self.nodes[at];
        if node.entered && !node.lost && node.lease.is_fresh(ms(self.now)) {
            self.main(at, Activity::Foreign, DatabaseRequest::Foreign);
        }
    }

    fn task_on(&mut self, at: usize, id: u64, answer: Option<DatabaseAnswer>) {
        let (now, time) = (self.now, self.random.u64(500..90_000));
        let node = &mut self.nodes[at];
        let may = node.lease.is_fresh(ms(now)) && !node.lost;
        let Some(run) = node.runs.get_mut(&id) else { return };
        match (run.stage, answer) {
            (Stage::Start, Some(DatabaseAnswer::Yes(true))) if may => {
                node.programs.insert(run.task, run.boot);
                run.stage = Stage::Program { until: now + time };
            }
            (Stage::Start, Some(DatabaseAnswer::Yes(true))) => run.stage = Stage::Finish(-6),
            (Stage::Start | Stage::Finish(_), Some(_)) => run.stage = Stage::Drop,
            (Stage::Drop, Some(_)) => {
                node.runs.remove(&id);
                return;
            }
            _ => {}
        }
        let (run, node) = (run.clone(), at);
        match run.stage {
            Stage::Start => {
                self.ask(node, Flow::Task(id), DatabaseRequest::Start(run.task, run.boot))
            }
            Stage::Finish(s) => {
                self.ask(node, Flow::Task(id), DatabaseRequest::Finish(run.task, run.boot, s))
            }
            Stage::Drop => self.ask(node, Flow::Task(id), DatabaseRequest::Drop(id, run.boot)),
            Stage::Program { .. } => {}
        }
    }

    /// Timed actions of a node.
    fn act(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        if !node.alive {
            if node.restart_at <= now && node.kill_at.is_none() {
                self.restart(at);
            }
            return;
        }
        if node.paused_until > now {
            return;
        }
        let late = |(_, (_, until)): &(&Flow, &(u64, u64))| *until <= now;
        let late: Vec<Flow> = node.waits.iter().filter(late).map(|(flow, _)| *flow).collect();
        for flow in late {
            self.nodes[at].waits.remove(&flow);
            match flow {
                Flow::Beat => self.nodes[at].next_beat = now,
                Flow::Main => self.go_on(at, None),
                Flow::Task(id) => self.task_on(at, id, None),
            }
        }
        if !self.base.up && self.nodes[at].cut_until <= now {
            self.nodes[at].lease.renewed(ms(now));
        }
        self.ends(at);
        let node = &mut self.nodes[at];
        if node.lost && node.runs.is_empty() && node.programs.is_empty() {
            (node.lost, node.entered, node.take_over) = (false, false, None);
            node.boot = self.random.u64(..);
        }
        let node = &mut self.nodes[at];
        if node.next_beat <= now && !node.waits.contains_key(&Flow::Beat) && !node.lost {
            node.beat_sent = now;
            let enter = DatabaseRequest::Enter(node.boot, node.take_over);
            let ask = if node.entered { DatabaseRequest::Beat(node.boot) } else { enter };
            self.ask(at, Flow::Beat, ask);
        }
        let node = &mut self.nodes[at];
        if node.next_pass <= now && !node.waits.contains_key(&Flow::Main) {
            node.next_pass = now + 1000;
            self.main(at, Activity::Look { sent: now }, DatabaseRequest::Look);
        }
    }

    fn ends(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let mut ended = Vec::new();
        for (id, run) in &mut node.runs {
            if let Stage::Program { until } = run.stage {
                let killed = !node.programs.contains_key(&run.task);
                if killed || until <= now {
                    node.programs.remove(&run.task);
                    run.stage = Stage::Finish(if killed { -6 } else { 1 });
                    ended.push(*id);
                }
            }
        }
        ended.into_iter().for_each(|id| self.task_on(at, id, None));
    }

    fn restart(&mut self, at: usize) {
        let boot = self.random.u64(..);
        let node = &mut self.nodes[at];
        node.alive = true;
        (node.boot, node.entered, node.lost, node.take_over) = (boot, false, false, None);
        node.lease = Lease::new(ORPHAN_AFTER, ms(self.now));
        node.liveness = Liveness::new(HEARTBEAT);
        node.doing = Activity::Rest;
        node.runs.clear();
        node.waits.clear();
        (node.next_pass, node.next_beat) = (self.now, self.now);
    }

    /// The fence is a separate process: a pause or a kill of its node does not affect it.
    fn fence(&mut self, at: usize) {
        let (now, slow) = (self.now, self.random.u64(0..KILL_MS));
        let node = &mut self.nodes[at];
        let over = !node.alive || !node.lease.is_fresh(ms(now));
        if !over {
            node.kill_at = None;
        } else if let Some(at) = node.kill_at {
            if at <= now {
                node.programs.clear();
                node.kill_at = None;
            }
        } else if !node.programs.is_empty() {
            node.kill_at = Some(now + slow);
        }
    }

    fn inject_fault(&mut self) {
        let until = self.now + self.random.u64(100..80_000);
        let at = self.random.usize(..NODES);
        let node = &mut self.nodes[at];
        match self.random.u32(..1500) {
            0..=3 => node.paused_until = until,
            4..=7 => node.cut_until = until,
            8..=10 => (node.alive, node.restart_at) = (false, until),
            11 | 12 => (self.base.up, self.base_back) = (false, until),
            13 => (self.base.up, self.base_back) = (false, self.now + 500),
            _ => {}
        }
    }

    /// Counts and claims atomically, so that only our nodes could exceed the limit.
    fn foreign_node(&mut self) {
        let now = self.now;
        if !self.base.up || self.random.u8(..) > 5 {
            return;
        }
        for (task, until) in &self.foreign_until {
            if *until <= now {
                self.base.tasks[*task].status = 1;
            }
        }
        self.foreign_until.retain(|_, until| *until > now);
        self.base.changes += 1;
        let active = self.base.tasks.iter().filter(|it| matches!(it.status, -1 | 0)).count();
        let free = self.base.tasks.iter().position(|task| task.status == -2);
        if let (true, Some(task)) = ((active as u64) < THREADS, free) {
            self.base.tasks[task] = Task { status: 0, holder: Holder::Foreign };
            self.foreign_until.insert(task, now + self.random.u64(500..60_000));
        }
    }

    fn check(&mut self, seed: u64) {
        for (at, node) in self.nodes.iter().enumerate() {
            for (task, boot) in &node.programs {
                let stored = &self.base.tasks[*task];
                let holder = Holder::Ours(at, *boot);
                let alive = stored.status == 0 && stored.holder == holder;
                assert!(alive, "seed {seed}, {} ms: task {task} lives as {at}", self.now);
            }
        }
        if std::mem::replace(&mut self.counted, self.base.changes) == self.base.changes {
            return;
        }
        let running = self.base.tasks.iter().filter(|task| task.status == 0).count() as u64;
        assert!(running <= THREADS, "seed {seed}, {} ms: {running} run", self.now);
    }

    fn step(&mut self) {
        self.now += STEP_MS;
        if !self.base.up && self.base_back <= self.now {
            (self.base.up, self.base.process) = (true, self.base.process + 1);
        }
        self.carry();
        for at in 0..NODES {
            self.fence(at);
            self.act(at);
        }
        self.foreign_node();
    }

    fn is_over(&self) -> bool {
        let ended = |task: &Task| task.status >= 1 || task.status == -6;
        self.base.tasks.iter().all(ended) && self.base.holds.is_empty()
    }
}

#[test]
fn no_living_task_is_orphaned_no_limit_passed_and_nothing_forgotten() {
    let mut orphaned = 0;
    for seed in (0..SEEDS).chain([RARE_SEED]) {
        let mut world = World::new(seed);
        while world.now < TROUBLE_MS {
            world.inject_fault();
            world.step();
            world.check(seed);
        }
        let end = world.now + 30 * 60 * 1000;
        while !world.is_over() {
            assert!(world.now < end, "seed {seed}: something waits for ever");
            world.step();
            world.check(seed);
        }
        orphaned += world.base.tasks.iter().filter(|task| task.status == -6).count();
    }
    assert!(orphaned > 100, "{orphaned}: the world was too kind to prove anything");
}
