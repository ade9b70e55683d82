//! Garbage at the Bedrock door: an error or a close, never a panic, never another client's reply.

use std::io::Write;

use crate::harness::{Door, Link, Random, Reply, is_alive, request};

/// The daemon is alive and serves a new client.
#[track_caller]
fn still_serves(door: &Door) {
    assert!(is_alive(door.pid()), "the daemon lives");
    let mut link = door.open();
    link.call("Ping", &[]).ok();
    let panics: Vec<String> =
        door.log.lines().into_iter().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:?}");
}

/// Sends bytes and closes the sending side; returns all replies until the door closes.
#[track_caller]
fn answers(door: &Door, bytes: &[u8]) -> Vec<Reply> {
    let mut link = door.open();
    // The door may close before it has read everything.
    let _ = link.try_raw(bytes);
    link.half_close();
    let mut replies = Vec::new();
    while let Ok(reply) = link.try_receive() {
        replies.push(reply);
    }
    replies
}

fn lines(replies: &[Reply]) -> Vec<&str> {
    replies.iter().map(|reply| reply.line.as_str()).collect()
}

#[test]
fn bytes_without_sense_are_answered_with_errors() {
    let door = Door::start();
    let cases: [&[u8]; 12] = [
        b"\0\0\0\0\r\n\r\n",
        b"\xff\xfe\xfd\xfc\r\n\r\n",
        b":::::\r\n:::\r\n\r\n",
        b"CreateJob\r\n:\r\n\r\n",
        b"CreateJob\r\nno colon here\r\n\r\n",
        b" leading space\r\n\r\n",
        b"CreateJob\r\nname: \xc3\x28\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        b"{\"name\":\"x\"}\n\n",
        b"CreateJob\r\nname: \\u12\r\n\r\n",
        b"CreateJob\r\nname: \\\r\n\r\n",
    ];
    for bytes in cases {
        for reply in answers(&door, bytes) {
            assert_ne!(
                &reply.line[..1],
                "5",
                "{:?}: {}",
                String::from_utf8_lossy(bytes),
                reply.line
            );
        }
        still_serves(&door);
    }
}

#[test]
fn half_a_request_is_no_request() {
    let door = Door::start();
    let whole = request("CreateJob", &[("name", "half"), ("Content-Length", "0")]);
    for cut in 0..whole.len() {
        let replies = answers(&door, &whole[..cut]);
        assert!(lines(&replies).iter().all(|line| *line != "200 OK"), "cut at {cut}");
    }
    assert_eq!(door.count(), 0);
    still_serves(&door);
}

#[test]
fn a_body_that_never_comes_whole_runs_nothing() {
    let door = Door::start();
    let replies = answers(&door, b"CreateJob\r\nname: n\r\nContent-Length: 100\r\n\r\nshort");
    assert!(lines(&replies).iter().all(|line| *line != "200 OK"), "{replies:?}");
    assert_eq!(door.count(), 0);
    still_serves(&door);
}

#[test]
fn a_wrong_length_is_an_error_or_a_close() {
    let door = Door::start();
    let lengths = [
        "-1",
        "abc",
        "1e3",
        "0x10",
        "99999999999999999999",
        "18446744073709551615",
        "9223372036854775807",
        "1 1",
        "+5",
    ];
    for length in lengths {
        let head = format!("Ping\r\nContent-Length: {length}\r\n\r\n");
        for reply in answers(&door, head.as_bytes()) {
            assert_ne!(&reply.line[..2], "50", "{length}: {}", reply.line);
        }
        still_serves(&door);
    }
}

#[test]
fn a_wrong_chunk_is_an_error_or_a_close() {
    let door = Door::start();
    for chunk in ["zz\r\n", "-5\r\nhello\r\n", "ffffffffffffffffff\r\n", "5\r\nhelloXX", "\r\n"] {
        let head = format!("CreateJob\r\nname: n\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
        answers(&door, head.as_bytes());
        still_serves(&door);
    }
}

/// How much a client can send before the door disconnects it.
fn pour(link: &mut Link, piece: &[u8], limit: usize) -> usize {
    let mut sent = 0;
    while sent < limit && link.try_raw(piece).is_ok() {
        sent += piece.len();
    }
    sent
}

#[test]
fn endless_lines_headers_and_bodies_are_cut_off_in_bounded_memory() {
    const ENOUGH: usize = 256 << 20;
    let door = Door::start();
    let heads: [(&[u8], &[u8]); 5] = [
        (b"", &[b'x'; 65_536]),
        (b"", &[b'\n'; 65_536]),
        (b"CreateJob\r\nname: ", &[b'x'; 65_536]),
        (b"CreateJob\r\n", b"some-header: some value of some length that is not short\r\n"),
        (b"CreateJob\r\nname: n\r\nContent-Length: 99999999999\r\n\r\n", &[b'x'; 65_536]),
    ];
    for (head, piece) in heads {
        let mut link = door.open();
        link.raw(head);
        let piece = piece.repeat(65_536 / piece.len());
        let sent = pour(&mut link, &piece, ENOUGH);
        let memory = door.memory_kib("VmRSS");
        assert!(memory < 200 * 1024, "{memory} KiB after {sent} bytes of {head:?}");
        if !piece.starts_with(b"\n") {
            assert!(sent < ENOUGH, "the door has had enough of {head:?}");
        }
        drop(link);
        still_serves(&door);
    }
    assert_eq!(door.count(), 0);
}

#[test]
fn random_bytes_never_hurt() {
    const ROUNDS: usize = 300;
    let door = Door::start();
    let mut random = Random::new(99);
    for _ in 0..ROUNDS {
        let mut bytes = vec![0; 1 + random.below(600) as usize];
        random.fill(&mut bytes);
        if random.below(2) == 0 {
            bytes.extend_from_slice(b"\r\n\r\n");
        }
        answers(&door, &bytes);
    }
    still_serves(&door);
}

/// Valid requests with a few bytes changed: whatever happens, the next client gets its own reply.
#[test]
fn damaged_requests_never_hurt() {
    const ROUNDS: usize = 400;
    const SPECIAL: &[u8] = b"\r\n\\\"{}[]: \0";
    let door = Door::embedded();
    let good = [
        request("CreateJob", &[("name", "n"), ("data", "{\"a\":[1,2]}"), ("repeat", "HOURLY")]),
        request("CreateJobs", &[("jobs", "[{\"name\":\"n\",\"data\":{\"x\":\"\\\"\"}}]")]),
        request("GetJobs", &[("name", "[a-z]*"), ("numResults", "3")]),
        request("Query", &[("query", "SELECT * FROM jobs WHERE name GLOB 'a*';")]),
        request("FinishJob", &[("jobID", "4711"), ("data", "{}")]),
    ];
    let mut random = Random::new(5);
    let mut kept = door.open();
    for round in 0..ROUNDS {
        let mut bytes = good[random.below(good.len() as u64) as usize].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, SPECIAL[random.below(SPECIAL.len() as u64) as usize]),
            }
        }
        answers(&door, &bytes);
        let name = format!("own/{round}");
        let reply = kept.call("CreateJob", &[("name", &name)]).ok().json();
        let id = reply["jobID"].to_string();
        let job = kept.call("QueryJob", &[("jobID", &id)]).ok().json();
        assert_eq!(job["name"], name.as_str());
    }
    still_serves(&door);
}

#[test]
fn deeply_nested_json_is_an_error_or_stored() {
    const DEPTH: usize = 100_000;
    let door = Door::start();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let objects = format!("{}1{}", "{\"a\":".repeat(DEPTH), "}".repeat(DEPTH));
    let list = format!("[{{\"name\":\"n\",\"data\":{deep}}}]");
    for data in [&deep, &objects] {
        door.call("CreateJob", &[("name", "n"), ("data", data)]);
        let id = door.named("m");
        door.about_with("UpdateJob", id, &[("data", data)]);
        door.about("DeleteJob", id);
    }
    door.call("CreateJobs", &[("jobs", &list)]);
    door.call("GetJobs", &[("name", "n"), ("numResults", "10")]);
    still_serves(&door);
}

#[test]
fn awful_patterns_end() {
    let door = Door::start();
    door.named(&"a".repeat(255));
    let awful = "*a".repeat(6000);
    door.call("GetJob", &[("name", &awful)]).fails("404 No job found");
    let awful = format!("{}b", "a*".repeat(120));
    door.call("GetJob", &[("name", &awful)]).fails("404 No job found");
    let many = "n,".repeat(6000);
    door.call("GetJob", &[("name", &many)]).fails("404 No job found");
    still_serves(&door);
}

#[test]
fn a_client_that_goes_silent_in_its_request_is_closed() {
    let door = Door::start();
    let halves = [&b"CreateJob\r\nname: "[..], b"Ping\r\nContent-Length: 5\r\n\r\nab", b"C"];
    let mut links = halves.map(|half| {
        let mut link = door.open();
        link.raw(half);
        link
    });
    for link in &mut links {
        let rest = link.rest();
        assert!(!rest.starts_with(b"200"), "{:?}", String::from_utf8_lossy(&rest));
    }
    still_serves(&door);
}

#[test]
fn a_client_that_reads_nothing_is_no_burden_for_others() {
    let door = Door::start();
    let mut deaf = std::net::TcpStream::connect(door.address).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let status = request("Status", &[("Content-Length", "0")]).repeat(1000);
    let mut sent = 0;
    while sent < 64 << 20 {
        match deaf.write(&status) {
            Ok(0) | Err(_) => break,
            Ok(count) => sent += count,
        }
    }
    let mut link = door.open();
    for _ in 0..50 {
        link.call("Ping", &[]).ok();
    }
    assert!(door.memory_kib("VmRSS") < 200 * 1024);
}

#[test]
fn half_closed_clients_still_get_their_replies() {
    let door = Door::start();
    let replies = answers(&door, &request("CreateJob", &[("name", "n"), ("Content-Length", "0")]));
    assert_eq!(lines(&replies), ["200 OK"]);
}

#[test]
fn odd_ids_and_numbers_are_refused_politely() {
    let door = Door::start();
    for id in ["9223372036854775808", "-9223372036854775809", "NaN", "1e3", "٣", "1,2"] {
        door.call("QueryJob", &[("jobID", id)]).fails("402 Malformed jobID");
    }
    for number in ["99999999999999999999", "-99999999999999999999"] {
        let headers = [("name", "n"), ("numResults", number)];
        door.call("GetJobs", &headers).fails("404 No job found");
    }
    for timeout in ["-1", "abc", "99999999999999999999"] {
        for header in ["timeout", "commandExecuteTime"] {
            assert_eq!(answers(&door, &request("Ping", &[(header, timeout)])).len(), 1);
        }
    }
    still_serves(&door);
}
