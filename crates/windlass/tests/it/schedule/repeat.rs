//! Jobs that run again by themselves, over HTTP and from the command line.

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, run, text, until, windlass};

/// Adds one job in JSON, with these options.
fn add(tenant: &Tenant, kind: &str, options: Value) -> String {
    let mut job = options;
    job["payload"] = json!("x");
    let answer = tenant.post_json(&format!("jobs/{kind}"), &json!({"jobs": [job]})).expect(201);
    text(&answer.json()["ids"][0])
}

/// How often its attempts were written to the log.
fn attempts(tenant: &Tenant, id: &str) -> usize {
    tenant.log(id).matches("--- attempt ").count()
}

#[test]
fn a_job_runs_again_under_the_same_id_until_it_is_cancelled() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("ok", "echo run");
    tenant.sh("bad", "echo run; exit 1");
    tenant.settings("bad", &json!({"retry": {"attempts": 1}}));
    for (kind, code) in [("ok", "ok"), ("bad", "error")] {
        let id = add(&tenant, kind, json!({"repeat": "finished, +1 second"}));
        until("it has run three times", || attempts(&tenant, &id), |times| *times >= 3);
        let job = tenant.job(&id);
        assert_eq!((&job["repeat"], &job["code"]), (&json!("FINISHED, +1 SECOND"), &json!(code)));
        assert_eq!(tenant.list(&format!("type={kind}")).len(), 1, "it is one job");
        assert!(tenant.log(&id).contains("[windlass] repeats at "));
        tenant.post(&format!("jobs/{id}/cancel")).expect(200);
        assert_eq!(tenant.until_end(&id)["state"], "cancelled");
    }
    let listed = tenant.list("type=ok").remove(0);
    assert_eq!(
        (&listed["repeat"], &listed["parent"]),
        (&json!("FINISHED, +1 SECOND"), &Value::Null)
    );
}

#[test]
fn a_worker_ends_a_round_and_the_job_repeats() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = add(&tenant, "t", json!({"repeat": "FINISHED, +0 SECONDS", "then": "next"}));
    for (round, status) in [200, 400, 200].into_iter().enumerate() {
        let job = tenant.until_claimed("t", "60s");
        assert_eq!((text(&job["id"]), &job["attempt"]), (id.clone(), &json!(1)), "{round}");
        tenant.finish(&job, status).expect(200);
    }
    assert_eq!(tenant.until_count("next", "queued", 2).len(), 2, "after each round that was well");
}

#[test]
fn a_repeat_survives_a_kill() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = add(&tenant, "t", json!({"repeat": "SCHEDULED, +1 DAY"}));
    let job = tenant.until_claimed("t", "60s");
    tenant.finish(&job, 200).expect(200);
    let before = tenant.job(&id);
    assert_eq!((&before["state"], &before["attempt"]), (&json!("queued"), &json!(0)));
    daemon.kill9();
    daemon.restart();
    assert_eq!(daemon.tenant("a").job(&id), before);
}

#[test]
fn a_cron_pattern_says_when_and_what_is_wrong_is_named() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = add(&tenant, "t", json!({"repeat": "cron: 0 0 1 1 * Europe/Vienna"}));
    let job = tenant.job(&id);
    assert_eq!(
        (&job["state"], &job["repeat"]),
        (&json!("queued"), &json!("cron: 0 0 1 1 * Europe/Vienna"))
    );
    assert!(text(&job["run_at"]).ends_with("-12-31T23:00:00.000Z"), "{job}");
    let at = "2030-01-31T04:00:00.000Z";
    let id = add(&tenant, "t", json!({"repeat": "cron: 0 0 1 1 *", "run_at": at}));
    assert_eq!(tenant.job(&id)["run_at"], at);
    for wrong in
        ["", "sometimes", "cron:", "cron: 61 * * * *", "cron: 0 0 1 1 * Nowhere", "FINISHED"]
    {
        let job = json!({"jobs": [{"payload": 1, "repeat": wrong}]});
        let refused = tenant.post_json("jobs/t", &job).expect(400).json();
        assert_eq!(refused["error"]["field"], "repeat", "{wrong}: {refused}");
    }
    assert_eq!(tenant.list("type=t").len(), 2);
}

#[test]
fn the_command_line_adds_and_shows_jobs_that_repeat() {
    let daemon = Daemon::start(Config::new());
    let url = format!("http://{}", daemon.address);
    let cli = |arguments: &[&str]| {
        run(windlass().args(arguments).args(["--url", &url, "--tenant", "a"]), b"")
    };
    let id = cli(&["add", "t", "--repeat", "daily", "x"]).ok();
    let shown = cli(&["jobs", "show", id.trim()]).ok();
    assert!(shown.contains("DAILY"), "{shown}");
    let wrong = cli(&["add", "t", "--repeat", "sometimes", "x"]);
    assert!(wrong.stderr.contains("repeat"), "{wrong:?}");
}
