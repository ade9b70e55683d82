//! The life of a node.
//!
//! ```text
//! enter ─► serve: a pass each second, claims at once when a task ends ─► asked to stop ─► leave
//!   ▲        └─ the name is lost: everything ends, another boot ─┐
//!   └────────────────────────────────────────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::Document;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use windlass_core::launch::{Fence, Launcher};

use super::counters::Count;
use super::due::Due;
use super::entry::{Entrance, Term};
use super::held::{Held, drop_stray_holds};
use super::limit::Increase;
use super::odd::OddTasks;
use super::orphan::{Seen, Watch, bury};
use super::pass::{self, More, Pass};
use super::plugins::Programs;
use super::report::report;
use super::runs::Runs;
use super::said::Said;
use super::settings::Settings;
use super::start::{Ready, write_files};
use super::turn::Turns;
use super::{Stop, Tools, here, hook};
use crate::config::{Config, Plugin, plugin_file};
use crate::database::{Clock, Database, DbError, Me};
use crate::dialect::Dialect;
use crate::doc::{self, Limit, Queue};
use crate::gridfs::Cleaner;
use crate::task::{Parts, Temp, Why};

const PASS_TIME: Duration = Duration::from_secs(1);
/// Between two steps of the search for files that nothing points to.
const CLEAN_PAUSE: Duration = Duration::from_secs(60);
/// How long the ends of tasks may take to be written when the node stops.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same when it is told to stop at once.
const HURRY_TIME_MAX: Duration = Duration::from_secs(3);
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
    dialect: Dialect,
    dialect_open: bool,
    watch: Watch,
    runs: Runs,
    turns: Turns,
    programs: Programs,
    held: Held,
    due: Due,
    count: Count,
    odd: OddTasks,
    cleaner: Cleaner,
    clean_at: Instant,
    said: Said,
    /// As the last pass has seen them.
    served: Vec<(Queue, Plugin)>,
    limit: Limit,
    increase: Increase,
}

/// Why a time under one boot is over.
enum Over {
    Stopped,
    Lost,
}

impl Node {
    pub(super) fn new(config: Config, tools: Tools, ready: Ready) -> Node {
        let Ready { database, for_tasks, clock, dialect, dialect_open, temp } = ready;
        let Tools { launcher, fence, version } = tools;
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
            dialect,
            dialect_open,
            runs: Runs::default(),
            turns: Turns::default(),
            programs: Programs::default(),
            held: Held::default(),
            due: Due::default(),
            count: Count::default(),
            odd: OddTasks::default(),
            cleaner: Cleaner::default(),
            clean_at: Instant::now() + CLEAN_PAUSE,
            said: Said::default(),
            served: Vec::new(),
            limit: Limit::At(0),
        }
    }

    pub(super) async fn live(mut self, stop: &Stop) -> Result<(), String> {
        let mark = self.fence.mark().1;
        for boot in 0_u64.. {
            // The first part stays, because what was started under it carries it.
            let me = Me { node: self.settings.config.node.clone(), boot: format!("{mark}-{boot}") };
            let term = tokio::select! {
                term = self.enter(&me) => Arc::new(term),
                () = stop.asked.cancelled() => break,
            };
            let (node, dialect) = (&me.node, self.dialect.name());
            tracing::info!(node, dialect, boot = me.boot, "the node has entered the network");
            if let Over::Stopped = self.serve(&term, stop).await? {
                break;
            }
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
            if self.database.node_bury(&me.node, &boot, &beat).await? {
                bury(&self.database, &me.node, &boot, self.clock.now()).await?;
            }
            return Ok(None);
        }
        if self.said.is_news("name", &format!("{:?}", doc::at(&taken, "windlass.boot"))) {
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
    async fn left_behind(&self, entry: &Document) -> Option<(String, Option<mongodb::bson::Bson>)> {
        let node = doc::Node::read(entry).ok()?;
        let here = !self.entrance.host.is_empty() && node.host? == self.entrance.host;
        let dead = !here::is_alive(node.pid?) && !node.fence.is_some_and(here::is_alive);
        let boot = node.boot.filter(|_| here && dead)?;
        let (fence, mark) = (Arc::clone(&self.fence), mark_of(&boot).to_owned());
        spawn_blocking(move || fence.end_left_by(&mark)).await.ok()?;
        Some((boot, doc::at(entry, "windlass.beat").cloned()))
    }

    async fn serve(&mut self, term: &Arc<Term>, stop: &Stop) -> Result<Over, String> {
        let _renewing = AbortOnDrop(tokio::spawn(Arc::clone(term).keep()).abort_handle());
        let mut pass_at = interval(PASS_TIME);
        pass_at.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ending = Ending::default();
        let mut failed = Ok(());
        while !(ending.began && self.runs.count() == 0) {
            let ended = Arc::clone(&self.runs.ended);
            tokio::select! {
                () = stop.now.cancelled(), if !ending.hurried => {
                    ending.hurry(&self.runs);
                }
                () = term.lost.cancelled(), if !ending.lost => {
                    (ending.lost, ending.began) = (true, true);
                    self.runs.end_all(Why::Fenced);
                }
                () = stop.asked.cancelled(), if !ending.stopped => {
                    let time = self.settings.config.stop_timeout;
                    tracing::info!(running = self.runs.count(), "stopping");
                    ending.stop(time);
                }
                () = until(ending.end_at) => {
                    ending.end_at = None;
                    self.runs.end_all(Why::Stopped);
                }
                () = until(ending.give_up_at) => {
                    ending.give_up_at = None;
                    self.runs.give_up();
                }
                _ = pass_at.tick() => {
                    let fresh = !ending.began;
                    tokio::select! {
                        result = self.pass(term, fresh) => if result.is_err() && !ending.began {
                            ending.stop(self.settings.config.stop_timeout);
                            failed = result;
                        },
                        () = stop.now.cancelled(), if !ending.hurried => {}
                    }
                }
                () = ended.notified(), if !ending.began => {
                    let claimed = self.claim(term).await;
                    self.note(claimed);
                }
            }
        }
        if ending.lost && !ending.stopped {
            return Ok(Over::Lost);
        }
        self.leave(term).await;
        failed.map(|()| Over::Stopped)
    }

    /// Everything that is done each second. The error is a hook's that says that the node must
    /// end.
    async fn pass(&mut self, term: &Term, fresh: bool) -> Result<(), String> {
        if fresh {
            self.run_hook().await?;
        }
        match self.steps(term, fresh).await {
            Ok(()) => self.well(),
            Err(error) => self.complain(&error),
        }
        Ok(())
    }

    async fn run_hook(&mut self) -> Result<(), String> {
        let Some(hook) = &self.settings.config.pre_hook else { return Ok(()) };
        match hook::run(hook, &*self.launcher, &*self.fence).await {
            Ok(()) => {
                if self.said.is_over("hook") {
                    tracing::info!(hook = hook.name, "the hook before each pass is well again");
                }
                Ok(())
            }
            Err(why) if hook.fatal => Err(format!("`pre_hook` {}: {why}", hook.name)),
            Err(why) => {
                if self.said.is_news("hook", &why) {
                    tracing::warn!(hook = hook.name, "the hook before each pass failed: {why}");
                }
                Ok(())
            }
        }
    }

    async fn steps(&mut self, term: &Term, fresh: bool) -> Result<(), DbError> {
        let seen = self.watch.look(&self.database, &self.clock).await?;
        self.learn(term, &seen).await?;
        let queues = pass::readable(&seen.queues, self.dialect, &mut self.said);
        self.update_entry(term, &queues).await?;
        let (database, clock, runs) = (self.database.clone(), self.clock.clone(), &self.runs);
        let compared = self.held.compare(&database, &clock, &term.me, runs, self.dialect).await;
        self.tolerate("its own tasks", compared)?;
        if self.dialect == Dialect::Released {
            let dropped = drop_stray_holds(&database, &seen.queues, &term.me, &self.runs).await;
            self.tolerate("holds", dropped)?;
        }
        let (node, boot) = (term.me.node.as_str(), Some(term.me.boot.as_str()));
        let cleared = self.watch.clear(&database, &seen, node, boot, clock.now()).await;
        self.tolerate("orphaned tasks", cleared)?;
        if !fresh {
            return Ok(());
        }
        if !self.reload().await? {
            self.served.clear();
            return Ok(());
        }
        let due = self.due.step(&database, clock.now()).await.map(drop);
        self.tolerate("waiting tasks", due)?;
        self.increase =
            Increase::new(self.settings.config.node_increase, self.settings.config.queue_increase);
        let config = &self.settings.config;
        self.served = pass::served(&queues, &mut self.programs, config, &mut self.said);
        self.claim(term).await?;
        self.tend(&queues).await
    }

    /// What is not urgent.
    async fn tend(&mut self, queues: &[Queue]) -> Result<(), DbError> {
        let database = self.database.clone();
        if self.dialect == Dialect::Seed {
            let counted = self.count.step(&database, queues).await;
            self.tolerate("counters", counted)?;
        }
        let told = self.odd.step(&database, queues, &mut self.said).await;
        self.tolerate("tasks of the wrong types", told)?;
        if Instant::now() >= self.clean_at {
            self.clean_at = Instant::now() + CLEAN_PAUSE;
            let cleaned = self.cleaner.step(&database, self.clock.now()).await.map(drop);
            self.tolerate("files that nothing points to", cleaned)?;
        }
        Ok(())
    }

    /// Whether the settings are known: before that nothing may be claimed, because they may
    /// forbid it.
    async fn reload(&mut self) -> Result<bool, DbError> {
        if self.dialect == Dialect::Released {
            return Ok(true);
        }
        let (database, before) = (self.database.clone(), self.settings.config.clone());
        let reloaded = self.settings.reload(&database).await;
        let known = reloaded.is_ok();
        self.tolerate("the collection `config`", reloaded)?;
        if self.settings.config != before {
            self.renew_parts();
        }
        Ok(known)
    }

    fn renew_parts(&mut self) {
        let config = &self.settings.config;
        if let Err(error) = write_files(config) {
            tracing::warn!("{error}");
        }
        let (launcher, fence) = (&self.launcher, &self.fence);
        self.parts = parts(config, &self.parts.database, &self.clock, &self.temp, launcher, fence);
    }

    /// What a look says of the database itself.
    async fn learn(&mut self, term: &Term, seen: &Seen) -> Result<(), DbError> {
        let elsewhere = |entry: &doc::Node| {
            entry.boot.is_some() && entry.host.as_ref() != Some(&self.entrance.host)
        };
        let far = seen.entries.iter().any(elsewhere);
        term.learn_way(seen.hosts.clone(), seen.routed, far);
        if self.dialect_open {
            let told = self.database.dialect(self.settings.config.dialect).await?;
            let before = std::mem::replace(&mut self.dialect, told.0);
            self.dialect_open = told.1;
            if before != self.dialect {
                tracing::info!(dialect = self.dialect.name(), "the database shows its dialect");
                let indexed = self.database.ensure_indexes(self.dialect).await;
                self.tolerate("indexes", indexed)?;
            }
        }
        Ok(())
    }

    /// Shows that the node lives, and learns its limit.
    async fn update_entry(&mut self, term: &Term, queues: &[Queue]) -> Result<(), DbError> {
        let reports = match self.dialect {
            Dialect::Released => None,
            Dialect::Seed => {
                let ids: Vec<_> = queues.iter().map(|queue| queue.id).collect();
                let active = self.database.queue_active(&ids).await?;
                let doing = |queue: &Queue| active.get(&queue.id).copied().unwrap_or(0);
                Some(queues.iter().map(|queue| report(queue, doing(queue))).collect())
            }
        };
        let entry = self.database.node_update(&term.me, self.clock.now(), reports).await?;
        let Some(entry) = entry else {
            term.doubt();
            self.limit = Limit::At(0);
            return Ok(());
        };
        self.limit = match doc::Node::read(&entry).and_then(|entry| entry.limit) {
            Ok(limit) => {
                self.said.is_over("limit");
                limit
            }
            Err(odd) => {
                let text = odd.to_string();
                if self.said.is_news("limit", &text) {
                    tracing::warn!("nothing is run, because of this node's entry: {text}");
                }
                Limit::At(0)
            }
        };
        Ok(())
    }

    async fn claim(&mut self, term: &Term) -> Result<(), DbError> {
        let pass = Pass {
            database: &self.database,
            clock: &self.clock,
            term,
            parts: &self.parts,
            runs: &self.runs,
            dialect: self.dialect,
            limit: self.limit,
        };
        let more = pass.claim(&self.served, &mut self.turns, &mut self.increase).await?;
        if more == More::Perhaps {
            self.runs.ended.notify_one();
        }
        Ok(())
    }

    /// Gives back what is left, and the name. Whatever is not done in time others find.
    async fn leave(&mut self, term: &Term) {
        let database = self.database.clone();
        let leave = async {
            let (clock, runs) = (&self.clock, &self.runs);
            self.held.compare(&database, clock, &term.me, runs, self.dialect).await?;
            drop_stray_holds(&database, &database.queues().await?, &term.me, runs).await?;
            term.leave().await
        };
        match timeout(LEAVE_TIME_MAX, leave).await {
            Ok(Ok(())) => tracing::info!(node = term.me.node, "the node has left the network"),
            Ok(Err(error)) => tracing::warn!("the node could not leave the network: {error}"),
            Err(_) => tracing::warn!("the node could not leave the network: no answer in time"),
        }
    }

    /// A database that is away ends the pass; one that refuses one thing may do the others.
    fn tolerate(&mut self, what: &str, done: Result<(), DbError>) -> Result<(), DbError> {
        match done {
            Ok(()) => {
                if self.said.is_over(what) {
                    tracing::info!("the database does this again: {what}");
                }
                Ok(())
            }
            Err(error @ DbError::Away(_)) => Err(error),
            Err(error) => {
                let text = error.to_string();
                if self.said.is_news(what, &text) {
                    tracing::warn!("{what}: {text}");
                }
                Ok(())
            }
        }
    }

    fn note(&mut self, done: Result<(), DbError>) {
        if let Err(error) = done {
            self.complain(&error);
        }
    }

    /// Texts of the same trouble differ, so only its kind makes it news.
    fn complain(&mut self, error: &DbError) {
        let kind = match error {
            DbError::Away(_) => "away".to_owned(),
            other => other.to_string(),
        };
        if self.said.is_news("database", &kind) {
            tracing::warn!("{error}");
        }
    }

    fn well(&mut self) {
        if self.said.is_over("database") {
            tracing::info!("the database answers again");
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

/// How far the end of a node is.
#[derive(Default)]
struct Ending {
    began: bool,
    stopped: bool,
    hurried: bool,
    lost: bool,
    end_at: Option<Instant>,
    give_up_at: Option<Instant>,
}

impl Ending {
    fn stop(&mut self, time: Duration) {
        (self.began, self.stopped) = (true, true);
        self.end_at = Some(Instant::now() + time);
        self.give_up_at = Some(Instant::now() + time + WRITE_TIME_MAX);
    }

    fn hurry(&mut self, runs: &Runs) {
        (self.began, self.stopped, self.hurried) = (true, true, true);
        self.end_at = None;
        self.give_up_at = Some(Instant::now() + HURRY_TIME_MAX);
        runs.end_all(Why::Stopped);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
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
