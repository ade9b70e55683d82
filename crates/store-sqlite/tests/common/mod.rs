//! Shared helpers: short forms for jobs and claims, and checks of the tables themselves.

// Test helpers outside test functions, which clippy does not recognise. Not every test file uses
// all.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use windlass_core::job::Token;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{Claim, Claimed, Durability, Hold, Insert, LeaseRef, Pick, Settlement};
use windlass_core::time::ManualClock;
use windlass_core::{
    JobId, Log, NewJob, Payload, Status, Store, Sysid, Tenant, Timestamp, TypeKey,
};
use windlass_store_sqlite::Options;

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Options of a store whose clock is set to `NOW`.
pub(crate) fn options(path: impl Into<std::path::PathBuf>) -> Options {
    Options { clock: Arc::new(ManualClock::at(NOW)), ..Options::new(path) }
}

pub(crate) fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

pub(crate) fn key() -> TypeKey {
    TypeKey::new("acme", "t").unwrap()
}

pub(crate) fn id(number: i64) -> JobId {
    JobId::new(number).unwrap()
}

pub(crate) fn job(number: i64) -> NewJob {
    let payload = Payload::Inline(Bytes::from(format!("payload {number}")));
    NewJob::new(id(number), key(), payload, NOW)
}

pub(crate) fn insert(jobs: Vec<NewJob>, durability: Durability) -> Insert {
    Insert { jobs, keys: Vec::new(), mark: None, durability }
}

pub(crate) async fn claim(store: &dyn Store, limit: u32) -> Vec<Claimed> {
    let claim = Claim {
        picks: vec![Pick { key: key(), limit, floor: None }],
        owner: Sysid::new(1).unwrap(),
        token: Token(1),
        hold: Hold::For(Duration::from_secs(10)),
        payload_bytes_max: u64::MAX,
    };
    store.job_claim(claim).await.unwrap().jobs
}

pub(crate) fn done(claimed: &Claimed) -> Settlement {
    let lease = claimed.job.lease.unwrap();
    Settlement {
        lease: LeaseRef { tenant: tenant(), id: claimed.job.id, token: lease.token },
        verdict: Verdict::End(Ending::Finished),
        ended: Some(Status::OK.into()),
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::from_secs(60),
        only_if_expired: false,
    }
}

/// Each finds rows that contradict each other; see `assert_consistent`.
const CHECKS: [&str; 9] = [
    "
        SELECT count(*) FROM type t
         WHERE ready     <> (SELECT count(*) FROM ready r WHERE r.type_id = t.id)
            OR deferred  <> (SELECT count(*) FROM deferred d WHERE d.type_id = t.id)
                          + (SELECT count(*) FROM ready_hidden m WHERE m.type_id = t.id)
                          + (SELECT count(*) FROM withheld w WHERE w.type_id = t.id)
            OR running   <> (SELECT count(*) FROM lease l WHERE l.type_id = t.id)
            OR paused    <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 2)
            OR finished  <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 3)
            OR failed    <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 4)
            OR cancelled <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 5)",
    "
        SELECT count(*) FROM type t
         WHERE (head_rank, head_run_at, head_tie) IS NOT (
               SELECT rank, run_at, tie FROM ready r WHERE r.type_id = t.id
                ORDER BY rank, run_at, tie, id LIMIT 1)",
    "
        SELECT count(*) FROM type t
         WHERE (hidden_rank, hidden_run_at, hidden_tie) IS NOT (
               SELECT rank, run_at, tie FROM ready_hidden r WHERE r.type_id = t.id
                ORDER BY rank, run_at, tie, id LIMIT 1)",
    "
        SELECT count(*) FROM job j
         WHERE (state = 0) <> ((SELECT count(*) FROM ready r
                                 WHERE r.id = j.id AND NOT j.parts & 64
                                   AND (type_id, rank, run_at)
                                     = (j.type_id, 1000 - j.priority, j.run_at))
                             + (SELECT count(*) FROM ready_hidden m
                                 WHERE m.id = j.id AND j.parts & 64
                                   AND (type_id, rank, run_at)
                                     = (j.type_id, 1000 - j.priority, j.run_at))
                             + (SELECT count(*) FROM deferred d
                                 WHERE d.id = j.id AND (type_id, run_at) = (j.type_id, j.run_at)
                                   AND rank = 1000 - j.priority
                                            + CASE WHEN j.parts & 64 THEN 10000 ELSE 0 END)
                             + (SELECT count(*) FROM withheld w
                                 WHERE w.id = j.id AND w.type_id = j.type_id)
                             + (SELECT count(*) FROM lease l WHERE l.id = j.id))",
    "
        SELECT count(*) FROM (SELECT id FROM ready UNION ALL SELECT id FROM deferred
                              UNION ALL SELECT id FROM ready_hidden
                              UNION ALL SELECT id FROM withheld
                              UNION ALL SELECT id FROM lease)
         WHERE id NOT IN (SELECT id FROM job)",
    "
        SELECT count(*) FROM job j
         WHERE (j.parts & 1 <> 0) <> (SELECT count(*) FROM payload p WHERE p.id = j.id)
            OR (j.parts & 256 <> 0) <> (SELECT count(*) FROM extra e WHERE e.id = j.id)",
    "
        SELECT count(*) FROM (SELECT id FROM payload UNION ALL SELECT id FROM extra
                              UNION ALL SELECT id FROM aside)
         WHERE id NOT IN (SELECT id FROM job)",
    "
        SELECT count(*) FROM job j
         WHERE (j.unique_key IS NOT NULL AND j.state < 3)
            <> (SELECT count(*) FROM unique_key u
                 WHERE (u.type_id, u.key, u.id) = (j.type_id, j.unique_key, j.id))",
    "
        SELECT count(*) FROM job j
         WHERE (j.parts & 512 <> 0) <> (j.parent_id IS NOT NULL)
            OR (j.parts & 576 <> 0) <> (SELECT count(*) FROM aside a WHERE a.id = j.id)
            OR EXISTS (SELECT 1 FROM aside a
                        WHERE a.id = j.id
                          AND (a.type_id, a.hidden, a.state, coalesce(a.parent_id, 0))
                           <> (j.type_id, j.parts & 64 <> 0, j.state, coalesce(j.parent_id, 0)))",
];

/// What must hold in every file, whenever its process ended: the pages are intact, the counters of
/// every type and the front of its queue agree with the rows, every queued job is in one queue, is
/// withheld or has a lease, and a job's parts name its rows in other tables.
pub(crate) fn assert_consistent(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    for sql in CHECKS {
        let found: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, 0, "{sql}");
    }
}
