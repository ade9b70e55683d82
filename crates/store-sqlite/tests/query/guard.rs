//! What a query may not do, and how long it may take.

use std::time::Duration;

use windlass_core::Store;
use windlass_core::store::Error;
use windlass_core::store::prelude::*;
use windlass_core::store::sql::{SqlAnswer, SqlAsk};
use windlass_core::{NewJob, Priority, TypeKey};

use super::common::{assert_consistent, id, job, tenant};
use super::{World, of_other, other};

async fn two_tenants() -> World {
    World::holding([job(1), job(2), of_other(3), of_other(4), of_other(5)]).await
}

/// Reads of anything but `jobs`, and other ways around the guard.
const FORBIDDEN: &[&str] = &[
    "SELECT 1 FROM (SELECT 'job' AS name) NATURAL JOIN sqlite_master",
    "SELECT 1 FROM (SELECT 'job' AS name) NATURAL JOIN 'SQLite_Schema'",
    "SELECT 1 FROM (SELECT 'jobs' AS name) JOIN temp.sqlite_schema USING (name)",
    "SELECT * FROM job",
    "SELECT * FROM main.job",
    "SELECT COUNT(*) FROM job",
    "SELECT COUNT(*) FROM Main.JOB",
    "SELECT 1 FROM \"job\"",
    "SELECT 1 FROM job WHERE 0",
    "SELECT EXISTS (SELECT * FROM job)",
    "SELECT 3 IN journal",
    "SELECT jobID FROM jobs LEFT JOIN job ON 1",
    "SELECT jobs.jobID FROM jobs NATURAL JOIN main.type",
    "SELECT 1 FROM (SELECT 't' AS name) JOIN 'main' . type USING (name)",
    "SELECT 1 FROM (SELECT 't' AS name) JOIN \"main\"\u{feff}.type USING (name)",
    "SELECT $x('), jobs.jobID FROM jobs NATURAL JOIN main.type",
    "SELECT ?",
    "SELECT * FROM jobs WHERE jobID = :id",
    "SELECT COUNT(*) FROM jobs, job",
    "SELECT * FROM jobs JOIN payload",
    "SELECT (SELECT payload FROM job LIMIT 1)",
    "SELECT * FROM jobs WHERE jobID IN (SELECT id FROM job)",
    "SELECT * FROM jobs WHERE EXISTS (SELECT 1 FROM main.job WHERE id = 3)",
    "SELECT * FROM type",
    "SELECT * FROM handler",
    "SELECT * FROM meta",
    "SELECT * FROM job_now",
    "SELECT COUNT(*) FROM job_now",
    "SELECT * FROM (SELECT * FROM job) AS jobs",
    "WITH jobs AS (SELECT * FROM job) SELECT * FROM jobs",
    "WITH jobs AS (SELECT * FROM main.job) SELECT COUNT(*) FROM jobs",
    "WITH jobs AS (SELECT COUNT(*) FROM job) SELECT * FROM jobs",
    "WITH a AS (SELECT * FROM job), jobs AS (SELECT * FROM a) SELECT * FROM jobs",
    "WITH jobs_put AS (SELECT * FROM job) SELECT * FROM jobs_put",
    "WITH RECURSIVE jobs(n) AS (SELECT id FROM job UNION SELECT n + 1 FROM jobs WHERE n < 9)
     SELECT * FROM jobs",
    "WITH job AS (SELECT 1) SELECT COUNT(*) FROM main.job",
    "SELECT 1 UNION SELECT id FROM job",
    "VALUES ((SELECT id FROM job))",
    "EXPLAIN SELECT * FROM job",
    "EXPLAIN QUERY PLAN SELECT * FROM job",
    "SELECT * FROM sqlite_master",
    "SELECT COUNT(*) FROM sqlite_schema",
    "SELECT * FROM main.sqlite_master",
    "SELECT * FROM temp.sqlite_master",
    "SELECT * FROM sqlite_temp_master",
    "SELECT COUNT(*) FROM sqlite_temp_schema",
    "SELECT * FROM pragma_table_info('job')",
    "SELECT COUNT(*) FROM pragma_table_list",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM dbstat",
    "SELECT COUNT(*) FROM dbstat",
    "SELECT * FROM sqlite_dbpage",
    "SELECT * FROM sqlite_stmt",
    "SELECT COUNT(*) FROM fts5vocab",
    "SELECT load_extension('x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_compileoption_get(1)",
    "SELECT windlass_delete(3)",
    "SELECT windlass_seconds(3)",
    "WITH jobs AS (SELECT windlass_delete(3)) SELECT * FROM jobs",
    "WITH windlass_delete AS (SELECT windlass_delete(3)) SELECT * FROM windlass_delete",
    "PRAGMA table_info(job)",
    "PRAGMA synchronous = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA query_only",
    "ATTACH ':memory:' AS x",
    "ATTACH 'other.db' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'stolen.db'",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "RELEASE a",
    "ANALYZE",
    "REINDEX",
    "CREATE TABLE a (b)",
    "CREATE TEMP TABLE a (b)",
    "CREATE TEMP TABLE a AS SELECT * FROM jobs",
    "CREATE VIEW a AS SELECT * FROM job",
    "CREATE TEMP VIEW a AS SELECT * FROM job",
    "CREATE TEMP TRIGGER a INSTEAD OF DELETE ON jobs BEGIN DELETE FROM job; END",
    "CREATE INDEX a ON job (state)",
    "CREATE VIRTUAL TABLE a USING fts5(b)",
    "DROP TABLE job",
    "DROP VIEW jobs",
    "DROP VIEW temp.jobs",
    "ALTER TABLE job ADD COLUMN a",
    "ALTER TABLE jobs RENAME TO a",
    "DELETE FROM job WHERE 1",
    "DELETE FROM main.job WHERE id = 3",
    "UPDATE job SET state = 3 WHERE 1",
    "UPDATE main.type SET tenant = 'acme' WHERE 1",
    "INSERT INTO job (id) VALUES (1)",
    "REPLACE INTO meta VALUES ('boot', 1)",
    "DELETE FROM sqlite_master WHERE 1",
    "UPDATE sqlite_schema SET sql = '' WHERE 1",
    "UPDATE jobs SET data = (SELECT payload FROM job WHERE id = 3) WHERE jobID = 1",
    "DELETE FROM jobs WHERE jobID IN (SELECT id FROM job)",
    "INSERT INTO jobs (name, data) SELECT 'x', data FROM payload",
    "UPDATE jobs SET data = 1 FROM job WHERE jobs.jobID = job.id",
    "WITH jobs AS (SELECT id AS jobID FROM main.job) DELETE FROM jobs WHERE jobID IN
     (SELECT jobID FROM jobs)",
    "UPDATE jobs SET name = 'x' WHERE 1 RETURNING (SELECT id FROM job)",
    "SELECT * FROM jobs; DROP TABLE job;",
    "SELECT * FROM jobs; SELECT * FROM main.job;",
    "DELETE FROM jobs WHERE 1; COMMIT; DROP TABLE job;",
];

#[tokio::test]
async fn a_query_gets_at_nothing_but_its_own_jobs() {
    let world = two_tenants().await;
    for text in FORBIDDEN {
        let told = world.bad(text).await;
        assert!(told.starts_with("Parse error: "), "{text}: {told}");
        assert_eq!(told.lines().count(), 3, "{text}: {told}");
        assert!(!told.contains("secret"), "{text}: {told}");
    }
    world.check("SELECT jobID FROM jobs ORDER BY 1", &["1", "2"]).await;
    world.store.close().await;
    assert_consistent(&world.path);
}

#[tokio::test]
async fn a_tenant_neither_sees_nor_changes_the_jobs_of_another() {
    let world = two_tenants().await;
    let all = "SELECT jobID FROM jobs ORDER BY 1";
    world.check(all, &["1", "2"]).await;
    world.check("SELECT COUNT(*) FROM jobs WHERE jobID = 3 OR name = 't'", &["2"]).await;
    world.check("SELECT a.jobID FROM jobs a, jobs b WHERE b.jobID >= 3", &[]).await;
    world.check("SELECT * FROM jobs WHERE data LIKE '%secret%'", &[]).await;
    world.check("SELECT jobID FROM temp.jobs WHERE jobID > 1", &["2"]).await;
    let of_other = |text: &str| SqlAsk { tenant: other(), ..world.ask(text) };
    let seen = world.asked(of_other(all)).await.unwrap();
    assert_eq!(super::lines(&seen), ["3", "4", "5"]);

    assert_eq!(world.changes("UPDATE jobs SET data = 'x' WHERE jobID = 3").await, 0);
    assert_eq!(world.changes("DELETE FROM jobs WHERE jobID >= 2").await, 1);
    let told = world.failed("UPDATE jobs SET parentJobID = 4 WHERE jobID = 1").await;
    assert!(told.contains("no job 4"), "{told}");
    let told = world.failed("INSERT INTO jobs (name, parentJobID) VALUES ('x', 4)").await;
    assert!(told.contains("no job 4"), "{told}");
    let seen = world.asked(of_other("SELECT COUNT(*), MAX(data) FROM jobs")).await.unwrap();
    assert_eq!(super::lines(&seen), [r#"3|{"secret":1}"#]);
    let name = of_other("DELETE FROM jobs WHERE name = 't'");
    assert!(matches!(world.asked(name).await, Ok(SqlAnswer::Wrote { changed: 3, .. })));
    world.check(all, &["1"]).await;
}

/// An expression is not evaluated on another tenant's values, however SQLite orders its work.
#[tokio::test]
async fn an_error_tells_nothing_about_a_job_of_another_tenant() {
    let theirs = NewJob { priority: Priority::new(777).unwrap(), ..of_other(3) };
    let theirs = NewJob { key: TypeKey::new("other", "theirs").unwrap(), ..theirs };
    let world = World::holding([job(1), theirs]).await;
    let conditions = [
        "data LIKE '%secret%'",
        "priority = 777",
        "name = 'theirs'",
        "name > 'th' AND state = 'QUEUED'",
        "created > '' AND nextRun > '' AND name != 't'",
        "repeat = '' AND retryAfter = '' AND priority != 500",
    ];
    for condition in conditions {
        let error = format!("CASE WHEN {condition} THEN abs(-9223372036854775808) ELSE 1 END");
        for by in ["jobID = 3 AND", "jobID IN (3, 4) AND", "jobID > 2 AND", ""] {
            let text = format!("SELECT jobID FROM jobs WHERE {by} {error}");
            let expected: &[&str] = if by.is_empty() { &["1"] } else { &[] };
            world.check(&text, expected).await;
        }
    }
    let own = "SELECT 1 FROM jobs WHERE abs(-9223372036854775808 + (priority - 500))";
    assert!(world.bad(own).await.contains("overflow"));
}

/// SQLite does not ask the authorizer about these.
#[tokio::test]
async fn what_is_compared_behind_the_guards_back_is_empty() {
    let world = two_tenants().await;
    let texts = [
        "SELECT jobs.jobID FROM jobs NATURAL JOIN type",
        "SELECT jobs.jobID FROM jobs JOIN \"TYPE\" USING (name)",
        "SELECT 1 FROM (SELECT 'other' AS tenant) JOIN type USING (tenant)",
        "SELECT 1 FROM (SELECT 't' AS name) NATURAL JOIN job_now",
        "SELECT 1 FROM (SELECT 3 AS id) NATURAL JOIN job",
        "SELECT 1 FROM (SELECT CAST('{\"secret\":1}' AS BLOB) AS payload) JOIN job USING (payload)",
        "SELECT 1 FROM (SELECT 'job' AS name) NATURAL JOIN dbstat",
        "SELECT jobID FROM jobs NATURAL JOIN (SELECT 'boot' AS repeat) NATURAL JOIN meta",
    ];
    for text in texts {
        match world.answer(text).await {
            SqlAnswer::Rows { rows, .. } => assert!(rows.is_empty(), "{text}: {rows:?}"),
            SqlAnswer::Bad(_) => {}
            other => panic!("{text}: {other:?}"),
        }
    }
    world.check("SELECT a.jobID FROM jobs a NATURAL JOIN jobs", &[]).await;
    world.check("SELECT COUNT(*) FROM jobs a JOIN jobs b USING (name)", &["4"]).await;
}

#[tokio::test]
async fn what_does_no_harm_is_allowed() {
    let world = two_tenants().await;
    let cases: [(&str, &[&str]); 9] = [
        ("WITH jobs AS (SELECT 5 AS a) SELECT * FROM jobs", &["5"]),
        ("WITH a AS (SELECT jobID FROM jobs) SELECT COUNT(*) FROM a", &["2"]),
        ("WITH a(n) AS (VALUES (1), (2)) SELECT SUM(n) FROM a", &["3"]),
        (
            "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 5)
             SELECT MAX(n) FROM a",
            &["5"],
        ),
        ("SELECT value FROM json_each('[1,2]')", &["1", "2"]),
        ("SELECT COUNT(*) FROM jobs, json_tree('[1]')", &["4"]),
        ("SELECT upper('a') || abs(-1) || round(1.5)", &["A12.0"]),
        ("SELECT row_number() OVER (ORDER BY jobID DESC), jobID FROM jobs", &["1|2", "2|1"]),
        ("SELECT COUNT(*) FROM (SELECT * FROM jobs a CROSS JOIN jobs b)", &["4"]),
    ];
    for (text, expected) in cases {
        world.check(text, expected).await;
    }
    // However SQLite flattens the view, its reads still count as the view's.
    let joined = [
        "SELECT * FROM jobs UNION ALL SELECT * FROM jobs",
        "SELECT state FROM jobs EXCEPT SELECT name FROM jobs",
        "SELECT a.*, b.* FROM jobs a LEFT JOIN jobs b ON b.parentJobID = a.jobID",
        "SELECT a.jobID FROM jobs a LEFT JOIN jobs b ON b.jobID = a.jobID",
        "SELECT COUNT(*) FROM jobs a LEFT JOIN jobs b USING (jobID)",
        "SELECT * FROM jobs a FULL JOIN jobs b ON a.data = b.data RIGHT JOIN jobs c ON 1",
        "SELECT 1 FROM jobs",
        "SELECT EXISTS (SELECT * FROM jobs), 1 IN (SELECT jobID FROM jobs)",
        "SELECT (SELECT state FROM jobs), (SELECT lastRun FROM jobs)",
        "SELECT DISTINCT state, COUNT(*) OVER (PARTITION BY lastRun) FROM jobs ORDER BY repeat",
        "SELECT data FROM (SELECT * FROM jobs LIMIT 5) GROUP BY state HAVING MAX(nextRun) > ''",
        "WITH a AS MATERIALIZED (SELECT * FROM jobs) SELECT a.state FROM a, jobs",
        "SELECT (SELECT b.state FROM jobs b WHERE b.jobID = a.jobID) FROM jobs a",
        "SELECT value FROM jobs, json_each(jobs.state || jobs.nextRun) WHERE 0",
    ];
    for text in joined {
        let answer = world.answer(text).await;
        assert!(matches!(answer, SqlAnswer::Rows { .. }), "{text}: {answer:?}");
    }
    let plan = world.rows("EXPLAIN QUERY PLAN SELECT * FROM jobs WHERE jobID = 1").await;
    assert!(plan[0].contains("PRIMARY KEY"), "{plan:?}");
    assert!(!world.rows("EXPLAIN DELETE FROM jobs").await.is_empty());
    world.check("SELECT COUNT(*) FROM jobs", &["2"]).await;
}

const ENDLESS: &str = "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a)";

#[tokio::test]
async fn what_takes_too_long_is_ended() {
    let world = two_tenants().await;
    let short = |text: String| SqlAsk { patience: Duration::from_millis(50), ..world.ask(&text) };
    let endless = [
        format!("{ENDLESS} SELECT COUNT(*) FROM a"),
        format!("DELETE FROM jobs WHERE ({ENDLESS} SELECT COUNT(*) FROM a)"),
        format!("DELETE FROM jobs WHERE jobID = 1; {ENDLESS} SELECT COUNT(*) FROM a"),
    ];
    for text in endless {
        assert_eq!(world.asked(short(text.clone())).await, Ok(SqlAnswer::TimedOut), "{text}");
    }
    world.check("SELECT COUNT(*) FROM jobs", &["2"]).await;
}

#[tokio::test]
async fn a_query_that_writes_lets_others_write_before_they_give_up() {
    let world = World::with(|options| options.busy_timeout = Duration::from_millis(200));
    let endless = format!("{ENDLESS} INSERT INTO jobs (name) SELECT 'a' FROM a WHERE n < 0");
    assert_eq!(world.answer(&endless).await, SqlAnswer::TimedOut);
}

#[tokio::test]
async fn an_answer_has_bounds() {
    let world = two_tenants().await;
    let too_large = [
        format!("{ENDLESS} SELECT n FROM a"),
        format!("{ENDLESS} SELECT hex(zeroblob(100000)) FROM a"),
        "SELECT length(replace(hex(zeroblob(10000000)), '0', '00'))".into(),
    ];
    for text in too_large {
        assert_eq!(world.answer(&text).await, SqlAnswer::TimedOut, "{text}");
    }
    let depth = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(world.bad(&depth).await.starts_with("Parse error: "));
    let compound = vec!["SELECT 1"; 500].join(" UNION ALL ");
    assert!(world.bad(&compound).await.contains("too many terms"));
}

#[tokio::test]
async fn the_memory_of_a_query_is_bounded_and_others_are_not_disturbed() {
    let world = two_tenants().await;
    let values = vec!["randomblob(10000000)"; 30].join(", ");
    let told = world.bad(&format!("SELECT max({values})")).await;
    assert!(told.contains("bytes of memory"), "{told}");
    let many = format!("INSERT INTO jobs (name, data) SELECT 'x', max({values})");
    assert!(world.failed(&many).await.contains("bytes of memory"));
    world
        .check("SELECT length(max(randomblob(10000000), randomblob(10000000)))", &["10000000"])
        .await;
    assert_eq!(world.changes("INSERT INTO jobs (name) VALUES ('a')").await, 1);
    for text in ["SELECT json_group_array(jobID) FROM jobs", "SELECT json_patch('{}', '{}')"] {
        assert!(world.bad(text).await.contains("not authorized"), "{text}");
    }
}

#[tokio::test]
async fn no_call_of_a_function_compares_for_ever() {
    let world = two_tenants().await;
    let text = "hex(zeroblob(4000000))";
    let zeros = "0".repeat(9000);
    for operator in [format!("LIKE '%{zeros}1'"), format!("GLOB '*{zeros}1'")] {
        let told = world.bad(&format!("SELECT {text} {operator}")).await;
        assert!(told.contains("too many comparisons"), "{told}");
    }
    world.check(&format!("SELECT {text} LIKE '%1%', {text} GLOB '*0'"), &["0|1"]).await;
}

#[tokio::test]
async fn more_queries_than_are_answered_at_once_wait_for_their_turn() {
    let world = std::sync::Arc::new(two_tenants().await);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let world = world.clone();
        asked.spawn(async move { world.rows("SELECT COUNT(*) FROM jobs").await });
    }
    assert!(asked.join_all().await.iter().all(|rows| rows == &["2"]));
}

#[tokio::test]
async fn a_closed_store_answers_no_queries() {
    let world = two_tenants().await;
    world.store.close().await;
    let ask = world.ask("SELECT 1");
    assert!(matches!(world.asked(ask).await, Err(Error::Unavailable(_))));
    assert_consistent(&world.path);
}

#[tokio::test]
async fn another_process_that_writes_does_not_disturb_reads_and_makes_writes_unavailable() {
    let world = World::with(|options| options.busy_timeout = Duration::from_millis(20));
    world.changes("INSERT INTO jobs (name) VALUES ('a')").await;
    let conn = rusqlite::Connection::open(&world.path).unwrap();
    conn.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET value = value").unwrap();
    world.check("SELECT COUNT(*) FROM jobs", &["1"]).await;
    let ask = world.ask("DELETE FROM jobs WHERE 1");
    let refused = world.asked(ask).await;
    assert!(matches!(&refused, Err(Error::Unavailable(m)) if m.contains("lock")), "{refused:?}");
    conn.execute_batch("ROLLBACK").unwrap();
    assert_eq!(world.changes("DELETE FROM jobs WHERE 1").await, 1);
    assert_eq!(world.store.job_get(&tenant(), id(1000)).await.unwrap(), None);
}
