//! Several daemons on one data directory, without a leader.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::harness::{Cluster, Config, Daemon, field, ids_of, is_alive, text, until};

#[test]
fn s0_10_ids_are_distinct_over_daemons_and_clients() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 25;
    const LINES: usize = 100;
    let cluster = Cluster::start(2, Config::new());
    let senders: Vec<_> = (0..CLIENTS)
        .map(|sender| {
            let client = *cluster[sender % 2];
            thread::spawn(move || {
                let mut connection = client.connection();
                let lines = vec!["x"; LINES].join("\n");
                let mut ids = Vec::new();
                for _ in 0..REQUESTS {
                    let headers = [("Content-Type", "text/plain")];
                    let path = "/v1/a/jobs/t";
                    let answer = connection.call("POST", path, &headers, lines.as_bytes());
                    ids.extend(ids_of(&answer.unwrap().expect(201)));
                }
                ids
            })
        })
        .collect();
    let ids: Vec<String> = senders.into_iter().flat_map(|s| s.join().unwrap()).collect();
    let distinct: HashSet<&String> = ids.iter().collect();
    assert_eq!(ids.len(), CLIENTS * REQUESTS * LINES);
    assert_eq!(distinct.len(), ids.len());
    let tenant = cluster[0].tenant("a");
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == ids.len());
}

#[test]
fn s0_18_three_daemons_run_each_job_once() {
    const JOBS: usize = 300;
    let cluster = Cluster::start(3, Config::new());
    let home = cluster.home();
    cluster[0].tenant("a").sh("t", &home.recorder("seen"));
    let mut ids = Vec::new();
    for n in 0..JOBS {
        ids.push(cluster[n % 3].tenant("a").add_one("t", &n.to_string()));
    }
    cluster[0].tenant("a").until_all(&ids, "finished");
    let seen = home.lines("seen");
    let distinct: HashSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (JOBS, JOBS));
    assert_eq!(cluster.starts().iter().sum::<usize>(), JOBS, "{:?}", cluster.starts());
}

#[test]
fn s0_18_workers_of_three_daemons_pull_each_job_once() {
    const JOBS: usize = 3000;
    let cluster = Cluster::start(3, Config::new());
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = cluster[0].tenant("a").add("t", &payloads);
    let tenant = cluster[1].tenant("a");
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == JOBS);
    let workers: Vec<_> = (0..3)
        .map(|n| {
            let tenant = cluster[n].tenant("a");
            thread::spawn(move || {
                let mut pulled = Vec::new();
                loop {
                    let jobs = tenant.claim("t", 20, "60s");
                    if jobs.is_empty() {
                        return pulled;
                    }
                    for job in &jobs {
                        tenant.finish(job, 200).expect(200);
                        pulled.push(text(&job["id"]));
                    }
                }
            })
        })
        .collect();
    let pulled: Vec<String> = workers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    let distinct: HashSet<&String> = pulled.iter().collect();
    assert_eq!((pulled.len(), distinct.len()), (JOBS, JOBS));
    assert_eq!(distinct, ids.iter().collect());
    until("all are finished", || tenant.type_row("t"), |row| row["finished"] == JOBS);
}

#[test]
fn s0_22_a_job_added_through_one_daemon_is_run_by_another() {
    let cluster = Cluster::start(2, Config::new());
    cluster[1].stop_picking();
    let tenant = cluster[1].tenant("a");
    tenant.sh("t", &cluster.home().recorder("seen"));
    let ids = tenant.add("t", &["x", "y", "z"]);
    tenant.until_all(&ids, "finished");
    cluster[0].tenant("a").until_all(&ids, "finished");
    let entered = cluster[1].log.events("job_entered");
    let started = cluster[0].log.events("job_started");
    assert_eq!((entered.len(), started.len()), (3, 3));
    assert!(ids.iter().all(|id| started.iter().any(|event| field(event, "id") == id.as_str())));
    assert_eq!(cluster[1].log.events("job_started").len(), 0);
}

#[test]
fn s0_26_two_daemons_share_slow_jobs() {
    const JOBS: usize = 300;
    let cluster = Cluster::start(2, Config::new());
    let tenant = cluster[0].tenant("a");
    for daemon in &cluster.daemons {
        daemon.stop_picking();
    }
    tenant.sh("t", "sleep 0.2");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == JOBS);
    for daemon in &cluster.daemons {
        daemon.start_picking();
    }
    until("all are finished", || tenant.type_row("t"), |row| row["finished"] == JOBS);
    let starts = cluster.starts();
    assert_eq!(starts.iter().sum::<usize>(), JOBS, "{starts:?}");
    assert!(starts.iter().all(|n| *n >= JOBS / 10), "each has a share: {starts:?}");
}

#[test]
fn s0_38_a_handler_is_in_force_on_every_daemon_at_once() {
    const VERSIONS: usize = 20;
    let cluster = Cluster::start(2, Config::new());
    let (first, second) = (cluster[0].tenant("a"), cluster[1].tenant("a"));
    cluster[0].stop_picking();
    for version in 0..VERSIONS {
        let name = format!("seen-{version}");
        let body = cluster.home().recorder(&name);
        first.sh("t", &body);
        let id = second.add_one("t", "x");
        assert_eq!(second.get("handlers/t").expect(200).json()["body"], body.as_str());
        second.until_state(&id, "finished");
        assert_eq!(cluster.home().lines(&name), [format!("{id} x")], "version {version}");
    }
    assert_eq!(cluster.starts(), [0, VERSIONS]);
}

/// No daemon is special: whichever one is killed, the others accept and run.
#[test]
fn s2_12_and_s2_32_any_one_of_three_daemons_may_be_killed() {
    let mut cluster = Cluster::start(3, Config::new());
    let recorder = cluster.home().recorder("seen");
    cluster[0].tenant("a").sh("t", &recorder);
    let mut all = Vec::new();
    for killed in 0..3 {
        let ids: Vec<String> =
            (0..12).map(|n| cluster[n % 3].tenant("a").add_one("t", "before")).collect();
        cluster[killed].kill9();
        let alive: Vec<usize> = (0..3).filter(|n| *n != killed).collect();
        for n in &alive {
            let tenant = cluster[*n].tenant("a");
            let id = tenant.add_one("t", "while one is dead");
            tenant.until_state(&id, "finished");
            all.push(id);
        }
        let survivor = cluster[alive[0]].tenant("a");
        survivor.until_known(&ids);
        survivor.until_all(&ids, "finished");
        all.extend(ids);
        cluster[killed].restart();
    }
    let seen = cluster.home().lines("seen");
    let ran: HashSet<&str> = seen.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(all.iter().all(|id| ran.contains(id.as_str())));
}

#[test]
fn s2_15_a_daemon_that_joins_during_load_takes_work() {
    const JOBS: usize = 400;
    let config = Config::new().set("scheduler.slots", "2").set("scheduler.slots_reserved", "0");
    let mut cluster = Cluster::start(2, config);
    let tenant = cluster[0].tenant("a");
    tenant.sh("t", "sleep 0.1");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    until("the load runs", || cluster.starts().iter().sum::<usize>(), |n| *n > 0);
    let third = cluster.grow();
    until("the new one takes work", || cluster.starts()[third], |n| *n > 0);
    until("all are finished", || tenant.type_row("t"), |row| row["finished"] == JOBS);
    assert_eq!(cluster.starts().iter().sum::<usize>(), JOBS, "{:?}", cluster.starts());
}

#[test]
fn s2_37_a_daemon_for_some_tenants_runs_only_theirs() {
    let config = Config::new();
    let picky = Daemon::start(config.clone().set("tenants", "[\"a\", \"c\"]"));
    let ids: Vec<(String, String)> = ["a", "b", "c"]
        .map(|name| {
            let tenant = picky.tenant(name);
            tenant.sh("t", "true");
            (name.to_owned(), tenant.add_one("t", "x"))
        })
        .to_vec();
    picky.tenant("a").until_state(&ids[0].1, "finished");
    picky.tenant("c").until_state(&ids[2].1, "finished");
    assert_eq!(picky.tenant("b").job(&ids[1].1)["state"], "queued");
    let everyone = Daemon::start(config);
    everyone.tenant("b").until_state(&ids[1].1, "finished");
    let started = everyone.log.events("job_started");
    assert_eq!(started.len(), 1);
    assert_eq!(field(&started[0], "tenant"), "b");
}

/// The remaining daemons ingest the journal of a daemon that is gone for good.
#[test]
fn a_dead_daemons_journal_is_adopted() {
    let mut cluster = Cluster::start(2, Config::new());
    let lock = crate::harness::StoreLock::take(&cluster.config);
    let ids = cluster[0].tenant("a").add("t", &["x", "y"]);
    cluster[0].kill9();
    drop(lock);
    let newcomer = cluster.grow();
    let tenant = cluster[newcomer].tenant("a");
    let mut pulled: Vec<String> = tenant.drain("t", 2).iter().map(|job| text(&job["id"])).collect();
    pulled.sort();
    assert_eq!(pulled, ids);
}

#[test]
fn a_job_that_runs_on_one_daemon_is_cancelled_through_another() {
    let cluster = Cluster::start(2, Config::new());
    cluster[1].stop_picking();
    let tenant = cluster[1].tenant("a");
    let pid = cluster.home().path("pid");
    let body = format!("echo $$ > '{}'; {}", pid.display(), cluster.home().holder("seen", "hold"));
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    until("the job runs", || cluster.home().lines("seen").len(), |n| *n == 1);
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    assert_eq!(tenant.job(&id)["state"], "cancelled");
    let pid = cluster.home().lines("pid").remove(0);
    until("its process is gone", || is_alive(&pid), |alive| !alive);
    assert_eq!(cluster[0].tenant("a").job(&id)["state"], "cancelled");
}

#[test]
fn s2_20_a_type_is_suspended_on_all_daemons() {
    let cluster = Cluster::start(2, Config::new());
    let (first, second) = (cluster[0].tenant("a"), cluster[1].tenant("a"));
    first.sh("t", "true");
    first.sh("other", "true");
    let warm = second.add_one("t", "x");
    second.until_state(&warm, "finished");
    assert_eq!(first.post("types/t/suspend").status / 100, 2);
    let held = second.add_one("t", "x");
    for tenant in [&first, &second] {
        let id = tenant.add_one("other", "x");
        tenant.until_state(&id, "finished");
    }
    assert_eq!(second.job(&held)["attempt"], 0);
    assert_eq!(second.post("types/t/resume").status / 100, 2);
    second.until_state(&held, "finished");
}

/// A sender that repeats its add may reach another daemon.
#[test]
fn an_idempotency_key_counts_on_every_daemon() {
    const ADDS: usize = 50;
    let cluster = Cluster::start(2, Config::new());
    for n in 0..ADDS {
        let key = format!("key {n}");
        let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", key.as_str())];
        let add = |daemon: &Daemon| daemon.call("POST", "/v1/a/jobs/t", &headers, b"x");
        let first = ids_of(&add(&cluster[n % 2]).expect(201));
        let again = add(&cluster[(n + 1) % 2]);
        assert_eq!(ids_of(&again), first, "add {n} was answered {}", again.status);
    }
    let tenant = cluster[0].tenant("a");
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == ADDS);
}

/// Each key goes to both daemons at the same moment, as from an impatient sender.
#[test]
fn idempotency_keys_sent_to_two_daemons_at_once_add_once() {
    const ROUNDS: usize = 5;
    const KEYS: usize = 20;
    let cluster = Cluster::start(2, Config::new());
    for round in 0..ROUNDS {
        let start = Arc::new(Barrier::new(2 * KEYS));
        let senders: Vec<_> = (0..2 * KEYS)
            .map(|sender| {
                let (client, start) = (*cluster[sender % 2], start.clone());
                thread::spawn(move || {
                    let key = format!("round {round} key {}", sender / 2);
                    let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", &key)];
                    start.wait();
                    let answer = client.call("POST", "/v1/a/jobs/t", &headers, b"x");
                    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
                    (answer.status, ids_of(&answer).remove(0))
                })
            })
            .collect();
        let answers: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        for (key, both) in answers.chunks(2).enumerate() {
            assert_eq!(both[0].1, both[1].1, "round {round} key {key}");
        }
        let new = answers.iter().filter(|(status, _)| *status == 201).count();
        assert_eq!(new, KEYS, "round {round}");
    }
    assert_eq!(cluster[0].tenant("a").type_row("t")["ready"], ROUNDS * KEYS);
}

/// Whichever daemon answers, an id that it returned belongs to an existing job.
#[test]
fn a_unique_key_counts_on_every_daemon() {
    const ADDS: usize = 50;
    let cluster = Cluster::start(2, Config::new());
    for n in 0..ADDS {
        let add = |daemon: &Daemon| {
            daemon.tenant("a").add_with("t", &format!("unique=k{n}"), &["x"]).remove(0)
        };
        let first = add(&cluster[n % 2]);
        assert_eq!(add(&cluster[(n + 1) % 2]), first, "add {n}");
    }
    let tenant = cluster[0].tenant("a");
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == ADDS);
}
