//! What all parts of one simulation share: its random numbers, its history, its daemons, and the
//! phase that it is in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_core::sync::lock;
use windlass_engine::Engine;
use windlass_proof::history::{Event, FaultKind, Record, Target};

use crate::control::Control;
use crate::life::Life;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) control: Option<Control>,
    pub(crate) pace: Pace,
    began: Instant,
    state: Mutex<State>,
    store: StoreGate,
    /// Clients stop adding.
    drains: AtomicBool,
    /// Workers stop too.
    over: AtomicBool,
}

struct State {
    rng: Rng,
    history: Vec<Record>,
    operations: u64,
    faults: u64,
    /// Daemons that are up, by number.
    daemons: Vec<Option<Up>>,
    problems: Vec<String>,
}

/// How fast a schedule is: some have a slow store, some have bursts of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Longest way to the store or back.
    pub(crate) way_ms_max: u64,
    /// Longest pause between two requests of a client.
    pub(crate) pause_ms_max: u64,
}

impl Pace {
    const WAYS_MS: [u64; 4] = [1, 8, 8, 150];
    const PAUSES_MS: [u64; 3] = [5, 100, 300];

    fn new(rng: &mut Rng) -> Pace {
        Pace {
            way_ms_max: Pace::WAYS_MS[rng.usize(..Pace::WAYS_MS.len())],
            pause_ms_max: Pace::PAUSES_MS[rng.usize(..Pace::PAUSES_MS.len())],
        }
    }
}

/// A daemon that answers requests.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) engine: Engine,
    pub(crate) life: Arc<Life>,
}

#[derive(Default)]
struct StoreGate {
    hangs: AtomicBool,
    opened: Notify,
}

impl World {
    pub(crate) fn new(seed: u64, control: Option<Control>, daemons: usize) -> World {
        let mut rng = Rng::with_seed(!seed);
        let pace = Pace::new(&mut rng);
        let state = State {
            rng,
            history: Vec::new(),
            operations: 0,
            faults: 0,
            daemons: vec![None; daemons],
            problems: Vec::new(),
        };
        World {
            seed,
            control,
            pace,
            began: Instant::now(),
            state: Mutex::new(state),
            store: StoreGate::default(),
            drains: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// A random number below `end`.
    pub(crate) fn draw(&self, end: u64) -> u64 {
        self.state().rng.u64(..end.max(1))
    }

    pub(crate) fn rng<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state().rng)
    }

    /// Writes an event down. There is one thread, so the order of events is certain: each is a
    /// nanosecond after the one before it, or later.
    pub(crate) fn record(&self, event: Event) {
        let now = self.now_ns();
        let history = &mut self.state().history;
        let at = history.last().map_or(now, |last: &Record| now.max(last.at + 1));
        let line = history.len() as u32 + 1;
        history.push(Record { at, source: 0, line, event });
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(crate) fn next_operation(&self) -> u64 {
        let mut state = self.state();
        state.operations += 1;
        state.operations
    }

    pub(crate) fn fault_began(&self, kind: FaultKind, target: Target) -> u64 {
        let fault = {
            let mut state = self.state();
            state.faults += 1;
            state.faults
        };
        self.record(Event::FaultBegan { fault, kind, target });
        fault
    }

    pub(crate) fn fault_ended(&self, fault: u64) {
        self.record(Event::FaultEnded { fault });
    }

    /// Whether a fault of this target, or of all, is under way or ended within this time.
    pub(crate) fn had_fault_within(&self, time: Duration, target: &Target) -> bool {
        let since = self.now_ns().saturating_sub(time.as_nanos() as u64);
        let mut near = Vec::new();
        for record in &self.state().history {
            match &record.event {
                Event::FaultBegan { fault, target: of, .. } => {
                    near.extend((of == target || *of == Target::All).then_some(*fault));
                }
                Event::FaultEnded { fault } if record.at < since => near.retain(|it| it != fault),
                _ => {}
            }
        }
        !near.is_empty()
    }

    /// Something that no fault explains, and that the history does not show.
    pub(crate) fn problem(&self, what: String) {
        self.state().problems.push(what);
    }

    pub(crate) fn daemons(&self) -> usize {
        self.state().daemons.len()
    }

    /// The daemon of this number, if it answers requests.
    pub(crate) fn up(&self, number: usize) -> Option<Up> {
        self.state().daemons[number].clone().filter(|up| !up.life.is_over())
    }

    pub(crate) fn set_up(&self, number: usize, up: Option<Up>) {
        // Not dropped under the lock: what it holds may come back here.
        let before = std::mem::replace(&mut self.state().daemons[number], up);
        drop(before);
    }

    pub(crate) fn set_store_hangs(&self, hangs: bool) {
        self.store.hangs.store(hangs, Ordering::Relaxed);
        self.store.opened.notify_waiters();
    }

    /// Returns when the store answers.
    pub(crate) async fn store_answers(&self) {
        while self.store.hangs.load(Ordering::Relaxed) {
            self.store.opened.notified().await;
        }
    }

    pub(crate) fn loses_syncs(&self) -> bool {
        self.control == Some(Control::NoSync)
    }

    pub(crate) fn drain(&self) {
        self.drains.store(true, Ordering::Relaxed);
    }

    pub(crate) fn drains(&self) -> bool {
        self.drains.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The history and the problems, at the end.
    pub(crate) fn take(&self) -> (Vec<Record>, Vec<String>) {
        let mut state = self.state();
        (std::mem::take(&mut state.history), std::mem::take(&mut state.problems))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_counts_for_its_target_until_some_time_after_its_end() {
        let world = World::new(1, None, 2);
        let [own, other] = ["daemon-0", "daemon-1"].map(|name| Target::Daemon(name.into()));
        let within = |target| world.had_fault_within(Duration::from_secs(2), target);
        assert!(!within(&own));
        let fault = world.fault_began(FaultKind::Partition, own.clone());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(within(&own) && !within(&other));
        world.fault_ended(fault);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(within(&own));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!within(&own));
        world.fault_began(FaultKind::PowerCut, Target::All);
        assert!(within(&own) && within(&other));
    }
}
