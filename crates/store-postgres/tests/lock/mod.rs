//! Locks that other transactions hold: what waits for them, and what does not.

use std::pin::pin;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use windlass_core::handler::{HandlerSpec, Lang, TypeSettings};
use windlass_core::job::Ended;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    Durability, Error, GiveUp, Insert, Overdue, SysidGrant, SysidRenew, SysidReserve,
};
use windlass_core::time::{Clock, SystemClock};
use windlass_core::{JobId, Log, NewJob, Payload, Status, Sysid, Tenant, TypeKey};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_test_kit::wait::{in_time, pause};

use crate::common::Lent;

struct Locked {
    /// Holds locks.
    other: Client,
    store: PostgresStore,
    _server: Lent,
}

impl Locked {
    async fn open(adjust: impl FnOnce(Options) -> Options) -> Locked {
        let server = Lent::new();
        let schema = server.new_schema();
        let (other, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
        let options = adjust(Options { schema, ..Options::new(server.url()) });
        let store = PostgresStore::open(options).await.unwrap();
        Locked { other, store, _server: server }
    }

    async fn sql(&self, sql: &str) {
        self.other.batch_execute(sql).await.unwrap();
    }

    /// Returns when so many transactions wait for a lock.
    async fn waits(&self, wanted: i64) {
        let count = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        let waiting = async {
            while self.other.query_one(count, &[]).await.unwrap().get::<_, i64>(0) != wanted {
                pause().await;
            }
        };
        in_time("the calls wait", waiting).await;
    }

    async fn insert(&self, jobs: Vec<NewJob>) {
        let (keys, mark, durability) = (Vec::new(), None, Durability::Relaxed);
        self.store.job_insert(Insert { jobs, keys, mark, durability }).await.unwrap();
    }
}

fn key() -> TypeKey {
    TypeKey::new("acme", "t").unwrap()
}

fn job(number: i64) -> NewJob {
    let payload = Payload::Inline("x".into());
    NewJob::new(JobId::new(number).unwrap(), key(), payload, SystemClock.now())
}

/// The server releases such a lock in a function of its own, in whose place another one is
/// cancelled here.
#[tokio::test]
async fn a_look_that_is_cancelled_keeps_no_lock() {
    let of = Locked::open(|options| options).await;
    of.sql(
        "CREATE FUNCTION pg_advisory_unlock(int4, int4) RETURNS bool LANGUAGE plpgsql
         AS $$ BEGIN RAISE query_canceled; END $$;
         SELECT set_config('search_path', current_schema() || ', pg_catalog', false)",
    )
    .await;
    for end in ["COMMIT", "ROLLBACK"] {
        of.sql("BEGIN").await;
        let _ = of.other.batch_execute("SELECT await_revisions()").await;
        of.sql(end).await;
        let held = "SELECT count(*) FROM pg_locks
                     WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        assert_eq!(of.other.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
    }
}

#[tokio::test]
async fn a_number_that_a_late_beat_renews_is_not_taken() {
    let of = Locked::open(|options| options).await;
    let reserve = |lease| SysidReserve { wanted: Sysid::new(7), lease };
    let grant: SysidGrant = of.store.sysid_reserve(reserve(Duration::ZERO)).await.unwrap();
    of.sql("BEGIN; UPDATE sysid SET expires_at = expires_at + 3600000").await;
    let lease = Duration::from_secs(60);
    let (reserved, ()) = tokio::join!(of.store.sysid_reserve(reserve(lease)), async {
        of.waits(1).await;
        of.sql("COMMIT").await;
    });
    assert!(matches!(reserved, Err(Error::Conflict(_))), "{reserved:?}");
    let renew = SysidRenew { grant, lease, id_newest: None, report: None };
    of.store.sysid_renew(renew).await.unwrap();
}

#[tokio::test]
async fn the_beat_has_a_connection_when_all_others_are_in_use() {
    let one = |options| Options { connections: 1, ..options };
    let of = Locked::open(one).await;
    let lease = Duration::from_secs(60);
    let grant = of.store.sysid_reserve(SysidReserve { wanted: None, lease }).await.unwrap();
    of.sql("BEGIN; LOCK TABLE idempotency").await;
    let tenant = Tenant::new("acme").unwrap();
    let mut asked = pin!(of.store.idempotency_get(&tenant, "k"));
    let beaten = async {
        of.waits(1).await;
        let renew = SysidRenew { grant, lease, id_newest: None, report: None };
        of.store.sysid_renew(renew).await.unwrap();
        of.store.lease_mine(grant.sysid, None, 9).await.unwrap()
    };
    let beaten = tokio::select! {
        beaten = beaten => beaten,
        answer = asked.as_mut() => panic!("it waits for the table: {answer:?}"),
    };
    assert_eq!(beaten, []);
    of.sql("ROLLBACK").await;
    assert_eq!(asked.await.unwrap(), None);
}

/// Several daemons look for the same ones.
#[tokio::test]
async fn expired_jobs_that_another_daemon_gives_up_are_left_to_it() {
    let of = Locked::open(|options| options).await;
    let expired = |number| NewJob { expires_at: Some(SystemClock.now()), ..job(number) };
    of.insert((1..=3).map(expired).collect()).await;
    of.sql("BEGIN; SELECT FROM job WHERE id = 2 FOR UPDATE").await;
    let give_up = || GiveUp {
        which: Overdue::Expired,
        ended: Ended::from(Status::ERROR),
        log: Log::new(),
        keep: Duration::from_secs(60),
        limit: 9,
    };
    let ids = async || {
        let given_up = of.store.job_give_up(give_up()).await.unwrap();
        given_up.iter().map(|job| job.id.get()).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, [1, 3]);
    of.sql("ROLLBACK").await;
    assert_eq!(ids().await, [2]);
}

/// Otherwise it and a claim, which takes them in this order, could wait for each other.
#[tokio::test]
async fn a_change_of_a_type_locks_its_row_after_the_revisions() {
    let of = Locked::open(|options| options).await;
    of.insert(vec![job(1)]).await;
    let store = &of.store;
    let spec = || HandlerSpec::new(Lang::Sh, "true");
    let id = |number| JobId::new(number).unwrap();
    store.handler_put(id(100), &key(), spec()).await.unwrap();
    for change in 0..4 {
        of.sql("BEGIN; SELECT pg_advisory_xact_lock(lock_class(), 0)").await;
        let changing = async {
            let settings = TypeSettings { weight: Some(2), ..TypeSettings::default() };
            match change {
                0 => store.type_settings_put(&key(), settings).await,
                1 => store.type_suspend(&key(), true).await,
                2 => store.handler_put(id(101), &key(), spec()).await,
                _ => store.handler_delete(&key()).await.map(drop),
            }
        };
        let (changed, ()) = tokio::join!(changing, async {
            of.waits(1).await;
            of.sql("SELECT FROM type FOR UPDATE NOWAIT; ROLLBACK").await;
        });
        changed.unwrap();
    }
}

/// A hint to other daemons follows only if it matters to them that places became free.
#[tokio::test]
async fn places_of_a_type_without_a_limit_are_not_announced() {
    let of = Locked::open(|options| options).await;
    of.insert(vec![job(1)]).await;
    let announced = async || {
        let free = "SELECT announce('{}', array_agg(id), '{}', '{}', '{}', '{}', '{}') FROM type";
        of.other.query_one(free, &[]).await.unwrap().get::<_, bool>(0)
    };
    assert!(!announced().await);
    let settings = TypeSettings { concurrency: Some(2), ..TypeSettings::default() };
    of.store.type_settings_put(&key(), settings).await.unwrap();
    assert!(announced().await);
}
