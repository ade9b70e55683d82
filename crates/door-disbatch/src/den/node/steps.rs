//! The steps of a node in each second.

use super::{Node, parts};
use crate::database::{DbError, OPERATION_TIME_MAX};
use crate::den::entry::Term;
use crate::den::held::drop_stray_holds;
use crate::den::hook;
use crate::den::limit::Increase;
use crate::den::orphan::Seen;
use crate::den::pass::{self, Left, More, Pass};
use crate::den::report::report;
use crate::den::start::write_files;
use crate::dialect::Dialect;
use crate::doc::{self, Limit, Queue};

impl Node {
    /// Everything that is done each second.
    pub(super) async fn pass(&mut self, term: &Term, fresh: bool) {
        match self.steps(term, fresh).await {
            Ok(()) => self.well(),
            Err(error) => {
                // Without known limits nothing may be claimed.
                self.served.clear();
                self.complain(&error);
            }
        }
    }

    /// The hook that has to end before anything is claimed, if there is one.
    pub(super) fn start_hook(&self) -> Option<hook::Started> {
        hook::start(self.settings.config.pre_hook.as_ref()?, &*self.launcher, &*self.fence)
    }

    /// What a hook has said. The error says that the node must end.
    pub(super) fn heed(
        &mut self,
        hook: Option<hook::Started>,
        said: Result<(), String>,
    ) -> Result<(), String> {
        let Some(hook) = hook.as_ref().map(|started| &started.hook) else { return Ok(()) };
        match said {
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
        let seen = self.watch.look(&self.database, &self.clock).await?;
        self.learn(term, &seen).await?;
        let queues = pass::readable(&seen.queues, self.database.dialect(), &mut self.logged);
        self.update_entry(term, &queues).await?;
        let (database, clock, runs) = (self.database.clone(), self.clock.clone(), &self.runs);
        runs.forget_older(self.settings.config.orphan_after + OPERATION_TIME_MAX);
        let compared = self.held.compare(&database, &clock, &term.me, runs).await;
        if let (Ok(compared), Dialect::Released) = (&compared, self.database.dialect()) {
            let (me, standing) = (&term.me, &compared.standing);
            let dropped = drop_stray_holds(&database, &seen.holds, me, runs, standing).await;
            self.tolerate("holds", dropped)?;
        }
        self.tolerate("its own tasks", compared.and_then(|compared| compared.refused))?;
        let (node, boot) = (term.me.node.as_str(), Some(term.me.boot.as_str()));
        self.left = Left::look(&database, &seen, &term.me).await?;
        let cleared = self.watch.clear(&database, &seen, node, boot, clock.now()).await;
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

    /// Whether the settings are known: before that nothing may be claimed, because they may
    /// forbid it.
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
        self.parts = parts(config, &self.parts.database, &self.clock, &self.temp, launcher, fence);
    }

    /// What a look says of the database itself.
    async fn learn(&mut self, term: &Term, seen: &Seen) -> Result<(), DbError> {
        let elsewhere = |entry: &doc::Node| {
            entry.boot.is_some() && entry.host.as_ref() != Some(&self.entrance.host)
        };
        let far = seen.entries.iter().any(elsewhere);
        term.learn_way(seen.hosts.clone(), seen.vouched, far);
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

    /// Shows that the node lives, and learns its limit.
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
            term.doubt();
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
            parts: &self.parts,
            runs: &self.runs,
            limit: self.limit,
            stopping: &self.stopping,
            runs_max: self.runs_max,
            left: &self.left,
        };
        let more =
            pass.claim(&self.served, &mut self.turns, &mut self.increase, &mut self.logged).await?;
        if more == More::Perhaps {
            self.runs.ended.notify_one();
        }
        Ok(())
    }

    /// A database that is away ends the pass; one that refuses one thing may do the others.
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
            self.complain(&error);
        }
    }

    /// Texts of the same trouble differ, so only its kind makes it news.
    pub(super) fn complain(&mut self, error: &DbError) {
        let kind = match error {
            DbError::Away(_) => "away".to_owned(),
            other => other.to_string(),
        };
        if self.logged.is_news("database", &kind) {
            tracing::warn!("{error}");
        }
    }

    pub(super) fn well(&mut self) {
        if self.logged.is_over("database") {
            tracing::info!("the database answers again");
        }
    }
}
