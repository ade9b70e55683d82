//! Results, following jobs, progress, and emitted jobs with options.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, RESULT_BYTES_MAX};
use windlass_core::memory::MemoryStore;
use windlass_core::store::{LeaseRef, List};
use windlass_core::{AddOptions, Job, JobId, Json, State, Status, TypeKey, TypeName};
use windlass_engine::Error;
use windlass_engine::api::{AddJob, PullFinish};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, ended, quick, wish};

/// Jobs that are followed by a job of this type.
fn followed(payloads: &[&str], then: &str) -> Vec<AddJob> {
    let mut jobs = jobs(payloads);
    for job in &mut jobs {
        let then = Some(TypeName::new(then).unwrap());
        job.options = AddOptions { then, ..AddOptions::default() };
    }
    jobs
}

async fn listed(daemon: &Daemon, key: &TypeKey) -> Vec<Job> {
    let (tenant, name) = (key.tenant.clone(), Some(key.name.clone()));
    let list = List { tenant, name, state: None, before: None, limit: 1000 };
    daemon.engine.job_list(list).await.unwrap().jobs
}

async fn payload(daemon: &Daemon, key: &TypeKey, id: JobId) -> Vec<u8> {
    let mut reader = daemon.engine.job_payload(&key.tenant, id).await.unwrap();
    let mut whole = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        whole.extend_from_slice(&piece);
    }
    whole
}

#[tokio::test]
async fn s0_62_a_result_becomes_the_payload_of_the_next_job_after_2xx_only() {
    let daemon = Daemon::start(quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let payloads = ["200 data \"a\\nb\"", "201 data {\"n\": 1.50}", "200", "404 data 1", "500"];
    let added = daemon.engine.add(&t, followed(&payloads, "u"), None).await.unwrap();
    for id in &added.ids {
        ended(&daemon, &t, *id).await;
    }
    let mut seen = Vec::new();
    for job in listed(&daemon, &u).await {
        assert_eq!((job.state, job.then), (State::Queued, None));
        seen.push(String::from_utf8(payload(&daemon, &u, job.id).await).unwrap());
    }
    seen.sort();
    assert_eq!(seen, ["", "a\nb", "{\"n\": 1.50}"]);
    let view = daemon.engine.job(&t.tenant, added.ids[0]).await.unwrap();
    assert_eq!(view.job.then, Some(u.name.clone()));
    assert!(daemon.engine.types(&key("other", "u").tenant).await.unwrap().is_empty());
}

/// The job that follows runs at once, by the handler of its own type.
#[tokio::test]
async fn s0_62_a_chain_runs_to_its_end() {
    let daemon = Daemon::start(quick).await;
    let keys = ["a", "b", "c"].map(|name| key("acme", name));
    for key in &keys {
        daemon.engine.handler_set(key, handler()).await.unwrap();
    }
    let first = "200 data \"200 emit c\"";
    let added = daemon.engine.add(&keys[0], followed(&[first], "b"), None).await.unwrap();
    ended(&daemon, &keys[0], added.ids[0]).await;
    for key in &keys[1..] {
        let jobs = listed(&daemon, key).await;
        assert_eq!(jobs.len(), 1, "{key}");
        assert_eq!(ended(&daemon, key, jobs[0].id).await, State::Finished, "{key}");
    }
}

#[tokio::test]
async fn s0_62_a_worker_that_finishes_a_job_lets_one_follow() {
    let daemon = Daemon::start(|_| {}).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.add(&t, followed(&["x"], "u"), None).await.unwrap();
    let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap().remove(0);
    let token = pulled.job.lease.unwrap().token;
    let lease = LeaseRef { tenant: t.tenant.clone(), id: pulled.job.id, token };
    let large = "x".repeat(PAYLOAD_INLINE_BYTES_MAX + 1);
    let data = Some(Json::string(&large));
    let finish = PullFinish { lease, status: Status::OK, data };
    daemon.engine.finish(finish.clone()).await.unwrap();
    assert!(matches!(daemon.engine.finish(finish).await, Err(Error::Conflict(_))));
    let next = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert_eq!(next.len(), 1);
    assert_eq!((&next[0].job.key, next[0].job.payload_bytes), (&u, large.len() as u64));
    assert!(payload(&daemon, &u, next[0].job.id).await == large.as_bytes());
}

/// The verdict waits for the store, and with it the job that follows.
#[tokio::test]
async fn s0_62_a_store_that_was_away_gets_both_or_neither() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let added = daemon.engine.add(&t, followed(&["hang"], "u"), None).await.unwrap();
        daemon.runner.started(added.ids[0]).await;
        ids.extend(added.ids);
    }
    store.set_available(false);
    for id in &ids {
        daemon.runner.finish(*id);
    }
    let data = daemon.abandon().await;
    store.set_available(true);
    let daemon = Daemon::start_in(data, store, |options| {
        quick(options);
        options.reap_interval = Duration::from_millis(20);
    })
    .await;
    for id in &ids {
        daemon.runner.started(*id).await;
        daemon.runner.finish(*id);
        assert_eq!(ended(&daemon, &t, *id).await, State::Finished);
    }
    assert_eq!(listed(&daemon, &u).await.len(), ids.len());
}

#[tokio::test]
async fn s0_61_a_result_that_is_too_large_is_an_error_of_its_own_job_alone() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    // Payloads are inline here, so large results are built from short payloads.
    daemon.runner.set_results(vec![text(RESULT_BYTES_MAX), text(RESULT_BYTES_MAX + 1)]);
    let payloads = ["200 result 0", "200 result 1", "200 data 7"];
    let added = daemon.engine.add(&t, followed(&payloads, "u"), None).await.unwrap();
    let states = [State::Finished, State::Failed, State::Finished];
    for (id, state) in added.ids.iter().zip(states) {
        assert_eq!(ended(&daemon, &t, *id).await, state);
    }
    let view = async |index: usize| daemon.engine.job(&t.tenant, added.ids[index]).await.unwrap();
    assert_eq!(view(0).await.result.unwrap().as_str().len(), RESULT_BYTES_MAX);
    assert_eq!(view(1).await.result, None);
    assert_eq!(view(2).await.result.unwrap().as_str(), "7");
    let log = daemon.engine.job_log(&t.tenant, added.ids[1]).await.unwrap();
    let said = log[0].log.to_string();
    assert!(said.contains("[windlass] its result has 16777217 bytes"), "{said}");
    assert_eq!(listed(&daemon, &key("acme", "u")).await.len(), 2, "nothing follows an error");
}

/// More than may wait for the store at once.
#[tokio::test]
async fn s0_61_many_large_results_all_arrive() {
    const JOBS: usize = 18;
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    daemon.runner.set_results(vec![format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX - 2))]);
    let added = daemon.engine.add(&t, jobs(&["200 result 0"; JOBS]), None).await.unwrap();
    for id in added.ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
        daemon.engine.job_delete(&t.tenant, id).await.unwrap();
    }
}

#[tokio::test]
async fn the_last_progress_is_there_when_the_job_has_ended() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let many: Vec<(f64, String)> =
        (0..=1000).map(|step| (f64::from(step) / 10.0, format!("step {step}"))).collect();
    let many: Vec<(f64, &str)> = many.iter().map(|(at, text)| (*at, text.as_str())).collect();
    daemon.runner.set_progress(&many);
    let added = daemon.engine.add(&t, jobs(&["200", "404", "500"]), None).await.unwrap();
    for id in added.ids {
        ended(&daemon, &t, id).await;
        let progress = daemon.engine.job(&t.tenant, id).await.unwrap().job.progress.unwrap();
        assert_eq!((progress.percent, progress.message.as_str()), (100.0, "step 1000"));
        let log = daemon.engine.job_log(&t.tenant, id).await.unwrap();
        assert!(!log[0].log.to_string().contains("progress"), "{log:?}");
    }
}

#[tokio::test]
async fn a_percentage_out_of_range_is_put_right_and_noted() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let cases = [(f64::INFINITY, Some(100.0)), (-1.0, Some(0.0)), (f64::NAN, None)];
    for (said, kept) in cases {
        daemon.runner.set_progress(&[(said, "odd")]);
        let id = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
        let progress = daemon.engine.job(&t.tenant, id).await.unwrap().job.progress;
        assert_eq!(progress.map(|progress| progress.percent), kept);
        let log = daemon.engine.job_log(&t.tenant, id).await.unwrap()[0].log.to_string();
        let note = format!("[windlass] a progress of {said} is not a percentage");
        assert!(log.contains(&note), "{log}");
    }
}

#[tokio::test]
async fn a_running_job_shows_its_newest_progress_though_it_says_no_more() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    daemon.runner.set_progress(&[(1.0, "first"), (2.0, "second"), (3.0, "third")]);
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    let shown = async {
        loop {
            let progress = daemon.engine.job(&t.tenant, id).await.unwrap().job.progress;
            if progress.is_some_and(|progress| progress.message == "third") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap();
}

#[tokio::test]
async fn emitted_jobs_have_the_options_that_their_handler_gave() {
    let daemon = Daemon::start(quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let options = r#"{"unique":"k","priority":9,"delay":"1h","then":"v"}"#;
    let one = format!("200 emit u {options}");
    let other = r#"200 emit u {"priority":9,"delay":"1h","timeout":"5s","then":"v"}"#;
    let added = daemon.engine.add(&t, jobs(&[&one, &one, other]), None).await.unwrap();
    for id in added.ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
    let mut jobs = listed(&daemon, &u).await;
    assert_eq!(jobs.len(), 2, "the key was held for the second");
    jobs.sort_by_key(|job| job.unique.is_none());
    assert_eq!((jobs[0].unique.as_deref(), jobs[1].unique.as_deref()), (Some("k"), None));
    assert_eq!(jobs[1].timeout, Some(Duration::from_secs(5)));
    for job in jobs {
        assert_eq!((job.priority.get(), job.state), (9, State::Queued));
        assert_eq!(job.then.unwrap().as_str(), "v");
        assert!(job.run_at > job.created_at);
    }
}
