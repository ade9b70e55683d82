//! The master over loopback, with workers that follow a script.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_test_kit::wait::in_time;

use super::*;
use crate::net::Access;
use crate::wire::{END, Json, Splitter};

/// Longer than any successful test takes.
const NEVER: Duration = Duration::from_secs(3600);

/// A master that runs until it is dropped.
struct Stage {
    addr: SocketAddr,
    _stop: DropGuard,
}

impl Stage {
    async fn new() -> Stage {
        Stage::with(NEVER, Duration::ZERO, NEVER).await
    }

    async fn with(ping: Duration, throttle: Duration, answer: Duration) -> Stage {
        let times = TimeLimits { worker_answer_max: answer, listen_pause: Duration::ZERO };
        Stage::start(ping, throttle, times).await
    }

    async fn start(ping: Duration, throttle: Duration, times: TimeLimits) -> Stage {
        let config = MasterConfig {
            ping_interval: ping,
            poke_throttle_interval: throttle,
            ..MasterConfig::parse("host=127.0.0.1\nport=7081").unwrap()
        };
        let log = Log::quiet();
        let server = Server::bind("127.0.0.1", 0, Access::default(), &log).await.unwrap();
        let (addr, stop) = (server.addr().unwrap(), CancellationToken::new());
        tokio::spawn(serve(server, Master::new(&config, times, &log), stop.clone()));
        Stage { addr, _stop: stop.drop_guard() }
    }

    async fn connect(&self) -> Line {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        Line { stream, splitter: Splitter::default() }
    }

    /// A registered worker.
    async fn worker(&self, name: &str, targets: &str) -> Line {
        let mut line = self.connect().await;
        let data = format!(r#"{{"name":"{name}","targets":{targets}}}"#);
        assert_eq!(line.ask(1, "register-worker", &data).await, ok(1));
        line
    }
}

fn ok(no: u32) -> String {
    format!(r#"[1,{{"no":{no},"data":"ok"}}]"#)
}

struct Line {
    stream: TcpStream,
    splitter: Splitter,
}

impl Line {
    async fn write(&mut self, messages: &[String]) {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend_from_slice(message.as_bytes());
            bytes.push(END);
        }
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next message; `None` when the connection ends.
    async fn read(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.splitter.next(usize::MAX).unwrap() {
                return Some(String::from_utf8(message.to_vec()).unwrap());
            }
            let read = self.stream.read_buf(self.splitter.buffer());
            if !in_time("something comes", read).await.is_ok_and(|bytes| bytes > 0) {
                return None;
            }
        }
    }

    async fn ask(&mut self, no: u32, kind: &str, data: &str) -> String {
        self.send(no, kind, data).await;
        self.read().await.expect("an answer")
    }

    async fn send(&mut self, no: u32, kind: &str, data: &str) {
        self.write(&[request(no, kind, data)]).await;
    }

    /// As a worker: the number and the rest of the next request.
    async fn asked(&mut self) -> (i64, String) {
        let text = self.read().await.expect("a request");
        let message: Json = serde_json::from_str(&text).unwrap();
        let no = message.as_array().unwrap()[1].get("no").and_then(Json::as_i64).unwrap();
        (no, text.replacen(&no.to_string(), "N", 1))
    }

    /// As a worker: expects a request and answers it.
    async fn serve(&mut self, expected: &str, answer: &str) {
        let (no, text) = self.asked().await;
        assert_eq!(text, expected);
        self.write(&[format!(r#"[1,{{"no":{no},{answer}}}]"#)]).await;
    }
}

fn request(no: u32, kind: &str, data: &str) -> String {
    format!(r#"[0,{{"no":{no},"type":"{kind}","data":{data}}}]"#)
}

const OK: &str = r#""data":"ok""#;

fn poll(targets: &str) -> String {
    format!(r#"[0,{{"no":N,"type":"poll","data":{{"targets":{targets}}}}}]"#)
}

#[tokio::test]
async fn bad_requests_are_refused_with_their_texts() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    for (kind, data, error) in [
        ("register-worker", r#"{"name":"w","targets":null}"#, "targets must be array"),
        ("register-worker", r#"{"targets":[]}"#, "targets are empty"),
        ("register-worker", r#"{"targets":["a"]}"#, "name is missing or invalid"),
        ("register-worker", r#"{"targets":["a"],"name":5}"#, "name is missing or invalid"),
        ("register-worker", r#"{"targets":["a"],"name":""}"#, "name is missing or invalid"),
        ("poke", "{}", "targets is not iterable"),
        ("poke", r#"{"targets":"a"}"#, "targets must be array"),
        ("poke", r#"{"targets":[1]}"#, "all targets must be strings, number given"),
        ("pause", r#"{"targets":[]}"#, "targets are empty"),
        ("continue", r#"{"targets":[null]}"#, "all targets must be strings, object given"),
        ("run-manual", "{}", "jobs must be array"),
        ("send-signal", r#"{"jobs":[{"id":1}]}"#, "missing required field signal"),
        ("poll", "{}", "unknown request type: 'poll'"),
        ("Status", "{}", "unknown request type: 'Status'"),
    ] {
        let answer = client.ask(7, kind, data).await;
        assert_eq!(answer, format!(r#"[1,{{"no":7,"error":"{error}"}}]"#), "{kind} {data}");
    }
    assert_eq!(client.ask(8, "pause", "{}").await, ok(8), "no worker is no error");
    assert_eq!(client.ask(9, "run-manual", r#"{"jobs":[]}"#).await, r#"[1,{"no":9,"data":{}}]"#);
}

#[tokio::test]
async fn a_poke_goes_to_every_worker_with_its_own_targets() {
    let stage = Stage::new().await;
    let mut one = stage.worker("w1", r#"["a","b"]"#).await;
    let mut two = stage.worker("w2", r#"["b","c"]"#).await;
    let mut client = stage.connect().await;
    assert_eq!(client.ask(1, "poke", r#"{"targets":["c","b","x"]}"#).await, ok(1));
    one.serve(&poll(r#"["b"]"#), OK).await;
    two.serve(&poll(r#"["b","c"]"#), OK).await;
}

#[tokio::test]
async fn a_remembered_poke_comes_after_the_answer_to_the_registration() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    client.ask(1, "poke", r#"{"targets":["late","other"]}"#).await;
    for _ in 0..2 {
        let mut worker = stage.worker("w", r#"["a","late"]"#).await;
        worker.serve(&poll(r#"["late"]"#), OK).await;
        // Only this makes the next worker be polled.
        client.ask(1, "poke", r#"{"targets":["late"]}"#).await;
        assert_eq!(worker.asked().await.1, poll(r#"["late"]"#));
    }
}

#[tokio::test]
async fn a_remembered_poke_waits_until_the_worker_listens() {
    let times = TimeLimits { listen_pause: NEVER, ..TimeLimits::default() };
    let stage = Stage::start(NEVER, Duration::ZERO, times).await;
    let mut client = stage.connect().await;
    client.ask(1, "poke", r#"{"targets":["late"]}"#).await;
    let mut worker = stage.worker("w", r#"["late"]"#).await;
    // The original listens only after it has read the answer to its registration.
    worker.write(&["[2]".to_owned()]).await;
    assert_eq!(worker.read().await.as_deref(), Some("[3]"), "it is not polled before that");
    worker.serve(&poll(r#"["late"]"#), OK).await;
}

#[tokio::test]
async fn a_poll_that_a_lost_worker_did_not_answer_goes_to_the_next() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    let mut lost = stage.worker("w", r#"["a"]"#).await;
    client.ask(1, "poke", r#"{"targets":["a"]}"#).await;
    lost.asked().await;
    drop(lost);
    let mut next = stage.worker("w", r#"["a"]"#).await;
    next.serve(&poll(r#"["a"]"#), OK).await;
}

#[tokio::test]
async fn a_poll_that_a_mute_worker_did_not_answer_goes_to_the_next() {
    // Before the time limit of the mute worker, and around it.
    for answer in [NEVER, Duration::from_millis(50)] {
        let stage = Stage::with(NEVER, Duration::ZERO, answer).await;
        let mut client = stage.connect().await;
        let mut mute = stage.worker("mute", r#"["a"]"#).await;
        client.ask(1, "poke", r#"{"targets":["a"]}"#).await;
        mute.asked().await;
        if answer != NEVER {
            // The second request has the same time limit.
            client.ask(2, "status", r#"{"poll_workers":true}"#).await;
        }
        let mut next = stage.worker("next", r#"["a"]"#).await;
        next.serve(&poll(r#"["a"]"#), OK).await;
    }
}

#[tokio::test]
async fn a_refused_poll_is_repeated_for_everything() {
    let stage = Stage::new().await;
    let mut worker = stage.worker("old", r#"["a","removed"]"#).await;
    let mut client = stage.connect().await;
    client.ask(1, "poke", r#"{"targets":["a","removed"]}"#).await;
    worker.serve(&poll(r#"["a","removed"]"#), r#""error":"invalid target 'removed'""#).await;
    worker.serve(r#"[0,{"no":N,"type":"poll","data":{}}]"#, OK).await;
}

#[tokio::test]
async fn the_rest_of_a_burst_is_held_back() {
    let stage = Stage::with(NEVER, NEVER, NEVER).await;
    let mut worker = stage.worker("w", r#"["a"]"#).await;
    let mut client = stage.connect().await;
    let pokes: Vec<_> = (1..=50).map(|no| request(no, "poke", r#"{"targets":["a"]}"#)).collect();
    client.write(&pokes).await;
    for no in 1..=50 {
        assert_eq!(client.read().await, Some(ok(no)));
    }
    worker.serve(&poll(r#"["a"]"#), OK).await;
    client.send(51, "status", r#"{"poll_workers":true}"#).await;
    assert_eq!(worker.asked().await.1, r#"[0,{"no":N,"type":"status"}]"#);
}

#[tokio::test]
async fn a_burst_of_many_targets_becomes_few_polls_and_loses_none() {
    const TARGETS: usize = 200;
    let stage = Stage::with(NEVER, Duration::from_millis(100), NEVER).await;
    let names: Vec<String> = (0..TARGETS).map(|number| format!("t{number}")).collect();
    let mut worker = stage.worker("w", &Json::from(names.clone()).to_string()).await;
    let mut client = stage.connect().await;
    let poke = |name: &String| request(1, "poke", &format!(r#"{{"targets":["{name}"]}}"#));
    client.write(&names.iter().map(poke).collect::<Vec<_>>()).await;
    let (mut polled, mut polls) = (Vec::new(), 0);
    while polled.len() < TARGETS {
        let (no, text) = worker.asked().await;
        let message: Json = serde_json::from_str(&text.replacen('N', "1", 1)).unwrap();
        let targets = message.as_array().unwrap()[1].get("data").unwrap().get("targets").unwrap();
        polled.extend(targets.as_array().unwrap().iter().map(Json::js_string));
        polls += 1;
        worker.write(&[format!(r#"[1,{{"no":{no},{OK}}}]"#)]).await;
    }
    polled.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    assert_eq!(polled, names, "each was polled exactly once");
    assert!(polls < TARGETS / 4, "{polls} polls");
}

#[tokio::test]
async fn pause_and_continue_reach_those_concerned_and_are_answered() {
    let stage = Stage::new().await;
    let mut one = stage.worker("w1", r#"["a","b"]"#).await;
    let mut two = stage.worker("w2", r#"["c"]"#).await;
    let mut client = stage.connect().await;
    client.send(1, "pause", r#"{"targets":["x","b"]}"#).await;
    one.serve(r#"[0,{"no":N,"type":"pause","data":{"targets":["b"]}}]"#, OK).await;
    assert_eq!(client.read().await, Some(ok(1)));
    client.send(2, "continue", "{}").await;
    one.serve(r#"[0,{"no":N,"type":"continue","data":{}}]"#, OK).await;
    two.serve(r#"[0,{"no":N,"type":"continue","data":{}}]"#, r#""error":"no""#).await;
    assert_eq!(client.read().await, Some(ok(2)), "a refusal is a matter of that worker");
}

/// The workers of a status answer, with ports hidden.
fn workers(answer: &str) -> String {
    let message: Json = serde_json::from_str(answer).unwrap();
    let data = message.as_array().unwrap()[1].get("data").unwrap().clone();
    assert!(data.get("memoryUsage").unwrap().get("rss").is_some());
    let mut text = data.get("workers").unwrap().to_string();
    for worker in data.get("workers").unwrap().as_array().unwrap() {
        let port = worker.get("remotePort").and_then(Json::as_i64).unwrap();
        text = text.replace(&format!(":{port},"), ":P,");
    }
    text
}

#[tokio::test]
async fn status_lists_workers_as_they_last_registered() {
    let stage = Stage::new().await;
    let mut client = stage.connect().await;
    assert_eq!(workers(&client.ask(1, "status", "{}").await), "[]");
    let mut one = stage.worker("w1", r#"["a","a","b"]"#).await;
    let two = stage.worker("w2", r#"["c"]"#).await;
    let data = r#"{"name":"w1","targets":["b","new"]}"#;
    assert_eq!(one.ask(2, "register-worker", data).await, ok(2));
    let mut three = stage.connect().await;
    assert_eq!(three.ask(1, "register-worker", r#"{"name":"w3"}"#).await, ok(1));
    let answer = client.ask(2, "status", r#"{"poll_workers":false}"#).await;
    let (w1, w2, w3) = (
        r#"{"remoteAddr":"127.0.0.1","remotePort":P,"targets":["b","new"],"name":"w1"}"#,
        r#"{"remoteAddr":"127.0.0.1","remotePort":P,"targets":["c"],"name":"w2"}"#,
        r#"{"remoteAddr":"127.0.0.1","remotePort":P,"targets":null,"name":"w3"}"#,
    );
    assert_eq!(workers(&answer), format!("[{w1},{w2},{w3}]"));
    drop(two);
    loop {
        let answer = workers(&client.ask(3, "status", "{}").await);
        if answer == format!("[{w1},{w3}]") {
            break;
        }
        assert_eq!(answer, format!("[{w1},{w2},{w3}]"));
    }
}

#[tokio::test]
async fn status_survives_workers_that_fail_in_every_way() {
    let stage = Stage::with(NEVER, Duration::ZERO, Duration::from_millis(500)).await;
    let mut good = stage.worker("good", r#"["a"]"#).await;
    let mut lost = stage.worker("lost", r#"["a"]"#).await;
    let mut failing = stage.worker("failing", r#"["a"]"#).await;
    let _mute = stage.worker("mute", r#"["a"]"#).await;
    let mut client = stage.connect().await;
    client.send(1, "status", r#"{"poll_workers":1}"#).await;
    let status = r#"[0,{"no":N,"type":"status"}]"#;
    good.serve(status, r#""data":{"targets":{"b":1,"a":2}}"#).await;
    lost.asked().await;
    drop(lost);
    failing.serve(status, r#""error":"no status today""#).await;
    let answer = workers(&client.read().await.unwrap());
    for (name, part) in [
        ("good", r#""workerStatus":{"targets":{"b":1,"a":2}}"#),
        ("lost", r#""workerStatusError":"Socket is closed""#),
        ("failing", r#""workerStatusError":"no status today""#),
        ("mute", r#""workerStatusError":"no answer within 0.5 seconds""#),
    ] {
        assert!(answer.contains(&format!(r#""name":"{name}",{part}}}"#)), "{name}: {answer}");
    }
}

#[tokio::test]
async fn manual_jobs_of_failing_workers_cost_nobody_elses() {
    let stage = Stage::new().await;
    let mut good = stage.worker("good", r#"["good"]"#).await;
    let mut lost = stage.worker("lost", r#"["lost"]"#).await;
    let mut failing = stage.worker("failing", r#"["failing"]"#).await;
    let mut client = stage.connect().await;
    let data = r#"{"jobs":[{"id":1,"target":"good"},{"id":2,"target":"lost"},
        {"id":3,"target":"failing"},{"id":4,"target":"good"},{"id":1,"target":"good"},
        {"id":5,"target":"nobody"},{"id":6,"target":"lost"}]}"#;
    client.send(1, "run-manual", data).await;
    assert!(lost.asked().await.1.ends_with(r#""type":"run-manual","data":{"ids":[2,6]}}]"#));
    drop(lost);
    let manual = |ids| format!(r#"[0,{{"no":N,"type":"run-manual","data":{{"ids":{ids}}}}}]"#);
    failing.serve(&manual("[3]"), r#""error":"another client is already waiting for job 3""#).await;
    let end = r#"{"result":"ok","code":0,"signal":null,"stdout":"out\n","stderr":""}"#;
    let answer = format!(r#""data":{{"jobs":{{"1":{end}}},"errors":{{"4":"job 4 not found"}}}}"#);
    good.serve(&manual("[1,4]"), &answer).await;
    let errors = [
        r#""2":"Socket is closed""#,
        r#""3":"another client is already waiting for job 3""#,
        r#""4":"job 4 not found""#,
        r#""5":"worker serving target 'nobody' not found""#,
        r#""6":"Socket is closed""#,
    ];
    let (jobs, errors) = (format!(r#"{{"1":{end}}}"#), errors.join(","));
    let expected = format!(r#"[1,{{"no":1,"data":{{"jobs":{jobs},"errors":{{{errors}}}}}}}]"#);
    assert_eq!(client.read().await, Some(expected));
}

#[tokio::test]
async fn a_worker_that_names_no_targets_costs_no_client_its_answer() {
    let stage = Stage::new().await;
    let mut mute = stage.connect().await;
    assert_eq!(mute.ask(1, "register-worker", r#"{"name":"mute"}"#).await, ok(1));
    let mut good = stage.worker("good", r#"["good"]"#).await;
    let mut client = stage.connect().await;
    let data = r#"{"jobs":[{"id":1,"target":"other"},{"id":2,"target":"good"}]}"#;
    client.send(1, "run-manual", data).await;
    let manual = r#"[0,{"no":N,"type":"run-manual","data":{"ids":[2]}}]"#;
    good.serve(manual, r#""data":{"errors":{"2":"job 2 not found"}}"#).await;
    let expected = concat!(
        r#"[1,{"no":1,"data":{"errors":{"1":"worker serving target 'other' not found","#,
        r#""2":"job 2 not found"}}}]"#
    );
    assert_eq!(client.read().await.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_worker_that_does_not_answer_pings_is_dropped_with_its_requests() {
    let ping = Duration::from_millis(100);
    let stage = Stage::with(ping, Duration::ZERO, NEVER).await;
    let mut mute = stage.worker("mute", r#"["a"]"#).await;
    let mut client = stage.connect().await;
    let data = r#"{"jobs":[{"id":1,"target":"a"}]}"#;
    client.send(1, "run-manual", data).await;
    mute.asked().await;
    assert_eq!(mute.read().await.as_deref(), Some("[2]"));
    assert_eq!(mute.read().await.as_deref(), Some("[2]"));
    assert_eq!(mute.read().await, None);
    let lost = r#"[1,{"no":1,"data":{"errors":{"1":"Socket is closed"}}}]"#;
    assert_eq!(client.read().await.as_deref(), Some(lost));
    assert_eq!(workers(&client.ask(2, "status", "{}").await), "[]");
}

#[tokio::test]
async fn a_worker_that_answers_pings_stays() {
    let stage = Stage::with(Duration::from_millis(200), Duration::ZERO, NEVER).await;
    let mut worker = stage.worker("w", r#"["a"]"#).await;
    for _ in 0..5 {
        assert_eq!(worker.read().await.as_deref(), Some("[2]"));
        worker.write(&["[3]".to_owned()]).await;
    }
}

#[tokio::test]
async fn signals_go_to_all_workers_that_may_have_the_job() {
    let stage = Stage::new().await;
    let mut one = stage.worker("w1", r#"["a"]"#).await;
    let mut two = stage.worker("w2", r#"["a","b"]"#).await;
    let mut client = stage.connect().await;
    let data = r#"{"jobs":[{"id":5,"signal":9,"target":"a"},{"id":7,"signal":15,"target":"b"},
        {"id":8,"signal":15,"target":"x"}]}"#;
    client.send(1, "send-signal", data).await;
    let signals = |jobs| format!(r#"[0,{{"no":N,"type":"send-signal","data":{{"jobs":{jobs}}}}}]"#);
    one.serve(&signals(r#"{"5":9}"#), r#""data":{"5":true}"#).await;
    two.serve(&signals(r#"{"5":9,"7":15}"#), r#""data":{"5":false,"7":false}"#).await;
    let expected = concat!(
        r#"[1,{"no":1,"data":{"5":true,"7":false,"#,
        r#""errors":{"8":"worker serving target 'x' not found"}}}]"#
    );
    assert_eq!(client.read().await.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_port_in_use_ends_the_master() {
    let stage = Stage::new().await;
    let config = format!("host=127.0.0.1\nport={}", stage.addr.port());
    let config = MasterConfig::parse(&config).unwrap();
    let error = run(config, Log::quiet(), CancellationToken::new()).await.unwrap_err();
    let expected = format!("cannot listen on {}: ", stage.addr);
    assert!(error.starts_with(&expected), "{error}");
}

/// Compares a message with the documented one; a name in braces stands for a number, the same one
/// each time.
fn compare(shown: &str, seen: &str, known: &mut HashMap<String, String>) {
    let (mut shown_rest, mut seen_rest) = (shown, seen);
    while let Some((before, name, after)) = placeholder(shown_rest) {
        let tail = seen_rest.strip_prefix(before);
        seen_rest = tail.unwrap_or_else(|| panic!("{seen} is not as shown: {shown}"));
        let digits = seen_rest.bytes().take_while(u8::is_ascii_digit).count();
        let (value, rest) = seen_rest.split_at(digits);
        let first = known.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        assert!(!value.is_empty() && value == first, "{name} in {seen}");
        (seen_rest, shown_rest) = (rest, after);
    }
    assert_eq!(seen_rest, shown_rest, "the end of {seen}");
}

/// Text, a name in braces, text.
fn placeholder(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices('{').find_map(|(start, _)| {
        let (name, after) = line[start + 1..].split_once('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        is_name.then_some((&line[..start], name, after))
    })
}

#[tokio::test]
async fn the_session_of_the_page_is_what_happens() {
    const PAGE: &str = include_str!("../../../../docs/protocols/jobd.md");
    let session = PAGE.split_once("```transcript master\n").unwrap().1.split_once("```").unwrap().0;
    let stage = Stage::new().await;
    let (mut client, mut worker) = (stage.connect().await, stage.connect().await);
    let mut known: HashMap<String, String> = HashMap::new();
    for line in session.lines() {
        let (who, rest) = line.split_once(' ').unwrap();
        let peer = if who == "W" { &mut worker } else { &mut client };
        match rest.split_once(' ').unwrap() {
            (">", shown) => {
                let mut message = shown.to_owned();
                for (name, value) in &known {
                    message = message.replace(&format!("{{{name}}}"), value);
                }
                peer.write(&[message]).await;
            }
            (_, shown) => compare(shown, &peer.read().await.unwrap(), &mut known),
        }
        // Memory usage varies.
        known.retain(|name, _| !["rss", "total", "used"].contains(&name.as_str()));
    }
}
