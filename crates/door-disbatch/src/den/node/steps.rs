//! The steps of a node in each second.

use super::{Node, run_context};
use crate::database::{DbError, OPERATION_TIME_MAX};
use crate::den::entry::Term;
use crate::den::hook;
use crate::den::limit::Increase;
use crate::den::orphan::Snapshot;
use crate::den::pass::{self, Backlog, EarlierTasks, Pass};
use crate::den::reconcile::drop_stray_holds;
use crate::den::report::report;
use crate::den::start::write_files;
use crate::dialect::Dialect;
use crate::doc::{self, Limit, Queue};

impl Node {
    /// The work of one pass.
    pub(super) async fn pass(&mut self, term: &Term, fresh: bool) {
        match self.steps(term, fresh).await {
            Ok(()) => self.log_recovery(),
            Err(error) => {
                // Without known limits nothing may be claimed.
                self.served.clear();
                self.log_error(&error);
            }
        }
    }

    /// Starts the hook that must end before anything is claimed, if there is one.
    pub(super) fn start_hook(&self) -> Option<hook::Started> {
        hook::start(self.settings.config.pre_hook.as_ref()?, &*self.launcher, &*self.fence)
    }

    /// Handles the result of a hook. An error ends the node.
    pub(super) fn hook_ended(
        &mut self,
        hook: Option<hook::Started>,
        result: Result<(), String>,
    ) -> Result<(), String> {
        let Some(hook) = hook.as_ref().map(|started| &started.hook) else { return Ok(()) };
        match result {
            Ok(()) => {
                if self.logged.is_over("hook") {
                    tracing::info!(hook = hook.name, "the hook before each pass works again");
                }
                Ok(())
            }
            Err(why) if hook.fatal => Err(format!("`pre_hook` {}: {why}", hook.name)),
            Err(why) => {
                if self.logged.is_news("hook", &why) {
                    tracing::warn!(hook = hook.name, "the hook before each pass failed: {why}");
                }
                Ok(())
            }
        }
    }

    async fn steps(&mut self, term: &Term, fresh: bool) -> Result<(), DbError> {
        let snapshot = self.watch.observe(&self.database, &self.clock).await?;
        self.learn(term, &snapshot).await?;
        let queues = pass::readable(&snapshot.queues, self.database.dialect(), &mut self.logged);
        self.update_entry(term, &queues).await?;
        let (database, clock, runs) = (self.database.clone(), self.clock.clone(), &self.runs);
        runs.forget_older(self.settings.config.orphan_after + OPERATION_TIME_MAX);
        let compared = self.reconciler.compare(&database, &clock, &term.me, runs).await;
        if let (Ok(compared), Dialect::Released) = (&compared, self.database.dialect()) {
            let (me, standing) = (&term.me, &compared.standing);
            let dropped = drop_stray_holds(&database, &snapshot.holds, me, runs, standing).await;
            self.tolerate("holds", dropped)?;
        }
        self.tolerate("its own tasks", compared.and_then(|compared| compared.refused))?;
        let (node, boot) = (term.me.node.as_str(), Some(term.me.boot.as_str()));
        self.earlier_tasks = EarlierTasks::load(&database, &snapshot, &term.me).await?;
        let cleared = self.watch.clear(&database, &snapshot, node, boot, clock.now()).await;
        self.tolerate("orphaned tasks", cleared)?;
        if !fresh {
            return Ok(());
        }
        if !self.reload().await? {
            self.served.clear();
            return Ok(());
        }
        self.increase =
            Increase::new(self.settings.config.node_increase, self.settings.config.queue_increase);
        let config = &self.settings.config;
        self.served = pass::served(&queues, &mut self.programs, config, &mut self.logged);
        self.view.send_replace(queues);
        self.claim(term).await
    }

    /// Whether the settings are known. Until then nothing may be claimed, because they may forbid
    /// it.
    async fn reload(&mut self) -> Result<bool, DbError> {
        if self.database.dialect() == Dialect::Released {
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
        self.context =
            run_context(config, &self.context.database, &self.clock, &self.temp, launcher, fence);
    }

    /// Updates what is known about the database itself.
    async fn learn(&mut self, term: &Term, snapshot: &Snapshot) -> Result<(), DbError> {
        let elsewhere = |entry: &doc::Node| {
            entry.boot.is_some() && entry.host.as_ref() != Some(&self.entry_context.host)
        };
        let far = snapshot.entries.iter().any(elsewhere);
        term.learn_database_path(snapshot.hosts.clone(), snapshot.vouched, far);
        if self.dialect_open {
            let before = self.database.dialect();
            self.dialect_open = !self.database.learn_dialect().await?;
            let dialect = self.database.dialect();
            if before != dialect {
                tracing::info!(dialect = dialect.name(), "detected the dialect of the database");
                let indexed = self.database.ensure_indexes().await;
                self.tolerate("indexes", indexed)?;
            }
        }
        Ok(())
    }

    /// Writes the node's life sign and reads its limit.
    async fn update_entry(&mut self, term: &Term, queues: &[Queue]) -> Result<(), DbError> {
        let reports = match self.database.dialect() {
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
            term.check_entry();
            self.limit = Limit::At(0);
            return Ok(());
        };
        self.limit = match doc::Node::read(&entry).and_then(|entry| entry.limit) {
            Ok(limit) => {
                self.logged.is_over("limit");
                limit
            }
            Err(odd) => {
                let text = odd.to_string();
                if self.logged.is_news("limit", &text) {
                    tracing::warn!("no tasks are run because of this node's entry: {text}");
                }
                Limit::At(0)
            }
        };
        Ok(())
    }

    pub(super) async fn claim(&mut self, term: &Term) -> Result<(), DbError> {
        let pass = Pass {
            database: &self.database,
            clock: &self.clock,
            term,
            context: &self.context,
            runs: &self.runs,
            limit: self.limit,
            stopping: &self.stopping,
            runs_max: self.runs_max,
            earlier_tasks: &self.earlier_tasks,
        };
        let more =
            pass.claim(&self.served, &mut self.turns, &mut self.increase, &mut self.logged).await?;
        if more == Backlog::Perhaps {
            self.runs.ended.notify_one();
        }
        Ok(())
    }

    /// An unavailable database ends the pass; a refusal does not.
    fn tolerate(&mut self, what: &str, done: Result<(), DbError>) -> Result<(), DbError> {
        match done {
            Ok(()) => {
                if self.logged.is_over(what) {
                    tracing::info!("this works again: {what}");
                }
                Ok(())
            }
            Err(error @ DbError::Away(_)) => Err(error),
            Err(error) => {
                let text = error.to_string();
                if self.logged.is_news(what, &text) {
                    tracing::warn!("{what}: {text}");
                }
                Ok(())
            }
        }
    }

    pub(super) fn note(&mut self, done: Result<(), DbError>) {
        if let Err(error) = done {
            self.log_error(&error);
        }
    }

    /// Only a new kind of error is logged, because texts of the same problem vary.
    pub(super) fn log_error(&mut self, error: &DbError) {
        let kind = match error {
            DbError::Away(_) => "away".to_owned(),
            other => other.to_string(),
        };
        if self.logged.is_news("database", &kind) {
            tracing::warn!("{error}");
        }
    }

    pub(super) fn log_recovery(&mut self) {
        if self.logged.is_over("database") {
            tracing::info!("the database answers again");
        }
    }
}
