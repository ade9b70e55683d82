//! Tasks whose answers are lost, whose lease expires before their start, and whose machine is out
//! of resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::config::PluginKind::{Default, Handoff, Mongo};
use crate::database::{Claim, Run};
use crate::dialect::Dialect;
use crate::task::{RunEnd, StopReason};
use async_trait::async_trait;
use mongodb::bson::{Bson, doc};
use windlass_core::launch::{LaunchSpec, Launched, Launcher, Running, SignalTo};
use windlass_runner::CommandLauncher;
use windlass_test_kit::wait::in_time;
use windlass_test_servers::mongodb;

use crate::tests::base::{collection, connect};
use crate::tests::harness::happens;
use crate::tests::harness_task::{Bench, number, text};
use crate::tests::proxy::{Command, Fate, Proxy, server_address};

/// A bench whose answers can be lost, and a reliable one on the same database.
async fn benches() -> (Proxy, Bench, Bench) {
    let name = mongodb().new_database();
    let proxy = Proxy::start(server_address().await).await;
    let lossy = Bench::on(proxy.database(&name).await, Dialect::Released);
    let sure = Bench::on(connect(&mongodb().url(), &name).await, Dialect::Released);
    (proxy, lossy, sure)
}

#[tokio::test]
async fn a_result_is_not_lost_with_an_answer() {
    for command in ["find", "delete", "findAndModify"] {
        let (proxy, bench, sure) = benches().await;
        let started = bench.start(Mongo, "gate", doc! {}).await;
        bench.began().await;
        let result = doc! { "_id": started.id, "status": 1, "stdout": "new" };
        collection(&sure.database, "results").insert_one(result).await.unwrap();
        let lost = proxy.next(Fate::LoseAnswer, move |it| it.is(command));
        bench.open();
        assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(1), "{command}");
        assert_eq!(lost.count(), 1, "{command}");
        let task = sure.task(started.id).await;
        assert_eq!((number(&task, "status"), text(&task, "stdout")), (Some(1), Some("new")));
        let left = collection(&sure.database, "results").count_documents(doc! {}).await.unwrap();
        assert_eq!(left, 0);
    }
}

/// An earlier result is removed first, without removing a later one.
#[tokio::test]
async fn a_late_removal_of_an_old_result_does_not_take_the_new_one() {
    let (proxy, bench, sure) = benches().await;
    let late = proxy.next(Fate::Late, |it| it.is_on("delete", "results"));
    let started = bench.start(Mongo, "gate", doc! {}).await;
    bench.began().await;
    let result = doc! { "_id": started.id, "status": 1, "stdout": "new" };
    collection(&sure.database, "results").insert_one(result).await.unwrap();
    late.release();
    late.delivered().await;
    bench.open();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(1));
    assert_eq!(text(&sure.task(started.id).await, "stdout"), Some("new"));
}

/// Whichever request after the plugin's end loses its answer.
#[tokio::test]
async fn a_success_stays_one_whichever_answer_is_lost() {
    for (kind, command) in [
        (Handoff, "find"),
        (Handoff, "update"),
        (Handoff, "findAndModify"),
        (Default, "findAndModify"),
    ] {
        let (proxy, bench, sure) = benches().await;
        let script = "gate; answer '{\"status\":1,\"stdout\":\"new\"}'";
        let started = bench.start(kind, script, doc! { "windlass": { "retries": 3 } }).await;
        bench.began().await;
        if kind == Handoff {
            let ended = doc! { "$set": { "status": 1, "stdout": "new", "complete": true } };
            sure.update(started.id, ended).await;
        }
        let lost = proxy.next(Fate::LoseAnswer, move |it| it.is_on(command, "tasks"));
        bench.open();
        assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(1), "{kind:?} {command}");
        assert_eq!(lost.count(), 1, "{kind:?} {command}");
        let task = sure.task(started.id).await;
        assert_eq!((number(&task, "status"), text(&task, "stdout")), (Some(1), Some("new")));
        let ours = task.get_document("windlass").unwrap();
        assert!(!ours.contains_key("boot") && number(ours, "retries") == Some(3), "{ours}");
    }
}

#[tokio::test]
async fn a_start_that_nobody_answered_can_be_given_back() {
    let (proxy, bench, sure) = benches().await;
    let (queue, id) = bench.add(doc! {}).await;
    let work = bench.claim(&queue, bench.plugin(Default, "touch $dir/ran")).await;
    bench.fence.gone.store(true, Ordering::SeqCst);
    let lost = proxy.next(Fate::LoseAnswer, |it| it.is("update"));
    let started = bench.start_work(id, work);
    let running = async || number(&sure.task(id).await, "status") == Some(0);
    happens("it runs", running).await;
    assert_eq!(lost.count(), 1);
    started.handle.end(StopReason::Stopped);
    assert_eq!(started.ran.await.unwrap(), RunEnd::NotStarted);
    assert!(!bench.path("ran").exists());
    // Its owner releases it.
    let run = Run::of(&sure.task(id).await).unwrap();
    let now = bench.context.clock.now();
    assert!(sure.database.speaking(Dialect::Released).unclaim(&run, &bench.me, now).await.unwrap());
    assert_eq!(number(&sure.task(id).await, "status"), Some(-2));
}

/// The plugin's input cannot be prepared; a request to end does not wait for that.
#[tokio::test]
async fn a_task_that_is_being_made_ready_can_be_ended() {
    let (proxy, bench, sure) = benches().await;
    let away = proxy.each(Fate::Lose, |it| it.is_on("find", "results"));
    let started = bench.start(Mongo, "touch $dir/ran", doc! {}).await;
    away.met().await;
    started.handle.end(StopReason::Cancelled);
    assert_eq!(in_time("it is left", started.ran).await.unwrap(), RunEnd::NotStarted);
    assert_eq!(number(&sure.task(started.id).await, "status"), Some(0));
    assert!(!bench.path("ran").exists());
}

#[tokio::test]
async fn nothing_is_started_when_the_lease_is_over() {
    let bench = Bench::new().await;
    bench.fence.over.store(true, Ordering::SeqCst);
    let (ran, task) = bench.run(Default, "touch $dir/ran").await;
    assert_eq!((ran, number(&task, "status")), (RunEnd::NotStarted, Some(0)));
    assert!(!bench.path("ran").exists());
}

/// A failed run whose answer was lost is still ending when its task runs again here.
#[tokio::test]
async fn the_files_of_the_next_run_outlast_the_end_of_the_one_before() {
    let (proxy, bench, sure) = benches().await;
    let (queue, id) = bench.add(doc! { "windlass": { "retries": 1 } }).await;
    let script = "gate; answer '{\"status\":3}'";
    let work = bench.claim(&queue, bench.plugin(Default, script)).await;
    let token = Run::of(&work.task).unwrap().token;
    let first = bench.start_work(id, work);
    bench.began().await;
    let of_first = move |it: &Command| it.is_on("update", "tasks") && it.mentions(&token);
    let repeated = proxy.next(Fate::Hold, of_first.clone());
    let lost = proxy.next(Fate::LoseAnswer, of_first);
    bench.open();
    repeated.met().await;
    assert_eq!((lost.count(), number(&sure.task(id).await, "status")), (1, Some(-2)));

    for name in ["began", "open"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    let script = "answer '{\"status\":1}'; gate; cat \"$task\" > $dir/told";
    let work = bench.claim(&queue, bench.plugin(Default, script)).await;
    let second = bench.start_work(id, work);
    bench.began().await;
    repeated.release();
    assert_eq!(in_time("the first run ends", first.ran).await.unwrap(), RunEnd::Again);
    bench.open();
    assert_eq!(in_time("the second run ends", second.ran).await.unwrap(), RunEnd::Ended(1));
    assert!(bench.text("told").contains(&id.to_hex()));
    assert_eq!(bench.left(), [""; 0]);
}

#[tokio::test]
async fn a_refused_file_of_output_does_not_cost_the_errors() {
    let (proxy, bench, sure) = benches().await;
    proxy.each(Fate::Refuse, |it| it.is_on("insert", "tasks.chunks"));
    let script = r#"{ printf '{"status":1,"stderr":"e","stdout":"'
        head -c 16000000 /dev/zero | tr '\0' x
        printf '"}'; } > "${task%.json}-response.json""#;
    let started = bench.start(Default, script, doc! {}).await;
    assert_eq!(in_time("it ends", started.ran).await.unwrap(), RunEnd::Ended(1));
    let task = sure.task(started.id).await;
    assert_eq!((number(&task, "status"), text(&task, "stderr")), (Some(1), Some("e")));
    let stdout = text(&task, "stdout").unwrap();
    assert!(stdout.starts_with("the output could not be saved: "), "{stdout:.200}");
    assert_eq!(task.get("complete"), Some(&Bson::Boolean(false)));
}

/// A server that refuses once may accept later; until then the task is ours.
#[tokio::test]
async fn a_task_that_its_plugin_ended_is_closed_in_spite_of_a_refusal() {
    for command in ["find", "update", "findAndModify"] {
        let (proxy, bench, sure) = benches().await;
        let started = bench.start(Handoff, "gate", doc! {}).await;
        bench.began().await;
        sure.update(started.id, doc! { "$set": { "status": 1, "stdout": "new" } }).await;
        let refused = proxy.next(Fate::Refuse, move |it| it.is_on(command, "tasks"));
        bench.open();
        let ran = in_time("it ends", started.ran).await.unwrap();
        assert_eq!((ran, refused.count()), (RunEnd::Ended(1), 1), "{command}");
        let ours = sure.task(started.id).await.get_document("windlass").unwrap().clone();
        assert!(!ours.contains_key("boot"), "{command}: {ours}");
    }
}

/// Fails this many times, like a machine without free file descriptors.
struct FailingLauncher {
    times: AtomicU32,
    launcher: CommandLauncher,
}

struct NotStarted;

impl Launcher for FailingLauncher {
    fn launch(&self, spec: LaunchSpec) -> Box<dyn Running> {
        let left =
            self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if left.is_ok() { Box::new(NotStarted) } else { self.launcher.launch(spec) }
    }
}

#[async_trait]
impl Running for NotStarted {
    fn signal(&self, _: SignalTo) -> bool {
        false
    }

    fn kill_tree(&self) {}

    async fn wait(&self) -> Launched {
        let failure = Some("spawn EMFILE".into());
        Launched { failure, exhausted: true, ..Launched::default() }
    }
}

#[tokio::test]
async fn a_machine_at_its_limit_lets_a_task_wait() {
    let mut bench = Bench::new().await;
    let launcher = CommandLauncher::new().unwrap();
    let context = Arc::get_mut(&mut bench.context).unwrap();
    context.launcher = Arc::new(FailingLauncher { times: AtomicU32::new(2), launcher });
    let (ran, _) = bench.run(Default, "answer '{\"status\":1}'").await;
    assert_eq!(ran, RunEnd::Ended(1));
}

/// A task of one of our nodes never belongs to a runner, whatever its node's name.
#[tokio::test]
async fn a_runner_takes_nothing_from_our_nodes() {
    let bench = Bench::new().await;
    let (queue, id) = bench.add(doc! {}).await;
    bench.claim(&queue, bench.plugin(Default, "")).await;
    let runner = Claim::Runner { node: bench.me.node.clone(), id };
    let now = bench.context.clock.now();
    assert!(!bench.database.claim_start(&runner, now).await.unwrap());
    assert_eq!(number(&bench.task(id).await, "status"), Some(-1));
}

#[tokio::test]
async fn a_late_take_back_changes_nothing() {
    let bench = Bench::new().await;
    let (_, id) = bench.add(doc! { "status": 2, "node": "here" }).await;
    let runner = Claim::Runner { node: "here".into(), id };
    let seen = Bson::Int32(-3);
    assert!(!bench.database.claim_take_back(&runner, Some(&seen)).await.unwrap());
    assert!(!bench.database.claim_take_back(&runner, None).await.unwrap());
    assert_eq!(number(&bench.task(id).await, "status"), Some(2));
    let seen = Bson::Int32(2);
    assert!(bench.database.claim_take_back(&runner, Some(&seen)).await.unwrap());
}
