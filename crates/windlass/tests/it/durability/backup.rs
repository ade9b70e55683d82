//! `windlass backup` and `windlass restore`: nothing acknowledged before the backup is lost, and
//! nothing that had ended runs again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use serde_json::{Value, json};

use super::backup_tool::{back_up, restore, restored};
use crate::harness::{
    Client, Cluster, Config, Daemon, Random, StoreLock, Tenant, file_bytes_below, ids_of, text,
    until,
};

const SEED: u64 = 20_261_117;
const ROUNDS: u64 = 4;
/// Every backup begins after a random number of adds, up to this many more.
const ADDS_MIN: u64 = 400;
const ADDS_SPREAD: u64 = 1200;

/// What clients know for certain; entries are made after the answer.
#[derive(Default)]
struct Ledger {
    added: Mutex<Vec<String>>,
    finished: Mutex<HashSet<String>>,
    /// Entered before the request is sent.
    deleting: Mutex<HashSet<String>>,
    deleted: Mutex<HashSet<String>>,
    closed: AtomicBool,
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap()
}

impl Ledger {
    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }
}

/// Adds jobs: most for workers, some for a handler, large enough that segments come and go.
fn add(ledger: &Ledger, client: Client, mut random: Random) {
    let mut connection = client.connection();
    while ledger.is_open() {
        let kind = if random.below(8) == 0 { "run" } else { "pull" };
        let count = 1 + random.below(if kind == "run" { 3 } else { 20 }) as usize;
        let lines = vec!["x".repeat(1 + random.below(2000) as usize); count].join("\n");
        let headers = [("Content-Type", "text/plain")];
        let path = format!("/v1/a/jobs/{kind}");
        let answer = connection.call("POST", &path, &headers, lines.as_bytes()).unwrap();
        locked(&ledger.added).extend(ids_of(&answer.expect(201)));
    }
}

/// Pulls jobs, finishes most of them, and leaves the others to their leases.
fn pull(ledger: &Ledger, tenant: &Tenant, mut random: Random) {
    while ledger.is_open() {
        for job in tenant.claim("pull", 1 + random.below(20) as usize, "60s") {
            if random.below(20) > 0 {
                tenant.finish(&job, 200).expect(200);
                locked(&ledger.finished).insert(text(&job["id"]));
            }
        }
    }
}

fn delete(ledger: &Ledger, tenant: &Tenant) {
    while ledger.is_open() {
        let known = locked(&ledger.deleting).clone();
        let next = locked(&ledger.finished).iter().find(|id| !known.contains(*id)).cloned();
        let Some(id) = next else { continue };
        locked(&ledger.deleting).insert(id.clone());
        let answer = tenant.client.delete(&tenant.path(&format!("jobs/{id}")));
        assert_eq!(answer.status / 100, 2, "{}", answer.text());
        locked(&ledger.deleted).insert(id);
    }
}

/// What was known when a backup began.
struct Known {
    added: Vec<String>,
    finished: HashSet<String>,
    ran: HashSet<String>,
    deleted: HashSet<String>,
}

impl Known {
    fn now(ledger: &Ledger, tenant: &Tenant) -> Known {
        let ran = tenant.list("type=run&state=finished");
        Known {
            ran: ran.iter().map(|job| text(&job["id"])).collect(),
            deleted: locked(&ledger.deleted).clone(),
            finished: locked(&ledger.finished).clone(),
            added: locked(&ledger.added).clone(),
        }
    }
}

fn states(tenant: &Tenant) -> HashMap<String, String> {
    tenant.list("").iter().map(|job| (text(&job["id"]), text(&job["state"]))).collect()
}

#[test]
fn a_backup_under_load_has_all_that_was_acknowledged_and_repeats_nothing_that_had_ended() {
    let config = Config::embedded().set("journal.segment_bytes_max", "65536");
    let cluster = Cluster::start(2, config);
    let (one, two) = (*cluster[0], *cluster[1]);
    one.tenant("a").sh("run", &cluster.home().recorder("seen"));
    let ledger = Ledger::default();
    let mut random = Random::new(SEED);
    let mut backups = Vec::new();
    thread::scope(|scope| {
        let ledger = &ledger;
        for (number, client) in [one, two].into_iter().enumerate() {
            let seed = SEED + number as u64;
            scope.spawn(move || add(ledger, client, Random::new(seed)));
            scope.spawn(move || pull(ledger, &client.tenant("a"), Random::new(seed + 7)));
        }
        scope.spawn(move || delete(ledger, &one.tenant("a")));
        for round in 0..ROUNDS {
            let added = locked(&ledger.added).len() as u64;
            let enough = added + ADDS_MIN + random.below(ADDS_SPREAD);
            until("there is load", || locked(&ledger.added).len() as u64, |n| *n >= enough);
            let known = Known::now(ledger, &two.tenant("a"));
            let to = cluster.home().path(&format!("backup-{round}"));
            back_up(cluster.home(), &to).ok();
            backups.push((to, known));
        }
        ledger.closed.store(true, Ordering::Relaxed);
    });
    let home = cluster.config.home.clone();
    drop(cluster);
    for (from, known) in backups {
        check(&restored(&from, &home), &known, &ledger);
    }
}

/// The claims and runs of a restored daemon are compared with what was known at the backup.
#[track_caller]
fn check(daemon: &Daemon, known: &Known, ledger: &Ledger) {
    let tenant = daemon.tenant("a");
    let deleting = locked(&ledger.deleting);
    let kept: Vec<&String> = known.added.iter().filter(|id| !deleting.contains(*id)).collect();
    let lost = || {
        let states = states(&tenant);
        kept.iter().filter(|id| !states.contains_key(**id)).count()
    };
    until("every acknowledged job is known", lost, |lost| *lost == 0);
    let now = states(&tenant);
    let back: Vec<_> = known.deleted.iter().filter(|id| now.contains_key(*id)).collect();
    assert!(back.is_empty(), "deleted jobs came back: {back:?}");
    for id in known.finished.iter().chain(&known.ran).filter(|id| !deleting.contains(*id)) {
        assert_eq!(now[id], "finished", "{id}");
    }
    let newest = known.added.iter().map(|id| id.parse::<u64>().unwrap()).max().unwrap();
    assert!(tenant.add_one("other", "x").parse::<u64>().unwrap() > newest, "ids only grow");

    let mut claimed = HashSet::new();
    until(
        "the queue is empty",
        || {
            let jobs = tenant.claim("pull", 500, "60s");
            claimed.extend(jobs.iter().map(|job| text(&job["id"])));
            tenant.type_row("pull")["ready"].clone()
        },
        |ready| *ready == 0,
    );
    let again = known.finished.union(&known.deleted).filter(|id| claimed.contains(*id));
    assert_eq!(again.count(), 0, "ended jobs were handed out again");
    until(
        "handlers are idle",
        || tenant.type_row("run"),
        |row| row["ready"] == 0 && row["running"] == 0,
    );
    let started = daemon.log.events("job_started");
    let again = started.iter().filter(|entry| known.ran.contains(&id_in(entry))).count();
    assert_eq!(again, 0, "ended jobs ran again");
    assert!(claimed.len() + known.finished.len() + known.ran.len() > 0, "there was work");
}

fn id_in(entry: &Value) -> String {
    let id = crate::harness::field(entry, "id");
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// The journal keeps its newest segment, with jobs that ended or are gone.
#[test]
fn a_backup_of_a_stopped_or_killed_daemon_runs_only_what_had_not_ended() {
    for kill in [false, true] {
        let mut daemon = Daemon::start(Config::embedded());
        let tenant = daemon.tenant("a");
        tenant.sh("run", &daemon.home().recorder("seen"));
        let ended = tenant.add("run", &["1", "2", "3", "4"]);
        tenant.until_all(&ended, "finished");
        daemon.delete(&tenant.path(&format!("jobs/{}", ended[3])));
        let waiting = tenant.add("pull", &["5", "6"]);
        if kill {
            daemon.kill9()
        } else {
            assert!(daemon.terminate().success())
        }
        let to = daemon.home().path("backup");
        let answer = back_up(daemon.home(), &to).json();
        assert_eq!(answer["bytes"], file_bytes_below(&to) - manifest_bytes(&to), "{answer}");

        let new = restored(&to, &daemon.config.home);
        let tenant = new.tenant("a");
        tenant.until_known(&waiting);
        tenant.until_all(&ended[..3], "finished");
        assert_eq!(tenant.get(&format!("jobs/{}", ended[3])).status, 404, "it was deleted");
        let last = tenant.add_one("run", "last");
        tenant.until_state(&last, "finished");
        assert_eq!(new.log.events("job_started").len(), 1, "only the last one ran");
        let claimed = tenant.claim("pull", 10, "60s");
        assert_eq!(claimed.len(), 2);
        assert!(claimed.iter().all(|job| tenant.finish(job, 200).status == 200));
    }
}

fn manifest_bytes(backup: &Path) -> u64 {
    fs::metadata(backup.join("manifest.json")).unwrap().len()
}

#[test]
fn jobs_that_only_the_journal_has_are_in_the_backup_with_their_large_payloads() {
    const LARGE_BYTES: usize = 6 * 1024 * 1024 + 5;
    let mut daemon = Daemon::start(Config::embedded());
    let lock = StoreLock::take(&daemon.config);
    let small = daemon.tenant("a").add("t", &["one", "two"]);
    let mut payload = vec![0; LARGE_BYTES];
    Random::new(SEED).fill(&mut payload);
    let headers = [("Content-Type", "application/octet-stream")];
    let answer = daemon.call("POST", "/v1/a/jobs/t", &headers, &payload).expect(201);
    let large = ids_of(&answer).remove(0);
    let to = daemon.home().path("backup");
    back_up(daemon.home(), &to).ok();
    assert!(file_bytes_below(&to.join("payload")) >= LARGE_BYTES as u64);
    daemon.kill9();
    drop(lock);

    let new = restored(&to, &daemon.config.home);
    let tenant = new.tenant("a");
    tenant.until_known(&small);
    tenant.until_known(&[&large]);
    let found = tenant.get(&format!("jobs/{large}/payload")).expect(200).body;
    assert!(found == payload, "{} of {LARGE_BYTES} bytes", found.len());
    assert_eq!(tenant.drain("t", 3).len(), 3);
}

/// The lease of a worker lasts over the backup; that of a dead daemon's handler does not.
#[test]
fn jobs_that_were_running_run_again_and_a_worker_may_still_report() {
    let mut daemon = Daemon::start(Config::embedded());
    let tenant = daemon.tenant("a");
    tenant.sh("run", &daemon.home().holder("seen", "hold"));
    let running = tenant.add_one("run", "x");
    tenant.until_state(&running, "running");
    tenant.add_one("pull", "y");
    let claimed = tenant.until_claimed("pull", "60s");
    let to = daemon.home().path("backup");
    back_up(daemon.home(), &to).ok();
    daemon.home().let_go("hold");
    daemon.kill9();
    let new = restored(&to, &daemon.config.home);
    let tenant = new.tenant("a");
    tenant.until_state(&running, "finished");
    tenant.finish(&claimed, 200).expect(200);
    assert_eq!(tenant.job(&text(&claimed["id"]))["state"], "finished");
}

#[test]
fn a_store_outside_the_data_directory_is_backed_up_and_restored_there() {
    let config = Config::embedded();
    let url = |path: &Path| format!("sqlite:{}", path.display());
    let store = url(&config.home.dir().join("elsewhere.db"));
    let mut daemon = Daemon::start(config.flag("--store").flag(&store));
    let id = daemon.tenant("a").add_one("t", "x");
    daemon.tenant("a").drain("t", 1);
    assert!(daemon.terminate().success());
    let to = daemon.home().path("backup");
    let mut command = crate::harness::windlass();
    command.arg("backup").arg(&to).arg("--data-dir").arg(daemon.home().data());
    crate::harness::run(command.args(["--store", &store]), b"").ok();

    let config = Config::embedded();
    let store = config.home.dir().join("other.db");
    fs::write(&store, "").unwrap();
    let refused = restore(&to, &config.home.data(), Some(&store));
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("other.db"), "{refused:?}");
    fs::remove_file(&store).unwrap();
    restore(&to, &config.home.data(), Some(&store)).ok();
    let new = Daemon::start(config.flag("--store").flag(&url(&store)));
    assert_eq!(new.tenant("a").job(&id)["state"], json!("finished"));
}
