//! Runs handlers of languages with a bootstrap in contexts: warm processes that are fed batches.
//!
//! | module | owns |
//! |---|---|
//! | `language` | the languages, their interpreters and bootstraps |
//! | `frame`, `message`, `nonce` | the protocol of the channel (docs/contexts.md) |
//! | `halt` | ending a batch before its next job |
//! | `process` | the process, its channel, its outputs, its end |
//! | `start` | starting a process, its greeting, loading a handler |
//! | `ready` | a context for a batch: an idle one or a new one; compiling, and starting ahead |
//! | `compilers` | who may compile sources now |
//! | `bounds` | how many contexts may exist, and of which tenant |
//! | `pool` | the existing contexts, and how long they are kept |
//! | `pace` | how large batches should be, and how many contexts work at once |
//! | `request` | a batch as a request, in portions that fit into a frame |
//! | `result` | results: masked, bounded and checked |
//! | `fuzz` | rules for whatever a context writes, for the fuzzer and the tests |
//! | `turn`, `flight` | one batch in one context, and each job of it: stops, time limits, deaths |

mod bounds;
mod compilers;
mod flight;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod halt;
pub(crate) mod language;
mod message;
mod nonce;
mod pace;
mod pool;
mod process;
mod ready;
mod request;
mod result;
mod start;
mod turn;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass_core::runner::{Assignment, Batch, Pieces, Reports};
use windlass_core::secret::OpenSecrets;
use windlass_core::sync::lock;
use windlass_core::{AttemptId, Clock, Handler, HandlerId};

pub use self::bounds::Bounds;
use self::compilers::Compilers;
use self::flight::Flight;
use self::pace::Paces;
use self::pool::{ContextKey, IDLE_DEFAULT, Pool};
use self::ready::Ready;
use self::request::BatchRequest;
use self::start::Unready;
use self::turn::{AfterTurn, Turn, TurnParameters, report_unbegun};
use crate::mask::Mask;
use crate::output::Output;
use crate::stop::Watch;
use crate::{Ground, Options};

/// A context is replaced after this many jobs, unless its handler sets a number.
const CONTEXT_JOBS_DEFAULT: u32 = 10_000;
/// Attempts to start a context for a batch while the machine is at a limit.
const START_TRIES_MAX: u32 = 5;
const START_PAUSE: Duration = Duration::from_millis(100);

/// The caller's side of a batch: takes reports, and orders jobs to stop.
struct CallerLink<'a> {
    watch: &'a mut Watch,
    reports: &'a dyn Reports,
    /// The job last reported as started.
    announced: &'a mut Option<AttemptId>,
}

/// A handler with the secrets that its contexts get.
#[derive(Clone)]
struct Equipped {
    handler: Arc<Handler>,
    secrets: Arc<OpenSecrets>,
    mask: Arc<Mask>,
}

impl Equipped {
    fn new(handler: Arc<Handler>, secrets: Arc<OpenSecrets>) -> Equipped {
        let mask = Mask::of(&secrets);
        Equipped { handler, secrets, mask }
    }

    /// Which contexts fit.
    fn key(&self) -> ContextKey {
        ContextKey::of(&self.handler, &self.secrets)
    }
}

/// Runs batches in contexts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Contexts {
    pool: Arc<Pool>,
    paces: Arc<Paces>,
    ground: Arc<Ground>,
    log_bytes_max: usize,
    clock: Arc<dyn Clock>,
    /// Bounds the contexts that only compile.
    compilers: Arc<Compilers>,
    /// Contexts that are started or ended in the background.
    background: Arc<Mutex<JoinSet<()>>>,
}

impl Contexts {
    pub(crate) fn new(ground: Arc<Ground>, options: &Options) -> Contexts {
        Contexts {
            pool: Pool::new(options.contexts),
            paces: Arc::new(Paces::new(options.cores)),
            ground,
            log_bytes_max: options.log_bytes_max,
            clock: Arc::clone(&options.clock),
            compilers: Arc::default(),
            background: Arc::default(),
        }
    }

    /// Runs the jobs one after the other, in as many contexts as necessary.
    pub(crate) async fn run(&self, batch: Batch, watch: &mut Watch, reports: &dyn Reports) {
        let Batch { handler, jobs, secrets, pieces } = batch;
        let handler = Equipped::new(handler, secrets);
        let mut waiting = VecDeque::from(jobs);
        let mut tries = 0;
        let mut announced = None;
        while !waiting.is_empty() {
            if watch.shutdown() || tries == START_TRIES_MAX {
                for assignment in waiting {
                    reports.returned(assignment.id).await;
                }
                return;
            }
            drop_stopped(&mut waiting, watch, reports, announced).await;
            let Some(first) = waiting.front() else { return };
            let (id, timeout) = (first.id, first.timeout);
            match self.ready(&handler, watch, id, timeout).await {
                Ok(ready) => {
                    let caller = CallerLink { watch, reports, announced: &mut announced };
                    self.turn(&handler, ready, &mut waiting, &pieces, caller).await;
                }
                Err((Unready::Exhausted(reason), _)) => {
                    let key = &handler.handler.key;
                    tracing::warn!(%reason, r#type = %key, "a context was not started");
                    tries += 1;
                    tokio::time::sleep(START_PAUSE).await;
                }
                Err((Unready::Stopped(why), _)) => {
                    if let Some(assignment) = waiting.pop_front() {
                        report_unbegun(assignment.id, why, reports, announced).await;
                    }
                }
                Err((Unready::Broken { reason, .. }, output)) => {
                    let log = (output, self.log_bytes_max, &handler.mask);
                    return fail_all(waiting, &reason, log, reports, announced).await;
                }
            }
        }
    }

    /// Runs one batch, or as much of it as fits, in one context.
    async fn turn(
        &self,
        equipped: &Equipped,
        ready: Ready,
        waiting: &mut VecDeque<Assignment>,
        pieces: &Arc<dyn Pieces>,
        caller: CallerLink<'_>,
    ) {
        let CallerLink { watch, reports, announced } = caller;
        let Equipped { handler, mask, .. } = equipped;
        let Ready { mut context, took, output } = ready;
        let options = &handler.spec.options;
        let context_jobs = options.context_jobs.unwrap_or(CONTEXT_JOBS_DEFAULT).max(1);
        let number = context.number_of(handler.id).unwrap_or_default();
        let marked = Turn::marks_wanted(&context);
        let jobs_max = context_jobs.saturating_sub(context.jobs).max(1) as usize;
        let inbox = context.process.inbox();
        let request = BatchRequest::take(waiting, jobs_max, number, marked, pieces, &inbox).await;
        for (id, reason) in request.unreadable {
            tracing::warn!(job = %id.job, %reason, "cannot start a job; it is returned");
            reports.returned(id).await;
        }
        let mut after = AfterTurn::Usable;
        if !request.assignments.is_empty() {
            if let Some(cpu) = self.ground.isolation.effective(&options.limits).cpu {
                context.process.limit_cpu(cpu);
            }
            context.process.ask(request.frame);
            let is_fresh = context.jobs == 0;
            let mut flights: Vec<Flight> = request
                .assignments
                .into_iter()
                .map(|assignment| Flight::new(assignment, self.log_bytes_max, mask))
                .collect();
            flights[0].prepend_output(output);
            let parameters = TurnParameters {
                watch,
                reports,
                clock: &*self.clock,
                mask,
                start_time: took,
                announced,
                is_fresh,
                has_before_each: handler.spec.before_each.is_some(),
                has_after_each: handler.spec.after_each.is_some(),
            };
            let (begun, given) = (Instant::now(), flights.len());
            let turn = Turn::new(&mut context, parameters, flights, request.nonces, marked);
            let not_started;
            (after, not_started) = turn.run().await;
            let ran = given - not_started.len();
            context.jobs += ran as u32;
            if ran > 0 {
                self.paces.note(handler.id, ran as u32, begun.elapsed());
            }
            for flight in not_started.into_iter().rev() {
                waiting.push_front(flight.assignment);
            }
        }
        for file in request.files {
            let _ = tokio::fs::remove_file(file).await;
        }
        if after == AfterTurn::Spent {
            context.process.kill().await;
            return context.process.remove().await;
        }
        context.end_leftovers();
        if context.jobs >= context_jobs {
            return context.process.end().await;
        }
        let idle = options.idle.unwrap_or(IDLE_DEFAULT);
        self.pool.put(equipped.key(), context, idle).await;
    }

    pub(crate) fn batch_max(&self, handler: &Handler) -> u32 {
        self.paces.batch_max(handler)
    }

    pub(crate) fn contexts_max(&self, handler: &Handler) -> Option<u32> {
        self.paces.contexts_max(handler)
    }

    pub(crate) fn warm(&self) -> Vec<HandlerId> {
        self.pool.warm()
    }

    pub(crate) async fn close(&self) {
        let mut background = {
            let mut tasks = lock(&self.background);
            std::mem::take(&mut *tasks)
        };
        background.shutdown().await;
        self.pool.close().await;
    }
}

/// Reports jobs that were stopped before their turn came.
async fn drop_stopped(
    waiting: &mut VecDeque<Assignment>,
    watch: &mut Watch,
    reports: &dyn Reports,
    announced: Option<AttemptId>,
) {
    let mut stopped = Vec::new();
    waiting.retain(|assignment| {
        let why = watch.taken(assignment.id);
        stopped.extend(why.map(|why| (assignment.id, why)));
        why.is_none()
    });
    for (id, why) in stopped {
        report_unbegun(id, why, reports, announced).await;
    }
}

/// The handler has no working context, which fails each of these jobs. `announced` was already
/// reported as started.
async fn fail_all(
    waiting: VecDeque<Assignment>,
    reason: &str,
    (output, log_bytes_max, mask): (Output, usize, &Arc<Mask>),
    reports: &dyn Reports,
    announced: Option<AttemptId>,
) {
    let mut output = Some(output);
    for assignment in waiting {
        let id = assignment.id;
        let mut flight = Flight::new(assignment, log_bytes_max, mask);
        if let Some(output) = output.take() {
            flight.prepend_output(output);
        }
        flight.fail(reason, None, Duration::ZERO);
        if announced != Some(id) {
            reports.started(id).await;
        }
        if let Some(report) = flight.report(Duration::ZERO) {
            reports.ended(id, report).await;
        }
    }
}
