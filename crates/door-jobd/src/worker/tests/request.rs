//! Requests and their exact answers.

use std::sync::atomic::Ordering;

use windlass_core::launch::SignalTo;

use super::harness::{Fixture, LONG, json, until};

fn ok() -> Result<String, String> {
    Ok(r#""ok""#.to_owned())
}

fn refused(text: &str) -> Result<String, String> {
    Err(text.to_owned())
}

#[tokio::test]
async fn lists_of_targets_are_checked_and_unknown_ones_refused() {
    let worker = Fixture::new("low=2\n").await;
    for kind in ["poll", "pause", "continue"] {
        for (data, answer) in [
            ("{}", ok()),
            (r#"{"targets":["low"]}"#, ok()),
            (r#"{"targets":["low","low"]}"#, ok()),
            (r#"{"targets":null}"#, refused("targets must be array")),
            (r#"{"targets":[]}"#, refused("targets are empty")),
            (r#"{"targets":[1]}"#, refused("all targets must be strings, number given")),
            (r#"{"targets":["low","x"]}"#, refused("invalid target 'x'")),
            (r#"{"targets":["toString"]}"#, refused("invalid target 'toString'")),
            (r#""text""#, ok()),
        ] {
            assert_eq!(worker.ask(kind, data).await, answer, "{kind} {data}");
        }
    }
    assert_eq!(worker.ask("Poll", "{}").await, refused("unknown request type: 'Poll'"));
    assert_eq!(worker.ask("poke", "{}").await, refused("unknown request type: 'poke'"));
}

#[tokio::test]
async fn targets_are_added_changed_and_removed() {
    let worker = Fixture::new("low=2\n").await;
    let one = r#"{"target":"new","concurrency":1}"#;
    for (kind, data, answer) in [
        ("add-target", r#""x""#, refused("data is not an object")),
        ("add-target", "{}", refused("missing required field target")),
        ("add-target", r#"{"target":"a"}"#, refused("missing required field concurrency")),
        ("add-target", r#"{"target":1,"concurrency":1}"#, refused("'target' must be string")),
        (
            "add-target",
            r#"{"target":"a","concurrency":"1"}"#,
            refused("'concurrency' must be integer"),
        ),
        ("add-target", r#"{"target":"a","concurrency":0}"#, refused("Invalid concurrency value.")),
        ("add-target", r#"{"target":"a","concurrency":-1}"#, refused("Invalid concurrency value.")),
        (
            "add-target",
            r#"{"target":"low","concurrency":1}"#,
            refused("target 'low' already added"),
        ),
        ("set-target-concurrency", one, refused("target 'new' not found")),
        ("remove-target", one, refused("target 'new' not found")),
        ("remove-target", "{}", refused("missing required field target")),
        ("add-target", one, ok()),
        ("set-target-concurrency", r#"{"target":"new","concurrency":7.0}"#, ok()),
        ("add-target", r#"{"target":"toString","concurrency":1e300}"#, ok()),
        ("remove-target", r#"{"target":"low"}"#, ok()),
    ] {
        assert_eq!(worker.ask(kind, data).await, answer, "{kind} {data}");
    }
    let new = r#"{"paused":false,"concurrency":7,"length":0}"#;
    assert_eq!(worker.target("new").await, new);
    assert_eq!(worker.ask("poll", r#"{"targets":["toString"]}"#).await, ok());
}

#[tokio::test]
async fn a_target_with_jobs_is_not_removed() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=1, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("it runs", || worker.launcher.launched() == [1]).await;
    let remove = r#"{"target":"low"}"#;
    assert_eq!(worker.ask("remove-target", remove).await, refused("queue is not empty"));
    worker.launcher.end(1, 0).await;
    until("it is done", || worker.table.status(1) == "done").await;
    assert_eq!(worker.ask("remove-target", remove).await, ok());
}

#[tokio::test]
async fn the_status_has_the_form_that_clients_know() {
    let worker = Fixture::new("low=2\n1/high=3\n7=1\n").await;
    worker.ask("pause", r#"{"targets":["low"]}"#).await.unwrap();
    let status = worker.ask("status", "{}").await.unwrap();
    let beginning = "{\"targets\":{\"7\":{\"paused\":false,\"concurrency\":1,\"length\":0},\
        \"low\":{\"paused\":true,\"concurrency\":2,\"length\":0},\
        \"1/high\":{\"paused\":false,\"concurrency\":3,\"length\":0}},\
        \"jobPromisesCount\":0,\"memoryUsage\":{\"rss\":";
    assert!(status.starts_with(beginning), "{status}");
}

#[tokio::test]
async fn jobs_that_a_client_waits_for_are_run_and_answered_together() {
    let worker = Fixture::new("low=5\n").await;
    worker.table.add(1..=2, "low", "manual");
    worker.table.add(3..=3, "low", "waiting");
    worker.table.add(4..=4, "other", "manual");
    let client = worker.client().await;
    let asked = client.ask("run-manual", Some(json(r#"{"ids":[1,2,2,3,4,5,1.5,-1]}"#)));
    worker.launcher.end(2, 7).await;
    worker.launcher.end(1, 0).await;
    let answer = asked.within(LONG).await.unwrap().to_string();
    let jobs = "{\"jobs\":{\
        \"1\":{\"result\":\"ok\",\"code\":0,\"signal\":null,\"stdout\":\"\",\"stderr\":\"\"},\
        \"2\":{\"result\":\"fail\",\"code\":7,\"signal\":null,\"stdout\":\"\",\"stderr\":\"\"}},\
        \"errors\":{\"3\":\"status = waiting != manual\",\
        \"4\":\"target 'other' not found (job id=4)\",\"5\":\"job 5 not found\",\
        \"1.5\":\"job 1.5 not found\",\"-1\":\"job -1 not found\"}}";
    assert_eq!(answer, jobs);
    until("both are done", || worker.table.count("done") == 2).await;
    assert_eq!((worker.table.status(3), worker.table.status(4)), ("ignored", "ignored"));
}

#[tokio::test]
async fn a_client_is_answered_only_when_the_row_is_done() {
    let worker = Fixture::new("low=5\n").await;
    worker.table.add(1..=1, "low", "manual");
    let client = worker.client().await;
    let asked = client.ask("run-manual", Some(json(r#"{"ids":[1]}"#)));
    let closed = worker.table.finish_gate.lock().await;
    worker.launcher.end(1, 0).await;
    let calls = || worker.table.finish_calls.load(Ordering::SeqCst);
    until("the result is being written", || calls() == 1).await;
    let status = worker.ask("status", "{}").await.unwrap();
    assert!(status.contains(r#""jobPromisesCount":1"#), "the client still waits: {status}");
    drop(closed);
    let answer = asked.within(LONG).await.unwrap().to_string();
    assert_eq!(worker.table.status(1), "done");
    assert!(answer.starts_with(r#"{"jobs":{"1":{"result":"ok","#), "{answer}");
}

#[tokio::test]
async fn one_client_waits_for_a_job_and_may_leave() {
    let worker = Fixture::new("low=5\n").await;
    worker.table.add(1..=2, "low", "manual");
    let client = worker.client().await;
    let _asked = client.ask("run-manual", Some(json(r#"{"ids":[1]}"#)));
    until("it runs", || worker.launcher.launched() == [1]).await;
    let another = refused("another client is already waiting for job 1");
    assert_eq!(worker.ask("run-manual", r#"{"ids":[2,1]}"#).await, another);
    assert_eq!(worker.table.status(2), "manual");
    client.close();
    worker.launcher.end(1, 0).await;
    until("it is done", || worker.table.status(1) == "done").await;
    for (data, text) in [
        ("{}", "rows is not iterable"),
        (r#"{"ids":[]}"#, "rows is not iterable"),
        (r#"{"ids":[2,"1"]}"#, "all ids must be numbers, got string"),
        (r#"{"ids":[null]}"#, "all ids must be numbers, got object"),
    ] {
        assert_eq!(worker.ask("run-manual", data).await, refused(text), "{data}");
    }
    assert_eq!(worker.table.status(2), "manual");
}

#[tokio::test]
async fn signals_reach_running_jobs_only() {
    let worker = Fixture::new("low=5\n").await;
    worker.table.add(0..=1, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("both run", || worker.launcher.launched().len() == 2).await;
    for (data, answer) in [
        (r#"{"jobs":{"1":15,"9":9,"x":1}}"#, r#"{"1":true,"9":false,"x":false}"#),
        (r#"{"jobs":{"1":"SIGUSR1"}}"#, r#"{"1":true}"#),
        (r#"{"jobs":{"1":null,"0":1.5}}"#, r#"{"0":false,"1":false}"#),
        (r#"{"jobs":[0,"SIGHUP",2]}"#, r#"{"0":true,"1":true,"2":false}"#),
        ("{}", "{}"),
        (r#"{"jobs":5}"#, "{}"),
    ] {
        assert_eq!(worker.ask("send-signal", data).await, Ok(answer.to_owned()), "{data}");
    }
    let name = |name: &str| SignalTo::Name(name.into());
    let sent = [SignalTo::Number(15), name("SIGUSR1"), SignalTo::Number(0), name("SIGHUP")];
    assert_eq!(worker.launcher.signals(), sent);
}
