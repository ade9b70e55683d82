//! A run: clients, workers and contexts take turns on one agenda, with answers under way, some of
//! them lost, and kills. What they see is the history.
//!
//! | module | owns |
//! |---|---|
//! | `answer` | answers, and what clients and workers do then |
//! | `handler` | runs of handlers, and the listing at the end |

mod answer;
mod handler;

use std::collections::BTreeMap;

use windlass_proof::check::{Checker, Report, Terms};
use windlass_proof::history::{Answer, Claimed, Event, FaultKind, Operation, Plan, Record, Target};
use windlass_proof::workload::{
    Act, Aim, FaultMix, Feature, Mix, Served, Worker, Workload, fault_plan,
};

use super::queue::{Bug, LEASE_NS, MS, Queue, REPEAT_NS};

const CLIENTS: usize = 3;
const WORKERS: u32 = 6;
const CONTEXTS: usize = 3;
/// Clients stop then; the others go on until everything is done, or for too long.
const BUSY_NS: u64 = 3000 * MS;
const END_NS: u64 = BUSY_NS + 60_000 * MS;
/// More than consumers may take of one type while another one waits; in one of so many runs, for
/// they take long.
const GLUT_COUNT: u32 = 120;
const GLUT_EVERY: u64 = 4;
/// In the others.
const FEW: u32 = 20;
/// A few claims of all workers.
const PASSED_OVER_MAX: u64 = 40;
/// Pause of a consumer that found nothing.
const IDLE_MS: u64 = 100;

/// What is due at a time.
enum Step {
    Client(usize),
    Worker(usize),
    Context(usize),
    /// A request reaches the queue.
    Effect(Request),
    Answer(Request, Answer),
    /// A worker goes on with its acts.
    Act(usize, Vec<Act>, u64),
    HandlerEnds {
        context: usize,
        boot: u64,
        job: Claimed,
        plan: Plan,
    },
    Kill,
    Ready(u64),
    /// Cancels jobs that repeat, also those whose add was not answered.
    Sweep,
}

#[derive(Clone)]
enum Sender {
    Client(usize),
    /// A closing request: nobody waits for its answer.
    Closing,
    Worker(usize, Vec<Act>, u64),
}

/// A request under way. A kill loses it, or its answer.
struct Request {
    sender: Sender,
    op: u64,
    what: Operation,
    boot: u64,
}

struct Run {
    rng: fastrand::Rng,
    now: u64,
    queue: Queue,
    mix: Mix,
    clients: Vec<Workload>,
    workers: Vec<Worker>,
    checker: Checker,
    lines: u32,
    ops: u64,
    /// Grows with each kill; what belongs to an older one is dead.
    boot: u64,
    agenda: BTreeMap<(u64, u64), Step>,
    planned: u64,
}

pub(crate) fn run(seed: u64, mut mix: Mix, bug: Option<Bug>) -> Report {
    mix.payload_bytes_max = 1000;
    mix.count_max = 5;
    let glutted = seed.is_multiple_of(GLUT_EVERY);
    mix.glut_count = if glutted { GLUT_COUNT } else { FEW };
    mix.set(Feature::Plain, 30);
    mix.set(Feature::Repeat, 4);
    let terms = Terms {
        lease_ns: LEASE_NS,
        claim_ahead_ns: MS,
        attempt_timeout_ns: END_NS,
        retry_pause_ns: Some(20 * MS),
        round_max_ns: Some(2 * REPEAT_NS),
        round_interval_ns: REPEAT_NS,
        passed_over_max: Some(PASSED_OVER_MAX),
        drained: true,
        ..Terms::default()
    };
    let clients = (0..CLIENTS as u32).map(|number| Workload::new(seed, number, mix.clone()));
    let doors = [Served::Pull, Served::Bedrock];
    let workers = (0..WORKERS)
        .filter_map(|number| Worker::new(seed, number, doors[number as usize % 2], &mix));
    let mut run = Run {
        rng: fastrand::Rng::with_seed(seed),
        now: 0,
        queue: Queue::new(bug),
        clients: clients.collect(),
        workers: workers.collect(),
        mix,
        checker: Checker::new(terms),
        lines: 0,
        ops: 0,
        boot: 0,
        agenda: BTreeMap::new(),
        planned: 0,
    };
    run.play(seed);
    run.list();
    run.checker.finish()
}

fn unknown() -> Answer {
    Answer::Unknown { why: "connection lost".into() }
}

impl Run {
    fn play(&mut self, seed: u64) {
        (0..CLIENTS).for_each(|number| self.plan(1, Step::Client(number)));
        (0..self.workers.len()).for_each(|number| self.plan(1, Step::Worker(number)));
        (0..CONTEXTS).for_each(|number| self.plan(1, Step::Context(number)));
        let kills = FaultMix::of(|kind| *kind == FaultKind::Kill, 1, BUSY_NS, LEASE_NS);
        for fault in fault_plan(seed, &kills).iter().filter(|fault| fault.aim == Aim::Daemon(0)) {
            self.plan(fault.at_ns / MS, Step::Kill);
        }
        self.plan(2 * BUSY_NS / MS, Step::Sweep);
        while let Some(((at, _), step)) = self.agenda.pop_first() {
            self.now = at;
            self.step(step);
        }
    }

    fn goes_on(&self) -> bool {
        let waiting = || self.queue.jobs.values().any(|job| !job.state.is_ended());
        self.now < BUSY_NS || (self.now < END_NS && waiting())
    }

    fn plan(&mut self, after_ms: u64, step: Step) {
        self.planned += 1;
        self.agenda.insert((self.now + after_ms * MS, self.planned), step);
    }

    fn write(&mut self, event: Event) {
        self.lines += 1;
        let record = Record { at: self.now, source: 0, line: self.lines, event };
        self.checker.record(record);
    }

    fn send(&mut self, sender: Sender, what: Operation) {
        self.ops += 1;
        let who = match &sender {
            Sender::Client(number) => format!("client-{number}"),
            Sender::Closing => "closing".to_owned(),
            Sender::Worker(number, ..) => format!("worker-{number}"),
        };
        let (op, via) = (self.ops, Some("d".to_owned()));
        self.write(Event::Sent { op, who, via, what: what.clone() });
        let delay = self.rng.u64(1..6);
        let boot = self.boot;
        self.plan(delay, Step::Effect(Request { sender, op, what, boot }));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Client(number) if self.now < BUSY_NS => {
                let operation = self.clients[number].next_operation();
                self.send(Sender::Client(number), operation);
            }
            Step::Client(number) => {
                for operation in self.clients[number].closing() {
                    self.send(Sender::Closing, operation);
                }
            }
            Step::Worker(number) if self.goes_on() => {
                let claim = self.workers[number].next_claim();
                self.send(Sender::Worker(number, Vec::new(), 0), claim);
            }
            Step::Worker(_) => {}
            Step::Context(number) => self.context(number),
            Step::Effect(request) => {
                let alive = request.boot == self.boot || matches!(request.sender, Sender::Closing);
                let answer = match alive {
                    true => self.queue.apply(self.now, &request.what),
                    false => unknown(),
                };
                let delay = self.rng.u64(1..6);
                self.plan(delay, Step::Answer(request, answer));
            }
            Step::Answer(request, answer) => self.answered(request, answer),
            Step::Act(number, acts, lease_ns) => self.act(number, acts, lease_ns),
            Step::HandlerEnds { context, boot, job, plan } => {
                if boot == self.boot {
                    self.handler_ends(context, &job, &plan);
                }
            }
            Step::Kill => {
                self.boot += 1;
                let (fault, target) = (self.boot, Target::Daemon("d".into()));
                self.write(Event::FaultBegan { fault, kind: FaultKind::Kill, target });
                self.queue.killed(self.now);
                self.plan(5, Step::Ready(fault));
            }
            Step::Sweep => {
                for (tenant, job) in self.queue.repeating() {
                    self.send(Sender::Closing, Operation::Cancel { tenant, job });
                }
            }
            Step::Ready(fault) => self.write(Event::FaultEnded { fault }),
        }
    }
}
