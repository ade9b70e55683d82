//! Bytes on the wire of the Bedrock door: how requests are parsed, what replies look like, and what
//! headers such as `Connection` do.

use std::collections::HashSet;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, Door, StoreLock, field, id_of, refused_start, request, until,
};

/// Microseconds since the epoch, some seconds from now.
fn micros_in(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (i64::try_from(now.as_micros()).unwrap() + seconds * 1_000_000).to_string()
}

#[track_caller]
fn jobs_named(door: &Door, name: &str) -> usize {
    door.count_named(name)
}

#[test]
fn the_door_is_closed_unless_it_is_asked_for() {
    let daemon = Daemon::start(Config::new());
    let entries = daemon.log.entries();
    assert!(entries.iter().all(|entry| field(entry, "bedrock").is_null()), "{entries:?}");
}

/// Whichever process holds the port, a daemon that reports it as taken has tried it.
#[test]
fn the_address_without_a_value_is_8888_of_this_machine() {
    let _taken = std::net::TcpListener::bind("127.0.0.1:8888");
    let refused = refused_start(&Config::new().flag("--bedrock"));
    assert!(refused.stderr.contains("127.0.0.1:8888"), "{refused:?}");
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let refused = refused_start(&Config::new().flag("--bedrock").flag("0.0.0.0:0"));
    assert!(refused.stderr.contains("0.0.0.0"), "{refused:?}");
}

#[test]
fn ping_and_status_answer() {
    let door = Door::start();
    door.call("Ping", &[]).ok();
    let status = door.call("Status", &[]).ok().json();
    assert_eq!((&status["state"], &status["isLeader"]), (&json!("LEADING"), &json!(true)));
    for key in ["plugins", "version", "CommitCount"] {
        assert_ne!(status[key], Value::Null, "{key} in {status}");
    }
}

#[test]
fn lines_end_in_many_ways() {
    let door = Door::start();
    let requests = [
        "CreateJob\r\nname: n\r\ndata: {\"a\":1}\r\n\r\n",
        "CreateJob\nname: n\ndata: {\"a\":1}\n\n",
        "CreateJob\n\rname: n\n\rdata: {\"a\":1}\n\n",
        "CreateJob\rname: n\rdata: {\"a\":1}\r\n\r\n",
        "CreateJob\r\nname: n\ndata: {\"a\":1}\r\n\r\n",
    ];
    for request in requests {
        let id = id_of(&door.call_raw(request.as_bytes()).ok().json());
        let job = door.job(id);
        assert_eq!((&job["name"], &job["data"]), (&json!("n"), &json!({"a": 1})), "{request:?}");
    }
}

#[test]
fn empty_lines_before_a_request_are_skipped() {
    let door = Door::start();
    for blank in ["\n", "\r\n", "\r\n\r\n", "\n\n\n", "\n\r\n"] {
        door.call_raw(format!("{blank}Ping\r\n\r\n").as_bytes()).ok();
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let door = Door::start();
    let mut link = door.open();
    for byte in request("CreateJob", &[("name", "slow")]) {
        link.raw(&[byte]);
    }
    let id = id_of(&link.receive().ok().json());
    assert_eq!(door.job(id)["name"], "slow");
}

#[test]
fn verbs_have_no_case_and_end_at_the_first_space() {
    let door = Door::start();
    for verb in ["CreateJob", "createjob", "CREATEJOB", "CreateJob / HTTP/1.1", "createJOB x y"] {
        let reply = door.call(verb, &[("name", "n")]);
        assert_eq!(reply.line, "200 OK", "{verb}: never with HTTP/1.1 before it");
    }
    door.call("getjob / HTTP/1.1", &[("name", "x")]).fails("404 No job found");
    door.call("PING", &[]).ok();
    for verb in ["Createjobx", "Foo", "Foo / HTTP/1.1", "Job", "GET", "CreateJob,"] {
        let reply = door.call(verb, &[("name", "n")]);
        assert_eq!(reply.line, "430 Unrecognized command", "{verb}");
    }
}

#[test]
fn header_names_have_no_case_and_spaces_are_trimmed() {
    let door = Door::start();
    let raw = "CreateJob\r\nNAME:   n  \r\nDaTa :{\"a\":1}\r\njobpriority:750\r\n\r\n";
    let job = door.job(id_of(&door.call_raw(raw.as_bytes()).ok().json()));
    assert_eq!((&job["name"], &job["data"]), (&json!("n"), &json!({"a": 1})));
    assert_eq!(job["priority"], 750);
}

#[test]
fn the_last_of_equal_headers_counts() {
    let door = Door::start();
    let id = door.create(&[("name", "first"), ("NAME", "second"), ("Name", "third")]);
    assert_eq!(door.job(id)["name"], "third");
}

#[test]
fn a_line_that_begins_with_space_goes_on_with_the_value_before() {
    let door = Door::start();
    let raw = b"CreateJob\r\nname: n\r\ndata: {\"a\":\r\n  1,\r\n\t\"b\":2}\r\n\r\n";
    let job = door.job(id_of(&door.call_raw(raw).ok().json()));
    assert_eq!(job["data"], json!({"a": 1, "b": 2}));
}

#[test]
fn header_values_are_unescaped() {
    let door = Door::embedded();
    let raw = "Query\r\nReadDBFlags: -json\r\nquery: SELECT unicode('\\b') AS b, \
               unicode('\\f') AS f, unicode('\\n') AS n, unicode('\\r') AS r, \
               unicode('\\t') AS t, unicode('\\u20ac') AS u, '\\\\' AS s, '\\x' AS x, \
               '\\/' AS l;\r\n\r\n";
    let rows = door.call_raw(raw.as_bytes()).ok().json();
    let wanted = json!([{
        "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "u": 8364, "s": "\\", "x": "x", "l": "/",
    }]);
    assert_eq!(rows, wanted);
    let raw = b"CreateJob\r\nname: caf\\u00e9\r\ndata: {\"q\":\"\\\\\"x\\\\\"\\\\n\"}\r\n\r\n";
    let id = id_of(&door.call_raw(raw).ok().json());
    let job = door.job(id);
    assert_eq!((&job["name"], &job["data"]), (&json!("café"), &json!({"q": "\"x\"\n"})));
    // If they are not doubled, the backslashes are gone before the JSON is parsed.
    let raw = b"CreateJob\r\nname: n\r\ndata: {\"q\":\"\\\"x\\\"\"}\r\n\r\n";
    door.call_raw(raw).fails("402 Data is not a valid JSON Object");
}

#[test]
fn header_values_of_replies_are_escaped() {
    let door = Door::embedded();
    let reply = door.call("Query", &[("query", "SELECT \\;")]);
    assert_eq!(reply.line, "402 Bad query");
    let error = reply.header("error").unwrap();
    assert!(error.contains("\\\\"), "a backslash is doubled: {error:?}");
}

#[test]
fn a_body_of_the_announced_length_is_skipped() {
    let door = Door::start();
    let mut link = door.open();
    let body = "Ping\r\n\r\nname: evil\r\n\r\n";
    let head = format!("CreateJob\r\nname: n\r\nContent-Length: {}\r\n\r\n", body.len());
    link.raw(head.as_bytes());
    link.raw(body.as_bytes());
    let id = id_of(&link.receive().ok().json());
    assert_eq!(door.job(id)["name"], "n");
    link.call("Foo", &[]).fails("430 Unrecognized command");
}

#[test]
fn a_chunked_body_is_skipped() {
    let door = Door::start();
    let mut link = door.open();
    link.raw(b"CreateJob\r\nname: n\r\nTransfer-Encoding: chunked\r\n\r\n");
    link.raw(b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n");
    link.receive().ok();
    link.call("Foo", &[]).fails("430 Unrecognized command");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const REQUESTS: usize = 200;
    let door = Door::start();
    for length in [Some("0"), None] {
        let mut link = door.open();
        let mut bytes = Vec::new();
        for n in 0..REQUESTS {
            let name = format!("n{n}");
            let mut headers = vec![("name", name.as_str())];
            headers.extend(length.map(|length| ("Content-Length", length)));
            bytes.extend(request("CreateJob", &headers));
            bytes.extend(request("GetJob", &headers));
            bytes.extend(request("Nonsense", &headers[1..]));
        }
        link.raw(&bytes);
        for n in 0..REQUESTS {
            let id = link.receive().ok().json()["jobID"].clone();
            let job = link.receive().ok().json();
            assert_eq!((&job["jobID"], &job["name"]), (&id, &json!(format!("n{n}"))));
            link.receive().fails("430 Unrecognized command");
        }
    }
}

#[test]
fn a_pipelined_body_is_not_read_as_a_request() {
    let door = Door::start();
    let mut link = door.open();
    link.raw(b"Ping\r\nContent-Length: 8\r\n\r\nFoo\r\n\r\nxPing\r\nContent-Length: 0\r\n\r\n");
    link.receive().ok();
    link.receive().ok();
    link.call("Foo", &[]).fails("430 Unrecognized command");
}

#[test]
fn an_error_has_its_text_in_the_first_line_and_no_body() {
    let door = Door::start();
    let reply = door.call("CreateJob", &[]);
    assert_eq!(reply.line, "402 Missing name");
    assert_eq!(reply.header("Content-Length"), Some("0"));
    assert_eq!(reply.body, b"");
}

#[test]
fn a_timeout_of_zero_is_over_at_once() {
    let door = Door::embedded();
    for (verb, headers) in [
        ("CreateJob", vec![("name", "n"), ("timeout", "0")]),
        ("GetJob", vec![("name", "n"), ("timeout", "0")]),
        ("Query", vec![("query", "SELECT 1;"), ("timeout", "0")]),
    ] {
        assert_eq!(door.call(verb, &headers).line, "555 Timeout", "{verb}");
    }
    assert_eq!(jobs_named(&door, "n"), 0);
}

#[test]
fn generic_headers_are_accepted() {
    let door = Door::start();
    let past = micros_in(-60);
    let headers = [
        ("name", "n"),
        ("timeout", "60000"),
        ("processTimeout", "5000"),
        ("commitCount", "0"),
        ("requestID", "abc"),
        ("Connection", "keep-alive"),
        ("X-Anything", "else"),
        ("commandExecuteTime", &past),
    ];
    let id = door.create(&headers);
    door.take(id, "n");
}

#[test]
fn close_is_echoed_and_closes() {
    let door = Door::start();
    let mut link = door.open();
    let reply = link.call("CreateJob", &[("name", "n"), ("Connection", "close")]).ok();
    assert_eq!(reply.header("Connection"), Some("close"));
    link.assert_closed();
    assert_eq!(jobs_named(&door, "n"), 1);
    let mut link = door.open();
    let reply = link.call("GetJob", &[("name", "x"), ("Connection", "close")]);
    assert_eq!(reply.header("Connection"), Some("close"));
    reply.fails("404 No job found");
    link.assert_closed();
}

#[test]
fn only_close_in_small_letters_is_echoed() {
    let door = Door::start();
    for other in ["Close", "CLOSE", "keep-alive", ""] {
        let reply = door.open().call("Ping", &[("Connection", other)]).ok();
        assert_eq!(reply.header("Connection"), None, "{other:?}");
    }
}

#[test]
fn a_connection_is_kept() {
    let door = Door::start();
    let mut link = door.open();
    for _ in 0..300 {
        let reply = link.call("Ping", &[]).ok();
        assert_eq!(reply.header("Connection"), None);
    }
}

#[test]
fn a_forgotten_command_is_answered_at_once_and_runs() {
    let door = Door::start();
    let mut link = door.open();
    let reply = link.call("CreateJob", &[("name", "n"), ("Connection", "forget")]);
    assert_eq!(reply.header("Connection"), Some("close"));
    assert_eq!(reply.header("Content-Length"), Some("0"));
    reply.fails("202 Successfully queued");
    link.assert_closed();
    until("the job is there", || jobs_named(&door, "n"), |count| *count == 1);
}

#[test]
fn a_forgotten_command_that_is_wrong_is_accepted_and_does_nothing() {
    let door = Door::start();
    let mut link = door.open();
    link.call("CreateJob", &[("Connection", "forget")]).fails("202 Successfully queued");
    link.assert_closed();
    door.call("Ping", &[]).ok();
}

#[test]
fn a_forgotten_get_gives_its_job_back() {
    let door = Door::start();
    for verb in ["GetJob", "GetJobs"] {
        let headers = [("name", "n"), ("firstRun", "2024-01-01"), ("retryAfter", "+1 HOUR")];
        let id = door.create(&headers);
        let mut wish = vec![("name", "n"), ("Connection", "forget")];
        if verb == "GetJobs" {
            wish.push(("numResults", "3"));
        }
        let mut link = door.open();
        link.call(verb, &wish).fails("202 Successfully queued");
        link.assert_closed();
        let created = door.row(id)["created"].clone();
        let row = until("it is back", || door.row(id), |row| row["nextRun"] == created);
        assert_eq!(row["state"], "QUEUED");
        let data: Value = serde_json::from_str(row["data"].as_str().unwrap()).unwrap();
        assert_eq!(data["retryAfterCount"], 0, "the failure is taken back: {row}");
        door.take(id, "n");
        door.about("FinishJob", id).done();
    }
}

/// Its `retryAfter` gives no time, so it counts as failed once a worker has it.
#[test]
fn a_forgotten_get_gives_back_a_job_that_is_handed_out_for_the_last_time() {
    let door = Door::start();
    let headers = [("name", "n"), ("firstRun", "2024-01-01"), ("retryAfter", "+1 DAY, +1 HOUR")];
    let id = door.create(&headers);
    let wish = [("name", "n"), ("Connection", "forget")];
    door.open().call("GetJob", &wish).fails("202 Successfully queued");
    let created = door.row(id)["created"].clone();
    let row = until("it is back", || door.row(id), |row| row["nextRun"] == created);
    assert_eq!(row["state"], "QUEUED");
    door.take(id, "n");
    assert_eq!(door.state(id), "FAILED");
}

#[test]
fn a_command_for_later_is_queued_and_runs_at_its_time() {
    let door = Door::embedded();
    let at = micros_in(2);
    let mut link = door.open();
    let reply = link.call("CreateJob", &[("name", "n"), ("commandExecuteTime", &at)]);
    assert_eq!(reply.header("Connection"), Some("close"));
    reply.fails("202 Successfully queued");
    link.assert_closed();
    until("the job is there", || jobs_named(&door, "n"), |count| *count == 1);
    let seconds = at.parse::<i64>().unwrap() / 1_000_000;
    let late = door.value(&format!(
        "(SELECT created >= DATETIME({seconds}, 'unixepoch') FROM jobs WHERE name = 'n')"
    ));
    assert_eq!(late, 1, "not before its time");
}

#[test]
fn a_command_for_much_later_does_not_run_now() {
    let door = Door::start();
    let at = micros_in(3600);
    let headers = [("name", "n"), ("commandExecuteTime", at.as_str())];
    door.open().call("CreateJob", &headers).fails("202 Successfully queued");
    door.named("m");
    assert_eq!(jobs_named(&door, "n"), 0);
}

#[test]
fn a_get_for_later_gives_its_job_back() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("firstRun", "2024-01-01")]);
    let at = micros_in(1);
    let wish = [("name", "n"), ("commandExecuteTime", at.as_str())];
    door.open().call("GetJob", &wish).fails("202 Successfully queued");
    let created = door.row(id)["created"].clone();
    let row = until("it is back", || door.row(id), |row| row["nextRun"] == created);
    assert_eq!(row["state"], "QUEUED");
}

#[test]
fn texts_become_json_by_the_rules() {
    let door = Door::start();
    let cases = [
        ("123", "123"),
        ("-5", "-5"),
        ("0", "0"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "\"9223372036854775808\""),
        ("007", "\"007\""),
        ("+5", "\"+5\""),
        ("-0", "\"-0\""),
        ("1.500000", "1.500000"),
        ("-0.250000", "-0.250000"),
        ("1.5", "\"1.5\""),
        ("0.10", "\"0.10\""),
        ("1e5", "\"1e5\""),
        ("true", "true"),
        ("TRUE", "true"),
        ("False", "false"),
        ("NULL", "null"),
        ("truex", "\"truex\""),
        ("[1, 2]", "[1, 2]"),
        ("[1, 2", "\"[1, 2\""),
        ("[x]", "\"[x]\""),
        ("{\"a\": 1}", "{\"a\": 1}"),
        ("{a}", "\"{a}\""),
        ("a/b", "\"a\\/b\""),
        ("a\"b", "\"a\\\"b\""),
        ("a\\b", "\"a\\\\b\""),
        ("é€", "\"é€\""),
    ];
    for (name, wanted) in cases {
        let id = door.named(name);
        let text = door.about("QueryJob", id).ok().text();
        let wanted = format!("\"name\":{wanted},\"nextRun\"");
        assert!(text.contains(&wanted), "{wanted} for {name:?} in {text}");
    }
}

#[test]
fn control_characters_are_escaped_in_json() {
    let door = Door::start();
    let raw = b"CreateJob\r\nname: n\r\nfirstRun: \
                x\\b\\f\\n\\r\\t\\u0001\\u007f\"\\\\/\r\n\r\n";
    let id = id_of(&door.call_raw(raw).ok().json());
    let text = door.about("QueryJob", id).ok().text().to_lowercase();
    let wanted = "\"nextrun\":\"x\\b\\f\\n\\r\\t\\u0001\\u007f\\\"\\\\\\/\"";
    assert!(text.contains(wanted), "{wanted} in {text}");
}

#[test]
fn every_connection_gets_its_own_replies() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 40;
    let door = Door::start();
    let address = door.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            thread::spawn(move || {
                let mut link = crate::harness::Link::open(address).unwrap();
                let mut ids = Vec::new();
                for round in 0..ROUNDS {
                    let name = format!("c{client}/{round}");
                    let made = id_of(&link.call("CreateJob", &[("name", &name)]).ok().json());
                    let job = link.call("GetJob", &[("name", &name)]).ok().json();
                    assert_eq!((id_of(&job), &job["name"]), (made, &json!(name)));
                    link.call("FinishJob", &[("jobID", &made.to_string())]).done();
                    ids.push(made);
                }
                ids
            })
        })
        .collect();
    let ids: HashSet<i64> = clients.into_iter().flat_map(|c| c.join().unwrap()).collect();
    assert_eq!(ids.len(), CLIENTS * ROUNDS);
}

/// Another process holds the store for longer than the client waits: the client gets an error, and
/// a job that was claimed too late for it goes to the next one.
#[test]
fn a_command_that_takes_too_long_is_a_timeout() {
    let door = Door::start();
    let id = door.named("n");
    let lock = StoreLock::take(&door.config);
    for (verb, more) in [("GetJob", None), ("GetJobs", Some(("numResults", "3")))] {
        let mut headers = vec![("name", "n"), ("timeout", "300")];
        headers.extend(more);
        let line = door.open().call(verb, &headers).line;
        assert!(line.starts_with("555 Timeout"), "{verb}: {line}");
    }
    // Whatever needs only the journal still works.
    let late = id_of(&door.open().call("CreateJob", &[("name", "late")]).ok().json());
    drop(lock);
    let look = || door.call("GetJob", &[("name", "n")]);
    let reply = until("the job can be taken", look, |reply| reply.line == "200 OK");
    assert_eq!(id_of(&reply.json()), id);
    door.take(late, "late");
}

#[test]
fn a_stop_does_not_wait_for_clients() {
    let mut door = Door::start();
    let id = door.named("n");
    let mut waits = door.open();
    waits.send("GetJob", &[("name", "x"), ("Connection", "wait"), ("timeout", "50000")]);
    let mut half = door.open();
    half.raw(b"CreateJob\r\nname: ");
    let _idle = door.open();
    door.take(id, "n");
    assert!(door.daemon.terminate().success());
    if let Ok(reply) = waits.try_receive() {
        assert_eq!(reply.line, "404 No job found");
    }
}
