//! Cells of `sh` and `exec` that wait for the next job of the same handler.
//!
//! A job needs a cell that has the same tenant, limits, network policy and environment as its own
//! would have. One is kept after each job, up to a bound, and ended when nobody has needed it for a
//! while. What a job could leave in it is gone before it is used again (`cell::order`).

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_core::Handler;
use windlass_core::sync::lock;

use crate::cell::{self, NoCell, Streams, Variables};
use crate::scratch::AttemptDir;
use crate::tree::Main;

/// Cells that wait at the same time, of all handlers together.
const SPARES_MAX: usize = 16;
/// How long one waits, and how often that is looked at.
const IDLE_MAX: Duration = Duration::from_secs(10);
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// Jobs that one cell runs, at most.
const JOBS_MAX: u32 = 1000;

/// The place of one process after another, or of just one. Dropping it ends everything in it.
pub(crate) struct Seat {
    pub(crate) main: Main,
    pub(crate) _dir: AttemptDir,
    /// Absent if it runs just one.
    pub(crate) use_for: Option<Use>,
    /// How many it has run.
    pub(crate) jobs: u32,
}

/// What all processes in one cell have in common.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) handler: Arc<Handler>,
    /// What they may connect to, as text.
    pub(crate) network: String,
    /// Without the variables of a job.
    pub(crate) env: Variables,
}

impl Use {
    fn is_same(&self, other: &Use) -> bool {
        let (ours, theirs) = (&*self.handler, &*other.handler);
        let is_same_handler = Arc::ptr_eq(&self.handler, &other.handler)
            || ours.id == theirs.id && ours.key == theirs.key && ours.spec == theirs.spec;
        is_same_handler && self.network == other.network && self.env == other.env
    }
}

/// A process that has begun.
pub(crate) struct Started {
    pub(crate) seat: Seat,
    pub(crate) streams: Streams,
}

impl Seat {
    /// Starts the next process with these variables besides the common ones.
    pub(crate) fn start(mut self, env: &Variables) -> Result<Started, NoCell> {
        let streams = cell::start_next(&self.main, env)?;
        self.jobs += 1;
        Ok(Started { seat: self, streams })
    }
}

#[derive(Default)]
pub(crate) struct Spares(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// The longest waiting first.
    seats: Vec<(Instant, Seat)>,
    is_closed: bool,
    /// Whether a task ends those that wait too long.
    is_watched: bool,
}

impl Spares {
    /// The one that was used last: the others may be ended sooner.
    pub(crate) fn take(&self, wanted: &Use) -> Option<Seat> {
        let mut waiting = lock(&self.0);
        let fits = |seat: &Seat| seat.use_for.as_ref().is_some_and(|of| of.is_same(wanted));
        let at = waiting.seats.iter().rposition(|(_, seat)| fits(seat))?;
        Some(waiting.seats.remove(at).1)
    }

    /// Keeps a cell. Returns one that is not kept, to be dropped where that may block.
    pub(crate) fn put(self: &Arc<Spares>, seat: Seat) -> Option<Seat> {
        let mut waiting = lock(&self.0);
        if waiting.is_closed || seat.jobs >= JOBS_MAX {
            return Some(seat);
        }
        waiting.seats.push((Instant::now(), seat));
        if !waiting.is_watched {
            waiting.is_watched = true;
            tokio::spawn(end_idle(Arc::downgrade(self)));
        }
        let is_full = waiting.seats.len() > SPARES_MAX;
        is_full.then(|| waiting.seats.remove(0).1)
    }

    /// Ends all, and keeps none from now on. Blocks.
    pub(crate) fn close(&self) {
        let mut waiting = lock(&self.0);
        waiting.is_closed = true;
        let seats = std::mem::take(&mut waiting.seats);
        drop(waiting);
        drop(seats);
    }

    /// Those that have waited too long, and whether there are others.
    fn take_idle(&self) -> (Vec<Seat>, bool) {
        let mut waiting = lock(&self.0);
        let is_idle = |(since, _): &(Instant, Seat)| since.elapsed() >= IDLE_MAX;
        let idle = waiting.seats.iter().take_while(|seat| is_idle(seat)).count();
        let idle = waiting.seats.drain(..idle).map(|(_, seat)| seat).collect();
        waiting.is_watched = !waiting.seats.is_empty();
        (idle, waiting.is_watched)
    }
}

/// Ends cells that wait too long, until none is left.
async fn end_idle(spares: Weak<Spares>) {
    loop {
        sleep(LOOK_PAUSE).await;
        let Some(spares) = spares.upgrade() else { return };
        let (idle, are_others) = spares.take_idle();
        let _ = tokio::task::spawn_blocking(move || drop(idle)).await;
        if !are_others {
            return;
        }
    }
}
