//! The balancer's loop: every half minute, one of the command interfaces reads the document and
//! adjusts the limits.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::plan::Plan;
use super::schedule::Moment;
use super::step::{Demand, share};
use crate::config::BalanceSettings;
use crate::database::{Database, DbError};
use crate::dialect::Dialect;
use crate::doc::whole;

const EVERY: Duration = Duration::from_secs(30);
/// After this much silence, another command interface takes over: two and a half intervals.
const LEASE: Duration = Duration::from_secs(75);

/// How long shutdown waits for the lease to be released.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Balancer {
    database: Database,
    settings: BalanceSettings,
    /// Days and hours in the document are local to this host, as in the original.
    zone: TimeZone,
    /// Random, new at every start.
    me: String,
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Another command interface is the balancer.
    NotMine,
    /// It is disabled until this time.
    Off(String),
    /// The document is invalid.
    Wrong(String),
    /// The changes that were made, or would have been in `pretend` mode.
    Balanced(Vec<Change>),
}

/// A change of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub queue: String,
    /// `None` if there was no limit.
    pub from: Option<i64>,
    pub to: i64,
}

/// An existing queue that the document names.
struct BalancedQueue {
    id: ObjectId,
    name: String,
    limit: Option<i64>,
}

impl Balancer {
    pub(crate) fn new(database: Database, settings: BalanceSettings, zone: TimeZone) -> Self {
        let me = format!("{:032x}", fastrand::u128(..));
        Self { database, settings, zone, me }
    }

    /// Takes a turn every half minute until `stop` is cancelled.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut turns = tokio::time::interval(EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged = None;
        while let Some(turn) = stop.run_until_cancelled(self.turn(&mut turns)).await {
            let summary = match turn {
                Ok(outcome) => self.summary(&outcome),
                Err(error) => Some(format!("queues are not balanced: {error}")),
            };
            // Log only changes of the outcome.
            if summary != logged {
                summary.iter().for_each(|summary| tracing::info!("{summary}"));
                logged = summary;
            }
        }
        // If this fails, the lease simply expires.
        let _ = tokio::time::timeout(LEAVE_TIME_MAX, self.database.balance_leave(&self.me)).await;
    }

    async fn turn(&self, turns: &mut Interval) -> Result<Outcome, DbError> {
        turns.tick().await;
        self.step().await
    }

    fn summary(&self, outcome: &Outcome) -> Option<String> {
        match outcome {
            Outcome::NotMine => Some("queues are balanced by another command interface".into()),
            Outcome::Off(until) => Some(format!("queues are not balanced until {until}")),
            Outcome::Wrong(why) => Some(format!("queues cannot be balanced: {why}")),
            Outcome::Balanced(changes) => {
                for change in changes {
                    self.log_change(change);
                }
                self.settings.verbose.then(|| "queues are balanced".into())
            }
        }
    }

    fn log_change(&self, change: &Change) {
        let BalanceSettings { log, verbose, pretend, .. } = self.settings;
        if log || verbose || pretend {
            let from = change.from.map_or_else(|| "none".to_owned(), |from| from.to_string());
            let queue = &change.queue;
            tracing::info!(queue, from, to = change.to, pretend, "the limit of a queue changes");
        }
    }

    /// One turn.
    pub(crate) async fn step(&self) -> Result<Outcome, DbError> {
        let now = self.database.server_time().await?;
        if self.database.balance().await?.is_empty() {
            self.database.balance_begin().await?;
        }
        let documents = self.database.balance().await?;
        let Some(document) = documents.first() else { return Ok(Outcome::NotMine) };
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let until = now.saturating_add_duration(LEASE);
        if !self.database.balance_lease(document, &self.me, now, until).await? {
            return Ok(Outcome::NotMine);
        }
        let outcome = match (documents.len(), Plan::read(document)) {
            (1, Ok(plan)) => self.follow(&plan, document, now).await?,
            (1, Err(why)) => (Outcome::Wrong(why), None),
            (count, _) => {
                let why =
                    format!("exactly one entry allowed in balance collection, but found {count}");
                (Outcome::Wrong(why), None)
            }
        };
        let (outcome, warning) = outcome;
        let (status, message) = match (&outcome, warning) {
            (Outcome::Wrong(why), _) => ("CRITICAL", format!("QueueBalance: {why}")),
            (Outcome::Off(until), _) => ("OK", format!("QueueBalance disabled until {until}")),
            (_, Some(warning)) => ("WARNING", format!("QueueBalance: {warning}")),
            (_, None) => ("OK", "QueueBalance is running".to_owned()),
        };
        let seconds = now.timestamp_millis() / 1000;
        let fields = doc! { "timestamp": seconds, "status": status, "message": message };
        self.database.balance_report(&id, fields).await?;
        Ok(outcome)
    }

    /// Also returns a warning about the document, if it can be followed but should be corrected.
    async fn follow(
        &self,
        plan: &Plan,
        document: &Document,
        now: DateTime,
    ) -> Result<(Outcome, Option<String>), DbError> {
        if let Some(until) = plan.disabled_until {
            if now.timestamp_millis() / 1000 < until {
                return Ok((Outcome::Off(self.shown(until)), None));
            }
            let stored = |key| document.get(key).unwrap_or(&Bson::Null);
            let is_on = self.settings.pretend
                || self.database.balance_enable(stored("_id"), stored("disabled")).await?;
            if !is_on {
                // The next turn reads the new state.
                return Ok((Outcome::Balanced(Vec::new()), None));
            }
        }
        let (groups, missing) = self.queues(plan).await?;
        let missing = missing.map(|name| format!("there is no queue {name}"));
        if groups.iter().all(Vec::is_empty) {
            return Ok((Outcome::Balanced(Vec::new()), missing));
        }
        let Some(most) = plan.schedule.at(self.moment(now)) else {
            return Ok((Outcome::Wrong("'max_tasks' has no entries".to_owned()), None));
        };
        let ids: Vec<ObjectId> = groups.iter().flatten().map(|queue| queue.id).collect();
        let work = self.database.queue_work(&ids).await?;
        let demand = |queue: &BalancedQueue| {
            let work = work.get(&queue.id).copied().unwrap_or_default();
            Demand { queued: work.queued, running: work.running }
        };
        let demands: Vec<Vec<Demand>> =
            groups.iter().map(|group| group.iter().map(demand).collect()).collect();
        let limits = share(most, &demands).concat();
        let mut changes = Vec::new();
        for (queue, limit) in groups.iter().flatten().zip(limits) {
            let to = i64::try_from(limit).unwrap_or(i64::MAX);
            if queue.limit == Some(to) {
                continue;
            }
            self.set_limit(queue, to).await?;
            changes.push(Change { queue: queue.name.clone(), from: queue.limit, to });
        }
        Ok((Outcome::Balanced(changes), missing))
    }

    async fn set_limit(&self, queue: &BalancedQueue, to: i64) -> Result<(), DbError> {
        if self.settings.pretend {
            return Ok(());
        }
        self.database.learn_dialect().await?;
        self.database.balance_limit(queue.id, to).await
    }

    /// The queues of the document, and the first name without a queue.
    async fn queues(
        &self,
        plan: &Plan,
    ) -> Result<(Vec<Vec<BalancedQueue>>, Option<String>), DbError> {
        self.database.learn_dialect().await?;
        let dialect = self.database.dialect();
        let all = self.database.queues().await?;
        let mut missing = None;
        let mut groups = Vec::new();
        for names in &plan.groups {
            let mut group = Vec::new();
            for name in names {
                let named = |queue: &&Document| queue.get_str("name").ok() == Some(name.as_str());
                match all.iter().find(named).and_then(|queue| balanced(queue, dialect)) {
                    Some(queue) => group.push(queue),
                    None => missing = Some(name.clone()),
                }
            }
            groups.push(group);
        }
        Ok((groups, missing))
    }

    fn moment(&self, now: DateTime) -> Moment {
        let now = Timestamp::from_millisecond(now.timestamp_millis()).unwrap_or_default();
        let now = now.to_zoned(self.zone.clone());
        let number = |number: i8| u32::try_from(number).unwrap_or(0);
        let day = number(now.weekday().to_sunday_zero_offset());
        Moment::new(day, number(now.hour()), number(now.minute()))
    }

    /// The local time in C's format, as the original writes it.
    fn shown(&self, seconds: i64) -> String {
        let Ok(at) = Timestamp::from_second(seconds) else { return seconds.to_string() };
        at.to_zoned(self.zone.clone()).strftime("%a %b %e %H:%M:%S %Y").to_string()
    }
}

fn balanced(queue: &Document, dialect: Dialect) -> Option<BalancedQueue> {
    // If the field is missing, another one or none applies, so always write it.
    let limit = queue.get(dialect.limit()).and_then(whole);
    let id = queue.get_object_id("_id").ok()?;
    Some(BalancedQueue { id, name: queue.get_str("name").ok()?.to_owned(), limit })
}
