//! Writes of queries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use windlass_core::edit::{Claimant, MovedJobs, Names, Put, Take, TakeDecision};
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::store::prelude::*;
use windlass_core::store::sql::{SqlAnswer, SqlAsk};
use windlass_core::store::{Durability, Error};
use windlass_core::{Extra, Job, JobId, NewJob, State, Store, Sysid, Timestamp, TypeKey};
use windlass_store_sqlite::SqliteStore;

use super::common::{NOW, assert_consistent, claim, id, insert, job, key, tenant};
use super::{FIRST_ID, KEEP, NOW_TEXT, World, named, with_data};

impl World {
    async fn job(&self, number: i64) -> Job {
        self.store.job_get(&tenant(), id(number)).await.unwrap().unwrap()
    }

    /// What has to be announced after a query that changes jobs.
    async fn moved(&self, text: &str) -> MovedJobs {
        match self.answer(text).await {
            SqlAnswer::Wrote { moved, .. } => moved,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Ids of the jobs that a worker gets who asks for `*`.
    async fn taken(&self, mocks: bool) -> Vec<JobId> {
        let take = Take {
            tenant: tenant(),
            names: Names::Glob("*".into()),
            priority: None,
            hidden: mocks,
            limit: 10,
            payload_bytes_max: u64::MAX,
            bytes_max: u64::MAX,
            after: None,
            claimant: Claimant::UNSET,
            decide: Arc::new(|whole, _, _| {
                let job = Job { state: State::Failed, ..whole.job.clone() };
                TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
            }),
        };
        let took = self.store.job_take(take).await.unwrap();
        took.given.iter().map(|taken| taken.job.id).collect()
    }

    async fn close(self) {
        self.store.close().await;
        assert_consistent(&self.path);
    }
}

#[tokio::test]
async fn only_what_is_set_changes() {
    let extra = Extra { run_at_text: Some("2027-01-15 08:00:00".into()), ..Extra::default() };
    let first = NewJob { extra, created_at: NOW + Duration::from_millis(7), ..job(1) };
    let world = World::holding([first, job(2)]).await;
    let before = world.job(1).await;
    let text = "UPDATE jobs SET data = '{\"new\":true}', priority = '750' WHERE jobID = 1;";
    assert_eq!(world.changes(text).await, 1);
    let after = world.job(1).await;
    assert_eq!(after.priority.get(), 750);
    let changed = Job { priority: after.priority, payload_bytes: 12, ..before };
    assert_eq!(after, changed);
    world.check("SELECT data FROM jobs ORDER BY jobID", &[r#"{"new":true}"#, "payload 2"]).await;
    let same =
        "UPDATE jobs SET state = state, created = created, nextRun = nextRun WHERE jobID = 1";
    assert_eq!(world.changes(same).await, 1);
    assert_eq!(world.job(1).await, changed);
    world.close().await;
}

#[tokio::test]
async fn every_column_is_shown_as_it_was_set() {
    let world = World::holding([job(1), job(2)]).await;
    let text = "
        UPDATE jobs SET created = '2020-02-03 04:05:06', state = 'PAUSED', name = 'other/name',
               nextRun = '2021-01-01', lastRun = '2020-02-04 00:00:01',
               repeat = 'scheduled, +1 day', data = '[1]', priority = 0, parentJobID = 2,
               retryAfter = '+5 minutes'
         WHERE jobID = 1";
    assert_eq!(world.changes(text).await, 1);
    let all = "SELECT * FROM jobs WHERE jobID = 1";
    let row = "2020-02-03 04:05:06|1|PAUSED|other/name|2021-01-01|2020-02-04 00:00:01|\
               SCHEDULED, +1 DAY|[1]|0|2|+5 minutes";
    world.check(all, &[row]).await;
    assert!(world.job(2).await.children);

    let text = "
        UPDATE jobs SET state = 'QUEUED', nextRun = '2021-01-01 00:00:00.500', lastRun = NULL,
               repeat = '', priority = 1000.0, parentJobID = NULL, retryAfter = '', name = 5
         WHERE jobID = 1";
    assert_eq!(world.changes(text).await, 1);
    let row = "2020-02-03 04:05:06|1|QUEUED|5|2021-01-01 00:00:00.500|NULL||[1]|1000|0|";
    world.check(all, &[row]).await;
    assert_eq!(world.job(1).await.extra, Extra::default());
    world.close().await;
}

#[tokio::test]
async fn each_state_can_be_set_and_the_counters_follow() {
    let world = World::holding([job(1)]).await;
    let states =
        ["RUNNING", "RUNQUEUED", "PAUSED", "FAILED", "RUNNING", "QUEUED", "FAILED", "QUEUED"];
    for state in states {
        let text = format!("UPDATE jobs SET state = '{state}' WHERE jobID = 1");
        assert_eq!(world.changes(&text).await, 1, "{state}");
        world.check("SELECT state FROM jobs", &[state]).await;
        let stats = world.stats("t").await;
        let counts = [stats.ready, stats.running, stats.paused, stats.failed];
        let expected = match state {
            "RUNNING" => [0, 1, 0, 0],
            "PAUSED" => [0, 0, 1, 0],
            "FAILED" => [0, 0, 0, 1],
            _ => [1, 0, 0, 0],
        };
        assert_eq!(counts, expected, "{state}");
        let job = world.job(1).await;
        assert_eq!(job.extra.lent, state == "RUNQUEUED");
        assert_eq!(job.finished_at.is_some(), state == "FAILED");
    }
    world.close().await;
}

#[tokio::test]
async fn a_job_that_is_made_to_run_has_a_lease_that_never_ends() {
    let world = World::holding([job(1)]).await;
    let claimed = claim(&world.store, 1).await.remove(0).job;
    let before = claimed.lease.unwrap();
    let text = "UPDATE jobs SET state = 'QUEUED' WHERE jobID = 1;
                UPDATE jobs SET state = 'RUNNING' WHERE jobID = 1;";
    let moved = world.moved(text).await;
    assert_eq!(moved.stopped, [claimed.attempt_id().unwrap()]);
    let lease = world.job(1).await.lease.unwrap();
    assert_eq!((lease.owner, lease.expires_at), (Sysid::new(1).unwrap(), Timestamp::NEVER));
    assert_ne!(lease.token, before.token);
    world.check("SELECT lastRun FROM jobs", &[NOW_TEXT]).await;
    assert!(claim(&world.store, 1).await.is_empty());
    world.close().await;
}

#[tokio::test]
async fn a_job_that_ends_without_a_parent_is_no_longer_there() {
    for state in ["FINISHED", "CANCELLED"] {
        let world = World::holding([job(1), NewJob { parent: Some(id(1)), ..job(2) }]).await;
        let text = format!("UPDATE jobs SET state = '{state}' WHERE 1");
        assert_eq!(world.changes(&text).await, 2);
        world.check("SELECT jobID, state FROM jobs", &[&format!("2|{state}")]).await;
        assert!(world.job(1).await.state.is_ended());
        world.clock.advance(KEEP);
        assert_eq!(world.store.job_purge(10).await.unwrap(), 1, "not the child");
        world.close().await;
    }
}

#[tokio::test]
async fn a_job_is_due_when_its_new_next_run_is() {
    let later = NewJob { run_at: NOW + Duration::from_secs(3600), ..job(1) };
    let world = World::holding([later]).await;
    assert!(claim(&world.store, 1).await.is_empty());
    let text = format!("UPDATE jobs SET nextRun = '{NOW_TEXT}' WHERE name = 't'");
    let moved = world.moved(&text).await;
    assert_eq!(moved.ready, BTreeMap::from([(key(), 1)]));
    assert_eq!(claim(&world.store, 1).await[0].job.id, id(1));

    for never in ["tomorrow", "2027-01-15 08:00:00.001"] {
        let text = format!("UPDATE jobs SET nextRun = '{never}', state = 'QUEUED' WHERE jobID = 1");
        let moved = world.moved(&text).await;
        assert_eq!((moved.ready.len(), moved.due.is_some()), (0, true));
        world.check("SELECT nextRun FROM jobs", &[never]).await;
        assert!(claim(&world.store, 1).await.is_empty());
        assert_eq!(world.stats("t").await.deferred, 1);
    }
    let at = "UPDATE jobs SET nextRun = datetime(nextRun, '-1 SECOND') WHERE jobID = 1";
    assert_eq!(world.changes(at).await, 1);
    assert_eq!(claim(&world.store, 1).await.len(), 1);
    world.close().await;
}

#[tokio::test]
async fn a_mocked_job_is_one_whose_data_says_so() {
    let world = World::holding([with_data(1, "{}")]).await;
    let text = r#"UPDATE jobs SET data = JSON_SET(data, '$.mockRequest', 1) WHERE jobID = 1"#;
    assert_eq!(world.changes(text).await, 1);
    assert!(world.taken(false).await.is_empty());
    assert_eq!(world.taken(true).await, [id(1)]);
    let text = "UPDATE jobs SET data = '{}', state = 'QUEUED' WHERE jobID = 1";
    assert_eq!(world.changes(text).await, 1);
    assert_eq!(world.taken(false).await, [id(1)]);
    world.close().await;
}

#[tokio::test]
async fn a_deleted_job_is_gone() {
    let world = World::holding([job(1), job(2), named(3, "a"), named(4, "b")]).await;
    let claimed = claim(&world.store, 1).await.remove(0).job;
    let moved = world.moved("DELETE FROM jobs WHERE jobID IN (1, 3)").await;
    let stopped = vec![claimed.attempt_id().unwrap()];
    assert_eq!((moved.stopped, moved.touched), (stopped, vec![id(3)]));
    world.check("SELECT jobID FROM jobs ORDER BY 1", &["2", "4"]).await;
    assert_eq!(world.store.job_get(&tenant(), id(1)).await.unwrap(), None);
    let stats = world.stats("t").await;
    assert_eq!((stats.ready, stats.running), (1, 0));
    assert_eq!(world.changes("DELETE FROM jobs WHERE name GLOB '[ab]' OR name = 't'").await, 2);
    world.check("SELECT COUNT(*) FROM jobs", &["0"]).await;
    assert_eq!(world.changes("DELETE FROM jobs WHERE 1").await, 0);
    world.close().await;
}

#[tokio::test]
async fn inserted_jobs_have_bedrocks_defaults() {
    let world = World::new();
    let answer = world.answer("INSERT INTO jobs (name) VALUES ('a'), ('b')").await;
    let SqlAnswer::Wrote { changed, last_id, moved } = answer else { panic!("{answer:?}") };
    assert_eq!((changed, last_id), (2, Some(id(FIRST_ID + 1))));
    let entered: Vec<_> = moved.entered.iter().map(|(id, key)| (*id, key.name.as_str())).collect();
    assert_eq!(entered, [(id(FIRST_ID), "a"), (id(FIRST_ID + 1), "b")]);
    assert_eq!(moved.ready[&TypeKey::new("acme", "a").unwrap()], 1);
    let row = format!("{NOW_TEXT}|1000|QUEUED|a|{NOW_TEXT}.000|NULL||{{}}|500|0|");
    world.check("SELECT * FROM jobs WHERE name = 'a'", &[&row]).await;
    assert_eq!(world.taken(false).await, [id(FIRST_ID), id(FIRST_ID + 1)]);
    world.close().await;
}

#[tokio::test]
async fn inserted_jobs_are_as_the_statement_says() {
    let world = World::holding([job(1)]).await;
    let columns = "created, state, name, nextRun, lastRun, repeat, data, priority, parentJobID, \
                   retryAfter";
    let text = format!(
        "INSERT INTO jobs ({columns}) VALUES ('2020-01-01', 'FAILED', 'x', 'soon', '2020-01-02',
             'daily', '{{\"mockRequest\":1}}', 250, 1, '+1 HOUR');
         INSERT INTO jobs (name, state) VALUES ('y', 'RUNNING');
         INSERT INTO jobs SELECT created, NULL, 'PAUSED', 'z', nextRun, lastRun, repeat, data,
             priority, 0, retryAfter FROM jobs WHERE name = 'x';"
    );
    assert_eq!(world.changes(&text).await, 3);
    let rows = [
        "2020-01-01 00:00:00|1000|FAILED|x|soon|2020-01-02 00:00:00|DAILY|{\"mockRequest\":1}\
         |250|1|+1 HOUR",
        "2027-01-15 08:00:00|1001|RUNNING|y|2027-01-15 08:00:00.000|2027-01-15 08:00:00||{}|500|0|",
        "2020-01-01 00:00:00|1002|PAUSED|z|soon|2020-01-02 00:00:00|DAILY|{\"mockRequest\":1}\
         |250|0|+1 HOUR",
    ];
    world.check("SELECT * FROM jobs WHERE jobID >= 1000 ORDER BY jobID", &rows).await;
    assert_eq!(world.stats("y").await.running, 1);
    assert!(world.job(1).await.children);
    world.close().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let world = World::holding([job(1), NewJob { parent: Some(id(1)), ..job(2) }, job(3)]).await;
    let before = world.rows("SELECT * FROM jobs").await;
    let large = format!("data = printf('%.*c', {}, 'x')", PAYLOAD_INLINE_BYTES_MAX + 1);
    let cases = [
        ("jobID = 9", "jobID"),
        ("jobID = NULL", "jobID"),
        ("state = 'queued'", "'queued'"),
        ("state = NULL", "jobs.state"),
        ("name = ''", "1 to 255 bytes"),
        ("name = 'a|b'", "'|'"),
        ("name = NULL", "jobs.name"),
        ("nextRun = NULL", "jobs.nextRun"),
        ("nextRun = printf('%.*c', 256, 'x')", "255 bytes"),
        ("created = 'yesterday'", "'yesterday' is not a date"),
        ("created = NULL", "jobs.created"),
        ("lastRun = '2020-13-01'", "'2020-13-01' is not a date"),
        ("state = 'RUNNING', lastRun = 'x'", "'x' is not a date"),
        ("repeat = 'sometimes'", "repeat"),
        ("repeat = 'cron: * * * * *'", "repeat"),
        ("repeat = NULL", "jobs.repeat"),
        ("retryAfter = '5 minutes'", "retryAfter"),
        ("priority = 1001", "0 to 1000"),
        ("priority = -1", "0 to 1000"),
        ("priority = 'high'", "must be an integer"),
        ("priority = 1.5", "must be an integer"),
        ("priority = NULL", "jobs.priority"),
        ("data = NULL", "jobs.data"),
        ("data = x'00'", "data must be text"),
        (&large, "1048576 bytes"),
        ("parentJobID = 77", "no job 77"),
        ("parentJobID = -1", "no job -1"),
        ("parentJobID = 2", "cannot have children"),
        ("parentJobID = 3", "cannot have children"),
    ];
    for (set, words) in cases {
        // The first statement alone would succeed, but it is all or nothing.
        let which = if set == "parentJobID = 3" { 1 } else { 3 };
        let text = format!(
            "UPDATE jobs SET priority = 1 WHERE jobID = 1;
             UPDATE jobs SET {set} WHERE jobID = {which}"
        );
        let told = world.failed(&text).await;
        assert!(told.contains(words), "{set}: {told}");
    }
    let inserts = [
        ("INSERT INTO jobs (jobID, name) VALUES (5, 'a')", "jobID"),
        ("INSERT INTO jobs (data) VALUES ('{}')", "jobs.name"),
        ("INSERT INTO jobs (name) VALUES ('a'), ('')", "1 to 255 bytes"),
        ("INSERT INTO jobs (name, state) VALUES ('a', 'LOST')", "'LOST'"),
        ("INSERT INTO jobs (name, parentJobID) VALUES ('a', 2)", "cannot have children"),
        ("UPDATE jobs SET data = JSON_EXTRACT(data, '$') WHERE 1", "malformed JSON"),
    ];
    for (text, words) in inserts {
        let told = world.failed(text).await;
        assert!(told.contains(words), "{text}: {told}");
    }
    assert_eq!(world.rows("SELECT * FROM jobs").await, before);
    world.close().await;
}

#[tokio::test]
async fn a_write_without_a_where_needs_leave() {
    let world = World::holding([job(1), job(2)]).await;
    let texts = [
        "DELETE FROM jobs",
        "delete from jobs;",
        "UPDATE jobs SET priority = 1",
        "UPDATE jobs SET data = 'a WHERE b'",
        "UPDATE jobs SET data = (SELECT name FROM jobs WHERE jobID = 1)",
        "DELETE FROM jobs WHERE jobID = 1; DELETE FROM jobs -- WHERE 1",
    ];
    for text in texts {
        assert_eq!(world.answer(text).await, SqlAnswer::Aborted, "{text}");
    }
    world.check("SELECT COUNT(*), MIN(priority) FROM jobs", &["2|500"]).await;
    assert_eq!(world.changes("delete\nfrom jobs\nwhere\njobID=1").await, 1);
    let ask = SqlAsk { without_where: true, ..world.ask("DELETE FROM jobs") };
    assert!(matches!(world.asked(ask).await, Ok(SqlAnswer::Wrote { changed: 1, .. })));
    world.close().await;
}

#[tokio::test]
async fn statements_see_what_those_before_them_did_and_happen_together() {
    let world = World::holding([job(1)]).await;
    let text = "INSERT INTO jobs (name, priority) VALUES ('a', 1);
                UPDATE jobs SET priority = priority + 1 WHERE name = 'a';
                INSERT INTO jobs (name, priority) SELECT 'b', priority FROM jobs WHERE name = 'a';
                SELECT * FROM jobs;
                DELETE FROM jobs WHERE name = 'a';";
    assert_eq!(world.changes(text).await, 4);
    world.check("SELECT name, priority FROM jobs ORDER BY 1", &["b|2", "t|500"]).await;
    world.bad("DELETE FROM jobs WHERE 1; SELECT nonsense").await;
    world.failed("DELETE FROM jobs WHERE 1; SELECT JSON_EXTRACT('{', '$')").await;
    world.check("SELECT COUNT(*) FROM jobs", &["2"]).await;
    world.close().await;
}

#[tokio::test]
async fn an_ended_job_that_is_queued_again_has_its_time_before_it() {
    let expires_at = Some(NOW + Duration::from_secs(1));
    let world = World::holding([NewJob { expires_at, ..job(1) }]).await;
    assert_eq!(world.changes("UPDATE jobs SET state = 'FAILED' WHERE jobID = 1").await, 1);
    let now = NOW + Duration::from_secs(3600);
    let again = "UPDATE jobs SET state = 'QUEUED' WHERE jobID = 1";
    world.clock.advance_to(now);
    world.asked(world.ask(again)).await.unwrap();
    let job = world.job(1).await;
    assert_eq!((job.due_at, job.expires_at, job.attempt), (now, None, 0));
    world.close().await;
}

#[tokio::test]
async fn a_unique_key_is_held_again_only_when_it_is_free() {
    let keyed = |number| NewJob { unique: Some("k".into()), ..job(number) };
    let world = World::holding([keyed(1)]).await;
    assert_eq!(world.changes("UPDATE jobs SET state = 'FAILED' WHERE jobID = 1").await, 1);
    world.store.job_insert(insert(vec![keyed(2)], Durability::Relaxed)).await.unwrap();
    let again = "UPDATE jobs SET state = 'QUEUED' WHERE jobID = 1";
    let told = world.failed(again).await;
    assert!(told.contains("job 2 holds"), "{told}");
    assert_eq!(world.changes("DELETE FROM jobs WHERE jobID = 2").await, 1);
    assert_eq!(world.changes(again).await, 1);
    world.close().await;
}

#[tokio::test]
async fn writes_are_synced_and_there_when_the_file_is_opened_again() {
    let synced = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = synced.clone();
    let world = World::with(|options| {
        options.on_commit = Some(Arc::new(move |_, synced| noted.lock().unwrap().push(synced)));
    });
    world.changes("INSERT INTO jobs (name, repeat) VALUES ('a', 'DAILY'), ('b', '')").await;
    world.changes("DELETE FROM jobs WHERE name = 'b'").await;
    world.rows("SELECT * FROM jobs").await;
    let commits = synced.lock().unwrap().clone();
    assert_eq!(commits, [false, true, false, true], "a sync follows each change");
    let before = world.rows("SELECT * FROM jobs").await;
    world.store.close().await;
    assert_consistent(&world.path);
    let store = SqliteStore::open(super::common::options(&world.path)).unwrap();
    let World { clock, path, ids, _directory, .. } = world;
    let world = World { store, clock, path, ids, _directory };
    assert_eq!(world.rows("SELECT * FROM jobs").await, before);
    world.close().await;
}

#[tokio::test]
async fn a_query_that_panics_is_answered_and_changes_nothing() {
    let world = World::holding([named(1, "a")]).await;
    let adding = "INSERT INTO jobs (name) VALUES ('b'), ('c')";
    // One more than the queries that run at the same time.
    for _ in 0..5 {
        let ids = AtomicI64::new(0);
        let panicking = move || match ids.fetch_add(1, Ordering::Relaxed) {
            0 => JobId::new(500),
            _ => panic!("a defect"),
        };
        let ask = SqlAsk { ids: Arc::new(panicking), ..world.ask(adding) };
        let answer = world.asked(ask).await;
        assert!(matches!(&answer, Err(Error::Internal(m)) if m.contains("a defect")), "{answer:?}");
    }
    world.check("SELECT name FROM jobs", &["a"]).await;
    assert_eq!(world.changes(adding).await, 2);
}
