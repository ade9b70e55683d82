//! The journal as a user sees it: readable, bounded, synced before the answer.

use std::fs;
use std::process::Command;

use crate::harness::{Config, Daemon, StoreLock, file_bytes_below, run, text, until};

/// What an idle journal may keep: a few segments.
const SEGMENT_BYTES: u64 = 256 * 1024;
const IDLE_BYTES_MAX: u64 = 4 * SEGMENT_BYTES;
const ADDED_BYTES: u64 = 24 * 1024 * 1024;

/// With the embedded store, which forgets no synced commit: daemons of others keep their journals
/// for some minutes.
#[test]
fn s0_24_the_journal_shrinks_again_after_ingest() {
    let segment = SEGMENT_BYTES.to_string();
    let daemon = Daemon::start(Config::embedded().set("journal.segment_bytes_max", &segment));
    let tenant = daemon.tenant("a");
    let line = "x".repeat(2000);
    let lines = vec![line.as_str(); 500];
    let mut added = 0;
    let mut jobs = 0;
    while added < ADDED_BYTES {
        jobs += tenant.add("t", &lines).len();
        added += (lines.len() * line.len()) as u64;
    }
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == jobs);
    let journal = daemon.home().journal();
    until("the journal is small", || file_bytes_below(&journal), |size| *size <= IDLE_BYTES_MAX);
}

#[test]
fn s0_40_a_journal_line_can_be_read_with_grep() {
    let daemon = Daemon::start(Config::new());
    let lock = StoreLock::take(&daemon.config);
    let id = daemon.tenant("some-tenant").add_one("some-type", "pay|load, with a bar");
    let pattern = format!("^{id}|");
    let mut grep = Command::new("grep");
    grep.args(["-rah", &pattern]).arg(daemon.home().journal());
    let found = run(&mut grep, b"").ok();
    drop(lock);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with("|pay|load, with a bar"), "{lines:?}");
    assert!(lines[0].contains("some-tenant") && lines[0].contains("some-type"), "{lines:?}");
}

#[test]
fn s0_41_an_answer_comes_after_a_sync_of_the_journal() {
    const ADDS: usize = 20;
    let daemon = Daemon::start(Config::new());
    let syncs = || daemon.metric("windlass_journal_sync_seconds_count", &[]);
    for n in 0..ADDS {
        let before = syncs();
        daemon.tenant("a").add_one("t", &n.to_string());
        assert!(syncs() > before, "add {n} was answered without a sync");
    }
}

#[test]
fn s0_44_a_counted_payload_with_zero_bytes_and_newlines_arrives_unchanged() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payload: Vec<u8> = b"\0line\nline\r\n\xff\xfe|J: t|x\n\n".to_vec();
    let headers = [("Content-Type", "application/octet-stream")];
    let answer = daemon.call("POST", "/v1/a/jobs/t", &headers, &payload).expect(201);
    let id = crate::harness::ids_of(&answer).remove(0);
    assert_eq!(tenant.get(&format!("jobs/{id}/payload")).expect(200).body, payload);
    let copy = daemon.home().path("copy");
    tenant.sh("t", &format!("cat > '{}'", copy.display()));
    tenant.until_state(&id, "finished");
    assert_eq!(std::fs::read(copy).unwrap(), payload);
    assert_eq!(tenant.list("").len(), 1, "a payload is not output");
}

#[test]
fn s2_39_ten_thousand_adds_take_far_fewer_store_commits() {
    const ADDS: usize = 10_000;
    const SENDERS: usize = 8;
    let daemon = Daemon::start(Config::new());
    let commits = || daemon.metric("windlass_store_commit_seconds_count", &[]);
    let before = commits();
    let client = *daemon;
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut connection = client.connection();
                for n in 0..ADDS / SENDERS {
                    let headers = [("Content-Type", "text/plain")];
                    let payload = n.to_string();
                    let path = "/v1/a/jobs/t";
                    let answer = connection.call("POST", path, &headers, payload.as_bytes());
                    answer.unwrap().expect(201);
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let row = || daemon.tenant("a").type_row("t");
    until("all are in the store", row, |row| row["ready"] == ADDS);
    let taken = commits() - before;
    assert!(taken >= 1.0, "commits are counted");
    assert!(taken < ADDS as f64 / 2.0, "{taken} commits for {ADDS} adds of one line");

    // Adds of many lines: the number of commits does not depend on the number of jobs.
    let before = commits();
    let lines: Vec<String> = (0..ADDS).map(|n| n.to_string()).collect();
    daemon.tenant("a").add("u", &lines);
    let row = || daemon.tenant("a").type_row("u");
    until("all are in the store", row, |row| row["ready"] == ADDS);
    let taken = commits() - before;
    assert!(taken < ADDS as f64 / 100.0, "{taken} commits for {ADDS} jobs of one request");
}

/// Two daemons die with jobs that the store does not have; the journal of one of them is damaged.
#[test]
fn a_damaged_journal_is_named_and_the_other_is_taken_over() {
    let config = Config::new();
    let numbered = |number| Daemon::start(config.clone().flag("--sysid").flag(number));
    let (mut damaged, mut good) = (numbered("11"), numbered("12"));
    let lock = StoreLock::take(&config);
    for n in 0..5 {
        damaged.tenant("a").add_one("t", &format!("payload-{n}"));
    }
    let ids: Vec<String> = (0..5).map(|_| good.tenant("a").add_one("t", "x")).collect();
    damaged.kill9();
    good.kill9();
    drop(lock);
    let files = fs::read_dir(config.home.journal().join("11")).unwrap();
    let file = files.map(|file| file.unwrap().path()).find(|file| file.extension().is_some());
    let file = file.expect("a journal has a segment");
    let text_of = String::from_utf8(fs::read(&file).unwrap()).unwrap();
    fs::write(&file, text_of.replace("payload-1", "DAMAGED!!")).unwrap();

    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    tenant.until_known(&ids);
    tenant.until_all(&ids, "finished");
    let ready = || daemon.get("/readyz").expect(200).json();
    let ready = until("the journal is named", ready, |ready| ready["takeover"] != "ok");
    assert_eq!(text(&ready["takeover"]), "the journal of daemon 11 cannot be taken over");
    let left = &daemon.status()["journals_left"];
    assert_eq!(left[0]["sysid"], 11);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(text(&left[0]["why"]).contains(name), "{left}");
    assert_eq!(daemon.metric("windlass_journals_left", &[]), 1.0);
}
