//! What the table `jobs` shows.

use std::time::Duration;

use windlass_bedrock_rules::column::COLUMNS;
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::store::prelude::*;
use windlass_core::store::sql::{SqlAnswer, SqlValue};
use windlass_core::store::{Durability, EndRequest};
use windlass_core::{Extra, NewJob, Payload, Priority, Timestamp};

use super::common::{NOW, claim, done, id, insert, job, tenant};
use super::{KEEP, NOW_TEXT, World, named, with_data};

#[tokio::test]
async fn all_columns_are_there_in_bedrocks_order() {
    let run_at = NOW + Duration::from_millis(90_007);
    let created_at = NOW + Duration::from_millis(999);
    let plain = NewJob { run_at, created_at, ..with_data(7, r#"{"a":"ä"}"#) };
    let world = World::holding([plain]).await;
    let SqlAnswer::Rows { columns, rows } = world.answer("SELECT * FROM jobs;").await else {
        panic!("rows are expected");
    };
    assert_eq!(columns, COLUMNS);
    let text = |text: &str| SqlValue::Text(text.into());
    let expected = vec![
        text(NOW_TEXT),
        SqlValue::Integer(7),
        text("QUEUED"),
        text("t"),
        text("2027-01-15 08:01:30.007"),
        SqlValue::Null,
        text(""),
        text(r#"{"a":"ä"}"#),
        SqlValue::Integer(500),
        SqlValue::Integer(0),
        text(""),
    ];
    assert_eq!(rows, [expected]);
}

#[tokio::test]
async fn every_millisecond_is_shown_as_it_is() {
    let times = [0, 1, 999, 1_800_000_000_001, 1_800_000_000_999, 253_402_300_799_999];
    let jobs = (1..).zip(times).map(|(number, ms)| NewJob { run_at: Timestamp(ms), ..job(number) });
    let world = World::holding(jobs).await;
    let expected = [
        "1970-01-01 00:00:00.000",
        "1970-01-01 00:00:00.001",
        "1970-01-01 00:00:00.999",
        "2027-01-15 08:00:00.001",
        "2027-01-15 08:00:00.999",
        "9999-12-31 23:59:59.999",
    ];
    world.check("SELECT nextRun FROM jobs ORDER BY jobID", &expected).await;
}

#[tokio::test]
async fn what_only_few_jobs_have_is_shown() {
    let extra = Extra {
        repeat: Some("SCHEDULED, +1 DAY".into()),
        door_text: Some("+5 minutes".into()),
        run_at_text: Some("2027-01-15 08:00:00".into()),
        order_key: -1,
        lent: false,
        hidden: true,
    };
    let jobs = [NewJob { extra, ..named(1, "a") }, named(2, "a")];
    let world = World::holding(jobs).await;
    let expected =
        ["2027-01-15 08:00:00|SCHEDULED, +1 DAY|+5 minutes", "2027-01-15 08:00:00.000||"];
    world.check("SELECT nextRun, repeat, retryAfter FROM jobs ORDER BY jobID", &expected).await;
}

#[tokio::test]
async fn states_have_bedrocks_names() {
    let lent = Extra { lent: true, ..Extra::default() };
    let jobs = [
        job(1),
        NewJob { priority: Priority::new(0).unwrap(), ..job(2) },
        NewJob { paused: true, parent: Some(id(1)), ..named(3, "x") },
        NewJob { extra: lent, ..named(4, "x") },
    ];
    let world = World::holding(jobs).await;
    assert_eq!(claim(&world.store, 1).await[0].job.id, id(1));
    let expected = [
        "1|RUNNING|2027-01-15 08:00:00|0",
        "2|QUEUED|NULL|0",
        "3|PAUSED|NULL|1",
        "4|RUNQUEUED|NULL|0",
    ];
    let all = "SELECT jobID, state, lastRun, parentJobID FROM jobs ORDER BY jobID";
    world.check(all, &expected).await;
}

#[tokio::test]
async fn a_job_that_ended_is_there_only_as_a_child_or_failed() {
    let child = NewJob { parent: Some(id(1)), paused: true, ..named(3, "child") };
    let world = World::holding([job(1), job(2), child, named(4, "alone")]).await;
    let claimed = claim(&world.store, 1).await;
    world.store.job_settle([done(&claimed[0])].into(), Durability::Relaxed).await.unwrap();
    for number in [3, 4] {
        let end = EndRequest { tenant: tenant(), id: id(number), keep: KEEP };
        world.store.job_cancel(end).await.unwrap();
    }
    world.check("SELECT jobID, state FROM jobs WHERE name = 'alone'", &[]).await;
    world.check("SELECT jobID, state FROM jobs WHERE jobID = 4", &[]).await;
    world.check("SELECT state FROM jobs WHERE jobID = 3", &["CANCELLED"]).await;
    world.check("SELECT COUNT(*) FROM jobs WHERE state = 'FINISHED'", &["0"]).await;
}

#[tokio::test]
async fn queries_are_answered_as_sqlite_answers_them() {
    let late = NewJob { run_at: NOW + Duration::from_secs(60), ..with_data(5, r#"{"x":{"y":3}}"#) };
    let jobs = [
        named(1, "www-prod/a"),
        named(2, "www-prod/b"),
        named(3, "manual/a"),
        with_data(4, r#"{"x":1}"#),
        late,
    ];
    let world = World::holding(jobs).await;
    let cases: [(&str, &[&str]); 16] = [
        ("SELECT COUNT(*) FROM jobs", &["5"]),
        ("SELECT count(*) FROM jobs WHERE name GLOB 'www-prod/*'", &["2"]),
        ("SELECT DISTINCT state FROM jobs", &["QUEUED"]),
        ("SELECT jobID FROM jobs WHERE jobID IN (1, 3, 9) ORDER BY 1 DESC", &["3", "1"]),
        ("SELECT jobID FROM jobs WHERE name = 'manual/a'", &["3"]),
        ("SELECT jobID FROM jobs WHERE jobID = '3'", &["3"]),
        ("SELECT jobID FROM jobs WHERE name LIKE 'MANUAL%'", &["3"]),
        ("SELECT JSON_EXTRACT(data, '$.x') FROM jobs WHERE jobID > 3", &["1", r#"{"y":3}"#]),
        ("SELECT jobID FROM jobs WHERE JSON_EXTRACT(data, '$.x.y') = 3", &["5"]),
        ("SELECT data ->> '$.x' FROM jobs WHERE jobID = 4", &["1"]),
        ("SELECT jobID FROM jobs WHERE nextRun > '2027-01-15 08:00:30'", &["5"]),
        ("SELECT datetime(created, '+1 HOUR') FROM jobs LIMIT 1", &["2027-01-15 09:00:00"]),
        ("SELECT strftime('%Y', nextRun), DATE(created) FROM jobs LIMIT 1", &["2027|2027-01-15"]),
        ("SELECT a.jobID, b.jobID FROM jobs a, jobs b ON a.jobID + 3 = b.jobID", &["1|4", "2|5"]),
        (
            "SELECT name, COUNT(*) AS n FROM jobs GROUP BY name HAVING n > 1 ORDER BY n, name;",
            &["t|2"],
        ),
        (
            "SELECT jobID FROM jobs WHERE parentJobID = '0' AND priority = '500' AND retryAfter = ''
                AND repeat = '' AND lastRun IS NULL AND created <= '2027-01-15 08:00:00' AND
                jobID = (SELECT MAX(jobID) FROM jobs)",
            &["5"],
        ),
    ];
    for (text, expected) in cases {
        world.check(text, expected).await;
    }
}

#[tokio::test]
async fn data_is_text_wherever_it_lies() {
    let sizes = [0, 10, 5000, PAYLOAD_INLINE_BYTES_MAX - 2];
    let text = |bytes: usize| format!("{:?}", "ä".repeat(bytes / 2));
    let jobs = (1..).zip(sizes).map(|(number, bytes)| with_data(number, &text(bytes)));
    let world = World::holding(jobs).await;
    let mut pieces = with_data(5, &text(2 * PAYLOAD_INLINE_BYTES_MAX));
    for (index, piece) in (0..).zip(pieces.split_payload()) {
        world
            .store
            .payload_put(vec![windlass_core::store::Piece { id: id(5), index, bytes: piece }])
            .await
            .unwrap();
    }
    let empty = with_data(6, "");
    let not_text = NewJob { payload: Payload::Inline(vec![b'a', 0xff].into()), ..job(7) };
    let jobs = insert(vec![pieces, empty, not_text], Durability::Relaxed);
    world.store.job_insert(jobs).await.unwrap();
    for (number, bytes) in (1..).zip(sizes.into_iter().chain([2 * PAYLOAD_INLINE_BYTES_MAX])) {
        let shown = world.rows(&format!("SELECT data FROM jobs WHERE jobID = {number}")).await;
        assert!(shown == [text(bytes)], "{bytes} bytes");
    }
    world.check("SELECT typeof(data), data FROM jobs WHERE jobID = 6", &["text|{}"]).await;
    world.check("SELECT data FROM jobs WHERE jobID = 7", &["a\u{fffd}"]).await;
}

#[tokio::test]
async fn the_rows_are_those_of_the_last_statement_that_has_any() {
    let world = World::holding([job(1)]).await;
    world.check("SELECT 1; SELECT jobID + 1 FROM jobs; -- done", &["2"]).await;
    let none = SqlAnswer::Rows { columns: vec![], rows: vec![] };
    assert_eq!(world.answer(" ; -- nothing").await, none);
    let empty = world.answer("SELECT jobid AS a FROM jobs WHERE 0").await;
    assert_eq!(empty, SqlAnswer::Rows { columns: vec!["a".into()], rows: vec![] });
}

#[tokio::test]
async fn a_wrong_statement_is_pointed_at() {
    let world = World::holding([job(1)]).await;
    let told = world.bad("SELECT * FORM jobs;").await;
    let expected = "Parse error: near \"FORM\": syntax error\n  SELECT * FORM jobs;\n  \
                    \x20        ^--- error here";
    assert_eq!(told, expected);
    let told = world.bad("SELECT 1; SELECT jobID, wrong FROM jobs").await;
    let expected = "Parse error: no such column: wrong\n  SELECT jobID, wrong FROM jobs\n  \
                    \x20             ^--- error here";
    assert_eq!(told, expected);
    let told = world.bad("SELECT * FROM elsewhere").await;
    let expected = "Parse error: no such table: elsewhere\n  SELECT * FROM elsewhere\n  \
                    \x20             ^--- error here";
    assert_eq!(told, expected);
    for text in ["SELECT", "nonsense", "SELECT 'open", "SELECT ((1)", "é"] {
        assert_eq!(world.bad(text).await.lines().count(), 3, "{text}");
    }
    let told = world.bad("SELECT JSON_EXTRACT('{', '$') FROM jobs").await;
    assert_eq!(told, "Runtime error: malformed JSON");
    world.bad("SELECT 1\0").await;
    world.bad(&format!("SELECT '{}'", "a".repeat(1024 * 1024))).await;
}
