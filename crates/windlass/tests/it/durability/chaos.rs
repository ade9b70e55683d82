//! Random crashes of daemons and handlers, with a fixed seed: nothing is lost.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Client, Cluster, Config, Random, Response, text, until};

const SEED: u64 = 20_261_115;
const JOBS: usize = 300;
const DAEMON_KILLS: usize = 8;

/// Each job dies by signal on its first attempt with a probability of one in five, by its number.
#[test]
fn s2_6_random_kills_of_daemons_and_handlers_lose_no_job() {
    let config = Config::new()
        .set("lease.duration", "\"1s\"")
        .set("retry.delay", "\"100ms\"")
        .set("retry.attempts", "50")
        .set("scheduler.slots", "4");
    let mut cluster = Cluster::start(2, config);
    let body = format!(
        "case $WINDLASS_ATTEMPT$WINDLASS_JOB_ID in 1*[05]) kill -9 $$;; esac; sleep 0.02; {}; \
         echo \"J: out|$WINDLASS_JOB_ID\"",
        cluster.home().recorder("seen")
    );
    cluster[0].tenant("a").sh("t", &body);
    let mut random = Random::new(SEED);
    let mut ids = Vec::new();
    let mut kills = 0;
    while ids.len() < JOBS {
        let added = random.below(JOBS as u64 / DAEMON_KILLS as u64) as usize + 1;
        let through = random.below(2) as usize;
        let payloads: Vec<String> = (0..added).map(|n| n.to_string()).collect();
        ids.extend(cluster[through].tenant("a").add("t", &payloads));
        if kills < DAEMON_KILLS {
            // Wait until something has happened since the last kill, so that it hits work.
            let done = cluster.home().lines("seen").len();
            let some = random.below(10) as usize;
            until(
                "some jobs ran",
                || cluster.home().lines("seen").len(),
                |n| *n >= (done + some).min(ids.len() / 2),
            );
            let victim = random.below(2) as usize;
            cluster[victim].kill9();
            cluster[victim].restart();
            kills += 1;
        }
    }
    let tenant = cluster[0].tenant("a");
    tenant.until_known(&ids);
    tenant.until_all(&ids, "finished");
    let mut runs: HashMap<String, usize> = HashMap::new();
    for line in cluster.home().lines("seen") {
        *runs.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    let lost = ids.iter().filter(|id| !runs.contains_key(*id)).count();
    let twice = runs.values().filter(|count| **count > 1).count();
    eprintln!("{} jobs, {kills} kills: {lost} lost, {twice} ran to their end twice", ids.len());
    assert_eq!(lost, 0);
    let tenant = cluster[1].tenant("a");
    let mut emitted = HashSet::new();
    until(
        "the output of every job is queued",
        || {
            emitted.extend(tenant.claim("out", 500, "60s").iter().map(|j| text(&j["payload"])));
            ids.iter().filter(|id| !emitted.contains(*id)).count()
        },
        |missing| *missing == 0,
    );
    assert_eq!(runs.len(), ids.len(), "nothing ran that was not added");
}

/// Workers that dawdle, vanish and come back late, daemons that die: at most one result of a job is
/// ever accepted, and a job whose result was accepted is never handed out again.
#[test]
fn s0_50_at_most_one_result_of_a_job_is_accepted_under_chaos() {
    const WORKERS: u64 = 4;
    let config = Config::new()
        .set("lease.duration", "\"1s\"")
        .set("retry.delay", "\"50ms\"")
        .set("retry.attempts", "1000");
    let mut cluster = Cluster::start(2, config);
    let table = Arc::new(Table::default());
    table.seat(&cluster);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let table = Arc::clone(&table);
            thread::spawn(move || work(&table, Random::new(SEED + number)))
        })
        .collect();
    let mut random = Random::new(SEED);
    let mut ids = Vec::new();
    for _ in 0..DAEMON_KILLS {
        let payloads: Vec<String> = (0..JOBS / DAEMON_KILLS).map(|n| n.to_string()).collect();
        ids.extend(cluster[0].tenant("a").add("t", &payloads));
        let half = ids.len() / 2;
        until("workers are busy", || table.accepted.lock().unwrap().len(), |n| *n >= half);
        let victim = random.below(2) as usize;
        cluster[victim].kill9();
        cluster[victim].restart();
        table.seat(&cluster);
    }
    let tenant = cluster[0].tenant("a");
    until("all are finished", || tenant.type_row("t"), |row| row["finished"] == ids.len());
    table.closed.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let accepted = table.accepted.lock().unwrap();
    let twice: Vec<_> = accepted.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "accepted more than once: {twice:?}");
    assert!(accepted.keys().all(|id| ids.contains(id)));
}

/// What workers share: the addresses of the daemons, the newest token of each job that any of them
/// has seen, and whose results were accepted.
#[derive(Default)]
struct Table {
    daemons: Mutex<Vec<Client>>,
    newest: Mutex<HashMap<String, u64>>,
    accepted: Mutex<HashMap<String, usize>>,
    closed: AtomicBool,
}

impl Table {
    fn seat(&self, cluster: &Cluster) {
        let clients = cluster.daemons.iter().map(|daemon| **daemon).collect();
        *self.daemons.lock().unwrap() = clients;
    }

    /// Records the token of a claimed job, if it is the newest.
    fn seen(&self, job: &Value) {
        let mut newest = self.newest.lock().unwrap();
        let known = newest.entry(text(&job["id"])).or_default();
        *known = (*known).max(token_of(job));
    }

    /// Whether a newer token of the job was handed out.
    fn is_stale(&self, job: &Value) -> bool {
        self.newest.lock().unwrap()[&text(&job["id"])] > token_of(job)
    }

    fn call(&self, random: &mut Random, path: &str, body: &Value) -> Option<Response> {
        let client = {
            let daemons = self.daemons.lock().unwrap();
            daemons[random.below(daemons.len() as u64) as usize]
        };
        let headers = [("Content-Type", "application/json")];
        // A daemon that was just killed does not answer.
        client.try_call("POST", path, &headers, body.to_string().as_bytes()).ok()
    }
}

fn work(table: &Table, mut random: Random) {
    let mut late: VecDeque<Value> = VecDeque::new();
    while !table.closed.load(Ordering::Relaxed) {
        let done: HashSet<String> = table.accepted.lock().unwrap().keys().cloned().collect();
        let wish = json!({"types": ["t"], "limit": 5, "lease": "1s", "wait": "20ms"});
        let answer = table.call(&mut random, "/v1/a/claim", &wish).filter(|a| a.status == 200);
        let jobs = answer.map(|answer| answer.json()["jobs"].as_array().cloned());
        for job in jobs.flatten().unwrap_or_default() {
            assert!(!done.contains(&text(&job["id"])), "{job} was finished before");
            table.seen(&job);
            match random.below(10) {
                0 => drop(job),
                1..=3 => late.push_back(job),
                _ => report(table, &mut random, &job),
            }
        }
        // Most dawdlers come back only after another worker has their job.
        let (again, still): (Vec<Value>, Vec<Value>) =
            late.drain(..).partition(|job| table.is_stale(job) || random.below(50) == 0);
        again.iter().for_each(|job| report(table, &mut random, job));
        late.extend(still);
    }
}

fn report(table: &Table, random: &mut Random, job: &Value) {
    let id = text(&job["id"]);
    let body = json!({"token": job["token"], "status": 200});
    let path = format!("/v1/a/jobs/{id}/finish");
    let stale = table.is_stale(job);
    if table.call(random, &path, &body).is_some_and(|answer| answer.status == 200) {
        assert!(!stale, "{job} was finished though another has it");
        *table.accepted.lock().unwrap().entry(id).or_default() += 1;
    }
}

fn token_of(job: &Value) -> u64 {
    job["token"].as_u64().unwrap_or_else(|| panic!("no token in {job}"))
}
