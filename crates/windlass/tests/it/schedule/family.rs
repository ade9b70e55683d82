//! Parents that wait for their children, over HTTP and from handlers.

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, ids_of, run, text, windlass};

/// Adds one child for each payload.
fn add(tenant: &Tenant, kind: &str, parent: &str, payloads: &[&str]) -> Vec<String> {
    tenant.add_with(kind, &format!("parent={parent}"), payloads)
}

/// A parent held by a worker.
fn claimed_parent(tenant: &Tenant) -> Value {
    tenant.add_one("parent", "p");
    tenant.until_claimed("parent", "60s")
}

fn states(tenant: &Tenant, ids: &[String]) -> Vec<String> {
    ids.iter().map(|id| text(&tenant.job(id)["state"])).collect()
}

#[test]
fn a_parent_waits_for_its_children_and_runs_again() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let children = add(&tenant, "child", &id, &["x", "y"]);
    assert_eq!(tenant.job(&children[0])["parent"], id);
    assert_eq!(states(&tenant, &children), ["paused", "paused"]);
    assert!(tenant.claim("child", 2, "60s").is_empty());
    tenant.finish(&parent, 200).expect(200);
    let waiting = tenant.job(&id);
    assert_eq!((&waiting["state"], &waiting["attempt"]), (&json!("paused"), &json!(0)));
    for _ in &children {
        assert_eq!(tenant.job(&id)["state"], "paused");
        let child = tenant.until_claimed("child", "60s");
        tenant.finish(&child, 200).expect(200);
    }
    let again = tenant.until_claimed("parent", "60s");
    assert_eq!(text(&again["id"]), id);
    tenant.finish(&again, 200).expect(200);
    assert_eq!(tenant.job(&id)["state"], "finished");
    assert_eq!(tenant.list("type=child&state=finished").len(), 2);
}

#[test]
fn a_child_that_fails_keeps_its_parent_waiting_until_it_is_mended() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for mend in ["retry", "cancel", "delete"] {
        let parent = claimed_parent(&tenant);
        let id = text(&parent["id"]);
        let child = add(&tenant, "child", &id, &["x"]).remove(0);
        tenant.finish(&parent, 200).expect(200);
        let claimed = tenant.until_claimed("child", "60s");
        tenant.finish(&claimed, 400).expect(200);
        assert_eq!(states(&tenant, &[id.clone(), child.clone()]), ["paused", "failed"]);
        if mend == "delete" {
            tenant.client.delete(&tenant.path(&format!("jobs/{child}"))).expect(200);
        } else {
            tenant.post(&format!("jobs/{child}/retry")).expect(200);
            assert_eq!(tenant.job(&id)["state"], "paused");
            if mend == "cancel" {
                tenant.post(&format!("jobs/{child}/cancel")).expect(200);
            } else {
                let claimed = tenant.until_claimed("child", "60s");
                tenant.finish(&claimed, 200).expect(200);
            }
        }
        let again = tenant.until_claimed("parent", "60s");
        assert_eq!(text(&again["id"]), id, "{mend}");
        tenant.finish(&again, 200).expect(200);
    }
}

#[test]
fn cancelling_or_removing_a_parent_ends_what_waits_for_it() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let children = add(&tenant, "child", &id, &["x", "y"]);
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    assert_eq!(states(&tenant, &children), ["cancelled", "cancelled"]);

    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let paused = add(&tenant, "child", &id, &["x"]);
    tenant.finish(&parent, 400).expect(200);
    assert_eq!(states(&tenant, &paused), ["paused"], "the parent may be run again");
    tenant.client.delete(&tenant.path(&format!("jobs/{id}"))).expect(200);
    assert_eq!(states(&tenant, &paused), ["cancelled"]);

    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let queued = add(&tenant, "child", &id, &["x", "y"]);
    tenant.finish(&parent, 200).expect(200);
    let running = tenant.until_claimed("child", "60s");
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    let mut ends = states(&tenant, &queued);
    ends.sort();
    assert_eq!(ends, ["cancelled", "running"], "what runs is not stopped");
    tenant.finish(&running, 200).expect(200);
    assert_eq!(tenant.job(&id)["state"], "cancelled");
}

#[test]
fn only_a_job_that_runs_or_waits_gets_children() {
    let daemon = Daemon::start(Config::new());
    let (tenant, other) = (daemon.tenant("a"), daemon.tenant("b"));
    let refused = |tenant: &Tenant, parent: &str, status: u16| {
        let answer =
            tenant.client.send_text(&tenant.path(&format!("jobs/child?parent={parent}")), "x");
        answer.expect(status).json()["error"].clone()
    };
    for unknown in ["5", "no-id", "0"] {
        assert_eq!(refused(&tenant, unknown, 400)["field"], "parent", "{unknown}");
    }
    let queued = tenant.add_one("parent", "p");
    refused(&tenant, &queued, 409);
    let parent = tenant.until_claimed("parent", "60s");
    assert_eq!(refused(&other, &queued, 400)["field"], "parent", "another tenant's job");
    add(&tenant, "child", &queued, &["x"]);
    tenant.finish(&parent, 200).expect(200);
    let child = tenant.until_claimed("child", "60s");
    let words = text(&refused(&tenant, &text(&child["id"]), 409)["message"]);
    assert!(words.contains("child itself"), "{words}");
    tenant.finish(&child, 200).expect(200);
    let parent = tenant.until_claimed("parent", "60s");
    tenant.finish(&parent, 200).expect(200);
    refused(&tenant, &queued, 409);
    assert_eq!(tenant.list("type=child").len(), 1, "nothing that was refused is there");
}

#[test]
fn children_of_one_add_have_keys_and_large_payloads_like_other_jobs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let large = "x".repeat(2_000_000);
    let job =
        |payload: &str, unique: &str| json!({"payload": payload, "parent": id, "unique": unique});
    let jobs =
        json!({"jobs": [job("a", "k"), job(&large, "l"), job("b", "k"), {"payload": "no child"}]});
    let added = ids_of(&tenant.post_json("jobs/child", &jobs).expect(201));
    assert_eq!(added[0], added[2], "one key, one job");
    assert_eq!(states(&tenant, &added), ["paused", "paused", "paused", "queued"]);
    let held = json!({"jobs": [job(&large, "l")]});
    assert_eq!(ids_of(&tenant.post_json("jobs/child", &held).expect(201)), added[1..2]);
    tenant.finish(&parent, 200).expect(200);
    let payload = tenant.get(&format!("jobs/{}/payload", added[1])).expect(200).text();
    assert_eq!(payload, large);
    tenant.drain("child", 3);
    assert_eq!(text(&tenant.until_claimed("parent", "60s")["id"]), id);
}

#[test]
fn a_handler_emits_children_of_its_own_job_and_sees_their_end() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("child", "cat");
    let node = "if (job.children) return 'joined';
        for (const n of [1, 2, 3]) emit('child', String(n), {parent: job.id});";
    let python = "if job.children:\n    return 'joined'\nfor n in range(3):\n    \
                  emit('child', str(n), parent=job.id)";
    let php = "if ($job->children) return 'joined';
        foreach ([1, 2, 3] as $n) $emit('child', (string) $n, ['parent' => $job->id]);";
    for (kind, lang, body) in [("a", "node", node), ("b", "python", python), ("c", "php", php)] {
        tenant.handler(kind, &json!({"lang": lang, "body": body}));
        let id = tenant.add_one(kind, "x");
        let job = tenant.until_end(&id);
        assert_eq!((&job["state"], &job["result"]), (&json!("finished"), &json!("joined")));
        let mine = |job: &&Value| job["parent"] == id.as_str() && job["state"] == "finished";
        assert_eq!(tenant.list("type=child").iter().filter(mine).count(), 3, "{lang}");
    }
}

#[test]
fn a_shell_script_sees_that_it_runs_after_its_children() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    add(&tenant, "child", &id, &["x"]);
    tenant.sh("t", "echo children: $WINDLASS_CHILDREN.");
    daemon.home().let_go("hold");
    tenant.drain("child", 1);
    assert_eq!(tenant.until_end(&id)["state"], "finished");
    assert!(tenant.log(&id).contains("children: 1."), "{}", tenant.log(&id));
    let alone = tenant.add_one("t", "x");
    assert_eq!(tenant.until_end(&alone)["state"], "finished");
    assert!(tenant.log(&alone).contains("children: ."), "{}", tenant.log(&alone));
}

#[test]
fn a_family_survives_a_kill_and_a_restart() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let parent = claimed_parent(&tenant);
    let id = text(&parent["id"]);
    let children = add(&tenant, "child", &id, &["x", "y"]);
    daemon.kill9();
    daemon.restart();
    let tenant = daemon.tenant("a");
    assert_eq!(states(&tenant, &children), ["paused", "paused"]);
    tenant.finish(&parent, 200).expect(200);
    tenant.drain("child", 2);
    assert_eq!(text(&tenant.until_claimed("parent", "60s")["id"]), id);
}

#[test]
fn the_command_line_adds_children() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let parent = text(&claimed_parent(&tenant)["id"]);
    let url = format!("http://{}", daemon.address);
    let cli = |arguments: &[&str]| {
        run(windlass().args(arguments).args(["--url", &url, "--tenant", "a"]), b"")
    };
    let id = cli(&["add", "child", "--parent", &parent, "x"]).ok();
    let shown = cli(&["jobs", "show", id.trim()]).ok();
    assert!(shown.contains(&parent) && shown.contains("paused"), "{shown}");
}
