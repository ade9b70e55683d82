//! Jobs from the table to their ends, through outages and a stop.

use std::sync::Arc;

use super::harness::{CONFIG, Fixture, LONG, json, until};
use crate::table::{Origin, Row};

const SHORT_LEASE: &str = "name=w1\nhost=127.0.0.1\nport=1\nstorage=sqlite:///none\n\
    launcher=run {id}\nlease=3\n[targets]\nlow=1\n";

#[tokio::test]
async fn nothing_is_fetched_until_it_is_asked_for_and_the_rest_when_one_is_left() {
    let worker = Fixture::new("low=2\n").await;
    worker.table.add(1..=25, "low", "waiting");
    let target = worker.target("low").await;
    assert_eq!(target, r#"{"paused":false,"concurrency":2,"length":0}"#);
    worker.ask("poll", "{}").await.unwrap();
    until("two run", || worker.launcher.launched() == [1, 2]).await;
    assert_eq!((worker.table.count("accepted"), worker.table.count("waiting")), (8, 15));
    for id in 1..=8 {
        worker.launcher.end(id, 0).await;
        until("the next one runs", || worker.launcher.launched().len() as u64 == id + 2).await;
    }
    assert_eq!(worker.table.count("waiting"), 15);
    worker.launcher.end(9, 0).await;
    until("the next ten are taken", || worker.table.count("waiting") == 5).await;
    for id in 10..=25 {
        worker.launcher.end(id, 0).await;
    }
    until("all are done", || worker.table.count("done") == 25).await;
}

#[tokio::test]
async fn pause_holds_what_is_fetched_and_continue_lets_it_run() {
    let worker = Fixture::new("low=2\n").await;
    worker.table.add(1..=1, "low", "waiting");
    worker.ask("pause", "{}").await.unwrap();
    worker.ask("poll", "{}").await.unwrap();
    until("it is accepted", || worker.table.status(1) == "accepted").await;
    let target = worker.target("low").await;
    assert_eq!(target, r#"{"paused":true,"concurrency":2,"length":1}"#);
    worker.table.add(2..=2, "low", "manual");
    let client = worker.client().await;
    let manual = client.ask("run-manual", Some(json(r#"{"ids":[2]}"#)));
    until("both are accepted", || worker.table.count("accepted") == 2).await;
    assert!(worker.launcher.launched().is_empty());
    worker.ask("continue", "{}").await.unwrap();
    worker.launcher.end(1, 0).await;
    worker.launcher.end(2, 0).await;
    assert!(manual.within(LONG).await.is_ok());
}

#[tokio::test]
async fn a_higher_concurrency_counts_at_once() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=3, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("one runs", || worker.launcher.launched() == [1]).await;
    let raise = r#"{"target":"low","concurrency":3}"#;
    worker.ask("set-target-concurrency", raise).await.unwrap();
    until("all run", || worker.launcher.launched().len() == 3).await;
}

#[tokio::test]
async fn polls_and_results_outlast_an_outage_of_the_database() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=2, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("one runs", || worker.launcher.launched() == [1]).await;
    worker.table.set_away(true);
    worker.launcher.end(1, 0).await;
    worker.ask("poll", "{}").await.unwrap();
    let freed = || async { worker.target("low").await.contains("\"length\":1") };
    while !freed().await {}
    assert_eq!((worker.table.status(1), worker.table.status(2)), ("running", "accepted"));
    worker.table.add(3..=3, "low", "waiting");
    worker.table.set_away(false);
    until("the result is written", || worker.table.status(1) == "done").await;
    worker.launcher.end(2, 0).await;
    worker.launcher.end(3, 0).await;
    until("all are done", || worker.table.count("done") == 3).await;
    assert_eq!(worker.launcher.launched(), [1, 2, 3]);
}

#[tokio::test]
async fn a_stop_hands_back_what_waits_and_lets_running_jobs_end() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=3, "low", "waiting");
    worker.table.add(4..=4, "low", "manual");
    worker.ask("poll", "{}").await.unwrap();
    until("one runs", || worker.launcher.launched() == [1]).await;
    let client = worker.client().await;
    let manual = client.ask("run-manual", Some(json(r#"{"ids":[4]}"#)));
    until("it waits", || worker.table.status(4) == "accepted").await;
    worker.stop.asked.cancel();
    until("they are back", || worker.table.count("waiting") == 2).await;
    let told = manual.within(LONG).await.unwrap().to_string();
    assert_eq!(told, r#"{"errors":{"4":"the worker stops"}}"#);
    assert_eq!((worker.table.status(1), worker.table.status(4)), ("running", "manual"));
    worker.launcher.end(1, 0).await;
    let table = Arc::clone(&worker.table);
    worker.stopped().await;
    assert!(table.end(1).is_some_and(|end| end.ok));
}

#[tokio::test]
async fn jobs_that_outlast_a_stop_are_ended_and_say_why() {
    let worker = Fixture::with(&format!(
        "{}[targets]\nlow=1\n",
        CONFIG.replace("shutdown_timeout=60", "shutdown_timeout=0")
    ))
    .await;
    worker.table.add(1..=1, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("it runs", || worker.launcher.launched() == [1]).await;
    let table = Arc::clone(&worker.table);
    worker.stopped().await;
    let end = table.end(1).unwrap();
    assert_eq!((end.ok, end.signal.as_deref()), (false, Some("SIGKILL")));
    assert_eq!(end.note.as_deref(), Some("the job was ended because the worker stopped"));
}

#[tokio::test]
async fn a_second_request_to_stop_waits_for_nothing() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=1, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("it runs", || worker.launcher.launched() == [1]).await;
    worker.stop.asked.cancel();
    worker.stop.now.cancel();
    let table = Arc::clone(&worker.table);
    worker.stopped().await;
    assert_eq!(table.status(1), "done");
}

#[tokio::test]
async fn what_a_lost_worker_left_is_found_and_run() {
    let worker = Fixture::with(SHORT_LEASE).await;
    worker.table.add(1..=1, "low", "accepted");
    let row = Row { id: 1, target: "low".into(), origin: Origin::Waiting };
    worker.table.lost.lock().unwrap().push(row);
    worker.launcher.end(1, 0).await;
    until("it is done", || worker.table.status(1) == "done").await;
}

#[tokio::test]
async fn a_client_is_answered_at_the_stop_when_its_result_cannot_be_written() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=1, "low", "manual");
    let client = worker.client().await;
    let manual = client.ask("run-manual", Some(json(r#"{"ids":[1]}"#)));
    until("it runs", || worker.launcher.launched() == [1]).await;
    worker.table.set_away(true);
    worker.launcher.end(1, 0).await;
    worker.stop.asked.cancel();
    worker.stop.now.cancel();
    let answer = manual.within(LONG).await.unwrap().to_string();
    assert_eq!(answer, r#"{"errors":{"1":"the worker stops"}}"#);
    assert_eq!(worker.table.status(1), "running");
}

#[tokio::test]
async fn a_client_is_answered_when_the_database_stays_away() {
    let worker = Fixture::new("low=1\n").await;
    worker.table.add(1..=3, "low", "manual");
    let client = worker.client().await;
    let manual = client.ask("run-manual", Some(json(r#"{"ids":[1,2,3]}"#)));
    until("one runs", || worker.launcher.launched() == [1]).await;
    worker.table.set_away(true);
    worker.launcher.end(1, 0).await;
    tokio::time::pause();
    let answer = manual.within(LONG).await.unwrap().to_string();
    tokio::time::resume();
    let silent = "no answer from the database for 90 seconds";
    let ended = format!("{silent}: the job has ended, its result is not written yet");
    let waits = format!("{silent}: the job has not started yet");
    assert_eq!(answer, format!(r#"{{"errors":{{"1":"{ended}","2":"{waits}","3":"{waits}"}}}}"#));
    worker.table.set_away(false);
    worker.launcher.end(2, 0).await;
    worker.launcher.end(3, 0).await;
    until("all are done", || worker.table.count("done") == 3).await;
}

#[tokio::test]
async fn what_others_took_while_it_waited_is_not_run() {
    let worker = Fixture::with(SHORT_LEASE).await;
    worker.table.add(1..=2, "low", "waiting");
    worker.ask("poll", "{}").await.unwrap();
    until("one runs", || worker.launcher.launched() == [1]).await;
    worker.table.taken.lock().unwrap().push(2);
    until("it is asked for", || worker.table.taken.lock().unwrap().is_empty()).await;
    while !worker.target("low").await.contains("\"length\":1") {}
    worker.launcher.end(1, 0).await;
    until("it is done", || worker.table.status(1) == "done").await;
    assert_eq!(worker.launcher.launched(), [1]);
}
