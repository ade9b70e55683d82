//! The four kinds of plugins, and what happens to their results.

use crate::config::PluginKind::{Default, Handoff, Mongo, NoMongo};
use crate::dialect::Dialect;
use crate::task::RunEnd;
use mongodb::bson::{Bson, DateTime, doc};
use serde_json::Value;
use windlass_test_kit::wait::in_time;

use crate::tests::base::{collection, fresh};
use crate::tests::harness::load;
use crate::tests::harness_task::{Bench, number, text};

const OK: &str = r#"answer '{"status":1,"stdout":"out","stderr":"err","noise":1}'"#;

#[tokio::test]
async fn a_plugin_is_told_its_task_by_a_file_and_answers_by_another() {
    let bench = Bench::new().await;
    let script = format!(
        "cp \"$task\" $dir/told; stat -c %a \"$task\" > $dir/mode; env > $dir/env\n\
         echo noise; touch \"${{task%.json}}-own\"; {OK}"
    );
    let before = bench.context.clock.now();
    let (ran, task) = bench.run(Default, &script).await;
    assert_eq!(ran, RunEnd::Ended(1));
    assert_eq!(number(&task, "status"), Some(1));
    assert_eq!((text(&task, "stdout"), text(&task, "stderr")), (Some("out"), Some("err")));
    assert_eq!((number(&task, "cmdExit"), text(&task, "cmdErr")), (Some(0), Some("<nil>")));
    assert_eq!(task.get("complete"), Some(&Bson::Boolean(true)));
    assert!(*task.get_datetime("mtime").unwrap() >= before);
    let ours = task.get_document("windlass").unwrap();
    assert_eq!(text(ours, "last"), Some(bench.me.boot.as_str()));
    assert!(!ours.contains_key("boot") && ours.contains_key("started"));
    assert_eq!(ours.get("attempt").and_then(Bson::as_i64), Some(1));

    let id = task.get_object_id("_id").unwrap().to_hex();
    let args = bench.text("args");
    let expected = "--config /etc/config.json-plugin --task ";
    let path = args.trim().strip_prefix(expected).unwrap();
    assert!(path.starts_with(bench.path("temp").to_str().unwrap()), "{path}");
    assert!(path.ends_with(&format!("/{id}.json")), "{path}");
    assert_eq!(bench.text("mode").trim(), "600");
    let told: Value = serde_json::from_str(&bench.text("told")).unwrap();
    assert_eq!((&told["_id"], &told["status"]), (&Value::from(id), &Value::from(-1)));
    assert_eq!(told["params"]["user"], "a");
    assert!(told["mtime"].as_str().unwrap().ends_with('Z') && told.get("windlass").is_none());
    assert!(bench.text("env").contains("WINDLASS_FENCE=the-boot\n"));
    assert_eq!(bench.left(), [""; 0]);
}

#[tokio::test]
async fn a_plugin_without_the_database_gets_no_configuration() {
    let bench = Bench::on(fresh().await, Dialect::Seed);
    let (ran, task) = bench.run(NoMongo, OK).await;
    assert_eq!((ran, text(&task, "stdout")), (RunEnd::Ended(1), Some("out")));
    assert!(bench.text("args").starts_with("--task /"), "{}", bench.text("args"));
}

#[tokio::test]
async fn a_plugin_that_reads_its_input_finds_nothing() {
    let bench = Bench::new().await;
    let script = r#"cat > $dir/read; answer '{"status":1}'"#;
    let started = bench.start(Default, script, doc! {}).await;
    assert_eq!(in_time("it ends", started.ran).await.unwrap(), RunEnd::Ended(1));
    assert_eq!(bench.text("read"), "");
}

#[tokio::test]
async fn what_a_plugin_answers_and_how_it_exits_decide_together() {
    let bench = Bench::new().await;
    let unclean = "plugin returned status:1 but did not exit cleanly (see stdout for any stdout \
                   or stderr it may have set)";
    for (script, status, stdout, stderr, exit) in [
        ("answer '{\"status\":44}'", 44, None, None, (0, "<nil>")),
        (
            "answer '{\"status\":2,\"stderr\":\"e\"}'; exit 3",
            2,
            None,
            Some("e"),
            (3, "exit status 3"),
        ),
        (
            "answer '{\"status\":1}'; exit 3",
            2,
            Some("{\"status\":1}"),
            Some(unclean),
            (3, "exit status 3"),
        ),
        (
            "answer '{\"status\":1}'; kill -9 $$",
            2,
            Some("{\"status\":1}"),
            Some(unclean),
            (-1, "signal: killed"),
        ),
        ("exit 0", 2, None, Some("could not read task plugin response file: "), (0, "<nil>")),
        (
            "answer 'no json'",
            2,
            Some("no json"),
            Some("plugin saved non-json in response file"),
            (0, "<nil>"),
        ),
        (
            "printf '{\"status\":1,\"stdout\":\"a\\377b\"}' > \"${task%.json}-response.json\"",
            1,
            Some("a\u{fffd}b"),
            None,
            (0, "<nil>"),
        ),
    ] {
        let (ran, task) = bench.run(Default, script).await;
        assert_eq!(
            (ran, number(&task, "status")),
            (RunEnd::Ended(status), Some(status)),
            "{script}"
        );
        assert_eq!(text(&task, "stdout"), stdout, "{script}");
        match (text(&task, "stderr"), stderr) {
            (Some(found), Some(start)) => assert!(found.starts_with(start), "{found}"),
            (found, expected) => assert_eq!(found, expected, "{script}"),
        }
        assert_eq!((number(&task, "cmdExit"), text(&task, "cmdErr")), (Some(exit.0), Some(exit.1)));
        assert_eq!(bench.left(), [""; 0]);
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_nothing_else_happens() {
    let bench = Bench::new().await;
    for (more, why) in [
        (doc! { "params": "text" }, "`params` is a string, and must be a document"),
        (doc! { "windlass": { "timeout": "x" } }, "`windlass.timeout` is a string"),
    ] {
        let (ran, task) = bench.run_with(Default, "touch $dir/ran", more).await;
        assert_eq!((ran, text(&task, "stdout")), (RunEnd::Ended(2), Some("Unable to start")));
        assert!(task.get_str("stderr").unwrap().starts_with(why), "{task}");
        assert!(!task.contains_key("cmdExit") && !task.contains_key("cmdErr"));
        assert!(!bench.path("ran").exists());
    }
    let (queue, id) = bench.add(doc! {}).await;
    let mut plugin = bench.claim(&queue, gone()).await;
    plugin.plugin = gone();
    assert_eq!(bench.start_work(id, plugin).ran.await.unwrap(), RunEnd::Ended(2));
    let stderr = format!("/no such plugin not found or not executable for task {id}");
    assert_eq!(text(&bench.task(id).await, "stderr"), Some(stderr.as_str()));
}

#[tokio::test]
async fn a_program_that_the_system_cannot_start_is_told_with_its_exit() {
    for kind in [Default, Handoff] {
        let bench = Bench::new().await;
        let (queue, id) = bench.add(doc! {}).await;
        let plugin = bench.plugin(kind, "");
        std::fs::write(&plugin.program, "#!/no such interpreter\n").unwrap();
        let work = bench.claim(&queue, plugin).await;
        assert_eq!(bench.start_work(id, work).ran.await.unwrap(), RunEnd::Ended(2));
        let task = bench.task(id).await;
        assert_eq!(text(&task, "stdout"), Some("Unable to start"));
        assert!(text(&task, "stderr").unwrap().contains("ENOENT"), "{task}");
        assert_eq!(number(&task, "cmdExit"), Some(-3));
        assert_eq!(text(&task, "cmdErr"), text(&task, "stderr"));
    }
}

fn gone() -> crate::config::Plugin {
    let (name, program) = ("P".to_owned(), "/no such plugin".into());
    crate::config::Plugin { name, program, kind: Default, timeout: None }
}

#[tokio::test]
async fn a_result_is_taken_from_the_database() {
    let bench = Bench::new().await;
    let results = collection(&bench.database, "results");
    let (queue, id) = bench.add(doc! {}).await;
    // The result of an earlier run does not count for this one.
    results.insert_one(doc! { "_id": id, "status": 1, "stdout": "old" }).await.unwrap();
    let started = bench.start(Mongo, "gate", doc! {}).await;
    bench.began().await;
    let result = doc! { "_id": started.id, "status": 1, "stdout": "new", "more": 1 };
    results.insert_one(result).await.unwrap();
    bench.open();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(1));
    let task = bench.task(started.id).await;
    assert_eq!((text(&task, "stdout"), task.get("stderr")), (Some("new"), Some(&Bson::Null)));
    let expected = format!("--config /etc/config.json-plugin --task {}\n", started.id);
    assert_eq!(bench.text("args"), expected);
    assert_eq!(results.count_documents(doc! { "_id": started.id }).await.unwrap(), 0);

    let work = bench.claim(&queue, bench_plugin(&bench)).await;
    assert_eq!(bench.start_work(id, work).ran.await.unwrap(), RunEnd::Ended(2));
    let task = bench.task(id).await;
    assert_eq!(text(&task, "stderr"), Some("plugin did not create a document in 'results'"));
    assert_eq!(results.count_documents(doc! {}).await.unwrap(), 0);
}

/// The script of the previous run, which no longer waits.
fn bench_plugin(bench: &Bench) -> crate::config::Plugin {
    let program = bench.path("plugin");
    crate::config::Plugin { name: "P".into(), program, kind: Mongo, timeout: None }
}

#[tokio::test]
async fn a_plugin_that_ends_its_task_itself_is_believed_when_it_is_right() {
    for (set, exit, status, stdout, stderr) in [
        (doc! { "status": 1, "stdout": "o" }, 0, 1, Some("o"), None),
        (doc! { "status": 7, "stderr": "e" }, 3, 7, None, Some("e")),
        (doc! {}, 0, 2, Some("{\"status\":0"), Some("plugin did not update status (see")),
        (
            doc! { "status": -3 },
            0,
            2,
            Some("{\"status\":-3"),
            Some("plugin returned negative status ("),
        ),
        (
            doc! { "status": "x" },
            0,
            2,
            Some("{\"status\":\"x\""),
            Some("plugin returned unknown type"),
        ),
        (
            doc! { "status": 1, "stdout": "o" },
            3,
            2,
            Some("{\"status\":1,"),
            Some("plugin returned status:1 but did not exit cleanly (see"),
        ),
    ] {
        let bench = Bench::new().await;
        let started = bench.start(Handoff, &format!("gate; exit {exit}"), doc! {}).await;
        bench.began().await;
        if !set.is_empty() {
            bench.update(started.id, doc! { "$set": set.clone() }).await;
        }
        bench.open();
        assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(status), "{set}");
        let task = bench.task(started.id).await;
        assert_eq!((number(&task, "status"), number(&task, "cmdExit")), (Some(status), Some(exit)));
        for (field, expected) in [("stdout", stdout), ("stderr", stderr)] {
            match (text(&task, field), expected) {
                (Some(found), Some(start)) => assert!(found.starts_with(start), "{found}"),
                (found, expected) => assert_eq!(found, expected, "{set}"),
            }
        }
        assert!(!task.get_document("windlass").unwrap().contains_key("boot"), "{task}");
        let expected = format!("--config /etc/config.json-plugin --task {} --quiet\n", started.id);
        assert_eq!(bench.text("args"), expected);
    }
}

#[tokio::test]
async fn output_that_is_too_large_for_a_document_is_kept_whole() {
    for dialect in [Dialect::Seed, Dialect::Released] {
        let bench = Bench::on(fresh().await, dialect);
        let script = r#"{ printf '{"status":1,"stderr":"e","stdout":"'
            head -c 16000000 /dev/zero | tr '\0' x
            printf '"}'; } > "${task%.json}-response.json""#;
        let (ran, task) = bench.run(Default, script).await;
        assert_eq!((ran, text(&task, "stderr")), (RunEnd::Ended(1), Some("e")));
        let file = task.get_object_id("stdout").unwrap();
        let text = load(&bench.database, file).await.unwrap();
        assert!(text.len() == 16_000_000 && text.bytes().all(|byte| byte == b'x'));
    }
}

/// Another program has filled the document in the meantime.
#[tokio::test]
async fn output_that_the_database_refuses_costs_nothing_but_itself() {
    let bench = Bench::new().await;
    let script = r#"gate; { printf '{"status":3,"stderr":"e","stdout":"'
        head -c 2000000 /dev/zero | tr '\0' x; printf '"}'; } > "${task%.json}-response.json""#;
    let started = bench.start(Default, script, doc! {}).await;
    bench.began().await;
    bench.update(started.id, doc! { "$set": { "much": "y".repeat(15_500_000) } }).await;
    bench.open();
    assert_eq!(started.ran.await.unwrap(), RunEnd::Ended(3));
    let task = bench.task(started.id).await;
    assert_eq!((number(&task, "status"), text(&task, "stderr")), (Some(3), Some("e")));
    let stdout = text(&task, "stdout").unwrap();
    assert!(stdout.starts_with("the output could not be saved: "), "{stdout:.200}");
    assert_eq!(task.get("complete"), Some(&Bson::Boolean(false)));
}

#[tokio::test]
async fn a_failure_with_tries_left_waits_for_another_one() {
    for kind in [Default, Handoff] {
        let bench = Bench::on(fresh().await, Dialect::Seed);
        let (queue, id) = bench.add(doc! { "windlass": { "retries": 1 } }).await;
        for (ran, status, retries) in [(RunEnd::Again, -2, 0), (RunEnd::Ended(3), 3, 0)] {
            let started = {
                let script = r#"gate; answer '{"status":3,"stderr":"e"}' 2>/dev/null"#;
                let work = bench.claim(&queue, bench.plugin(kind, script)).await;
                bench.start_work(id, work)
            };
            bench.began().await;
            if kind == Handoff {
                bench.update(id, doc! { "$set": { "status": 3, "stderr": "e" } }).await;
            }
            bench.open();
            assert_eq!(started.ran.await.unwrap(), ran);
            let task = bench.task(id).await;
            assert_eq!((number(&task, "status"), text(&task, "stderr")), (Some(status), Some("e")));
            let ours = task.get_document("windlass").unwrap();
            assert_eq!(number(ours, "retries"), Some(retries));
            assert!(ours.get_datetime("ended").is_ok_and(|at| *at > DateTime::MIN));
            for name in ["began", "open"] {
                std::fs::remove_file(bench.path(name)).unwrap();
            }
        }
    }
}
