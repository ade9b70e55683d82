//! An unreadable row affects only its own job: asking for that job is an error, and all other jobs
//! are served as if it did not exist.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::edit::{FullJob, Names, Put, Take, TakeDecision};
use windlass_core::handler::{HandlerOptions, HandlerSpec};
use windlass_core::job::Token;
use windlass_core::key::{KeyDigest, NewKey, Owner, Role};
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    ChangedLook, Claim, Claimed, Durability, EndRequest, Error, GiveUp, Hold, IdempotencyKey,
    IdempotencyRecord, Insert, Inserted, Insertion, KeyRevision, List, NamedLook, Overdue, Pick,
    Requeue, Revision, Settled, Settlement, SysidReserve, TenantRevision, WaitingType,
};
use windlass_core::time::{Clock, ManualClock};
use windlass_core::{
    Job, Lang, Lease, Log, NewJob, Payload, State, Status, Sysid, Tenant, TenantSettings, TypeKey,
    TypeSettings,
};
use windlass_store_sqlite::{Options, SqliteStore};

use common::{NOW, done, id, insert, job, key, tenant};

const LEASE: Duration = Duration::from_secs(10);
/// The job whose row is damaged; there are others before and after it.
const DAMAGED: i64 = 2;

/// Different ways to make a row unreadable.
const DAMAGES: [&str; 5] = [
    "UPDATE job SET priority = 5000 WHERE id = 2",
    "UPDATE job SET last_code = 77, last_status = 200 WHERE id = 2",
    "UPDATE job SET then_name = X'FF' WHERE id = 2",
    "UPDATE job SET created_at = 'long ago' WHERE id = 2",
    // It refers to a row in another table that does not exist.
    "UPDATE job SET parts = parts | 256 WHERE id = 2",
];

struct Damaged {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    path: PathBuf,
    _directory: TempDir,
}

impl Damaged {
    fn new() -> Damaged {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let clock = Arc::new(ManualClock::at(NOW));
        let options = Options { clock: clock.clone(), ..Options::new(&path) };
        let store = SqliteStore::open(options).unwrap();
        Damaged { store, clock, path, _directory: directory }
    }

    async fn with_jobs(jobs: impl IntoIterator<Item = NewJob>) -> Damaged {
        let damaged = Damaged::new();
        let jobs = jobs.into_iter().collect();
        damaged.store.job_insert(insert(jobs, Durability::Synced)).await.unwrap();
        damaged
    }

    /// Damages a row, and checks that it is unreadable.
    async fn damage(&self, sql: &str) {
        let changed = Connection::open(&self.path).unwrap().execute(sql, []).unwrap();
        assert_eq!(changed, 1, "{sql}");
        let seen = self.store.job_get(&tenant(), id(DAMAGED)).await;
        assert!(matches!(seen, Err(Error::Corrupt(_))), "{sql}: {seen:?}");
    }

    async fn claim(&self, limit: u32, token: i64, hold: Hold) -> Vec<Claimed> {
        let picks = vec![Pick { key: key(), limit, floor: None }];
        let owner = Sysid::new(7).unwrap();
        self.store
            .job_claim(Claim {
                picks,
                owner,
                token: Token(token),
                hold,
                payload_bytes_max: u64::MAX,
            })
            .await
            .unwrap()
            .jobs
    }

    async fn settle(&self, claimed: &[Claimed], ending: Ending) {
        let verdict = Verdict::End(ending);
        let ends: Vec<_> =
            claimed.iter().map(|claimed| Settlement { verdict, ..done(claimed) }).collect();
        let settled = self.store.job_settle(ends.into(), Durability::Synced).await.unwrap();
        assert!(settled.settled.iter().all(|settled| *settled == Settled::Done));
    }

    async fn settle_as(&self, claimed: &[Claimed], settled: Settled) {
        let ends: Vec<_> = claimed.iter().map(done).collect();
        let answer = self.store.job_settle(ends.into(), Durability::Synced).await.unwrap();
        assert_eq!(answer.settled, vec![settled; claimed.len()]);
    }

    /// Takes jobs of all types by a pattern.
    async fn take(&self, limit: u32) -> Vec<i64> {
        self.take_within(u64::MAX, limit).await
    }

    async fn take_within(&self, payload_bytes_max: u64, limit: u32) -> Vec<i64> {
        let decide = |whole: &FullJob, _, now| {
            let owner = Sysid::new(7).unwrap();
            let lease = Lease { owner, token: Token(1), expires_at: now + LEASE, on_beat: false };
            let job = Job { state: State::Running, lease: Some(lease), ..whole.job.clone() };
            TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
        };
        let take = Take::new(tenant(), Names::Glob("*".into()), limit, Arc::new(decide));
        let took = self.store.job_take(Take { payload_bytes_max, ..take }).await.unwrap();
        took.given.iter().map(|taken| taken.job.id.get()).collect()
    }

    /// Undoes the first of `DAMAGES`.
    fn repair(&self) {
        let sql = "UPDATE job SET priority = 500 WHERE id = 2";
        assert_eq!(Connection::open(&self.path).unwrap().execute(sql, []).unwrap(), 1);
    }

    async fn listed(&self, state: Option<State>) -> Vec<i64> {
        let list = List { tenant: tenant(), name: None, state, before: None, limit: 10 };
        numbers(&self.store.job_list(list).await.unwrap().jobs)
    }
}

fn numbers(jobs: &[Job]) -> Vec<i64> {
    jobs.iter().map(|job| job.id.get()).collect()
}

fn claimed_numbers(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().map(|claimed| claimed.job.id.get()).collect()
}

fn give_up(which: Overdue) -> GiveUp {
    GiveUp { which, ended: Status::ERROR.into(), log: Log::new(), keep: LEASE, limit: 10 }
}

#[tokio::test]
async fn dead_leases_of_other_jobs_are_found() {
    for sql in DAMAGES {
        let of = Damaged::with_jobs((1..=6).map(job)).await;
        let reserve = SysidReserve { wanted: Sysid::new(7), lease: LEASE };
        let grant = of.store.sysid_reserve(reserve).await.unwrap();
        of.claim(3, 1, Hold::For(LEASE)).await;
        of.claim(3, 2, Hold::Beat(grant.boot)).await;
        of.damage(sql).await;
        of.clock.advance(LEASE);
        let expired = of.store.lease_expired(10).await.unwrap();
        assert_eq!(numbers(&expired), [1, 3, 4, 5, 6], "{sql}");
    }
}

#[tokio::test]
async fn other_jobs_are_listed() {
    for sql in DAMAGES {
        let of = Damaged::with_jobs((1..=4).map(job)).await;
        of.damage(sql).await;
        assert_eq!(of.listed(None).await, [4, 3, 1], "{sql}");
        assert_eq!(of.listed(Some(State::Queued)).await, [4, 3, 1], "{sql}");
    }
}

#[tokio::test]
async fn other_jobs_are_claimed() {
    for sql in DAMAGES {
        let other = TypeKey::new("acme", "other").unwrap();
        let jobs = (1..=5).map(job).chain([NewJob { key: other.clone(), ..job(9) }]);
        let of = Damaged::with_jobs(jobs).await;
        of.damage(sql).await;
        let pick = |key, limit| Pick { key, limit, floor: None };
        let picks = vec![pick(key(), 2), pick(other, 1)];
        let (owner, hold) = (Sysid::new(7).unwrap(), Hold::For(LEASE));
        let claim = Claim { picks, owner, token: Token(1), hold, payload_bytes_max: u64::MAX };
        let claimed = of.store.job_claim(claim).await.unwrap().jobs;
        assert_eq!(claimed_numbers(&claimed), [1, 3, 9], "{sql}");
        assert_eq!(claimed_numbers(&of.claim(9, 2, hold).await), [4, 5], "{sql}");
        let stats = of.store.type_stats(Some(&tenant())).await.unwrap();
        let running: u64 = stats.iter().map(|stats| stats.running).sum();
        assert_eq!(running, 5, "{sql}");
    }
}

#[tokio::test]
async fn a_claim_finds_the_job_behind_one_that_is_damaged() {
    for sql in DAMAGES {
        let of = Damaged::with_jobs([job(2), job(3)]).await;
        of.damage(sql).await;
        let claimed = of.claim(1, 1, Hold::For(LEASE)).await;
        assert_eq!(claimed_numbers(&claimed), [3], "{sql}");
    }
}

#[tokio::test]
async fn other_jobs_are_taken_by_name() {
    for sql in DAMAGES {
        let of = Damaged::with_jobs((1..=4).map(job)).await;
        of.damage(sql).await;
        let taken = [of.take(2).await, of.take(9).await].concat();
        assert_eq!(taken, [1, 3, 4], "{sql}");
    }
}

#[tokio::test]
async fn other_jobs_are_given_up() {
    for sql in DAMAGES {
        let expires_at = Some(NOW + LEASE);
        let of = Damaged::with_jobs((1..=3).map(|n| NewJob { expires_at, ..job(n) })).await;
        of.store.job_insert(insert(vec![job(4)], Durability::Synced)).await.unwrap();
        of.damage(sql).await;
        of.clock.advance(LEASE);
        let given_up = of.store.job_give_up(give_up(Overdue::Expired)).await.unwrap();
        assert_eq!(numbers(&given_up), [1, 3], "{sql}");
        let unhandled = Overdue::Unhandled { key: key(), due_for: LEASE };
        let given_up = of.store.job_give_up(give_up(unhandled)).await.unwrap();
        assert_eq!(numbers(&given_up), [4], "{sql}");
    }
}

#[tokio::test]
async fn other_jobs_are_purged_and_queued_again() {
    let unknown_state = "UPDATE job SET state = 9 WHERE id = 2";
    let not_ended = "UPDATE job SET state = 0, priority = 5000 WHERE id = 2";
    for sql in DAMAGES.into_iter().chain([unknown_state, not_ended]) {
        let of = Damaged::with_jobs((1..=4).map(job)).await;
        let claimed = of.claim(4, 1, Hold::For(LEASE)).await;
        of.settle(&claimed, Ending::Failed).await;
        of.damage(sql).await;
        let requeue = Requeue { key: key(), state: State::Failed, limit: 2 };
        assert_eq!(of.store.job_requeue(requeue).await.unwrap(), 2, "{sql}");
        assert_eq!(of.listed(Some(State::Queued)).await, [3, 1], "{sql}");
        of.clock.advance(Duration::from_secs(60));
        of.store.job_purge(10).await.unwrap();
        assert_eq!(of.store.job_get(&tenant(), id(4)).await.unwrap(), None, "{sql}");
    }
}

#[tokio::test]
async fn jobs_come_in_beside_a_damaged_parent() {
    for sql in DAMAGES {
        let child = |number| NewJob { parent: Some(id(DAMAGED)), ..job(number) };
        let of = Damaged::with_jobs([job(1), job(DAMAGED), child(3), child(4)]).await;
        of.damage(sql).await;
        let more = insert(vec![child(5), job(6), job(DAMAGED)], Durability::Synced);
        let answers = of.store.job_insert(more).await.unwrap().done().unwrap();
        assert_eq!(answers, [Inserted::New, Inserted::New, Inserted::Duplicate], "{sql}");
        let claimed = of.claim(9, 1, Hold::For(LEASE)).await;
        assert_eq!(claimed_numbers(&claimed), [1, 3, 4, 5, 6], "{sql}");
    }
}

/// What a child's end does for its parent would be lost otherwise.
#[tokio::test]
async fn the_last_child_of_a_damaged_parent_ends_when_the_parent_is_repaired() {
    let of = Damaged::with_jobs([job(DAMAGED)]).await;
    let parent = of.claim(1, 1, Hold::For(LEASE)).await;
    let child = NewJob { parent: Some(id(DAMAGED)), paused: true, ..job(3) };
    of.store.job_insert(insert(vec![child], Durability::Synced)).await.unwrap();
    of.settle_as(&parent, Settled::Paused).await;
    let child = of.claim(1, 2, Hold::For(LEASE)).await;
    of.damage(DAMAGES[0]).await;
    let end = || [done(&child[0])].into();
    let refused = of.store.job_settle(end(), Durability::Synced).await;
    assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    of.repair();
    of.store.job_settle(end(), Durability::Synced).await.unwrap();
    let parent = of.store.job_get(&tenant(), id(DAMAGED)).await.unwrap().unwrap();
    assert_eq!(parent.state, State::Queued);
}

#[tokio::test]
async fn a_parent_is_taken_although_its_child_is_larger_than_its_row_says() {
    let of = Damaged::with_jobs([NewJob { payload: Payload::Inline("".into()), ..job(1) }]).await;
    let parent = of.claim(1, 1, Hold::For(LEASE)).await;
    let child = NewJob { parent: Some(id(1)), paused: true, ..job(2) };
    of.store.job_insert(insert(vec![child], Durability::Synced)).await.unwrap();
    of.settle_as(&parent, Settled::Paused).await;
    let child = of.claim(1, 2, Hold::For(LEASE)).await;
    assert!(child[0].job.payload_bytes > 0);
    of.settle(&child, Ending::Finished).await;
    let smaller = "UPDATE job SET payload_bytes = 0 WHERE id = 2";
    assert_eq!(Connection::open(&of.path).unwrap().execute(smaller, []).unwrap(), 1);
    assert_eq!(of.take_within(0, 9).await, [1]);
}

#[tokio::test]
async fn a_parent_ends_when_its_damaged_child_is_repaired() {
    let child = |number| NewJob { parent: Some(id(1)), paused: true, ..job(number) };
    let of = Damaged::with_jobs([job(1), child(DAMAGED), child(3)]).await;
    of.damage(DAMAGES[0]).await;
    let cancel = || of.store.job_cancel(EndRequest { tenant: tenant(), id: id(1), keep: LEASE });
    assert!(matches!(cancel().await, Err(Error::Corrupt(_))));
    of.repair();
    cancel().await.unwrap();
    for number in 1..=3 {
        let job = of.store.job_get(&tenant(), id(number)).await.unwrap().unwrap();
        assert_eq!(job.state, State::Cancelled, "{number}");
    }
}

#[tokio::test]
async fn a_job_runs_when_it_is_repaired_however_it_was_found_out() {
    for by_name in [false, true] {
        let of = Damaged::with_jobs((1..=3).map(job)).await;
        of.damage(DAMAGES[0]).await;
        match by_name {
            false => assert_eq!(claimed_numbers(&of.claim(9, 1, Hold::For(LEASE)).await), [1, 3]),
            true => assert_eq!(of.take(9).await, [1, 3]),
        }
        of.store.job_purge(9).await.unwrap();
        assert!(of.claim(9, 2, Hold::For(LEASE)).await.is_empty(), "it is still damaged");
        of.repair();
        of.store.job_purge(9).await.unwrap();
        assert_eq!(claimed_numbers(&of.claim(9, 3, Hold::For(LEASE)).await), [DAMAGED]);
    }
}

#[tokio::test]
async fn a_repaired_job_that_is_cancelled_and_rerun_is_queued_once() {
    let of = Damaged::with_jobs([job(DAMAGED)]).await;
    of.damage(DAMAGES[0]).await;
    assert!(of.claim(9, 1, Hold::For(LEASE)).await.is_empty());
    of.repair();
    let (tenant, id) = (tenant(), id(DAMAGED));
    of.store.job_cancel(EndRequest { tenant: tenant.clone(), id, keep: LEASE }).await.unwrap();
    of.store.job_rerun(&tenant, id).await.unwrap();
    of.store.job_purge(9).await.unwrap();
    assert_eq!(claimed_numbers(&of.claim(9, 2, Hold::For(LEASE)).await), [DAMAGED]);
    let stats = of.store.type_stats(Some(&tenant)).await.unwrap();
    assert_eq!((stats[0].ready, stats[0].deferred, stats[0].running), (0, 0, 1));
}

#[tokio::test]
async fn a_damaged_type_costs_none_of_its_jobs() {
    let of = Damaged::with_jobs((1..=3).map(job)).await;
    let rename = |sql| Connection::open(&of.path).unwrap().execute(sql, []).unwrap();
    rename("UPDATE type SET name = 't' || char(10)");
    assert!(of.take(9).await.is_empty());
    rename("UPDATE type SET name = 't'");
    of.store.job_purge(9).await.unwrap();
    assert_eq!(claimed_numbers(&of.claim(9, 1, Hold::For(LEASE)).await), [1, 2, 3]);
}

#[tokio::test]
async fn a_damaged_job_of_a_dead_owner_frees_its_place() {
    let of = Damaged::with_jobs([job(DAMAGED), job(3)]).await;
    let one = TypeSettings { concurrency: Some(1), ..TypeSettings::default() };
    of.store.type_settings_put(&key(), one).await.unwrap();
    assert_eq!(claimed_numbers(&of.claim(9, 1, Hold::For(LEASE)).await), [DAMAGED]);
    of.damage(DAMAGES[0]).await;
    of.store.job_purge(9).await.unwrap();
    assert!(of.claim(9, 2, Hold::For(LEASE)).await.is_empty(), "its lease has not expired");
    of.clock.advance(LEASE);
    of.store.job_purge(9).await.unwrap();
    assert_eq!(claimed_numbers(&of.claim(9, 3, Hold::For(LEASE)).await), [3]);
}

/// Whatever column of a row is damaged, it stops nothing of another job.
#[tokio::test]
async fn a_damaged_column_of_any_kind_stops_no_other_job() {
    const COLUMNS: [&str; 18] = [
        "type_id",
        "state",
        "priority",
        "run_at",
        "due_at",
        "attempt",
        "created_at",
        "started_at",
        "finished_at",
        "expires_at",
        "timeout_ms",
        "token",
        "last_code",
        "last_status",
        "parts",
        "payload_bytes",
        "parent_id",
        "payload",
    ];
    for column in COLUMNS {
        let sql = format!("UPDATE job SET {column} = 'x' WHERE id = 2");
        let damage = |of: &Damaged| Connection::open(&of.path).unwrap().execute(&sql, []).unwrap();
        let of = Damaged::with_jobs((1..=3).map(job)).await;
        damage(&of);
        let taken = of.take(9).await;
        assert!([1, 3].iter().all(|number| taken.contains(number)), "{column}: {taken:?}");

        let of = Damaged::with_jobs((1..=3).map(job)).await;
        let claimed = of.claim(9, 1, Hold::For(LEASE)).await;
        of.settle(&claimed, Ending::Finished).await;
        damage(&of);
        of.clock.advance(Duration::from_secs(60));
        of.store.job_purge(9).await.unwrap_or_else(|error| panic!("{column}: {error}"));
        assert_eq!(of.store.job_get(&tenant(), id(3)).await.unwrap(), None, "{column}");

        let of = Damaged::with_jobs((1..=3).map(job)).await;
        damage(&of);
        of.clock.advance(LEASE);
        let unhandled = Overdue::Unhandled { key: key(), due_for: LEASE };
        let given_up = of.store.job_give_up(give_up(unhandled)).await;
        let given_up = numbers(&given_up.unwrap_or_else(|error| panic!("{column}: {error}")));
        assert!([1, 3].iter().all(|number| given_up.contains(number)), "{column}: {given_up:?}");
    }
}

/// All writes first check the clock.
#[tokio::test]
async fn the_clock_can_be_set_beside_a_damaged_job() {
    for sql in DAMAGES {
        let run_at = NOW + Duration::from_secs(600);
        let of = Damaged::with_jobs((1..=3).map(|n| NewJob { run_at, ..job(n) })).await;
        of.damage(sql).await;
        of.clock.set(NOW - Duration::from_secs(3600));
        of.store.job_insert(insert(vec![job(4)], Durability::Synced)).await.unwrap();
        assert!(of.store.job_get(&tenant(), id(4)).await.unwrap().is_some(), "{sql}");
        assert!(of.clock.now() < NOW);
    }
}

/// The error of SQLite is the source of ours.
#[tokio::test]
async fn an_error_has_the_drivers_own_behind_it() {
    let of = Damaged::with_jobs([job(DAMAGED)]).await;
    of.damage(DAMAGES[3]).await;
    let error = of.store.job_get(&tenant(), id(DAMAGED)).await.unwrap_err();
    let cause = error.source().expect("what happened, in words");
    let driver = cause.source().expect("the driver's own error");
    assert!(driver.downcast_ref::<rusqlite::Error>().is_some(), "{driver:?}");
    assert!(error.to_string().contains("jobs.db"), "{error}");
}

#[tokio::test]
async fn other_types_are_reported_beside_a_damaged_one() {
    let of = Damaged::with_jobs([job(1)]).await;
    let others = [("acme", "other"), ("globex", "t")];
    for ((tenant, name), number) in others.into_iter().zip(2..) {
        let key = TypeKey::new(tenant, name).unwrap();
        let new = insert(vec![NewJob { key, ..job(number) }], Durability::Synced);
        of.store.job_insert(new).await.unwrap();
    }
    let damage = "UPDATE type SET settings = 'nonsense' WHERE tenant = 'acme' AND name = 't'";
    Connection::open(&of.path).unwrap().execute(damage, []).unwrap();
    assert!(matches!(of.store.type_settings_get(&key()).await, Err(Error::Corrupt(_))));
    let names = |types: &[WaitingType]| -> Vec<String> {
        types.iter().map(|of_type| of_type.key.to_string()).collect()
    };
    let others: Vec<String> = others.map(|(tenant, name)| format!("{tenant}/{name}")).into();
    let look = ChangedLook { since: Some(Revision(0)), handled: false, each: 9, limit: 9 };
    let changed = of.store.type_changed(look).await.unwrap();
    assert_eq!(names(&changed.types), others);
    assert_eq!(changed.up_to, changed.newest);
    let look = NamedLook { tenant: tenant(), names: vec!["*".into()], after: None, limit: 9 };
    assert_eq!(names(&of.store.type_named(look).await.unwrap().types), others[..1]);

    let spec = HandlerSpec {
        lang: Lang::Sh,
        body: "true".into(),
        before: None,
        before_each: None,
        after_each: None,
        eid: None,
        options: HandlerOptions::default(),
    };
    for (number, (tenant, name)) in (100..).zip([("acme", "t"), ("acme", "other"), ("globex", "t")])
    {
        let key = TypeKey::new(tenant, name).unwrap();
        of.store.handler_put(id(number), &key, spec.clone()).await.unwrap();
    }
    assert_eq!(names(&of.store.type_first(None, 9, 9).await.unwrap()), others);
    // "t" comes after "other" by name, and "u" after the damaged one.
    let key = TypeKey::new("acme", "u").unwrap();
    let new = insert(vec![NewJob { key: key.clone(), ..job(9) }], Durability::Synced);
    of.store.job_insert(new).await.unwrap();
    of.store.handler_put(id(109), &key, spec).await.unwrap();
    let page = of.store.type_next(vec![(tenant(), None)], 2).await.unwrap();
    assert_eq!(names(&page), ["acme/other", "acme/u"], "a damaged type leaves no gap in a page");
}

/// Daemons read them all when they start.
#[tokio::test]
async fn settings_and_keys_are_read_beside_damaged_ones() {
    let of = Damaged::new();
    let settings = TenantSettings { weight: Some(2), ..TenantSettings::default() };
    let owner = |name: &str| Owner { role: Role::Admin, tenant: None, name: name.into() };
    for (number, name) in (0..).zip(["a", "b", "c"]) {
        let tenant = Tenant::new(name).unwrap();
        of.store.tenant_settings_put(&tenant, settings.clone()).await.unwrap();
        let (id, digest) = (format!("{number:016x}").parse().unwrap(), KeyDigest([number; 32]));
        of.store.key_put(NewKey { id, digest, owner: owner(name), lifetime: None }).await.unwrap();
    }
    let damages = [
        ("tenant", "settings = 'nonsense'"),
        ("tenant", "settings = X'00'"),
        ("api_key", "role = 'king'"),
        ("api_key", "created_at = 'never'"),
    ];
    let damaged = Connection::open(&of.path).unwrap();
    for (table, damage) in damages {
        let sql = format!("UPDATE {table} SET {damage} WHERE name = 'b'");
        damaged.execute(&sql, []).unwrap();
        let changed = of.store.tenant_settings_changed(TenantRevision(0), 2).await.unwrap();
        let tenants: Vec<&str> = changed.iter().map(|(_, tenant, _)| tenant.as_str()).collect();
        assert_eq!(tenants, ["a", "c"], "{damage}");
        let changed = of.store.key_changed(KeyRevision(0), 2).await.unwrap();
        let names: Vec<&str> = changed.iter().map(|(_, key)| key.owner.name.as_str()).collect();
        let expected = if table == "api_key" { ["a", "c"] } else { ["a", "b"] };
        assert_eq!(names, expected, "{damage}");
    }
}

/// Its jobs are in the journal, with others behind them.
#[tokio::test]
async fn jobs_enter_although_the_record_of_their_key_is_damaged() {
    for damage in ["ids = X'00'", "ids = 'none'", "fingerprint = 'x'", "expires_at = 'never'"] {
        let damaged = Damaged::new();
        let key = IdempotencyKey { key: "k".into(), fingerprint: 1 };
        let record = |number| IdempotencyRecord::new(&tenant(), &key, vec![id(number)], NOW);
        let keyed = |number| Insert { keys: vec![record(number)], ..one(number) };
        damaged.store.job_insert(keyed(1)).await.unwrap();
        let sql = format!("UPDATE idempotency SET {damage}");
        assert_eq!(Connection::open(&damaged.path).unwrap().execute(&sql, []).unwrap(), 1);
        let inserted = damaged.store.job_insert(keyed(2)).await;
        assert_eq!(inserted, Ok(Insertion::Done(vec![Inserted::New])), "{damage}");
        let known = damaged.store.idempotency_get(&tenant(), "k").await.unwrap();
        assert_eq!(known, Some(record(2)), "{damage}");
    }
}

fn one(number: i64) -> Insert {
    insert(vec![job(number)], Durability::Synced)
}
