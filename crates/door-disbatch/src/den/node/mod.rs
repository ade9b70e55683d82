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
use super::entry::{Entrance, Term, idle};
use super::held::{Held, drop_stray_holds};
use super::limit::Increase;
use super::liveness::Sign;
use super::log_once::LogOnce;
use super::orphan::{Watch, bury, holds};
use super::pass::Left;
use super::plugins::Programs;
use super::runs::Runs;
use super::settings::Settings;
use super::start::Ready;
use super::tend::tend;
use super::turn::Turns;
use super::{Tools, here, hook};
use crate::config::{Config, Plugin, plugin_file};
use crate::database::{Clock, Database, DbError, Me};
use crate::doc::{self, Limit, Queue};
use crate::task::{Parts, Temp};

const PASS_TIME: Duration = Duration::from_secs(1);
/// How long the node may take to give back what is left of it.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) struct Node {
    settings: Settings,
    launcher: Arc<dyn Launcher>,
    fence: Arc<dyn Fence>,
    entrance: Entrance,
    database: Database,
    clock: Clock,
    temp: Arc<Temp>,
    parts: Arc<Parts>,
    dialect_open: bool,
    watch: Watch,
    runs: Runs,
    turns: Turns,
    programs: Programs,
    held: Held,
    logged: LogOnce,
    /// As the last pass has seen them.
    served: Vec<(Queue, Plugin)>,
    limit: Limit,
    left: Left,
    increase: Increase,
    stopping: CancellationToken,
    runs_max: u64,
    /// The queues that the last pass has seen, for `tend`.
    view: watch::Sender<Vec<Queue>>,
}

/// Why a time under one boot is over.
enum Over {
    Stopped,
    Lost,
}

impl Node {
    pub(super) fn new(config: Config, tools: Tools, ready: Ready) -> Node {
        let Ready { database, for_tasks, clock, dialect_open, temp } = ready;
        let Tools { launcher, fence, version, runs_max } = tools;
        let entrance = Entrance {
            database: database.clone(),
            clock: clock.clone(),
            fence: Arc::clone(&fence),
            heartbeat: config.heartbeat,
            orphan_after: config.orphan_after,
            host: here::host(),
            version,
        };
        let parts = parts(&config, &for_tasks, &clock, &temp, &launcher, &fence);
        Node {
            watch: Watch::new(&config),
            increase: Increase::new(config.node_increase, config.queue_increase),
            settings: Settings::new(config),
            launcher,
            fence,
            entrance,
            database,
            clock,
            temp,
            parts,
            dialect_open,
            runs: Runs::default(),
            turns: Turns::default(),
            programs: Programs::default(),
            held: Held::default(),
            logged: LogOnce::default(),
            served: Vec::new(),
            limit: Limit::At(0),
            left: Left::default(),
            stopping: CancellationToken::new(),
            runs_max,
            view: watch::Sender::new(Vec::new()),
        }
    }

    pub(super) async fn live(mut self, stop: &Stop) -> Result<(), String> {
        self.stopping = stop.asked.clone();
        let mark = self.fence.mark().1;
        for boot in 0_u64.. {
            // The first part stays, because what was started under it carries it.
            let me = Me { node: self.settings.config.node.clone(), boot: format!("{mark}-{boot}") };
            let quiet = idle(&self.fence);
            let term = tokio::select! {
                term = self.enter(&me) => Arc::new(term),
                () = stop.asked.cancelled() => break,
            };
            drop(quiet);
            let (node, dialect) = (&me.node, self.database.dialect().name());
            tracing::info!(node, dialect, boot = me.boot, "the node has entered the network");
            if let Over::Stopped = self.serve(&term, stop).await? {
                break;
            }
            self.end_left_by(&mark).await;
        }
        Ok(())
    }

    /// Waits until the name is free.
    async fn enter(&mut self, me: &Me) -> Term {
        loop {
            match self.try_enter(me).await {
                Ok(Some(term)) => {
                    self.well();
                    return term;
                }
                Ok(None) => self.well(),
                Err(error) => self.complain(&error),
            }
            sleep(PASS_TIME).await;
        }
    }

    async fn try_enter(&mut self, me: &Me) -> Result<Option<Term>, DbError> {
        let taken = match self.entrance.enter(me).await? {
            Ok(term) => return Ok(Some(term)),
            Err(taken) => taken,
        };
        let seen = self.watch.look(&self.database, &self.clock).await?;
        if let Some((boot, beat)) = self.left_behind(&taken).await {
            bury(&self.database, &me.node, &boot, &beat, self.clock.now()).await?;
            return Ok(None);
        }
        if self.logged.is_news("name", &format!("{:?}", doc::at(&taken, "windlass.boot"))) {
            tracing::warn!(
                node = me.node,
                "another node has this name; it is waited for until that one leaves, or is silent \
                 for {} seconds",
                self.settings.config.orphan_after.as_secs_f64()
            );
        }
        self.watch.clear(&self.database, &seen, &me.node, None, self.clock.now()).await?;
        Ok(None)
    }

    /// The boot and the beat of an entry whose node has certainly died on this machine, together
    /// with its fence. What it left running is ended.
    async fn left_behind(&self, entry: &Document) -> Option<(String, Sign)> {
        let node = doc::Node::read(entry).ok()?;
        let here = !self.entrance.host.is_empty() && node.host? == self.entrance.host;
        let dead = !here::is_alive(node.pid?) && !node.fence.is_some_and(here::is_alive);
        let boot = node.boot.filter(|_| here && dead)?;
        self.end_left_by(mark_of(&boot)).await;
        Some((boot, Some(doc::at(entry, "windlass.beat").cloned().unwrap_or(Bson::Null))))
    }

    /// Ends marked processes that no task knows any more.
    async fn end_left_by(&self, mark: &str) {
        let (fence, mark) = (Arc::clone(&self.fence), mark.to_owned());
        if spawn_blocking(move || fence.end_left_by(&mark)).await.is_err() {
            tracing::error!("cannot end the processes that were left running");
        }
    }

    async fn serve(&mut self, term: &Arc<Term>, stop: &Stop) -> Result<Over, String> {
        let _renewing = AbortOnDropHandle::new(tokio::spawn(Arc::clone(term).keep()));
        let tending = tend(self.database.clone(), self.clock.clone(), self.view.subscribe());
        let _tending = AbortOnDropHandle::new(tokio::spawn(tending));
        let mut pass_at = interval(PASS_TIME);
        pass_at.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whatever was seen under another boot is long ago.
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
            // Whatever there is to claim, the node looks after itself and others first.
            let fresh = tokio::select! {
                biased;
                _ = ending.next(&signals) => continue,
                said = hook::ended(hook.as_ref()) => match self.heed(hook.take(), said) {
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
                    if let Some(claimed) = ending.beside(&signals, claiming).await {
                        self.note(claimed);
                    }
                    continue;
                }
            };
            ending.beside(&signals, Box::pin(self.pass(term, fresh))).await;
        }
        if ending.lost && !ending.stopped {
            return Ok(Over::Lost);
        }
        self.leave(term).await;
        failed.map(|()| Over::Stopped)
    }

    /// Gives back what is left, and the name. Whatever is not done in time others find.
    async fn leave(&mut self, term: &Term) {
        let database = self.database.clone();
        let leave = async {
            let (clock, runs) = (&self.clock, &self.runs);
            let me = &term.me;
            // Nothing runs any more: what stands as running could not be written.
            self.held.compare(&database, clock, me, runs).await?;
            let compared = self.held.compare(&database, clock, me, runs).await?;
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

fn parts(
    config: &Config,
    database: &Database,
    clock: &Clock,
    temp: &Arc<Temp>,
    launcher: &Arc<dyn Launcher>,
    fence: &Arc<dyn Fence>,
) -> Arc<Parts> {
    Arc::new(Parts {
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

/// The mark that everything carries which was started under this boot.
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
