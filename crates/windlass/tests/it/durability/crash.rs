//! `kill -9` at bad moments: everything acknowledged is there afterwards, once.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::harness::{
    Config, Daemon, Home, Random, StoreLock, file_bytes_below, ids_of, is_alive, text, until,
    until_some,
};

const KILLS_AFTER_ANSWER: usize = 20;
const KILLS_WITH_STORE_LOCKED: usize = 6;
const KILLS_IN_INGEST: usize = 12;
const CONNECTIONS: usize = 64;
const TRUNCATIONS: usize = 6;

/// Leases of one second: a journal is adopted once its dead owner's has ended.
fn short_leases() -> Config {
    Config::new().set("lease.duration", "\"1s\"")
}

#[test]
fn s0_23_kill_9_right_after_the_answer_loses_no_job() {
    let mut daemon = Daemon::start(short_leases());
    let mut acknowledged = BTreeMap::new();
    for n in 0..KILLS_AFTER_ANSWER {
        let payload = format!("payload {n}");
        let id = daemon.tenant("a").add_one("t", &payload);
        daemon.kill9();
        acknowledged.insert(id, payload);
        daemon.restart();
    }
    assert_all_run_once(&daemon, &acknowledged);
}

#[test]
fn s0_23_kill_9_with_the_store_locked_loses_no_job() {
    let mut daemon = Daemon::start(short_leases());
    let mut acknowledged = BTreeMap::new();
    for n in 0..KILLS_WITH_STORE_LOCKED {
        let lock = StoreLock::take(&daemon.config);
        for k in 0..3 {
            let payload = format!("payload {n} {k}");
            acknowledged.insert(daemon.tenant("a").add_one("t", &payload), payload);
        }
        daemon.kill9();
        drop(lock);
        daemon.restart();
    }
    assert_all_run_once(&daemon, &acknowledged);
}

/// A write that was cut off by a crash leaves an incomplete line after the good ones.
#[test]
fn s0_23_a_torn_write_at_the_end_of_the_journal_costs_no_acknowledged_job() {
    let mut daemon = Daemon::start(short_leases());
    let mut acknowledged = BTreeMap::new();
    let tails = ["4", "123456789012345", "123456789012345|a|t|half a payl", "\u{1}\u{2}\u{3}"];
    for (round, torn) in tails.iter().enumerate() {
        let lock = StoreLock::take(&daemon.config);
        let payload = format!("before-{round}");
        acknowledged.insert(daemon.tenant("a").add_one("t", &payload), payload.clone());
        daemon.kill9();
        let (file, _) = find_in_journal(daemon.home(), &payload);
        let end = content_end(&file);
        let mut journal = fs::read(&file).unwrap();
        journal.truncate(end);
        journal.extend_from_slice(torn.as_bytes());
        fs::write(&file, journal).unwrap();
        drop(lock);
        daemon.restart();
    }
    assert_all_run_once(&daemon, &acknowledged);
}

/// Bytes that a dying disk cuts off cost at most the job that they belong to.
#[test]
fn s0_23_a_journal_cut_inside_its_last_job_gives_whole_jobs_only() {
    for cut in 1..=TRUNCATIONS {
        let mut daemon = Daemon::start(short_leases());
        let lock = StoreLock::take(&daemon.config);
        let tenant = daemon.tenant("a");
        let mut acknowledged = BTreeMap::new();
        for payload in ["first-payload", "second-payload"] {
            acknowledged.insert(tenant.add_one("t", payload), payload.to_owned());
        }
        let last = tenant.add_one("t", "last-payload");
        daemon.kill9();
        let (file, start) = find_in_journal(daemon.home(), "last-payload");
        let length = (start + "last-payload".len() - cut) as u64;
        OpenOptions::new().write(true).open(&file).unwrap().set_len(length).unwrap();
        drop(lock);
        daemon.restart();
        let tenant = daemon.tenant("a");
        until("the whole jobs are back", || tenant.list("").len(), |n| *n >= 2);
        let jobs = tenant.drain("t", 2);
        for job in &jobs {
            let id = text(&job["id"]);
            assert_ne!(id, last, "a cut job is not invented");
            assert_eq!(acknowledged.get(&id), Some(&text(&job["payload"])));
        }
        assert_eq!(jobs.len(), 2);
        let next = tenant.add_one("t", "next");
        assert_eq!(tenant.until_claimed("t", "60s")["id"], Value::from(next));
    }
}

#[test]
fn s0_24_kill_9_while_segments_rotate_loses_nothing() {
    const ROUNDS: u64 = 6;
    let config = short_leases().set("journal.segment_bytes_max", "65536");
    let mut daemon = Daemon::start(config);
    let mut random = Random::new(24);
    let mut acknowledged = BTreeMap::new();
    for round in 0..ROUNDS {
        let filler = "x".repeat(2000);
        for n in 0..30 + random.below(60) {
            let payload = format!("{round}-{n}-{filler}");
            acknowledged.insert(daemon.tenant("a").add_one("t", &payload), payload);
        }
        daemon.kill9();
        daemon.restart();
    }
    assert_all_run_once(&daemon, &acknowledged);
}

#[test]
fn s0_25_kill_9_in_ingest_keeps_every_id_once() {
    const LINES: usize = 200;
    let mut daemon = Daemon::start(short_leases());
    let mut random = Random::new(25);
    let mut acknowledged = BTreeMap::new();
    for round in 0..KILLS_IN_INGEST {
        // A random number of adds right before the kill puts it at another point of ingest.
        for request in 0..=random.below(4) {
            let payloads: Vec<String> =
                (0..LINES).map(|n| format!("{round}-{request}-{n}")).collect();
            let ids = daemon.tenant("a").add("t", &payloads);
            acknowledged.extend(ids.into_iter().zip(payloads));
        }
        daemon.kill9();
        daemon.restart();
    }
    let tenant = daemon.tenant("a");
    let listed = until(
        "all jobs are back",
        || tenant.list("type=t"),
        |jobs| jobs.len() >= acknowledged.len(),
    );
    let distinct: HashSet<String> = listed.iter().map(|job| text(&job["id"])).collect();
    assert_eq!((listed.len(), distinct.len()), (acknowledged.len(), acknowledged.len()));
    assert_all_run_once(&daemon, &acknowledged);
}

#[test]
fn s2_3_acknowledged_adds_of_64_connections_survive_kill_9() {
    let mut daemon = Daemon::start(short_leases());
    let acknowledged = flood_until(&mut daemon, Daemon::kill9);
    daemon.restart();
    assert_all_are_pulled(&daemon, &acknowledged);
}

#[test]
fn s2_3_acknowledged_adds_of_64_connections_survive_a_stop() {
    let mut daemon = Daemon::start(short_leases());
    let acknowledged = flood_until(&mut daemon, |daemon| {
        assert_eq!(daemon.terminate().code(), Some(0));
    });
    daemon.restart();
    assert_all_are_pulled(&daemon, &acknowledged);
}

/// Adds on many connections at once until the daemon ends; returns what was acknowledged.
fn flood_until(daemon: &mut Daemon, end: impl FnOnce(&mut Daemon)) -> BTreeMap<String, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let client = **daemon;
    let senders: Vec<_> = (0..CONNECTIONS)
        .map(|sender| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                let mut connection = client.connection();
                while !stop.load(Ordering::Relaxed) {
                    let payload = format!("{sender}-{}", acknowledged.len());
                    let headers = [("Content-Type", "text/plain")];
                    let sent =
                        connection.call("POST", "/v1/a/jobs/t", &headers, payload.as_bytes());
                    // A stopping daemon closes the connection or says that it stops.
                    let Some(answer) = sent.ok().filter(|answer| answer.status == 201) else {
                        break;
                    };
                    acknowledged.push((ids_of(&answer).remove(0), payload));
                }
                acknowledged
            })
        })
        .collect();
    let accepted = "windlass_jobs_accepted_total";
    until("all connections add", || daemon.metric(accepted, &[]), |n| *n >= 2000.0);
    end(daemon);
    stop.store(true, Ordering::Relaxed);
    let acknowledged: BTreeMap<String, String> =
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    assert!(acknowledged.len() >= 1000, "{}", acknowledged.len());
    acknowledged
}

/// Adds in progress without an answer may have been accepted too; nothing appears twice.
fn assert_all_are_pulled(daemon: &Daemon, acknowledged: &BTreeMap<String, String>) {
    let tenant = daemon.tenant("a");
    let mut pulled = BTreeMap::new();
    until(
        "all acknowledged jobs are pulled",
        || {
            for job in tenant.claim("t", 1000, "60s") {
                let before = pulled.insert(text(&job["id"]), text(&job["payload"]));
                assert_eq!(before, None, "no job is pulled twice");
            }
            acknowledged.keys().filter(|id| !pulled.contains_key(*id)).count()
        },
        |missing| *missing == 0,
    );
    for (id, payload) in acknowledged {
        assert_eq!(pulled.get(id), Some(payload));
    }
}

#[test]
fn s0_34_kill_9_of_the_daemon_while_jobs_run_still_completes_them() {
    const JOBS: usize = 12;
    const KILLS: usize = 3;
    let mut daemon = Daemon::start(short_leases().set("scheduler.slots", "4"));
    let body = format!("sleep 0.3; {}", daemon.home().recorder("seen"));
    daemon.tenant("a").sh("t", &body);
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = daemon.tenant("a").add("t", &payloads);
    for _ in 0..KILLS {
        let tenant = daemon.tenant("a");
        until("some job runs", || tenant.list("state=running").len(), |n| *n > 0);
        daemon.kill9();
        daemon.restart();
    }
    daemon.tenant("a").until_all(&ids, "finished");
    let seen = daemon.home().lines("seen");
    let ran: HashSet<&str> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    assert!(ids.iter().all(|id| ran.contains(id.as_str())), "{seen:?}");
}

/// Pulls until every acknowledged job has come, each once and with its payload, and nothing else.
fn assert_all_run_once(daemon: &Daemon, acknowledged: &BTreeMap<String, String>) {
    let tenant = daemon.tenant("a");
    let pulled = tenant.drain("t", acknowledged.len());
    let by_id: BTreeMap<String, String> =
        pulled.iter().map(|job| (text(&job["id"]), text(&job["payload"]))).collect();
    assert_eq!(&by_id, acknowledged);
    assert_eq!(pulled.len(), acknowledged.len(), "none came twice");
    assert!(tenant.claim("t", 1000, "60s").is_empty());
    assert_eq!(tenant.list("type=t&state=finished").len(), acknowledged.len());
}

/// The journal file that contains a payload, and the offset of the payload.
fn find_in_journal(home: &Home, payload: &str) -> (PathBuf, usize) {
    let mut found = None;
    for file in crate::harness::snapshot(&home.journal()).into_keys() {
        let bytes = fs::read(&file).unwrap();
        if let Some(at) = position(&bytes, payload.as_bytes()) {
            assert!(found.is_none(), "the payload is in one place of the journal");
            found = Some((file, at));
        }
    }
    found.expect("an acknowledged job that is not in the store is in the journal")
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Where the written part of a journal file ends; the rest may be preallocated.
fn content_end(file: &PathBuf) -> usize {
    let bytes = fs::read(file).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Appending preserves the contents.
#[test]
fn s0_23_an_unfinished_last_line_of_any_length_is_ignored() {
    let mut daemon = Daemon::start(short_leases());
    let mut acknowledged = BTreeMap::new();
    let mut random = Random::new(23);
    for round in 0..3 {
        let lock = StoreLock::take(&daemon.config);
        let payload = format!("kept-{round}");
        acknowledged.insert(daemon.tenant("a").add_one("t", &payload), payload.clone());
        daemon.kill9();
        let (file, _) = find_in_journal(daemon.home(), &payload);
        let mut torn = vec![b'7'; 1 + random.below(5000) as usize];
        torn[0] = b'1';
        OpenOptions::new().append(true).open(file).unwrap().write_all(&torn).unwrap();
        drop(lock);
        daemon.restart();
    }
    assert_all_run_once(&daemon, &acknowledged);
}

/// The key is in the journal with the jobs, so it holds from the answer on.
#[test]
fn an_idempotency_key_holds_after_kill_9_with_the_store_locked() {
    let mut daemon = Daemon::start(short_leases());
    let add = |daemon: &Daemon| {
        let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", "only once")];
        daemon.call("POST", "/v1/a/jobs/t", &headers, b"x")
    };
    let lock = StoreLock::take(&daemon.config);
    let first = ids_of(&add(&daemon).expect(201));
    assert_eq!(ids_of(&add(&daemon).expect(200)), first);
    daemon.kill9();
    drop(lock);
    daemon.restart();
    assert_eq!(ids_of(&add(&daemon).expect(200)), first);
    let tenant = daemon.tenant("a");
    until("the job is back", || tenant.list("").len(), |n| *n >= 1);
    assert_eq!(tenant.drain("t", 1).len(), 1);
    assert!(tenant.claim("t", 10, "60s").is_empty(), "it was added once");
}

#[test]
fn an_acknowledged_job_is_visible_right_after_a_crash_and_restart() {
    let mut daemon = Daemon::start(Config::new());
    let lock = StoreLock::take(&daemon.config);
    let id = daemon.tenant("a").add_one("t", "x");
    daemon.kill9();
    drop(lock);
    daemon.restart();
    assert_eq!(daemon.tenant("a").job(&id)["state"], "queued");
}

/// A job's output belongs to its end: both are kept, or the job runs again.
#[test]
fn s0_29_jobs_from_output_are_not_lost_by_kill_9() {
    const JOBS: usize = 120;
    const KILLS: usize = 6;
    let mut daemon = Daemon::start(short_leases().set("scheduler.slots", "4"));
    daemon.tenant("a").sh("t", "echo \"J: out|$WINDLASS_JOB_ID\"");
    let mut ids = Vec::new();
    for _ in 0..KILLS {
        let payloads: Vec<String> = (0..JOBS / KILLS).map(|n| n.to_string()).collect();
        let tenant = daemon.tenant("a");
        ids.extend(tenant.add("t", &payloads));
        let ended = daemon.log.events("job_ended").len();
        until("some have ended", || daemon.log.events("job_ended").len(), |n| *n > ended + 2);
        daemon.kill9();
        daemon.restart();
    }
    let tenant = daemon.tenant("a");
    until("all jobs are back", || tenant.list("type=t").len(), |n| *n == ids.len());
    tenant.until_all(&ids, "finished");
    let mut emitted = HashSet::new();
    until(
        "each has put out its job",
        || {
            emitted.extend(tenant.claim("out", 500, "60s").iter().map(|j| text(&j["payload"])));
            ids.iter().filter(|id| !emitted.contains(*id)).count()
        },
        |missing| *missing == 0,
    );
}

/// One run at a time: what a dead daemon had started does not run beside its second attempt.
#[test]
fn handlers_do_not_outlive_their_daemon() {
    let mut daemon = Daemon::start(short_leases());
    let pids = daemon.home().path("pids");
    let body = format!("echo $$ >> '{}'; {}", pids.display(), daemon.home().holder("seen", "hold"));
    daemon.tenant("a").sh("t", &body);
    let id = daemon.tenant("a").add_one("t", "x");
    until("the job runs", || daemon.home().lines("seen").len(), |n| *n == 1);
    daemon.kill9();
    daemon.restart();
    until("it runs again", || daemon.home().lines("seen").len(), |n| *n == 2);
    let first = daemon.home().lines("pids").remove(0);
    assert!(!is_alive(&first), "the first attempt of {id} still runs");
    daemon.home().let_go("hold");
    daemon.tenant("a").until_state(&id, "finished");
}

/// Each crash leaves a journal behind; the daemon that takes it over also removes it. With a store
/// that may forget what it has confirmed, that is only after some minutes.
#[test]
fn crashes_leave_no_growing_heap_of_files() {
    const CRASHES: usize = 8;
    let mut daemon = Daemon::start(Config::embedded().set("lease.duration", "\"1s\""));
    for n in 0..CRASHES {
        daemon.tenant("a").add_one("t", &n.to_string());
        let headers = [("Content-Type", "application/octet-stream")];
        daemon.call("POST", "/v1/a/jobs/big", &headers, &vec![1; 2_000_000]).expect(201);
        daemon.kill9();
        daemon.restart();
    }
    let tenant = daemon.tenant("a");
    assert_eq!(tenant.drain("t", CRASHES).len(), CRASHES);
    until("all are in the store", || tenant.type_row("big"), |row| row["ready"] == CRASHES);
    let left = || {
        let entries = |dir: &str| {
            let found = fs::read_dir(daemon.home().data().join(dir)).unwrap().count();
            (dir.to_owned(), found)
        };
        ["journal", "payload", "scratch"].map(entries)
    };
    until("what dead daemons left is cleared away", left, |left| left.iter().all(|e| e.1 <= 3));
}

#[test]
fn s2_29_a_part_of_an_upload_left_by_kill_9_is_cleared_away() {
    let mut daemon = Daemon::start(short_leases());
    let payload = daemon.home().data().join("payload");
    let mut connection = daemon.connection();
    let key = daemon.authorization();
    let head = format!(
        "POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\n{key}\
         Content-Type: application/octet-stream\r\nContent-Length: 50000000\r\n\r\n"
    );
    connection.send_raw(head.as_bytes()).unwrap();
    connection.send_raw(&vec![7; 8_000_000]).unwrap();
    until("a part is on disk", || file_bytes_below(&payload), |bytes| *bytes > 0);
    daemon.kill9();
    daemon.restart();
    until("the part is gone", || file_bytes_below(&payload), |bytes| *bytes == 0);
    assert!(daemon.tenant("a").list("").is_empty());
}

/// Names, options and bytes that could confuse a line-based file come back unchanged.
#[test]
fn s0_23_odd_names_payloads_and_options_come_back_from_the_journal() {
    let mut daemon = Daemon::start(short_leases());
    let lock = StoreLock::take(&daemon.config);
    let tenant = daemon.tenant("A.b_c-9");
    let kinds = ["www-prod%2FFoo", "a%20%22b%22%5C%27", "%C3%A4%E2%9C%93", "%25%7B%7D%2C%3A"];
    let payloads: [&[u8]; 5] = [b"", b"two\nlines\r\n", b"\0\xff|1|2|3\n4|", b"{\"a\":1}", b"#:x"];
    let mut added = Vec::new();
    for kind in kinds {
        for payload in payloads {
            let options = "priority=7&run_at=2001-01-01T00:00:00Z&timeout=5s&expires=30d";
            let path = tenant.path(&format!("jobs/{kind}?{options}"));
            let headers = [("Content-Type", "application/octet-stream")];
            let answer = daemon.call("POST", &path, &headers, payload).expect(201);
            let id = ids_of(&answer).remove(0);
            let job = tenant.job(&id);
            added.push((id, payload, job));
        }
    }
    daemon.kill9();
    drop(lock);
    daemon.restart();
    let tenant = daemon.tenant("A.b_c-9");
    until("all jobs are back", || tenant.list("").len(), |n| *n == added.len());
    for (id, payload, before) in added {
        assert_eq!(tenant.job(&id), before, "{}", tenant.log(&id));
        assert_eq!(tenant.get(&format!("jobs/{id}/payload")).expect(200).body, payload);
    }
}

#[test]
fn s0_23_a_data_directory_may_be_moved_with_jobs_in_its_journal() {
    let mut daemon = Daemon::start(short_leases());
    let mut acknowledged = BTreeMap::new();
    let in_store = daemon.tenant("a").add_one("t", "in the store");
    acknowledged.insert(in_store, "in the store".to_owned());
    let row = || daemon.tenant("a").type_row("t");
    until("it is in the store", row, |row| row["ready"] == 1);
    let lock = StoreLock::take(&daemon.config);
    let in_journal = daemon.tenant("a").add_one("t", "in the journal");
    acknowledged.insert(in_journal, "in the journal".to_owned());
    daemon.kill9();
    drop(lock);
    let daemon = Daemon::start(daemon.config.moved());
    assert_all_run_once(&daemon, &acknowledged);
}

/// Another daemon with another directory gets the dead one's number, and uses it, before the dead
/// one's journal is read.
#[test]
fn s0_23_a_number_that_is_used_again_hides_no_unread_journal() {
    let number = |config: Config| config.flag("--sysid").flag("9");
    let mut first = Daemon::start(number(short_leases()));
    let lock = StoreLock::take(&first.config);
    let mut acknowledged = BTreeMap::new();
    let early = first.tenant("a").add_one("t", "early");
    acknowledged.insert(early, "early".to_owned());
    first.kill9();
    drop(lock);
    let elsewhere = number(first.config.beside().set("lease.duration", "\"1s\""));
    let mut second = until_some("the number is free", || Daemon::try_start(elsewhere.clone()).ok());
    let late = second.tenant("a").add_one("t", "late");
    acknowledged.insert(late, "late".to_owned());
    until("it is in the store", || second.tenant("a").type_row("t"), |row| row["ready"] == 1);
    assert!(second.terminate().success());
    first.restart();
    assert_all_run_once(&first, &acknowledged);
}

/// A daemon may hold jobs that it has not started yet; its death costs them no attempt.
#[test]
fn s0_34_jobs_that_a_dead_daemon_had_not_started_lose_no_attempt() {
    const WARM_UP: usize = 200;
    let config = short_leases().one_slot().set("retry.attempts", "1");
    let mut daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let hold = daemon.home().write("hold", "");
    let wait = format!("while [ -e '{}' ]; do sleep 0.05; done", hold.display());
    let body = "payload=$(cat); echo $payload >>";
    let seen = daemon.home().path("seen");
    tenant.sh("t", &format!("{body} '{}'; [ $payload != hang ] || {wait}", seen.display()));
    // Many short jobs first, so that the daemon claims many at once when the slow one comes.
    let short = tenant.add("t", &["short"; WARM_UP]);
    let ids = tenant.add("t", &["hang", "2", "3", "4", "5", "6"]);
    let waiting = WARM_UP + ids.len();
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == waiting);
    daemon.start_picking();
    tenant.until_all(&short, "finished");
    until("the slow one runs", || daemon.home().lines("seen").len(), |n| *n > WARM_UP);
    for id in &ids[1..] {
        assert_eq!(tenant.job(id)["attempt"], 0, "it has not started");
    }
    daemon.kill9();
    daemon.home().let_go("hold");
    daemon.restart();
    let tenant = daemon.tenant("a");
    tenant.until_all(&ids[1..], "finished");
    tenant.until_state(&ids[0], "failed");
    assert_eq!(daemon.home().lines("seen").len(), waiting, "each ran once");
}

#[test]
fn s0_23_a_long_journal_is_read_back_completely() {
    const REQUESTS: usize = 10;
    const LINES: usize = 3000;
    let config = short_leases().set("journal.segment_bytes_max", "262144");
    let mut daemon = Daemon::start(config);
    let lock = StoreLock::take(&daemon.config);
    let mut ids = HashSet::new();
    for request in 0..REQUESTS {
        let payloads: Vec<String> = (0..LINES).map(|n| format!("{request}-{n}")).collect();
        ids.extend(daemon.tenant("a").add("t", &payloads));
    }
    daemon.kill9();
    drop(lock);
    daemon.restart();
    let tenant = daemon.tenant("a");
    let all = REQUESTS * LINES;
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == all);
    let listed: HashSet<String> = tenant.list("").iter().map(|job| text(&job["id"])).collect();
    assert!(listed == ids, "{} of {} jobs", listed.len(), ids.len());
}
