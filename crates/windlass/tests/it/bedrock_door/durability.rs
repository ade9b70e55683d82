//! `kill -9` of a daemon with a Bedrock door: everything acknowledged holds afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Door, JobId, Link, id_of, until};

const KILLS: usize = 5;

/// Short leases, so that the journal of a dead daemon is soon taken over.
fn start() -> Door {
    start_on(Config::new())
}

fn start_on(config: Config) -> Door {
    Door::start_with(config.set("lease.duration", "\"1s\""))
}

#[track_caller]
fn until_known(door: &Door, id: JobId) {
    let look = || door.about("QueryJob", id).line;
    until(&format!("{id} is known"), look, |line| line == "200 OK");
}

#[test]
fn created_jobs_stay() {
    let mut door = start();
    let mut made = Vec::new();
    for round in 0..KILLS {
        let data = format!("{{\"round\":{round}}}");
        let headers = [
            ("name", "n"),
            ("data", data.as_str()),
            ("repeat", "HOURLY"),
            ("retryAfter", "+1 HOUR"),
            ("jobPriority", "850"),
            ("firstRun", "2999-01-01"),
        ];
        made.push((door.create(&headers), data));
        door.crash();
    }
    for (id, data) in made {
        until_known(&door, id);
        let row = door.row(id);
        let seen = [&row["name"], &row["data"], &row["repeat"], &row["retryAfter"]];
        assert_eq!(seen, [&json!("n"), &json!(data), &json!("HOURLY"), &json!("+1 HOUR")]);
        assert_eq!((&row["priority"], &row["nextRun"]), (&json!(850), &json!("2999-01-01")));
        assert_eq!(row["state"], "QUEUED");
    }
}

#[test]
fn a_list_of_jobs_stays_whole() {
    let mut door = start();
    for _ in 0..KILLS {
        let jobs: Vec<Value> = (0..50).map(|n| json!({"name": "n", "data": {"n": n}})).collect();
        let reply = door.call("CreateJobs", &[("jobs", &json!(jobs).to_string())]).ok().json();
        door.crash();
        for id in reply["jobIDs"].as_array().unwrap() {
            until_known(&door, id.as_i64().unwrap());
        }
    }
    assert_eq!(door.count(), KILLS * 50);
}

#[test]
fn what_runs_goes_on_running() {
    let mut door = start();
    let ran = door.named("n");
    door.take(ran, "n");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    let before = [door.row(ran), door.row(lent)];
    door.crash();
    assert_eq!([door.row(ran), door.row(lent)], before);
    for name in ["n", "l"] {
        door.no_job(name);
    }
    // Other leases come and go meanwhile.
    let tenant = door.tenant("default");
    let other = tenant.add_one("other", "x");
    for _ in 0..3 {
        assert_eq!(tenant.until_claimed("other", "1s")["id"], other);
    }
    door.assert_states(&[(ran, "RUNNING"), (lent, "RUNQUEUED")]);
    door.about("FinishJob", ran).done();
    door.about("FinishJob", lent).done();
    door.assert_gone(ran);
}

#[test]
fn what_ended_stays_ended() {
    let mut door = start();
    let plain = door.named("plain");
    let repeats = door.create(&[("name", "repeats"), ("repeat", "FINISHED, +1 DAY")]);
    let failed = door.named("failed");
    let retried = door.named("retried");
    for (id, name) in
        [(plain, "plain"), (repeats, "repeats"), (failed, "failed"), (retried, "retried")]
    {
        door.take(id, name);
    }
    door.about("FinishJob", plain).done();
    door.about_with("FinishJob", repeats, &[("data", "{\"a\":1}")]).done();
    door.about("FailJob", failed).done();
    door.about_with("RetryJob", retried, &[("name", "renamed"), ("delay", "3600")]).done();
    let rows = || [repeats, failed, retried].map(|id| door.row(id));
    let before = rows();
    door.crash();
    let rows = || [repeats, failed, retried].map(|id| door.row(id));
    assert_eq!(rows(), before);
    door.assert_gone(plain);
    for name in ["plain", "repeats", "failed", "renamed"] {
        door.no_job(name);
    }
}

#[test]
fn a_family_goes_on() {
    let mut door = start();
    let parent = door.named("p");
    door.take(parent, "p");
    let (first, second) = (door.child(parent, "a"), door.child(parent, "b"));
    door.crash();
    door.assert_states(&[(parent, "RUNNING"), (first, "PAUSED"), (second, "PAUSED")]);
    door.about("FinishJob", parent).done();
    door.crash();
    door.assert_states(&[(parent, "PAUSED"), (first, "QUEUED"), (second, "QUEUED")]);
    door.take(first, "a");
    door.about("FinishJob", first).done();
    door.about("CancelJob", second).done();
    door.crash();
    door.assert_states(&[(parent, "QUEUED"), (first, "FINISHED"), (second, "CANCELLED")]);
    door.take(parent, "p");
    door.about("FinishJob", parent).done();
    door.crash();
    for id in [parent, first, second] {
        door.assert_gone(id);
    }
}

#[test]
fn changes_stay() {
    let mut door = start_on(Config::embedded());
    let id = door.named("n");
    let gone = door.named("gone");
    let headers = [("data", "{\"a\":1}"), ("nextRun", "some day"), ("jobPriority", "0")];
    door.about_with("UpdateJob", id, &headers).done();
    door.about("DeleteJob", gone).done();
    door.set(id, "retryAfter = '+1 DAY'");
    let before = door.row(id);
    door.crash();
    assert_eq!(door.row(id), before);
    door.assert_gone(gone);
    door.call("RequeueJobs", &[("jobIDs", &id.to_string()), ("name", "m")]).done();
    let before = door.row(id);
    door.crash();
    assert_eq!(door.row(id), before);
    door.take(id, "m");
}

/// Workers create, claim and finish until the daemon is killed: every acknowledged id exists, every
/// acknowledged end has happened, nothing is handed out twice.
#[test]
fn a_kill_under_load_keeps_every_answer() {
    const WORKERS: usize = 4;
    let mut door = start();
    for round in 0..KILLS {
        let stop = Arc::new(AtomicBool::new(false));
        let address = door.address;
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || work(address, &format!("r{round}w{worker}"), &stop))
            })
            .collect();
        let busy = || door.count();
        until("there is work", busy, |count| *count >= 40 * (round + 1));
        door.crash();
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let done = worker.join().unwrap();
            for id in done.created {
                until_known(&door, id);
            }
            for id in done.taken {
                assert_eq!(door.state(id), "RUNNING", "it was given to a worker");
            }
            for id in done.finished {
                door.assert_gone(id);
            }
        }
    }
}

#[derive(Default)]
struct Done {
    created: Vec<JobId>,
    taken: Vec<JobId>,
    finished: Vec<JobId>,
}

/// Until the connection breaks: three jobs are created, one stays, one is claimed, one is finished.
fn work(address: std::net::SocketAddr, name: &str, stop: &AtomicBool) -> Done {
    let mut done = Done::default();
    let mut link = Link::open(address).unwrap();
    let mut call = |verb: &str, headers: &[(&str, &str)]| -> Option<crate::harness::Reply> {
        link.try_raw(&crate::harness::request(verb, headers)).ok()?;
        link.try_receive().ok()
    };
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let mut ids = Vec::new();
        for kind in ["stay", "take", "end"] {
            let own = format!("{name}/{kind}/{number}");
            let Some(reply) = call("CreateJob", &[("name", &own)]) else { return done };
            ids.push((id_of(&reply.ok().json()), own));
        }
        done.created.push(ids[0].0);
        let Some(reply) = call("GetJob", &[("name", &ids[1].1)]) else { return done };
        done.taken.push(id_of(&reply.ok().json()));
        let Some(reply) = call("GetJob", &[("name", &ids[2].1)]) else { return done };
        let id = id_of(&reply.ok().json());
        let Some(reply) = call("FinishJob", &[("jobID", &id.to_string())]) else { return done };
        reply.done();
        done.finished.push(id);
    }
    done
}

#[test]
fn a_stop_leaves_what_runs_running() {
    let mut door = start();
    let ran = door.named("n");
    door.take(ran, "n");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    let before = [door.row(ran), door.row(lent)];
    assert!(door.daemon.terminate().success());
    door.again();
    assert_eq!([door.row(ran), door.row(lent)], before);
    door.about("FinishJob", ran).done();
    door.about("FinishJob", lent).done();
}

/// What a dead daemon ran itself runs again on another; what it had handed to a worker is still
/// with that worker.
#[test]
fn jobs_that_a_dead_daemon_gave_away_stay_with_their_workers() {
    let config = Config::new().set("lease.duration", "\"1s\"");
    let mut dies = Door::start_with(config.clone());
    let tenant = dies.tenant("default");
    tenant.sh("held", &dies.home().holder("held", "hold"));
    let held = tenant.add_one("held", "x");
    until("it runs", || dies.home().lines("held").len(), |runs| *runs == 1);
    let id = dies.named("n");
    dies.take(id, "n");
    let lives = Door::start_with(config);
    dies.daemon.kill9();
    until("it runs again", || lives.home().lines("held").len(), |runs| *runs == 2);
    assert_eq!(lives.state(id), "RUNNING");
    lives.no_job("n");
    lives.about("FinishJob", id).done();
    lives.home().let_go("hold");
    assert_eq!(lives.tenant("default").until_end(&held)["state"], "finished");
}
