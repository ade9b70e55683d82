//! Keys on several daemons, and after a crash.

use serde_json::json;

use crate::harness::{Client, Cluster, Config, Daemon, text, until};

fn make(client: &Client, role: &str, tenant: &str) -> (String, String) {
    let wish = json!({"role": role, "tenant": tenant});
    let made = client.send_json("POST", "/v1/keys", &wish).expect(201).json();
    (text(&made["key"]), text(&made["id"]))
}

#[test]
fn a_key_is_in_force_and_revoked_on_every_daemon() {
    let cluster = Cluster::start(2, Config::new());
    let (key, id) = make(&cluster[0], "viewer", "a");
    let read = |daemon: &Daemon| daemon.with_key(&key).get("/v1/a/jobs").status;
    assert_eq!(read(&cluster[0]), 200, "at once where it was made");
    until("the other daemon knows it", || read(&cluster[1]), |status| *status == 200);
    cluster[1].delete(&format!("/v1/keys/{id}")).expect(200);
    assert_eq!(read(&cluster[1]), 401, "at once where it was revoked");
    until("the other daemon refuses it", || read(&cluster[0]), |status| *status == 401);
}

#[test]
fn a_key_outlives_a_crash_and_so_does_its_end() {
    let mut daemon = Daemon::start(Config::new());
    let (kept, _) = make(&daemon, "viewer", "a");
    let (revoked, id) = make(&daemon, "viewer", "a");
    daemon.delete(&format!("/v1/keys/{id}")).expect(200);
    daemon.kill9();
    daemon.restart();
    daemon.with_key(&kept).get("/v1/a/jobs").expect(200);
    daemon.with_key(&revoked).get("/v1/a/jobs").expect(401);
}

#[test]
fn a_key_sees_its_tenant_and_no_other() {
    let daemon = Daemon::start(Config::new());
    let (producer, _) = make(&daemon, "producer", "a");
    let producer = daemon.with_key(&producer);
    let id = producer.tenant("a").add_one("t", "mine");
    let foreign = daemon.tenant("b").add_one("t", "theirs");
    assert_eq!(producer.tenant("a").job(&id)["state"], "queued");
    producer.get(&format!("/v1/b/jobs/{foreign}")).expect(404);
    producer.get(&format!("/v1/a/jobs/{foreign}")).expect(404);
    producer.send_text("/v1/b/jobs/t", "x").expect(404);
    producer.send_text("/b/job/t/add", "x").expect(404);
    producer.send_text("/a/job/t/add", "x").expect(200);
    producer.get("/v1/a/jobs").expect(403);
    assert_eq!(daemon.tenant("b").list("").len(), 1);
}

#[test]
fn a_worker_has_what_it_needs_and_no_more() {
    let daemon = Daemon::start(Config::new());
    let (worker, _) = make(&daemon, "worker", "a");
    let worker = daemon.with_key(&worker).tenant("a");
    let id = daemon.tenant("a").add_one("t", "work");
    let job = worker.until_claimed("t", "60s");
    assert_eq!(job["id"], id.as_str());
    assert_eq!(worker.get(&format!("jobs/{id}/payload")).expect(200).text(), "work");
    worker.finish(&job, 200).expect(200);
    assert_eq!(worker.job(&id)["state"], "finished");
    worker.client.send_text("/v1/a/jobs/t", "more").expect(403);
    worker.client.post(&format!("/v1/a/jobs/{id}/retry")).expect(403);
}
