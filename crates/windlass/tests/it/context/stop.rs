//! Jobs in warm contexts that are stopped: cancelled, expired, requeued, or killed with their
//! daemon.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::{Case, Config, Stage, in_every_language, until};

/// Sources that print their payload and wait while the file that it names exists.
const NODE: &str = "
    console.log('ran ' + payload);
    while (payload.startsWith('/') && require('fs').existsSync(payload)) {
        await new Promise((go) => setTimeout(go, 10));
    }
    return {data: process.pid};";
const PYTHON: &str = "
    import os, time
    print('ran', payload)
    while payload.startswith('/') and os.path.exists(payload):
        time.sleep(0.01)
    return {'data': os.getpid()}";
const PHP: &str = "
    echo 'ran ', $payload, PHP_EOL;
    while (str_starts_with($payload, '/') && file_exists($payload)) {
        clearstatcache();
        usleep(10000);
    }
    return ['data' => getmypid()];";

/// A batch of five whose second job waits; returns the ids.
#[track_caller]
fn held_batch(stage: &Stage) -> Vec<String> {
    let file = stage.daemon.home().write("hold", "");
    let payloads = ["1", file.to_str().unwrap(), "3", "4", "5"];
    let retry = json!({"attempts": 5, "delay": "10ms"});
    stage.set("t", json!({"contexts": 1, "batch": 10, "idle": "10m", "retry": retry}));
    let ids = stage.batch("t", &payloads);
    stage.tenant.until_state(&ids[0], "finished");
    ids
}

in_every_language! {
    fn a_running_job_is_cancelled_and_the_rest_of_its_batch_runs(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let ids = held_batch(&stage);
        let before: BTreeSet<u32> = stage.processes().into_keys().collect();
        stage.tenant.post(&format!("jobs/{}/cancel", ids[1])).expect(200);
        assert_eq!(stage.end(&ids[1])["state"], "cancelled");
        for id in &ids[2..] {
            stage.succeeded(&stage.end(id));
        }
        assert_eq!(stage.tenant.job(&ids[0])["state"], "finished", "what was done stays done");
        until("its process is gone", || stage.processes(), |now| {
            now.keys().all(|pid| !before.contains(pid))
        });
        assert_eq!(stage.tenant.job(&ids[1])["state"], "cancelled");
    }

    fn a_job_that_waits_in_a_batch_is_cancelled_without_a_run(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let ids = held_batch(&stage);
        stage.tenant.post(&format!("jobs/{}/cancel", ids[3])).expect(200);
        assert_eq!(stage.end(&ids[3])["state"], "cancelled");
        stage.daemon.home().let_go("hold");
        for n in [1, 2, 4] {
            stage.succeeded(&stage.end(&ids[n]));
        }
        assert_eq!(stage.tenant.job(&ids[3])["state"], "cancelled");
        assert!(!stage.tenant.log(&ids[3]).contains("ran"), "{}", stage.tenant.log(&ids[3]));
    }

    fn a_job_that_expires_while_it_runs_is_stopped(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("hold", "");
        stage.set("t", json!({"contexts": 1, "idle": "10m"}));
        stage.data("t", "warm");
        let before: BTreeSet<u32> = stage.processes().into_keys().collect();
        let id = stage.tenant.add_with("t", "expires=1s", &[file.to_str().unwrap()]).remove(0);
        let job = stage.end(&id);
        stage.failed(&job, "expired");
        stage.data("t", "next");
        until("its process is gone", || stage.processes(), |now| {
            now.keys().all(|pid| !before.contains(pid))
        });
    }

    fn a_job_has_its_own_time_limit(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("hold", "");
        stage.set("t", json!({"contexts": 1}));
        let id = stage.tenant.add_with("t", "timeout=700ms", &[file.to_str().unwrap()]).remove(0);
        stage.failed(&stage.end(&id), "timed out");
        stage.data("t", "next");
    }

    /// No attempt is lost, and no work is done twice.
    fn a_stop_hands_back_what_has_not_ended(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let mut stage = t.stage_with(Config::new().set("stop_grace", "\"300ms\""));
        let ids = held_batch(&stage);
        let status = stage.daemon.terminate();
        assert!(status.success(), "{status}");
        stage.until_no_process();
        stage.daemon.home().let_go("hold");
        stage.restarted();
        for id in &ids {
            stage.succeeded(&stage.end(id));
        }
        let log = stage.tenant.log(&ids[0]);
        assert_eq!(log.matches("ran 1").count(), 1, "{log}");
    }

    /// A job that ends within the grace period has ended; those behind it run after the next start.
    fn a_stop_lets_the_running_job_end(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let mut stage = t.stage_with(Config::new().set("stop_grace", "\"20s\""));
        let ids = held_batch(&stage);
        stage.daemon.signal(rustix::process::Signal::TERM);
        let line = "stop";
        let told = || stage.daemon.log.lines().iter().any(|text| text.contains(line));
        until("the daemon stops", told, |told| *told);
        stage.daemon.home().let_go("hold");
        assert!(stage.daemon.until_exit().success());
        stage.until_no_process();
        stage.restarted();
        for id in &ids {
            stage.succeeded(&stage.end(id));
            let log = stage.tenant.log(id);
            assert_eq!(log.matches("ran ").count(), 1, "{log}");
        }
    }

    /// After a crash of the daemon its jobs run again, and its processes are found and killed.
    fn a_daemons_crash_leaves_no_process_behind_after_the_next_start(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let mut stage = t.stage();
        let ids = held_batch(&stage);
        let before: BTreeSet<u32> = stage.processes().into_keys().collect();
        assert_eq!(before.len(), 1, "{before:?}");
        stage.daemon.kill9();
        stage.restarted();
        stage.tenant.until_known(&ids);
        until("the old process is gone", || stage.processes(), |now| {
            now.keys().all(|pid| !before.contains(pid))
        });
        stage.daemon.home().let_go("hold");
        for id in &ids {
            assert_eq!(stage.end(id)["state"], "finished");
        }
        let log = stage.tenant.log(&ids[0]);
        assert_eq!(log.matches("ran 1").count(), 1, "what had ended does not run again: {log}");
    }

    /// The same for one that would not notice the end of its channel.
    fn a_daemons_crash_leaves_no_busy_process_behind_after_the_next_start(t) {
        node: "if (payload === 'busy') for (;;);",
        python: "while payload == 'busy':\n    pass",
        php: "while ($payload === 'busy');",
    } {
        let mut stage = t.stage();
        // If the next start takes longer than the lease, it runs again.
        let retry = json!({"attempts": 100, "delay": "10ms"});
        stage.set("t", json!({"contexts": 1, "idle": "10m", "retry": retry}));
        let id = stage.add("t", "busy");
        stage.tenant.until_state(&id, "running");
        stage.until_processes(1);
        stage.daemon.kill9();
        stage.restarted();
        stage.tenant.until_known(&[&id]);
        stage.tenant.post(&format!("jobs/{id}/cancel")).expect(200);
        stage.tenant.until_state(&id, "cancelled");
        let end = || stage.processes();
        until("at most the prewarmed one is left", end, |now| now.len() <= 1);
        assert!(stage.daemon.terminate().success());
        stage.until_no_process();
    }
}

/// A context that died while idle must not fail a job.
#[test]
fn a_context_that_died_idle_costs_nothing() {
    let source = "
        import os, threading
        if payload == 'bomb':
            threading.Timer(0.2, os._exit, [3]).start()
        return {'data': os.getpid()}";
    let stage = Case::new("python", source).stage();
    stage.set("t", json!({"contexts": 1, "idle": "10m"}));
    for _ in 0..3 {
        let bomb = stage.data("t", "bomb");
        let gone = || stage.processes().keys().all(|pid| bomb != *pid);
        until("it has ended", gone, |gone| *gone);
        assert_ne!(stage.data("t", "next"), bomb);
    }
}

#[test]
fn contexts_killed_from_outside_cost_the_running_job_only() {
    let stage = Case::new("node", NODE).stage();
    let ids = held_batch(&stage);
    let context = stage.until_processes(1)[0];
    let pid = rustix::process::Pid::from_raw(i32::try_from(context).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    stage.daemon.home().let_go("hold");
    let attempts: Vec<u64> =
        ids.iter().map(|id| stage.end(id)["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 2, 1, 1, 1]);
}
