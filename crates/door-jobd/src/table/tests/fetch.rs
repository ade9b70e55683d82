//! Waiting rows are accepted: in order, within limits, each by one worker.

use std::collections::HashSet;

use crate::table::{Origin, Row};

use crate::table::tests::harness::{LEASE, World, everywhere, ids, names};

everywhere! {
    rows_come_in_the_order_of_their_ids
    the_limit_holds_over_all_targets
    only_waiting_rows_of_the_targets_are_taken
    accepted_rows_are_marked
    nothing_is_found_in_an_empty_table
    many_targets_are_looked_up
    workers_share_a_table
    targets_may_have_any_characters
}

async fn rows_come_in_the_order_of_their_ids(world: World) {
    world.add("waiting", &["b", "a", "b", "a"]);
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a", "b"]), 100, LEASE).await.unwrap();
    let row = |id, target: &str| Row { id, target: target.into(), origin: Origin::Waiting };
    assert_eq!(fetched.rows, [row(1, "b"), row(2, "a"), row(3, "b"), row(4, "a")]);
    assert!(!fetched.more && fetched.ignored.is_empty());
    assert!(world.statuses().iter().all(|(_, status)| status == "accepted"));
}

async fn the_limit_holds_over_all_targets(world: World) {
    world.add("waiting", &["a", "a", "a", "b", "a"]);
    let worker = world.worker("w");
    let targets = names(&["a", "b"]);
    let first = worker.fetch(&targets, 2, LEASE).await.unwrap();
    assert_eq!((ids(&first), first.more), (vec![1, 2], true));
    let second = worker.fetch(&targets, 2, LEASE).await.unwrap();
    assert_eq!((ids(&second), second.more), (vec![3, 4], true));
    let third = worker.fetch(&targets, 2, LEASE).await.unwrap();
    assert_eq!((ids(&third), third.more), (vec![5], false));
    let none = worker.fetch(&targets, 0, LEASE).await.unwrap();
    assert!(none.rows.is_empty());
}

async fn only_waiting_rows_of_the_targets_are_taken(world: World) {
    for status in ["manual", "accepted", "running", "done", "ignored", "waiting"] {
        world.add(status, &["a"]);
    }
    world.add("waiting", &["other"]);
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a"]), 100, LEASE).await.unwrap();
    assert_eq!(ids(&fetched), [6]);
    assert_eq!(world.status(7), "waiting");
    assert_eq!(world.status(1), "manual");
}

async fn accepted_rows_are_marked(world: World) {
    world.add("waiting", &["a", "a"]);
    let worker = world.worker("it's \\me");
    worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
    assert_eq!(world.marks(), "1\tit_s _me\twaiting\n");
}

async fn nothing_is_found_in_an_empty_table(world: World) {
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a"]), 100, LEASE).await.unwrap();
    assert!(fetched.rows.is_empty() && !fetched.more);
    let fetched = worker.fetch(&[], 100, LEASE).await.unwrap();
    assert!(fetched.rows.is_empty() && !fetched.more);
}

async fn many_targets_are_looked_up(world: World) {
    let targets: Vec<String> = (0..170).map(|number| format!("t{number}")).collect();
    let reversed: Vec<&str> = targets.iter().rev().map(String::as_str).collect();
    world.add("waiting", &reversed);
    let worker = world.worker("w");
    let fetched = worker.fetch(&targets, 120, LEASE).await.unwrap();
    assert_eq!(ids(&fetched), (1..=120).collect::<Vec<u64>>());
}

/// Four workers empty the table together; every row is accepted by exactly one, and `more` never
/// lets a worker stop while unclaimed rows wait.
async fn workers_share_a_table(world: World) {
    const ROWS: usize = 1200;
    let targets = ["a", "b", "c"];
    let all: Vec<&str> = (0..ROWS).map(|number| targets[number % 3]).collect();
    world.add("waiting", &all);
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..4 {
        let worker = world.worker(&format!("w{number}"));
        workers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let fetched = worker.fetch(&names(&["a", "b", "c"]), 7, LEASE).await.unwrap();
                taken.extend(ids(&fetched));
                if !fetched.more {
                    break taken;
                }
            }
        });
    }
    let taken: Vec<u64> = workers.join_all().await.concat();
    let distinct: HashSet<u64> = taken.iter().copied().collect();
    assert_eq!((taken.len(), distinct.len()), (ROWS, ROWS));
    assert_eq!(world.marks().lines().count(), ROWS, "every worker has marks");
}

async fn targets_may_have_any_characters(world: World) {
    world.add("waiting", &["1/high", "größe", "a\"b%", "plain"]);
    let worker = world.worker("w");
    let targets = names(&["1/high", "größe", "a\"b%", "\u{1F600}", "it's"]);
    let fetched = worker.fetch(&targets, 100, LEASE).await.unwrap();
    assert_eq!(ids(&fetched), [1, 2, 3]);
}

/// MySQL compares without regard to case.
#[tokio::test]
async fn another_spelling_is_ignored() {
    let world = World::mysql();
    world.add("waiting", &["LOW", "low", "Low"]);
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["low"]), 3, LEASE).await.unwrap();
    assert_eq!((ids(&fetched), fetched.ignored), (vec![2], vec![1, 3]));
    let statuses = world.statuses().into_iter().map(|(_, status)| status);
    assert_eq!(statuses.collect::<Vec<_>>(), ["ignored", "accepted", "ignored"]);
}

/// A long backlog is read by the index, not from its beginning.
#[tokio::test]
async fn candidates_are_found_by_the_index() {
    let world = World::mysql();
    let many = vec!["größe"; 3000];
    world.add("done", &many);
    world.add("waiting", &many);
    world.sql("ANALYZE TABLE jobs");
    let plan = world.sql(
        "SET NAMES utf8mb4; EXPLAIN SELECT id FROM jobs WHERE status = 'waiting' AND \
         target = 'größe' AND id > 0 ORDER BY id LIMIT 100",
    );
    assert!(plan.contains("status_target_idx") && !plan.contains("filesort"), "{plan}");
}

/// Other sessions may lock a row for long; the other rows are fetched meanwhile, and that one
/// later.
#[tokio::test]
async fn rows_that_others_lock_are_passed_over() {
    let world = World::mysql();
    world.add("waiting", &["a", "a", "a"]);
    let storage = mysql_async::Opts::from_url(&world.url()).unwrap();
    let mut other = mysql_async::Conn::new(storage).await.unwrap();
    use mysql_async::prelude::Queryable;
    other.query_drop("START TRANSACTION").await.unwrap();
    other.query_drop("SELECT id FROM jobs WHERE id = 2 FOR UPDATE").await.unwrap();
    let worker = world.worker("w");
    let fetched = worker.fetch(&names(&["a"]), 3, LEASE).await.unwrap();
    assert_eq!((ids(&fetched), fetched.more), (vec![1, 3], true));
    other.query_drop("ROLLBACK").await.unwrap();
    let fetched = worker.fetch(&names(&["a"]), 3, LEASE).await.unwrap();
    assert_eq!((ids(&fetched), fetched.more), (vec![2], false));
}
