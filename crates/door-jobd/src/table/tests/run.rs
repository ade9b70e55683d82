//! Jobs start and end, several in a transaction.

use crate::table::{End, Unwritten};

use crate::table::tests::harness::{
    LEASE, NO_LEASE, NOBODY, World, end, everywhere, names, output,
};

everywhere! {
    a_job_is_started_and_ends
    every_kind_of_end_is_written
    many_end_at_once
    what_is_not_ours_is_not_started_nor_written
    writing_an_end_twice_is_harmless
    deleted_rows_are_not_run
}

async fn a_job_is_started_and_ends(world: World) {
    world.add("waiting", &["a"]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(worker.start(&[1], 1_600_000_000).await.unwrap(), [1]);
    assert_eq!((world.status(1), world.one("result", 1)), ("running".into(), "ok".into()));
    assert_eq!(world.one("time_started", 1), "1600000000");
    assert_eq!(world.one("time_finished", 1), "0");

    let done = End { stdout: output(b"out\n"), stderr: output(b"err\n"), ..end(1) };
    assert_eq!(worker.finish(&[done]).await.unwrap(), []);
    assert_eq!((world.status(1), world.one("result", 1)), ("done".into(), "ok".into()));
    assert_eq!(world.one("time_finished", 1), "1700000000");
    assert_eq!((world.one("return_code", 1), world.one("sig", 1)), ("0".into(), "NULL".into()));
    assert_eq!((world.one("stdout", 1), world.one("stderr", 1)), ("out\n".into(), "err\n".into()));
    assert_eq!(world.marks(), "");
}

async fn every_kind_of_end_is_written(world: World) {
    world.add("waiting", &["a"; 3]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 3, LEASE).await.unwrap();
    worker.start(&[1, 2, 3], 1).await.unwrap();
    let ends = [
        End { ok: false, code: Some(7), ..end(1) },
        End { ok: false, code: None, signal: Some("SIGKILL".into()), ..end(2) },
        End { ok: false, code: None, note: Some("it could not be started".into()), ..end(3) },
    ];
    assert_eq!(worker.finish(&ends).await.unwrap(), []);
    let field = |column: &str| [1, 2, 3].map(|id| world.one(column, id));
    assert_eq!(field("result"), ["fail", "fail", "fail"]);
    assert_eq!(field("return_code"), ["7", "NULL", "NULL"]);
    assert_eq!(field("sig"), ["NULL", "SIGKILL", "NULL"]);
    assert_eq!(field("stderr"), ["", "", "it could not be started"]);
}

async fn many_end_at_once(world: World) {
    const ROWS: u64 = 700;
    world.add("waiting", &["a"; ROWS as usize]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 1000, LEASE).await.unwrap();
    let ids: Vec<u64> = (1..=ROWS).rev().collect();
    let mut started = worker.start(&ids, 1).await.unwrap();
    started.reverse();
    assert_eq!(started, ids);
    let ends: Vec<End> = ids
        .iter()
        .map(|id| if id % 3 == 0 { End { stdout: output(b"x"), ..end(*id) } } else { end(*id) })
        .collect();
    assert_eq!(worker.finish(&ends).await.unwrap(), []);
    assert!(world.statuses().iter().all(|(_, status)| status == "done"));
    let third = world.sql("SELECT COUNT(*) FROM jobs WHERE stdout = 'x' AND id % 3 = 0");
    assert_eq!(third.trim(), (ROWS / 3).to_string());
    let all = world.sql("SELECT COUNT(*) FROM jobs WHERE stdout = 'x'");
    assert_eq!(all, third);
}

/// Another worker has recovered the rows of a worker that seemed lost.
async fn what_is_not_ours_is_not_started_nor_written(world: World) {
    world.add("waiting", &["a", "a"]);
    let (slow, other) = (world.worker("slow"), world.worker("other"));
    slow.fetch(&names(&["a"]), 2, NO_LEASE).await.unwrap();
    slow.start(&[1], 1).await.unwrap();
    other.recover(&[], Default::default(), 5, "lost").await.unwrap();
    assert_eq!(slow.start(&[2], 1).await.unwrap(), NOBODY);
    assert_eq!(slow.finish(&[end(1)]).await.unwrap(), [Unwritten::Lost(1)]);
    assert_eq!((world.status(1), world.one("stderr", 1)), ("done".into(), "lost".into()));
    assert_eq!(world.status(2), "waiting");
    assert_eq!(slow.renew(&[1, 2], LEASE).await.unwrap(), [1, 2]);
}

async fn writing_an_end_twice_is_harmless(world: World) {
    world.add("waiting", &["a"]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(worker.start(&[1], 1).await.unwrap(), [1]);
    assert_eq!(worker.start(&[1], 1).await.unwrap(), [1]);
    let done = End { stdout: output(b"once"), ..end(1) };
    assert_eq!(worker.finish(std::slice::from_ref(&done)).await.unwrap(), []);
    assert_eq!(worker.finish(&[done]).await.unwrap(), []);
    assert_eq!(world.one("stdout", 1), "once");
}

async fn deleted_rows_are_not_run(world: World) {
    world.add("waiting", &["a", "a"]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 2, LEASE).await.unwrap();
    world.sql("DELETE FROM jobs WHERE id = 1");
    assert_eq!(worker.start(&[1, 2], 1).await.unwrap(), [2]);
    world.sql("DELETE FROM jobs WHERE id = 2");
    assert_eq!(worker.finish(&[end(2)]).await.unwrap(), [Unwritten::Lost(2)]);
    assert_eq!(worker.start(&[], 1).await.unwrap(), NOBODY);
    assert_eq!(worker.finish(&[]).await.unwrap(), []);
}
