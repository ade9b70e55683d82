//! What the tests of the file have in common: short words for jobs and claims, and a look at the
//! tables themselves.

// Helpers of tests outside of test functions; clippy cannot tell. Not every test file uses all.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use windlass_core::job::Boot;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{Claim, Claimed, Durability, Insert, LeaseRef, Pick, Settlement};
use windlass_core::{
    JobId, Log, NewJob, Payload, Priority, Status, Store, Sysid, Tenant, Timestamp, TypeKey,
};

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

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
    NewJob {
        id: id(number),
        key: key(),
        priority: Priority::default(),
        run_at: NOW,
        created_at: NOW,
        expires_at: None,
        timeout: None,
        unique: None,
        then: None,
        parent: None,
        paused: false,
        extra: Default::default(),
        payload: Payload::Inline(Bytes::from(format!("payload {number}"))),
    }
}

pub(crate) fn insert(jobs: Vec<NewJob>, durability: Durability) -> Insert {
    Insert { jobs, keys: Vec::new(), mark: None, durability }
}

pub(crate) async fn claim(store: &dyn Store, limit: u32) -> Vec<Claimed> {
    let claim = Claim {
        picks: vec![Pick { key: key(), limit, floor: None }],
        owner: Sysid::new(1).unwrap(),
        boot: Boot(1),
        now: NOW,
        until: NOW + Duration::from_secs(10),
    };
    store.job_claim(claim).await.unwrap()
}

pub(crate) fn done(claimed: &Claimed) -> Settlement {
    let lease = claimed.job.lease.unwrap();
    Settlement {
        lease: LeaseRef { tenant: tenant(), id: claimed.job.id, token: lease.token },
        verdict: Verdict::End(Ending::Finished),
        ended: Some(Status::OK.into()),
        now: NOW,
        data: None,
        progress: None,
        log: Log::new(),
        follow: None,
        purge_at: NOW + Duration::from_secs(60),
        only_if_expired_at: None,
    }
}

/// What must hold in every file, whenever its process ended: the pages are whole, the counters of
/// every type agree with its rows, and every queued job is in one queue or under a lease.
pub(crate) fn assert_consistent(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let wrong_counters = "
        SELECT count(*) FROM type t
         WHERE ready     <> (SELECT count(*) FROM ready r WHERE r.type_id = t.id)
            OR deferred  <> (SELECT count(*) FROM deferred d WHERE d.type_id = t.id)
            OR running   <> (SELECT count(*) FROM lease l WHERE l.type_id = t.id)
            OR finished  <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 3)
            OR failed    <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 4)
            OR cancelled <> (SELECT count(*) FROM job j WHERE j.type_id = t.id AND state = 5)";
    let misplaced = "
        SELECT count(*) FROM job j
         WHERE (state = 0) <> ((SELECT count(*) FROM ready r WHERE r.id = j.id)
                             + (SELECT count(*) FROM deferred d WHERE d.id = j.id)
                             + (SELECT count(*) FROM lease l WHERE l.id = j.id))";
    let orphans = "
        SELECT count(*) FROM (SELECT id FROM ready UNION ALL SELECT id FROM deferred
                              UNION ALL SELECT id FROM lease)
         WHERE id NOT IN (SELECT id FROM job)";
    for sql in [wrong_counters, misplaced, orphans] {
        let found: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, 0, "{sql}");
    }
}
