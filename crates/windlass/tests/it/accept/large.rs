//! Payloads larger than a message queue usually accepts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::harness::{Config, Daemon, Random, ids_of, sha256_of, text, until};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const HUGE: u64 = 100_000_000;
/// How much more memory a payload of twice the size may cost: far less than its additional bytes.
/// The first one fills the caches, whose size does not depend on it.
const MEMORY_GROWTH_KIB_MAX: u64 = HUGE * 8 / 10 / KIB;

fn write_random(path: &Path, bytes: u64) {
    let mut random = Random::new(bytes + 1);
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut left = bytes as usize;
    let mut piece = vec![0; 64 * 1024];
    while left > 0 {
        let size = left.min(piece.len());
        random.fill(&mut piece[..size]);
        file.write_all(&piece[..size]).unwrap();
        left -= size;
    }
    file.flush().unwrap();
}

fn upload(daemon: &Daemon, path: &Path, bytes: u64) -> String {
    let mut connection = daemon.connection();
    let headers = [("Content-Type", "application/octet-stream")];
    let mut file = File::open(path).unwrap();
    connection.send_stream("POST", "/v1/a/jobs/t", &headers, (bytes, &mut file)).unwrap();
    let ids = ids_of(&connection.receive().unwrap().expect(201));
    assert_eq!(ids.len(), 1);
    ids[0].clone()
}

fn download(daemon: &Daemon, id: &str) -> PathBuf {
    let path = daemon.home().path("download");
    let mut connection = daemon.connection();
    connection.send("GET", &format!("/v1/a/jobs/{id}/payload"), &[], b"").unwrap();
    let mut file = File::create(&path).unwrap();
    assert_eq!(connection.receive_into(&mut file).unwrap().status, 200);
    path
}

/// Sends payloads of these sizes through a handler that hashes them, and reads them back.
fn check_sizes(daemon: &Daemon, sizes: &[u64]) {
    let tenant = daemon.tenant("a");
    let sums = daemon.home().path("sums");
    tenant.sh("t", &format!("echo \"$WINDLASS_JOB_ID $(sha256sum)\" >> '{}'", sums.display()));
    for bytes in sizes {
        let file = daemon.home().path("upload");
        write_random(&file, *bytes);
        let wanted = sha256_of(&file);
        let id = upload(daemon, &file, *bytes);
        let job = tenant.until_state(&id, "finished");
        assert_eq!(job["payload_bytes"], *bytes);
        let seen = daemon.home().lines("sums");
        let line = seen.iter().find(|line| line.starts_with(&format!("{id} "))).unwrap();
        assert_eq!(line.split(' ').nth(1), Some(wanted.as_str()), "{bytes} bytes in the handler");
        assert_eq!(sha256_of(&download(daemon, &id)), wanted, "{bytes} bytes read back");
    }
}

#[test]
fn s0_52_and_s2_29_payloads_beyond_64_kib_and_16_mib_arrive_unchanged() {
    let daemon = Daemon::start(Config::new());
    check_sizes(&daemon, &[1, 64 * KIB + 1, MIB - 1, MIB, MIB + 1, 16 * MIB + 1]);
}

#[test]
fn s2_29_a_payload_of_100_mb_arrives_unchanged_in_bounded_memory() {
    let daemon = Daemon::start(Config::new());
    check_sizes(&daemon, &[HUGE]);
    let before = daemon.memory_kib("VmHWM");
    check_sizes(&daemon, &[2 * HUGE]);
    let grown = daemon.memory_kib("VmHWM") - before;
    assert!(grown < MEMORY_GROWTH_KIB_MAX, "{grown} KiB more for {HUGE} bytes more");
}

#[test]
fn s2_29_a_large_payload_survives_kill_9() {
    let mut daemon = Daemon::start(Config::new().set("lease.duration", "\"1s\""));
    let bytes = 5 * MIB + 3;
    let file = daemon.home().path("upload");
    write_random(&file, bytes);
    let id = upload(&daemon, &file, bytes);
    daemon.kill9();
    daemon.restart();
    let tenant = daemon.tenant("a");
    let path = tenant.path(&format!("jobs/{id}"));
    until("the job is back", || daemon.get(&path).status, |status| *status == 200);
    assert_eq!(sha256_of(&download(&daemon, &id)), sha256_of(&file));
    let copy = daemon.home().path("copy");
    tenant.sh("t", &format!("cat > '{}'", copy.display()));
    tenant.until_state(&id, "finished");
    assert_eq!(sha256_of(&copy), sha256_of(&file));
}

#[test]
fn s2_29_a_body_over_the_limit_is_refused_and_leaves_nothing() {
    let daemon = Daemon::start(Config::new().set("http.body_bytes_max", "1000000"));
    let tenant = daemon.tenant("a");
    let body = vec![b'x'; 1_000_001];
    for kind in ["application/octet-stream", "text/plain"] {
        let mut connection = daemon.connection();
        // The daemon may answer and close before it has read everything.
        let _ = connection.send("POST", "/v1/a/jobs/t", &[("Content-Type", kind)], &body);
        if let Ok(answer) = connection.receive() {
            assert_eq!(answer.expect(413).error_code(), "too_large");
        }
    }
    let headers = [("Content-Type", "application/octet-stream")];
    daemon.call("POST", "/v1/a/jobs/t", &headers, &body[..1_000_000]).expect(201);
    assert_eq!(tenant.list("").len(), 1);
}

#[test]
fn s2_29_an_upload_that_is_cut_off_leaves_no_job_and_no_file() {
    let daemon = Daemon::start(Config::new());
    let payload_files = || {
        let dir = daemon.home().data().join("payload");
        crate::harness::file_bytes_below(&dir)
    };
    let before = payload_files();
    let mut connection = daemon.connection();
    let key = daemon.authorization();
    let head = format!(
        "POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\n{key}\
         Content-Type: application/octet-stream\r\nContent-Length: 50000000\r\n\r\n"
    );
    connection.send_raw(head.as_bytes()).unwrap();
    connection.send_raw(&vec![7; 8 * MIB as usize]).unwrap();
    until("a part is on disk", &payload_files, |bytes| *bytes > before);
    drop(connection);
    until("the part is removed", &payload_files, |bytes| *bytes == before);
    assert!(daemon.tenant("a").list("").is_empty());
}

#[test]
fn s2_29_a_pulling_worker_is_told_where_a_large_payload_is() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payload = "large ".repeat(900_000);
    let headers = [("Content-Type", "application/octet-stream")];
    daemon.call("POST", "/v1/a/jobs/t", &headers, payload.as_bytes()).expect(201);
    let job = tenant.until_claimed("t", "60s");
    let fetched = daemon.get(&text(&job["payload_url"])).expect(200).text();
    assert!(fetched == payload, "{} of {} bytes", fetched.len(), job["payload_bytes"]);
    assert!(job["payload"].is_null());
    tenant.finish(&job, 200).expect(200);
}

#[test]
fn s2_29_a_large_payload_is_whole_in_every_attempt() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let bytes = 6 * MIB + 5;
    let file = daemon.home().path("upload");
    write_random(&file, bytes);
    let sums = daemon.home().path("sums");
    let body = format!("sha256sum >> '{}'; [ $WINDLASS_ATTEMPT = 3 ]", sums.display());
    tenant.sh("t", &body);
    let id = upload(&daemon, &file, bytes);
    tenant.until_state(&id, "finished");
    let wanted = format!("{}  -", sha256_of(&file));
    assert_eq!(daemon.home().lines("sums"), vec![wanted; 3]);
}
