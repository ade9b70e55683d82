//! Guessing keys, as fast as connections carry them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Client, Daemon, text};
use crate::users::both_users;

const GUESSES: usize = 10_000;
const FLOODERS: usize = 4;
/// On one connection, before any answer is read. The first that is limited closes it.
const PIPELINED: usize = 25;
const GROWTH_KIB_MAX: u64 = 32 * 1024;
/// The first of an address that are compared, in every window of this length.
const COMPARED: usize = 30;
const WINDOW: Duration = Duration::from_secs(10);

/// Sends guesses until all are sent; returns how often each status was answered.
fn guesses(client: &Client, sent: &AtomicUsize) -> BTreeMap<u16, usize> {
    let mut answers = BTreeMap::new();
    loop {
        let first = sent.fetch_add(PIPELINED, Ordering::Relaxed);
        if first >= GUESSES {
            return answers;
        }
        let request = |number: usize| {
            format!(
                "POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\
                 Authorization: Bearer wl_{number:016x}_{number:064x}\r\n\r\nx"
            )
        };
        let requests: String = (first..first + PIPELINED).map(request).collect();
        let mut connection = client.connection();
        // The daemon may have closed it before all of them are sent.
        let _ = connection.send_raw(requests.as_bytes());
        let _ = connection.half_close();
        while let Ok(answer) = connection.receive() {
            *answers.entry(answer.status).or_default() += 1;
        }
    }
}

/// Wrong keys neither stop a client with a right one at the same address, nor grow the daemon, nor
/// fill the audit.
#[test]
fn a_flood_of_wrong_keys_leaves_others_alone() {
    for config in both_users() {
        let daemon = Daemon::start(config);
        let wish = json!({"role": "producer", "tenant": "a"});
        let made = daemon.send_json("POST", "/v1/keys", &wish).expect(201).json();
        let right = daemon.with_key(&text(&made["key"])).tenant("a");
        let before = daemon.memory_kib("VmRSS");
        let began = Instant::now();
        let (sent, client) = (AtomicUsize::new(0), daemon.without_key());
        let mut added = 0;
        let answers = thread::scope(|scope| {
            let flood = || scope.spawn(|| guesses(&client, &sent));
            let flooders: Vec<_> = (0..FLOODERS).map(|_| flood()).collect();
            while flooders.iter().any(|flooder| !flooder.is_finished()) {
                right.add_one("t", "x");
                added += 1;
            }
            let mut all = BTreeMap::<u16, usize>::new();
            for (status, count) in flooders.into_iter().flat_map(|f| f.join().unwrap()) {
                *all.entry(status).or_default() += count;
            }
            all
        });
        let took = began.elapsed();
        let rate = GUESSES as f64 / took.as_secs_f64();
        println!("sent {rate:.0} wrong keys a second, and {added} adds: {answers:?}");
        let windows = 2 + (took.as_secs() / WINDOW.as_secs()) as usize;
        assert!(added > 0 && daemon.tenant("a").list("").len() == added, "{added}");
        assert!(answers.keys().all(|status| matches!(status, 401 | 429)), "{answers:?}");
        assert!(answers[&401] <= windows * COMPARED, "{answers:?} in {windows} windows");
        assert!(answers[&429] >= GUESSES / PIPELINED / 2, "{answers:?}");
        let after = daemon.memory_kib("VmRSS");
        assert!(after < before + GROWTH_KIB_MAX, "{before} KiB before, {after} KiB after");
        let audit = daemon.get("/v1/audit?limit=1000").expect(200).json();
        let entries = audit["entries"].as_array().unwrap();
        let refused = entries.iter().filter(|entry| entry["status"] != 201).count();
        assert!((1..=4 * windows).contains(&refused), "{refused} entries: {audit}");
    }
}
