//! Tenants are separate, and a type belongs to one of them.

use serde_json::json;

use crate::harness::{Config, Daemon, Peer};

#[test]
fn s0_1_a_task_is_named_by_its_type_and_its_language() {
    let daemon = Daemon::start(Config::new().loopback());
    let peer = Peer::start(|_| (200, "text/plain", String::new()));
    let tenant = daemon.tenant("a");
    tenant.sh("by-shell", &daemon.home().recorder("seen"));
    tenant.handler("by-http", &json!({"lang": "http", "body": peer.url("/hook")}));
    let shell = tenant.add_one("by-shell", "s");
    let http = tenant.add_one("by-http", "h");
    tenant.until_all(&[&shell, &http], "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{shell} s")]);
    let received = peer.received();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].path.as_str(), received[0].text().as_str()), ("/hook", "h"));
}

#[test]
fn s0_2_one_type_name_of_two_tenants_has_two_handlers() {
    let daemon = Daemon::start(Config::new());
    let (a, b) = (daemon.tenant("a"), daemon.tenant("b"));
    a.sh("t", &daemon.home().recorder("seen-a"));
    b.sh("t", &daemon.home().recorder("seen-b"));
    let id_a = a.add_one("t", "of a");
    let id_b = b.add_one("t", "of b");
    a.until_state(&id_a, "finished");
    b.until_state(&id_b, "finished");
    assert_eq!(daemon.home().lines("seen-a"), [format!("{id_a} of a")]);
    assert_eq!(daemon.home().lines("seen-b"), [format!("{id_b} of b")]);
}

#[test]
fn s0_3_nothing_that_one_tenants_job_leaves_is_seen_by_anothers() {
    let daemon = Daemon::start(Config::new());
    let (a, b) = (daemon.tenant("a"), daemon.tenant("b"));
    let leave = "export LEFT_BY_A=mark-of-a; echo mark-of-a > mark-of-a; \
                 echo mark-of-a > \"${TMPDIR:-.}/mark-of-a\"";
    let look = format!(
        "(env; ls -A . \"${{TMPDIR:-.}}\") > '{}'; echo done >> '{}'",
        daemon.home().path("b-sees").display(),
        daemon.home().path("b-done").display()
    );
    let options = json!({"env": {"SECRET_OF_A": "mark-of-a"}});
    a.handler("t", &json!({"lang": "sh", "body": leave, "options": options}));
    b.handler("t", &json!({"lang": "sh", "body": look}));
    let id = a.add_one("t", "mark-of-a");
    a.until_state(&id, "finished");
    let id = b.add_one("t", "x");
    b.until_state(&id, "finished");
    let seen = std::fs::read_to_string(daemon.home().path("b-sees")).unwrap();
    assert!(seen.contains("WINDLASS_TENANT=b"), "{seen}");
    assert!(!seen.contains("mark-of-a"), "{seen}");
}

#[test]
fn s0_3_no_route_of_one_tenant_shows_or_changes_anothers() {
    let daemon = Daemon::start(Config::new());
    let (a, b) = (daemon.tenant("a"), daemon.tenant("b"));
    let id = a.add_one("t", "x");
    a.sh("other", "true");
    b.get(&format!("jobs/{id}")).expect(404);
    b.get(&format!("jobs/{id}/payload")).expect(404);
    b.get(&format!("jobs/{id}/log")).expect(404);
    b.post(&format!("jobs/{id}/cancel")).expect(404);
    b.post(&format!("jobs/{id}/retry")).expect(404);
    daemon.delete(&b.path(&format!("jobs/{id}"))).expect(404);
    b.get("handlers/other").expect(404);
    assert!(b.list("").is_empty());
    assert!(b.claim("*", 10, "60s").is_empty());
    assert_eq!(b.get("types").expect(200).json(), json!([]));
    assert_eq!(a.job(&id)["state"], "queued");
    let job = a.until_claimed("t", "60s");
    let finish = json!({"token": job["token"], "status": 200});
    b.post_json(&format!("jobs/{id}/finish"), &finish).expect(404);
    assert_eq!(a.job(&id)["state"], "running");
    a.finish(&job, 200).expect(200);
}

#[test]
fn s0_6_versions_in_type_names_live_side_by_side() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t.1", &daemon.home().recorder("one"));
    tenant.sh("t.2", &daemon.home().recorder("two"));
    let first = tenant.add_one("t.1", "x");
    let second = tenant.add_one("t.2", "y");
    tenant.until_all(&[&first, &second], "finished");
    assert_eq!(daemon.home().lines("one"), [format!("{first} x")]);
    assert_eq!(daemon.home().lines("two"), [format!("{second} y")]);
}

#[test]
fn s0_31_jobs_from_output_stay_with_their_tenant() {
    let daemon = Daemon::start(Config::new());
    let (a, b) = (daemon.tenant("a"), daemon.tenant("b"));
    b.sh("t", &daemon.home().recorder("seen-b"));
    a.sh("t", "echo 'J: b/t|x'; echo 'J: b-t|x'; echo 'J: last|x'");
    let id = a.add_one("t", "x");
    a.until_state(&id, "finished");
    a.until_count("last", "queued", 1);
    assert_eq!(a.list("type=b-t").len(), 1, "the whole text before the bar is the type");
    assert_eq!(a.list("type=b%2Ft").len(), 1);
    assert!(b.list("").is_empty());
    assert!(daemon.home().lines("seen-b").is_empty());
}

#[test]
fn s2_28_a_failing_job_does_not_stop_the_others_of_its_batch() {
    const JOBS: usize = 20;
    let daemon = Daemon::start(Config::new().one_slot().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let body = format!(
        "{}; case $WINDLASS_JOB_ID in *[02468]) exit 3;; esac",
        daemon.home().recorder("seen")
    );
    daemon.stop_picking();
    tenant.sh("t", &body);
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    daemon.start_picking();
    for id in &ids {
        let even = id.ends_with(['0', '2', '4', '6', '8']);
        tenant.until_state(id, if even { "failed" } else { "finished" });
    }
    assert_eq!(daemon.home().lines("seen").len(), JOBS, "each ran once");
}
