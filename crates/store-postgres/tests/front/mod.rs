//! What keeps the store fast: bounds of queues, which follow claims and never pass a job, and
//! counts that are summed up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use windlass_core::job::{Boot, Token};
use windlass_core::log::{Log, Stream};
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    Claim, Claimed, Durability, Hold, Insert, LeaseRef, Pick, Renew, Settled, Settlement,
    TenantRevision,
};
use windlass_core::tenant::TenantSettings;
use windlass_core::time::{Clock, SystemClock, Timestamp};
use windlass_core::{JobId, NewJob, Payload, Sysid, Tenant, TypeKey};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_test_kit::wait::{in_time, pause};

use crate::common::Lent;

struct Queue {
    /// Sees the tables of the store.
    watcher: Client,
    store: PostgresStore,
    tokens: i64,
    opened_at: Timestamp,
    _server: Lent,
}

impl Queue {
    async fn open() -> Queue {
        let server = Lent::new();
        let schema = server.new_schema();
        let (watcher, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        watcher.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
        let options = Options { schema, passed_max: 1, ..Options::new(server.url()) };
        let store = PostgresStore::open(options).await.unwrap();
        let opened_at = SystemClock.now();
        Queue { watcher, store, tokens: 0, opened_at, _server: server }
    }

    /// Adds jobs that have been due since a while, in the order of their numbers.
    async fn add(&self, numbers: impl IntoIterator<Item = i64>) {
        let new = |number: i64| {
            let payload = Payload::Inline("x".into());
            let run_at = self.opened_at.shifted(number - 100_000);
            NewJob { run_at, ..NewJob::new(JobId::new(number).unwrap(), key(), payload, run_at) }
        };
        let jobs = numbers.into_iter().map(new).collect();
        let (keys, mark, durability) = (Vec::new(), None, Durability::Relaxed);
        self.store.job_insert(Insert { jobs, keys, mark, durability }).await.unwrap();
    }

    async fn claim(&mut self, limit: u32) -> Vec<Claimed> {
        self.tokens += 1;
        let claim = Claim {
            picks: vec![Pick { key: key(), limit, floor: None }],
            owner: Sysid::new(7).unwrap(),
            token: Token(Boot(5).token(0).0 + self.tokens),
            hold: Hold::For(Duration::from_secs(60)),
            payload_bytes_max: u64::MAX,
        };
        self.store.job_claim(claim).await.unwrap().jobs
    }

    async fn settle(&self, claimed: &[Claimed], verdict: Verdict) {
        let settlements: Arc<[Settlement]> =
            claimed.iter().map(|claimed| settlement(claimed, verdict)).collect();
        self.store.job_settle(settlements, Durability::Relaxed).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        self.watcher.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until the bound of the queue is the place of this job.
    async fn begins_at(&self, number: i64) {
        const BOUND: &str = "
            SELECT coalesce((SELECT ids[2] FROM front WHERE type_id > 0
                              ORDER BY seq DESC LIMIT 1), 0)";
        let reached = async {
            while self.number(BOUND).await != number {
                pause().await;
            }
        };
        in_time("the bound is there", reached).await;
    }
}

fn key() -> TypeKey {
    TypeKey::new("acme", "t").unwrap()
}

fn settlement(claimed: &Claimed, verdict: Verdict) -> Settlement {
    Settlement {
        lease: LeaseRef::of(&claimed.job).unwrap(),
        verdict,
        ended: None,
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::from_secs(60),
        only_if_expired: false,
    }
}

fn ids(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().map(|claimed| claimed.job.id.get()).collect()
}

#[tokio::test]
async fn a_bound_follows_claims_and_is_lowered_by_jobs_that_come_before_it() {
    let mut queue = Queue::open().await;
    queue.add(100..=120).await;
    let claimed = queue.claim(10).await;
    queue.begins_at(109).await;
    queue.settle(&claimed[4..5], Verdict::Release { after: None }).await;
    queue.begins_at(104).await;
    queue.add([50]).await;
    queue.begins_at(50).await;
    assert_eq!(ids(&queue.claim(3).await), [50, 104, 110]);
    queue.begins_at(110).await;
    assert_eq!(ids(&queue.claim(99).await), (111..=120).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_bound_does_not_pass_a_job_that_another_transaction_has_locked() {
    let mut queue = Queue::open().await;
    queue.add(100..=110).await;
    let lock = "BEGIN; SELECT FROM ready WHERE id = 102 FOR UPDATE";
    queue.watcher.batch_execute(lock).await.unwrap();
    assert_eq!(ids(&queue.claim(4).await), [100, 101, 103, 104]);
    queue.begins_at(102).await;
    queue.watcher.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(ids(&queue.claim(2).await), [102, 105]);
    queue.begins_at(105).await;
}

#[tokio::test]
async fn ended_jobs_are_counted_once_before_and_after_they_are_summed_up() {
    let mut queue = Queue::open().await;
    queue.add(1..=400).await;
    let acme = Tenant::new("acme").unwrap();
    let mut finished = 0;
    let summed = async {
        loop {
            let claimed = queue.claim(1).await;
            finished += claimed.len() as u64;
            queue.settle(&claimed, Verdict::End(Ending::Finished)).await;
            let stats = queue.store.type_stats(Some(&acme)).await.unwrap();
            assert_eq!(stats[0].finished, finished);
            if queue.number("SELECT count(*) FROM ended_count").await == 1 {
                break;
            }
            pause().await;
        }
    };
    in_time("they are summed up", summed).await;
}

/// The second job ends right after the counts were summed up, when it is too early for the next
/// sum.
#[tokio::test]
async fn the_last_ended_jobs_are_summed_up_although_none_follows_them() {
    let mut queue = Queue::open().await;
    queue.add(1..=2).await;
    for _ in 0..2 {
        let claimed = queue.claim(1).await;
        queue.settle(&claimed, Verdict::End(Ending::Finished)).await;
        let summed = async {
            while queue.number("SELECT count(*) FROM ended_delta").await > 0 {
                pause().await;
            }
        };
        in_time("the counts are summed up", summed).await;
    }
    assert_eq!(queue.number("SELECT finished FROM ended_count").await, 2);
}

/// The lease has expired when the settlement reads it, which then waits for the table of logs.
#[tokio::test]
async fn a_lease_that_is_being_broken_is_not_renewed() {
    let mut queue = Queue::open().await;
    queue.add([1]).await;
    let claimed = queue.claim(1).await.remove(0);
    let lease = LeaseRef::of(&claimed.job).unwrap();
    let renew = |hold| Renew { leases: vec![lease.clone()], hold: Some(hold) };
    assert_eq!(queue.store.job_renew(renew(Duration::ZERO)).await.unwrap(), []);
    queue.watcher.batch_execute("BEGIN; LOCK TABLE log").await.unwrap();
    let mut log = Log::new();
    log.push(Stream::Out, "a line");
    let broken = Settlement { log, only_if_expired: true, ..settlement(&claimed, again()) };
    let settling = queue.store.job_settle([broken].into(), Durability::Relaxed);
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'log'::regclass";
    let renewing = async {
        in_time("the settlement waits", async {
            while queue.number(waits).await == 0 {
                pause().await;
            }
        })
        .await;
        let mut renewing = pin!(queue.store.job_renew(renew(Duration::from_secs(60))));
        let early = tokio::time::timeout(Duration::from_millis(200), renewing.as_mut()).await;
        assert!(early.is_err(), "{early:?}");
        queue.watcher.batch_execute("ROLLBACK").await.unwrap();
        renewing.await.unwrap()
    };
    let (settled, lost) = tokio::join!(settling, renewing);
    assert_eq!(settled.unwrap().settled, [Settled::Done]);
    assert_eq!(lost, [lease], "its worker is told");
}

fn again() -> Verdict {
    Verdict::Again { after: Duration::ZERO }
}

/// Another server, which has not got the newest changes, takes the place of the first.
#[tokio::test]
async fn keys_and_settings_of_tenants_that_change_after_a_loss_are_seen_by_all() {
    let queue = Queue::open().await;
    let (store, acme) = (&queue.store, Tenant::new("acme").unwrap());
    let settings = TenantSettings { weight: Some(2), ..TenantSettings::default() };
    for _ in 0..3 {
        store.tenant_settings_put(&acme, settings.clone()).await.unwrap();
    }
    let seen = store.tenant_settings_changed(TenantRevision(0), 9).await.unwrap()[0].0;
    let lose = "
        UPDATE meta SET value = 0 WHERE name IN ('key_revision', 'tenant_revision');
        TRUNCATE alive";
    queue.watcher.batch_execute(lose).await.unwrap();
    store.tenant_settings_put(&acme, TenantSettings::default()).await.unwrap();
    let changed = store.tenant_settings_changed(seen, 9).await.unwrap();
    assert_eq!(changed.len(), 1);
    let keys = "SELECT value FROM meta WHERE name = 'key_revision'";
    assert!(queue.number(keys).await > 1 << 32, "keys are beyond all revisions, too");
}

/// A server has room for few locks, whatever the number of types.
#[tokio::test]
async fn very_many_types_that_come_due_at_once_take_few_locks() {
    const TYPES: i64 = 4000;
    let queue = Queue::open().await;
    let new = |number: i64| {
        let key = TypeKey::new("acme", &format!("t{number}")).unwrap();
        let id = JobId::new(number).unwrap();
        NewJob::new(id, key, Payload::Inline("x".into()), queue.opened_at)
    };
    let jobs = (1..=TYPES).map(new).collect();
    let (keys, mark, durability) = (Vec::new(), None, Durability::Relaxed);
    // Holds up the commit, when all locks are taken.
    queue.watcher.batch_execute("BEGIN; LOCK TABLE type IN SHARE MODE").await.unwrap();
    let adding = queue.store.job_insert(Insert { jobs, keys, mark, durability });
    let counted = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        in_time("the insert waits", async {
            while queue.number(waits).await == 0 {
                pause().await;
            }
        })
        .await;
        let locks = queue.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await;
        queue.watcher.batch_execute("ROLLBACK").await.unwrap();
        locks
    };
    let (added, locks) = tokio::join!(adding, counted);
    added.unwrap();
    assert!(locks <= 1100, "{locks} locks");
}
