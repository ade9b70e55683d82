//! The life cycle of a node.
//!
//! ```text
//! enter ─► serve: a pass each second, claims at once when a task ends ─► asked to stop ─► leave
//!   ▲        └─ the name is lost: everything ends, another boot ─┐
//!   └────────────────────────────────────────────────────────────┘
//! ```
//! A hook runs in parallel: passes claim nothing until it has ended.

mod ending;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use windlass_core::launch::{Fence, Launcher};
use windlass_program::Stop;

use self::ending::{Ending, Signals};
use super::entry::{EntryContext, Term, idle};
use super::limit::Increase;
use super::liveness::LifeSign;
use super::log_once::LogOnce;
use super::orphan::{NodeWatch, evict, holds};
use super::pass::EarlierTasks;
use super::plugins::Programs;
use super::reconcile::{Reconciler, drop_stray_holds};
use super::runs::Runs;
use super::settings::Settings;
use super::start::PreparedNode;
use super::tend::tend;
use super::turn::Turns;
use super::{Tools, here, hook};
use crate::config::{Config, Plugin, plugin_file};
use crate::database::{Clock, Database, DbError, NodeBoot};
use crate::doc::{self, Limit, Queue};
use crate::task::{RunContext, Temp};

const PASS_TIME: Duration = Duration::from_secs(1);
/// Time limit for releasing everything at the end.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) struct Node {
    settings: Settings,
    launcher: Arc<dyn Launcher>,
    fence: Arc<dyn Fence>,
    entry_context: EntryContext,
    database: Database,
    clock: Clock,
    temp: Arc<Temp>,
    context: Arc<RunContext>,
    dialect_open: bool,
    watch: NodeWatch,
    runs: Runs,
    turns: Turns,
    programs: Programs,
    reconciler: Reconciler,
    logged: LogOnce,
    /// As of the last pass.
    served: Vec<(Queue, Plugin)>,
    limit: Limit,
    earlier_tasks: EarlierTasks,
    increase: Increase,
    stopping: CancellationToken,
    runs_max: u64,
    /// The queues of the last pass, for `tend`.
    view: watch::Sender<Vec<Queue>>,
}

/// Why a term ended.
enum TermEnd {
    Stopped,
    Lost,
}

impl Node {
    pub(super) fn new(config: Config, tools: Tools, ready: PreparedNode) -> Node {
        let PreparedNode { database, for_tasks, clock, dialect_open, temp } = ready;
        let Tools { launcher, fence, version, runs_max } = tools;
        let entry_context = EntryContext {
            database: database.clone(),
            clock: clock.clone(),
            fence: Arc::clone(&fence),
            heartbeat: config.heartbeat,
            orphan_after: config.orphan_after,
            host: here::host(),
            version,
        };
        let context = run_context(&config, &for_tasks, &clock, &temp, &launcher, &fence);
        Node {
            watch: NodeWatch::new(&config),
            increase: Increase::new(config.node_increase, config.queue_increase),
            settings: Settings::new(config),
            launcher,
            fence,
            entry_context,
            database,
            clock,
            temp,
            context,
            dialect_open,
            runs: Runs::default(),
            turns: Turns::default(),
            programs: Programs::default(),
            reconciler: Reconciler::default(),
            logged: LogOnce::default(),
            served: Vec::new(),
            limit: Limit::At(0),
            earlier_tasks: EarlierTasks::default(),
            stopping: CancellationToken::new(),
            runs_max,
            view: watch::Sender::new(Vec::new()),
        }
    }

    pub(super) async fn live(mut self, stop: &Stop) -> Result<(), String> {
        self.stopping = stop.asked.clone();
        let mark = self.fence.mark().1;
        for boot in 0_u64.. {
            // The first part stays the same, because started processes carry it.
            let me = NodeBoot {
                node: self.settings.config.node.clone(),
                boot: format!("{mark}-{boot}"),
            };
            let quiet = idle(&self.fence);
            let term = tokio::select! {
                term = self.enter(&me) => Arc::new(term),
                () = stop.asked.cancelled() => break,
            };
            drop(quiet);
            let (node, dialect) = (&me.node, self.database.dialect().name());
            tracing::info!(node, dialect, boot = me.boot, "the node has entered the network");
            if let TermEnd::Stopped = self.serve(&term, stop).await? {
                break;
            }
            self.end_left_by(&mark).await;
        }
        Ok(())
    }

    /// Waits until the name is free, and takes it.
    async fn enter(&mut self, me: &NodeBoot) -> Term {
        loop {
            match self.try_enter(me).await {
                Ok(Some(term)) => {
                    self.log_recovery();
                    return term;
                }
                Ok(None) => self.log_recovery(),
                Err(error) => self.log_error(&error),
            }
            sleep(PASS_TIME).await;
        }
    }

    async fn try_enter(&mut self, me: &NodeBoot) -> Result<Option<Term>, DbError> {
        let taken = match self.entry_context.enter(me).await? {
            Ok(term) => return Ok(Some(term)),
            Err(taken) => taken,
        };
        let snapshot = self.watch.observe(&self.database, &self.clock).await?;
        if let Some((boot, beat)) = self.left_behind(&taken).await {
            evict(&self.database, &me.node, &boot, &beat, self.clock.now()).await?;
            return Ok(None);
        }
        if self.logged.is_news("name", &format!("{:?}", doc::at(&taken, "windlass.boot"))) {
            tracing::warn!(
                node = me.node,
                "another node has this name; waiting until it leaves or has been silent for {} \
                 seconds",
                self.settings.config.orphan_after.as_secs_f64()
            );
        }
        self.watch.clear(&self.database, &snapshot, &me.node, None, self.clock.now()).await?;
        Ok(None)
    }

    /// The boot and beat of an entry whose node has certainly died on this machine, together with
    /// its fence. Kills what it left running.
    async fn left_behind(&self, entry: &Document) -> Option<(String, LifeSign)> {
        let node = doc::Node::read(entry).ok()?;
        let here = !self.entry_context.host.is_empty() && node.host? == self.entry_context.host;
        let dead = !here::is_alive(node.pid?) && !node.fence.is_some_and(here::is_alive);
        let boot = node.boot.filter(|_| here && dead)?;
        self.end_left_by(mark_of(&boot)).await;
        Some((boot, Some(doc::at(entry, "windlass.beat").cloned().unwrap_or(Bson::Null))))
    }

    /// Kills marked processes that no longer belong to a task.
    async fn end_left_by(&self, mark: &str) {
        let (fence, mark) = (Arc::clone(&self.fence), mark.to_owned());
        if spawn_blocking(move || fence.end_left_by(&mark)).await.is_err() {
            tracing::error!("cannot end the processes that were left running");
        }
    }

    async fn serve(&mut self, term: &Arc<Term>, stop: &Stop) -> Result<TermEnd, String> {
        let _renewing = AbortOnDropHandle::new(tokio::spawn(Arc::clone(term).keep()));
        let tending = tend(self.database.clone(), self.clock.clone(), self.view.subscribe());
        let _tending = AbortOnDropHandle::new(tokio::spawn(tending));
        let mut pass_at = interval(PASS_TIME);
        pass_at.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What the previous boot observed is outdated.
        self.served.clear();
        let runs = self.runs.clone();
        let mut ending = Ending::default();
        let mut hook: Option<hook::Started> = None;
        let mut failed = Ok(());
        while !(ending.began && runs.count() == 0) {
            let stop_timeout = self.settings.config.stop_timeout;
            let signals = Signals { stop, lost: &term.lost, runs: &runs, stop_timeout };
            if ending.began {
                hook = None;
            }
            // The regular pass comes first, however large the backlog.
            let fresh = tokio::select! {
                biased;
                _ = ending.next(&signals) => continue,
                result = hook::ended(hook.as_ref()) => match self.hook_ended(hook.take(), result) {
                    Ok(()) => true,
                    Err(why) => {
                        ending.stop(stop_timeout);
                        failed = Err(why);
                        continue;
                    }
                },
                _ = pass_at.tick(), if !ending.hurried => {
                    let idle = !ending.began && hook.is_none();
                    if idle {
                        hook = self.start_hook();
                        if hook.is_some() {
                            continue;
                        }
                    }
                    idle
                }
                () = runs.ended.notified(), if !ending.began && hook.is_none() => {
                    let claiming = Box::pin(self.claim(term));
                    if let Some(claimed) = ending.unless_ending(&signals, claiming).await {
                        self.note(claimed);
                    }
                    continue;
                }
            };
            ending.unless_ending(&signals, Box::pin(self.pass(term, fresh))).await;
        }
        if ending.lost && !ending.stopped {
            return Ok(TermEnd::Lost);
        }
        self.leave(term).await;
        failed.map(|()| TermEnd::Stopped)
    }

    /// Releases everything, then the name. Other nodes find whatever is not done in time.
    async fn leave(&mut self, term: &Term) {
        let database = self.database.clone();
        let leave = async {
            let (clock, runs) = (&self.clock, &self.runs);
            let me = &term.me;
            // Nothing runs any more: tasks still marked as running could not be written.
            self.reconciler.compare(&database, clock, me, runs).await?;
            let compared = self.reconciler.compare(&database, clock, me, runs).await?;
            let holds = holds(&database.queues().await?);
            drop_stray_holds(&database, &holds, me, runs, &compared.standing).await?;
            compared.refused?;
            term.leave().await
        };
        match timeout(LEAVE_TIME_MAX, leave).await {
            Ok(Ok(())) => tracing::info!(node = term.me.node, "the node has left the network"),
            Ok(Err(error)) => tracing::warn!("cannot remove the node's entry: {error}"),
            Err(_) => tracing::warn!("cannot remove the node's entry: no answer in time"),
        }
    }
}

fn run_context(
    config: &Config,
    database: &Database,
    clock: &Clock,
    temp: &Arc<Temp>,
    launcher: &Arc<dyn Launcher>,
    fence: &Arc<dyn Fence>,
) -> Arc<RunContext> {
    Arc::new(RunContext {
        database: database.clone(),
        launcher: Arc::clone(launcher),
        fence: Some(Arc::clone(fence)),
        clock: clock.clone(),
        temp: Arc::clone(temp),
        gfs: config.gfs,
        quiet: config.quiet,
        plugin_config: plugin_file(config),
    })
}

/// The mark of all processes started under this boot.
fn mark_of(boot: &str) -> &str {
    boot.split_once('-').map_or(boot, |(mark, _)| mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_boot_is_its_first_part() {
        assert_eq!(mark_of("ab12-0"), "ab12");
        assert_eq!(mark_of("ab12-17"), "ab12");
        assert_eq!(mark_of("ab12"), "ab12");
    }
}
