//! Tasks that are ended from outside, lost to other nodes, or whose database becomes unavailable.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::PluginKind::{Default, Handoff};
use crate::dialect::Dialect;
use crate::task::{RunEnd, StopReason};
use mongodb::bson::{Document, doc};
use rustix::process::{Pid, Signal, kill_process};
use windlass_test_servers::MongoDb;

use crate::tests::base::connect;
use crate::tests::harness::happens;
use crate::tests::harness_task::{Bench, is_alive, number, text, until};

/// A plugin with a child in its own session; it has already answered and keeps running.
const FAMILY: &str = r#"
answer '{"status":1,"stdout":"early","stderr":"said"}'
setsid sh -c 'echo $$ > "$0/child.part"; mv "$0/child.part" "$0/child"; sleep 1000' "$dir" &
while [ ! -e "$dir/child" ]; do sleep 0.02; done
gate
"#;

fn texts(task: &Document) -> (i32, &str, &str) {
    let text = |name| text(task, name).unwrap_or("nothing");
    (number(task, "status").unwrap(), text("stdout"), text("stderr"))
}

/// Waits until the child is dead, too.
async fn all_dead(bench: &Bench, main: i32) {
    let child: i32 = bench.text("child").trim().parse().unwrap();
    until("all are dead", || (!is_alive(main) && !is_alive(child)).then_some(())).await;
}

#[tokio::test]
async fn a_task_that_is_ended_says_why_and_keeps_its_output() {
    for (why, status, stderr) in [
        (StopReason::Cancelled, -5, "the task was cancelled while it ran\nsaid"),
        (StopReason::Stopped, -6, "the node was stopped while the task ran\nsaid"),
    ] {
        let bench = Bench::new().await;
        let started = bench.start(Default, FAMILY, doc! {}).await;
        let main = bench.began().await;
        started.handle.end(why);
        assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(status));
        all_dead(&bench, main).await;
        let task = bench.task(started.id).await;
        assert_eq!(texts(&task), (status, "early", stderr));
        assert_eq!(
            (number(&task, "cmdExit"), text(&task, "cmdErr")),
            (Some(-1), Some("signal: killed"))
        );
        assert_eq!(bench.left(), [""; 0]);
    }
}

#[tokio::test]
async fn time_limits_are_the_plugins_and_the_tasks_own() {
    for (plugin, own) in [(Some(Duration::from_secs(1)), doc! {}), (None, doc! { "timeout": 1 })] {
        let mut bench = Bench::new().await;
        bench.timeout = plugin;
        let started = bench.start(Default, FAMILY, doc! { "windlass": own }).await;
        assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(2));
        let task = bench.task(started.id).await;
        let stderr = task.get_str("stderr").unwrap();
        assert!(stderr.starts_with("the plugin was ended after its time limit of 1 s"), "{stderr}");
    }
}

#[tokio::test]
async fn what_the_fence_ended_is_no_failure_of_the_plugin() {
    let bench = Bench::new().await;
    let started = bench.start(Default, "gate", doc! {}).await;
    let main = bench.began().await;
    bench.fence.fired.store(1, Ordering::SeqCst);
    kill_process(Pid::from_raw(main).unwrap(), Signal::KILL).unwrap();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(-6));
    let task = bench.task(started.id).await;
    assert!(texts(&task).2.contains("could not renew its lease"), "{task}");
}

#[tokio::test]
async fn nothing_is_started_without_a_fence() {
    let bench = Bench::new().await;
    bench.fence.gone.store(true, Ordering::SeqCst);
    let started = bench.start(Default, "touch $dir/ran; gate", doc! {}).await;
    let id = started.id;
    let tasks = crate::tests::base::collection(&bench.database, "tasks");
    let runs = doc! { "_id": id, "status": 0 };
    let running = async || tasks.count_documents(runs.clone()).await.unwrap() > 0;
    happens("it runs", running).await;
    let asked = || bench.fence.asked.load(Ordering::SeqCst);
    let before = asked();
    until("it waits for a fence", || (asked() > before + 2).then_some(())).await;
    assert!(!bench.path("ran").exists());
    bench.fence.gone.store(false, Ordering::SeqCst);
    bench.began().await;
    started.handle.end(StopReason::Cancelled);
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(-5));
}

#[tokio::test]
async fn a_plugin_that_ends_first_has_its_result() {
    let bench = Bench::new().await;
    let started = bench.start(Default, "begin; answer '{\"status\":1}'; exit 0", doc! {}).await;
    let main = bench.began().await;
    until("it ends", || (!is_alive(main)).then_some(())).await;
    started.handle.end(StopReason::Cancelled);
    let ran = started.ran.await.unwrap();
    assert_eq!(ran, RunEnd::Ended(1));
}

#[tokio::test]
async fn a_task_that_is_to_end_before_its_start_stays_claimed() {
    let bench = Bench::new().await;
    let (queue, id) = bench.add(doc! {}).await;
    let plugin = bench.plugin(Default, "touch $dir/ran");
    let work = bench.claim(&queue, plugin).await;
    let (handle, end_signal) = crate::task::end_signal();
    handle.end(StopReason::Stopped);
    let ran = crate::task::run(&bench.context, work, end_signal).await;
    assert_eq!(ran, RunEnd::NotStarted);
    assert_eq!(number(&bench.task(id).await, "status"), Some(-1));
    assert!(!bench.path("ran").exists());
}

#[tokio::test]
async fn what_others_took_from_us_is_left_as_it_is() {
    for kind in [Default, Handoff] {
        let bench = Bench::new().await;
        let script = "gate; answer '{\"status\":1}' 2>/dev/null";
        let started = bench.start(kind, script, doc! {}).await;
        bench.began().await;
        let orphaned = doc! { "$set": { "status": -6 }, "$unset": { "windlass.boot": "" } };
        bench.update(started.id, orphaned).await;
        let before = bench.task(started.id).await;
        bench.open();
        assert_eq!(started.ran.await.unwrap(), RunEnd::Lost);
        assert_eq!(bench.task(started.id).await, before);
        assert_eq!(bench.left(), [""; 0]);
    }
}

#[tokio::test]
async fn a_task_that_was_taken_before_its_start_is_not_run() {
    let bench = Bench::new().await;
    let (queue, id) = bench.add(doc! {}).await;
    let work = bench.claim(&queue, bench.plugin(Default, "touch $dir/ran")).await;
    bench.update(id, doc! { "$set": { "windlass.run": "another" } }).await;
    assert_eq!(bench.start_work(id, work).ran.await.unwrap(), RunEnd::Lost);
    assert!(!bench.path("ran").exists());
}

#[tokio::test]
async fn a_result_waits_for_a_database_that_is_away() {
    let server = MongoDb::start();
    let database = connect(&server.url(), &server.new_database()).await;
    let bench = Bench::on(database, Dialect::Seed);
    let started =
        bench.start(Default, "gate; answer '{\"status\":1,\"stdout\":\"o\"}'", doc! {}).await;
    let main = bench.began().await;
    server.kill();
    bench.open();
    until("the plugin ends", || (!is_alive(main)).then_some(())).await;
    assert!(!started.ran.is_finished());
    server.restart();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(1));
    assert_eq!(text(&bench.task(started.id).await, "stdout"), Some("o"));

    for name in ["began", "open"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    let started = bench.start(Default, "gate", doc! {}).await;
    bench.began().await;
    server.kill();
    bench.open();
    started.handle.give_up();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Unwritten);
}
