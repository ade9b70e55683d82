//! Rows stay ours while their lease is renewed, are handed back, and are recovered from lost
//! workers.

use crate::table::{Interrupted, Origin, Recovered, Row};

use crate::table::tests::harness::{LEASE, NO_LEASE, NOBODY, World, end, everywhere, ids, names};

everywhere! {
    handed_back_rows_are_what_they_were
    running_rows_are_not_handed_back
    a_renewed_row_is_not_recovered
    lost_rows_wait_again_or_fail
    lost_rows_run_again_when_asked
    rows_that_we_hold_are_not_recovered
    marks_without_a_row_to_mend_go
    two_recover_at_once
    a_row_that_was_reset_by_hand_is_its_new_owners
    more_is_recovered_call_by_call
}

async fn handed_back_rows_are_what_they_were(world: World) {
    world.add("waiting", &["a"]);
    world.add("manual", &["a"]);
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    worker.accept_manual(&[2], &names(&["a"]), LEASE).await.unwrap();
    let manual = Row { id: 2, target: "a".into(), origin: Origin::Manual };
    worker.hand_back(&[manual, fetched.rows[0].clone()]).await.unwrap();
    assert_eq!((world.status(1), world.status(2)), ("waiting".into(), "manual".into()));
    assert_eq!(world.marks(), "");
    worker.hand_back(&[]).await.unwrap();
}

async fn running_rows_are_not_handed_back(world: World) {
    world.add("waiting", &["a"]);
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    worker.start(&[1], 1).await.unwrap();
    worker.hand_back(&fetched.rows).await.unwrap();
    assert_eq!(world.status(1), "running");
    assert_eq!(worker.finish(&[end(1)]).await.unwrap(), []);
}

async fn a_renewed_row_is_not_recovered(world: World) {
    world.add("waiting", &["a", "a"]);
    let (worker, other) = (world.worker("w"), world.worker("other"));
    worker.fetch(&names(&["a"]), 2, NO_LEASE).await.unwrap();
    assert_eq!(worker.renew(&[2], LEASE).await.unwrap(), NOBODY);
    let recovered = other.recover(&[], Interrupted::Fail, 5, "lost").await.unwrap();
    assert_eq!(recovered.back, [Row { id: 1, target: "a".into(), origin: Origin::Waiting }]);
    assert_eq!(world.status(2), "accepted");
    assert_eq!(worker.renew(&[2, 1], LEASE).await.unwrap(), [1]);
    assert_eq!(worker.renew(&[], LEASE).await.unwrap(), NOBODY);
}

async fn lost_rows_wait_again_or_fail(world: World) {
    world.add("waiting", &["a", "a"]);
    world.add("manual", &["b"]);
    let (lost, other) = (world.worker("lost"), world.worker("other"));
    lost.fetch(&names(&["a"]), 2, NO_LEASE).await.unwrap();
    lost.accept_manual(&[3], &names(&["b"]), NO_LEASE).await.unwrap();
    lost.start(&[2], 1).await.unwrap();
    let recovered = other.recover(&[], Interrupted::Fail, 77, "the worker was lost").await.unwrap();
    let wanted = Recovered {
        back: vec![
            Row { id: 1, target: "a".into(), origin: Origin::Waiting },
            Row { id: 3, target: "b".into(), origin: Origin::Manual },
        ],
        failed: vec![2],
        more: false,
    };
    assert_eq!(recovered, wanted);
    assert_eq!([1, 2, 3].map(|id| world.status(id)), ["waiting", "done", "manual"]);
    assert_eq!(
        (world.one("result", 2), world.one("time_finished", 2)),
        ("fail".into(), "77".into())
    );
    assert_eq!(world.one("stderr", 2), "the worker was lost");
    assert_eq!(world.marks(), "");
    let nothing = other.recover(&[], Interrupted::Fail, 78, "again").await.unwrap();
    assert_eq!(nothing, Recovered::default());
}

async fn lost_rows_run_again_when_asked(world: World) {
    world.add("waiting", &["a"]);
    let (lost, other) = (world.worker("lost"), world.worker("other"));
    lost.fetch(&names(&["a"]), 1, NO_LEASE).await.unwrap();
    lost.start(&[1], 9).await.unwrap();
    let recovered = other.recover(&[], Interrupted::Retry, 77, "lost").await.unwrap();
    assert_eq!((recovered.back.len(), recovered.failed.len()), (1, 0));
    assert_eq!((world.status(1), world.one("result", 1)), ("waiting".into(), "NULL".into()));
    assert_eq!(world.one("time_started", 1), "0");
    let fetched = other.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(ids(&fetched), [1]);
}

async fn rows_that_we_hold_are_not_recovered(world: World) {
    world.add("waiting", &["a", "a"]);
    let worker = world.worker("w");
    worker.fetch(&names(&["a"]), 2, NO_LEASE).await.unwrap();
    let recovered = worker.recover(&[1], Interrupted::Fail, 5, "lost").await.unwrap();
    assert_eq!(recovered.back, [Row { id: 2, target: "a".into(), origin: Origin::Waiting }]);
    assert_eq!(worker.start(&[1], 1).await.unwrap(), [1]);
}

async fn marks_without_a_row_to_mend_go(world: World) {
    world.add("waiting", &["a", "a", "a"]);
    let (lost, other) = (world.worker("lost"), world.worker("other"));
    lost.fetch(&names(&["a"]), 3, NO_LEASE).await.unwrap();
    world.sql("DELETE FROM jobs WHERE id = 1");
    world.sql("UPDATE jobs SET status = 'ignored' WHERE id = 2");
    world.sql("UPDATE jobs SET status = 'done' WHERE id = 3");
    let recovered = other.recover(&[], Interrupted::Fail, 5, "lost").await.unwrap();
    assert_eq!(recovered, Recovered::default());
    assert_eq!(world.marks(), "");
    assert_eq!((world.status(2), world.status(3)), ("ignored".into(), "done".into()));
}

async fn two_recover_at_once(world: World) {
    world.add("waiting", &["a"; 300]);
    let (lost, one, two) = (world.worker("lost"), world.worker("one"), world.worker("two"));
    lost.fetch(&names(&["a"]), 300, NO_LEASE).await.unwrap();
    let running: Vec<u64> = (1..=150).collect();
    lost.start(&running, 1).await.unwrap();
    let (first, second) = tokio::join!(
        one.recover(&[], Interrupted::Fail, 5, "lost"),
        two.recover(&[], Interrupted::Fail, 5, "lost")
    );
    let last = one.recover(&[], Interrupted::Fail, 5, "lost").await.unwrap();
    let all = [first.unwrap(), second.unwrap(), last];
    assert_eq!(all.iter().map(|some| some.back.len()).sum::<usize>(), 150);
    assert_eq!(all.iter().map(|some| some.failed.len()).sum::<usize>(), 150);
    assert_eq!(world.marks(), "");
}

/// Resetting `accepted` to `waiting` by hand takes the row from the worker that has it.
async fn a_row_that_was_reset_by_hand_is_its_new_owners(world: World) {
    world.add("waiting", &["a"]);
    let (old, new) = (world.worker("old"), world.worker("new"));
    old.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    world.sql("UPDATE jobs SET status = 'waiting'");
    let fetched = new.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(ids(&fetched), [1]);
    assert_eq!(old.start(&[1], 1).await.unwrap(), NOBODY);
    assert_eq!(new.start(&[1], 1).await.unwrap(), [1]);
}

async fn more_is_recovered_call_by_call(world: World) {
    world.add("waiting", &["a"; 1100]);
    let (lost, other) = (world.worker("lost"), world.worker("other"));
    lost.fetch(&names(&["a"]), 2000, NO_LEASE).await.unwrap();
    let mut back = 0;
    loop {
        let recovered = other.recover(&[], Interrupted::Fail, 5, "lost").await.unwrap();
        back += recovered.back.len();
        if !recovered.more {
            break;
        }
    }
    assert_eq!(back, 1100);
}
