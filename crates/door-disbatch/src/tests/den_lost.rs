//! A complete node whose requests and answers are lost, held back, delivered late or refused.

use std::sync::atomic::Ordering;

use crate::database::{Cancelled, Run};
use crate::dialect::Dialect;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};
use windlass_test_kit::wait::in_time;

use crate::tests::harness::{BOTH, insert, task};
use crate::tests::harness_den::{GATED, GOOD, World};
use crate::tests::proxy::{Command, Fate};

fn is_claim(it: &Command) -> bool {
    it.is_on("findAndModify", "tasks") && it.mentions("windlass.run")
}

fn is_start(it: &Command) -> bool {
    it.is_on("update", "tasks") && it.mentions("windlass.started")
}

/// It may still be made: until its outcome is known, it counts against every limit.
#[tokio::test]
async fn a_claim_that_arrives_late_passes_no_limit() {
    for dialect in BOTH {
        let world = World::new(dialect, GOOD).await;
        let queue = world.queue(1).await;
        let tasks = world.tasks(&queue, 2).await;
        let late = world.proxy.next(Fate::Late, is_claim);
        world.start();
        late.met().await;
        world.passes(3).await;
        for id in &tasks {
            assert_eq!(world.status(*id).await, -2, "{dialect:?}: the place is not free");
        }
        late.release();
        late.delivered().await;
        assert!(world.active().await <= 1);
        for id in &tasks {
            world.reaches(*id, 1).await;
        }
        assert_eq!(world.ran().len(), 2);
        let free = async || world.read_queue(queue.id).await.holds.is_empty();
        world.until("no hold is left", free).await;
    }
}

/// Both tasks have the token of one run.
#[tokio::test]
async fn a_claim_that_is_carried_out_twice_keeps_no_task_from_running() {
    for dialect in BOTH {
        let world = World::new(dialect, GATED).await;
        let queue = world.queue(2).await;
        let tasks = world.tasks(&queue, 2).await;
        let twice = world.proxy.next(Fate::Twice, is_claim);
        world.start();
        twice.met().await;
        for id in &tasks {
            world.began(*id).await;
        }
        for id in &tasks {
            world.open(*id);
            world.reaches(*id, 1).await;
        }
        assert_eq!(world.ran().len(), 2, "{dialect:?}");
    }
}

/// The claim succeeded, but it is unknown whether it is within the limit.
#[tokio::test]
async fn a_claim_that_could_not_be_checked_is_given_back_and_made_again() {
    let world = World::new(Dialect::Released, GOOD).await;
    let queue = world.queue(1).await;
    let id = world.tasks(&queue, 1).await[0];
    let lost = world
        .proxy
        .next(Fate::Lose, move |it| it.is_on("find", "queues") && it.mentions(queue.id.bytes()));
    world.start();
    lost.met().await;
    world.reaches(id, 1).await;
    assert_eq!(world.ran(), [id]);
}

/// It counts against the limit while the database shows it as ours.
#[tokio::test]
async fn a_task_that_cannot_be_given_back_keeps_its_hold() {
    let world = World::new(Dialect::Released, GOOD).await;
    let queue = world.queue(1).await;
    let id = world.tasks(&queue, 1).await[0];
    let lost = world.proxy.each(Fate::Lose, |it| it.is_on("update", "tasks"));
    let node = world.start();
    lost.met().await;
    world.stop.asked.cancel();
    world.stop.now.cancel();
    node.await.unwrap().unwrap();
    let claimed = world.task(id).await;
    assert_eq!((claimed.get_i32("status").unwrap(), world.ran().len()), (-1, 0));
    let holds = world.read_queue(queue.id).await.holds;
    let tokens: Vec<&str> = holds.iter().map(|hold| hold.id.as_str()).collect();
    assert_eq!(tokens, [Run::of(&claimed).unwrap().token]);
}

#[tokio::test]
async fn a_task_whose_end_could_not_be_written_keeps_its_hold() {
    let world = World::new(Dialect::Released, GATED).await;
    let queue = world.queue(1).await;
    let id = world.tasks(&queue, 1).await[0];
    let node = world.start();
    world.began(id).await;
    let lost = world.proxy.each(Fate::Lose, |it| it.is_on("findAndModify", "tasks"));
    world.open(id);
    lost.met().await;
    world.stop.asked.cancel();
    world.stop.now.cancel();
    node.await.unwrap().unwrap();
    let running = world.task(id).await;
    assert_eq!(running.get_i32("status").unwrap(), 0);
    let holds = world.read_queue(queue.id).await.holds;
    let tokens: Vec<&str> = holds.iter().map(|hold| hold.id.as_str()).collect();
    assert_eq!(tokens, [Run::of(&running).unwrap().token]);
}

/// Nothing of it runs any more, so there is no need to wait until the node counts as dead.
#[tokio::test]
async fn a_task_whose_end_could_not_be_written_is_orphaned_when_the_node_leaves() {
    for dialect in BOTH {
        let world = World::new(dialect, GATED).await;
        let queue = world.queue(1).await;
        let id = world.tasks(&queue, 1).await[0];
        let node = world.start();
        world.began(id).await;
        let lost = world.proxy.each(Fate::Lose, |it| it.is_on("findAndModify", "tasks"));
        world.open(id);
        lost.met().await;
        let is_own = |it: &Command| it.is_on("find", "tasks") && it.mentions("windlass.boot");
        let pass = world.proxy.next(Fate::Hold, is_own);
        pass.met().await;
        let leaving = world.proxy.next(Fate::Hold, is_own);
        world.stop.asked.cancel();
        world.stop.now.cancel();
        leaving.met().await;
        lost.release();
        leaving.release();
        in_time("the node ends", node).await.unwrap().unwrap();
        let orphaned = world.task(id).await;
        assert_eq!(orphaned.get_i32("status").unwrap(), -6, "{dialect:?}: {orphaned}");
        assert!(world.read_queue(queue.id).await.holds.is_empty());
    }
}

/// They may have changed unnoticed.
#[tokio::test]
async fn nothing_is_claimed_by_the_limits_of_a_pass_that_is_long_ago() {
    let world = World::new(Dialect::Seed, GATED).await;
    let queue = world.queue(2).await;
    insert(&world.sure, "nodes", doc! { "node": "here", "maxthreads": 1 }).await;
    let tasks = world.tasks(&queue, 2).await;
    world.start();
    let began = |id: &&ObjectId| world.path(&format!("{id}.began")).exists();
    world.until("one begins", async || tasks.iter().any(|id| began(&id))).await;
    let first = *tasks.iter().find(began).unwrap();
    let second = *tasks.iter().find(|id| **id != first).unwrap();
    let refused = world.proxy.each(Fate::Refuse, |it| it.is_on("findAndModify", "nodes"));
    refused.met().await;
    world.sure.node_set_limit("here", Some(0)).await.unwrap();
    world.open(first);
    world.reaches(first, 1).await;
    refused.more(2).await;
    assert_eq!(world.status(second).await, -2);
    refused.release();
    world.passes(1).await;
    assert_eq!(world.status(second).await, -2);
    world.sure.node_set_limit("here", Some(1)).await.unwrap();
    world.began(second).await;
    world.open(second);
    world.reaches(second, 1).await;
}

/// Between marking the task as running and starting its program, others may have declared the node
/// dead.
#[tokio::test]
async fn nothing_is_launched_when_the_lease_is_over_since() {
    let world = World::new(Dialect::Released, GOOD).await;
    let queue = world.queue(1).await;
    let id = world.tasks(&queue, 1).await[0];
    let start = world.proxy.next(Fate::Hold, is_start);
    world.start();
    start.met().await;
    world.fence.over.store(true, Ordering::SeqCst);
    let back = world
        .proxy
        .next(Fate::Pass, |it| it.is_on("update", "tasks") && !it.mentions("windlass.started"));
    start.release();
    back.met().await;
    assert!(world.ran().is_empty(), "it is given back and was never started");
    world.fence.over.store(false, Ordering::SeqCst);
    world.reaches(id, 1).await;
    assert_eq!(world.ran(), [id]);
}

#[tokio::test]
async fn a_queue_whose_claims_are_refused_stops_no_other() {
    for dialect in BOTH {
        let world = World::new(dialect, GOOD).await;
        let (bad, good) = (world.queue(1).await, world.queue(1).await);
        let left = world.tasks(&bad, 1).await[0];
        let tasks = world.tasks(&good, 2).await;
        let refused =
            world.proxy.each(Fate::Refuse, move |it| is_claim(it) && it.mentions(bad.id.bytes()));
        world.start();
        refused.met().await;
        for id in tasks {
            world.reaches(id, 1).await;
        }
        assert_eq!(world.status(left).await, -2);
        refused.release();
        world.reaches(left, 1).await;
    }
}

#[tokio::test]
async fn a_waiting_task_that_is_refused_keeps_no_other_waiting() {
    let world = World::new(Dialect::Seed, GOOD).await;
    let queue = world.queue(1).await;
    let past = DateTime::from_millis(0);
    let waiting = doc! { "status": -4, "windlass": { "not_before": past } };
    let bad = task(&world.sure, queue.id, waiting.clone()).await;
    let good = task(&world.sure, queue.id, waiting).await;
    let refused = world
        .proxy
        .each(Fate::Refuse, move |it| it.is_on("update", "tasks") && it.mentions(bad.bytes()));
    world.start();
    refused.met().await;
    world.reaches(good, 1).await;
    assert_eq!(world.status(bad).await, -4);
}

/// Slow requests on a large database: counts, invalid tasks, waiting tasks.
#[tokio::test]
async fn slow_questions_keep_no_claim_no_cancel_and_no_dead_node_waiting() {
    let world = World::new(Dialect::Seed, GATED).await;
    let queue = world.queue(9).await;
    let questions: [fn(&Command) -> bool; 3] = [
        |it| it.is_on("aggregate", "tasks") && it.mentions("$queue") && it.mentions("$status"),
        |it| it.is_on("find", "tasks") && it.mentions("binData"),
        |it| it.is_on("find", "tasks") && it.mentions("windlass.not_before") && it.mentions("$lte"),
    ];
    let held = questions.map(|which| world.proxy.each(Fate::Hold, which));
    world.start_with(0.5, 3.0);
    for question in &held {
        question.met().await;
    }
    let first = world.tasks(&queue, 1).await[0];
    world.began(first).await;
    assert_eq!(world.sure.task_cancel(first, DateTime::now()).await.unwrap(), Cancelled::Asked);
    world.reaches(first, -5).await;
    let dead = doc! { "boot": "dead", "node": "dead", "beat": 1_i64, "run": "r" };
    insert(&world.sure, "nodes", doc! { "node": "dead", "windlass": dead.clone() }).await;
    let lost = doc! { "status": 0, "node": "dead", "windlass": dead };
    let lost = task(&world.sure, queue.id, lost).await;
    world.reaches(lost, -6).await;
    let second = world.tasks(&queue, 1).await[0];
    world.began(second).await;
    world.open(second);
    world.reaches(second, 1).await;
}

/// However large the backlog: a node that only claims would never notice silent nodes.
#[tokio::test]
async fn a_node_with_a_backlog_finds_a_dead_node() {
    for dialect in BOTH {
        let world = World::new(dialect, GOOD).await;
        let queue = world.queue(50).await;
        world.tasks(&queue, 1500).await;
        world.proxy.each(Fate::Slow, is_claim);
        world.start_with(0.5, 3.0);
        let dead = left_by(&world, "dead").await;
        world.reaches(dead, -6).await;
        let waits = world.sure.claimable(&queue).await.unwrap();
        assert!(waits, "{dialect:?}: it was found only when nothing was left to do");
    }
}

/// Although the database shows it as running, it was never started.
#[tokio::test]
async fn a_task_that_was_never_started_is_given_back_however_long_it_takes() {
    let world = World::new(Dialect::Seed, GOOD).await;
    let queue = world.queue(1).await;
    let id = world.tasks(&queue, 1).await[0];
    world.fence.over.store(true, Ordering::SeqCst);
    let lost = world
        .proxy
        .next(Fate::Lose, |it| it.is_on("update", "tasks") && !it.mentions("windlass.started"));
    world.start();
    lost.met().await;
    world.fence.over.store(false, Ordering::SeqCst);
    world.reaches(id, 1).await;
    assert_eq!(world.ran(), [id]);
}

/// A task of a dead node.
async fn left_by(world: &World, node: &str) -> ObjectId {
    let ours = doc! { "boot": format!("boot of {node}"), "node": node, "run": "r" };
    task(&world.sure, ObjectId::new(), doc! { "status": 0, "node": node, "windlass": ours }).await
}

#[tokio::test]
async fn a_dead_node_whose_tasks_cannot_be_orphaned_stops_no_other() {
    let world = World::new(Dialect::Seed, GOOD).await;
    let refused = world
        .proxy
        .each(Fate::Refuse, |it| it.is_on("update", "tasks") && it.mentions("boot of bad"));
    let bad = left_by(&world, "bad").await;
    world.start_with(0.5, 3.0);
    refused.met().await;
    let mut others = Vec::new();
    for node in ["a", "b", "c", "d", "e", "f"] {
        others.push(left_by(&world, node).await);
    }
    for id in others {
        world.reaches(id, -6).await;
    }
    assert_eq!(world.status(bad).await, 0);
    refused.release();
    world.reaches(bad, -6).await;
}

/// An unknown claim that cannot be released.
#[tokio::test]
async fn a_task_that_cannot_be_given_back_keeps_no_other_one_from_being_ended() {
    let world = World::new(Dialect::Released, GATED).await;
    let queue = world.queue(2).await;
    let tasks = world.tasks(&queue, 2).await;
    let lost = world.proxy.next(Fate::LoseAnswer, is_claim);
    let refused = world
        .proxy
        .each(Fate::Refuse, |it| it.is_on("update", "tasks") && !it.mentions("windlass.started"));
    world.start();
    lost.met().await;
    refused.met().await;
    let runs = async || tasks.iter().any(|id| world.path(&format!("{id}.began")).exists());
    world.until("the other one begins", runs).await;
    let began = |id: &&ObjectId| world.path(&format!("{id}.began")).exists();
    let running = *tasks.iter().find(began).unwrap();
    let stray = *tasks.iter().find(|id| **id != running).unwrap();
    world.sure.task_cancel(running, DateTime::now()).await.unwrap();
    world.reaches(running, -5).await;
    let claimed = world.task(stray).await;
    assert_eq!(claimed.get_i32("status").unwrap(), -1);
    // The other one's hold is dropped when its end is written.
    let token = Run::of(&claimed).unwrap().token;
    let kept = async || {
        let holds = world.read_queue(queue.id).await.holds;
        holds.iter().map(|hold| &hold.id).eq([&token])
    };
    world.until("only its own hold stays", kept).await;
    refused.release();
    world.began(stray).await;
    world.open(stray);
    world.reaches(stray, 1).await;
}
