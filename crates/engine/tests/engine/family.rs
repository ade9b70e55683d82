//! Jobs that repeat, and parents that wait for their children.

use std::sync::Arc;

use windlass_core::memory::MemoryStore;
use windlass_core::repeat::Repeat;
use windlass_core::{AddOptions, Code, Extra, JobId, State, TypeKey};
use windlass_engine::Error;
use windlass_engine::api::{AddJob, IdempotencyKey};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{ended, quick};

fn children(payloads: &[&str], parent: JobId) -> Vec<AddJob> {
    let mut jobs = jobs(payloads);
    for job in &mut jobs {
        job.options.parent = Some(parent);
    }
    jobs
}

async fn state(daemon: &Daemon, key: &TypeKey, id: JobId) -> State {
    daemon.engine.job(&key.tenant, id).await.unwrap().job.state
}

/// A daemon with handlers of a parent's and a child's type, and a parent that runs.
async fn running_parent() -> (Daemon, TypeKey, TypeKey, JobId) {
    let daemon = Daemon::start(quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    for key in [&t, &u] {
        daemon.engine.handler_set(key, handler()).await.unwrap();
    }
    let parent = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(parent).await;
    (daemon, t, u, parent)
}

#[tokio::test]
async fn a_job_repeats_until_it_is_cancelled_whatever_its_attempts_say() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    for payload in ["200", "404", "500"] {
        let mut job = jobs(&[payload]);
        let repeat = Repeat::parse("FINISHED, +0 SECONDS").unwrap();
        let extra = Extra { repeat: Some(repeat.as_str().into()), ..Extra::default() };
        job[0].options = AddOptions { extra, ..AddOptions::default() };
        let id = daemon.engine.add(&t, job, None).await.unwrap().ids[0];
        // More often than a failing job is tried.
        daemon.runner.started_times(id, 5).await;
        let view = daemon.engine.job(&t.tenant, id).await.unwrap();
        let code = view.job.last.unwrap().code;
        assert!(view.job.attempt <= 3 && !view.job.state.is_ended(), "{:?}", view.job);
        assert_eq!(code == Code::Ok, payload == "200");
        // It may be running, and the runner of these tests stops only hanging jobs.
        while let Err(error) = daemon.engine.job_cancel(&t.tenant, id).await {
            assert!(matches!(error, Error::Conflict(_)), "{error}");
        }
        assert_eq!(ended(&daemon, &t, id).await, State::Cancelled);
        let log = daemon.engine.job_log(&t.tenant, id).await.unwrap();
        let says = |log: &String| log.contains("[windlass] repeats at ");
        assert!(log.iter().map(|log| log.log.to_string()).any(|log| says(&log)), "{log:?}");
    }
}

#[tokio::test]
async fn a_parent_waits_for_its_children_and_runs_again() {
    let (daemon, t, u, parent) = running_parent().await;
    let added = daemon.engine.add(&u, children(&["200", "hang"], parent), None).await.unwrap();
    for id in &added.ids {
        assert_eq!(state(&daemon, &u, *id).await, State::Paused);
    }
    daemon.runner.finish(parent);
    assert_eq!(ended(&daemon, &u, added.ids[0]).await, State::Finished);
    daemon.runner.started(added.ids[1]).await;
    assert_eq!(state(&daemon, &t, parent).await, State::Paused);
    // The parent already waits, so a further child does not have to.
    let late = daemon.engine.add(&u, children(&["200"], parent), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &u, late).await, State::Finished);
    daemon.runner.finish(added.ids[1]);
    daemon.runner.started_times(parent, 2).await;
    daemon.runner.finish(parent);
    assert_eq!(ended(&daemon, &t, parent).await, State::Finished);
}

#[tokio::test]
async fn a_parent_waits_for_a_failed_child_until_that_is_rerun_cancelled_or_removed() {
    for mend in ["cancel", "delete", "retry"] {
        let (daemon, t, u, parent) = running_parent().await;
        let child = daemon.engine.add(&u, children(&["404"], parent), None).await.unwrap().ids[0];
        daemon.runner.finish(parent);
        assert_eq!(ended(&daemon, &u, child).await, State::Failed);
        assert_eq!(state(&daemon, &t, parent).await, State::Paused, "{mend}");
        match mend {
            "delete" => daemon.engine.job_delete(&u.tenant, child).await.unwrap(),
            // A failed job has ended; only its next run can be cancelled.
            "cancel" => {
                daemon.engine.type_suspend(&u, true).await.unwrap();
                daemon.engine.job_retry(&u.tenant, child).await.unwrap();
                daemon.engine.job_cancel(&u.tenant, child).await.unwrap();
            }
            _ => {
                daemon.engine.job_retry(&u.tenant, child).await.unwrap();
                daemon.runner.started_times(child, 2).await;
                assert_eq!(ended(&daemon, &u, child).await, State::Failed);
                assert_eq!(state(&daemon, &t, parent).await, State::Paused);
                continue;
            }
        }
        daemon.runner.started_times(parent, 2).await;
    }
}

#[tokio::test]
async fn cancelling_a_parent_cancels_the_children_that_wait() {
    let (daemon, t, u, parent) = running_parent().await;
    let added = daemon.engine.add(&u, children(&["200", "200"], parent), None).await.unwrap();
    daemon.engine.job_cancel(&t.tenant, parent).await.unwrap();
    for id in added.ids {
        assert_eq!(ended(&daemon, &u, id).await, State::Cancelled);
    }
    assert_eq!(ended(&daemon, &t, parent).await, State::Cancelled);
}

#[tokio::test]
async fn what_follows_a_parent_comes_after_its_children() {
    let (daemon, t, u, _) = running_parent().await;
    let mut jobs = jobs(&["hang"]);
    jobs[0].options.then = Some(key("acme", "next").name);
    let parent = daemon.engine.add(&t, jobs, None).await.unwrap().ids[0];
    daemon.runner.started(parent).await;
    let child = daemon.engine.add(&u, children(&["hang"], parent), None).await.unwrap().ids[0];
    daemon.runner.finish(parent);
    daemon.runner.started(child).await;
    let followers = async || {
        let types = daemon.engine.types(&t.tenant).await.unwrap();
        types.iter().find(|of| of.key.name.as_str() == "next").map_or(0, |of| of.ready)
    };
    assert_eq!(followers().await, 0);
    daemon.runner.finish(child);
    daemon.runner.started_times(parent, 2).await;
    daemon.runner.finish(parent);
    assert_eq!(ended(&daemon, &t, parent).await, State::Finished);
    assert_eq!(followers().await, 1);
}

#[tokio::test]
async fn only_a_job_that_runs_or_waits_gets_children_and_they_get_none() {
    let (daemon, t, u, parent) = running_parent().await;
    let add = async |parent, key: &TypeKey| {
        daemon.engine.add(key, children(&["hang"], parent), None).await.map(|added| added.ids[0])
    };
    let unknown = add(JobId::new(7).unwrap(), &u).await.unwrap_err();
    assert!(matches!(&unknown, Error::Invalid(why) if why.field == "parent"), "{unknown:?}");
    let others = add(parent, &key("other", "u")).await.unwrap_err();
    assert!(matches!(others, Error::Invalid(_)), "{others:?}");
    let child = add(parent, &u).await.unwrap();
    daemon.runner.finish(parent);
    daemon.runner.started(child).await;
    let grandchild = add(child, &u).await.unwrap_err();
    assert!(matches!(&grandchild, Error::Conflict(why) if why.contains("child itself")));
    daemon.engine.job_cancel(&t.tenant, parent).await.unwrap();
    let late = add(parent, &u).await.unwrap_err();
    assert!(matches!(&late, Error::Conflict(why) if why.contains("neither runs")), "{late:?}");
}

#[tokio::test]
async fn a_child_may_have_a_unique_key_and_its_add_may_be_repeated() {
    let (daemon, _, u, parent) = running_parent().await;
    let keyed = |unique: &str| {
        let mut jobs = children(&["200"], parent);
        jobs[0].options.unique = Some(unique.into());
        jobs
    };
    let repeatable = || Some(IdempotencyKey { key: "k".into(), fingerprint: 1 });
    let first = daemon.engine.add(&u, keyed("a"), repeatable()).await.unwrap();
    let again = daemon.engine.add(&u, keyed("a"), repeatable()).await.unwrap();
    assert_eq!((again.ids, again.repeated), (first.ids.clone(), true));
    let held = daemon.engine.add(&u, keyed("a"), None).await.unwrap();
    assert_eq!((held.ids, held.repeated), (first.ids.clone(), false));
    let mut both = keyed("a");
    both.extend(keyed("b"));
    let both = daemon.engine.add(&u, both, None).await.unwrap();
    assert_eq!(both.ids[0], first.ids[0]);
    assert_ne!(both.ids[1], first.ids[0]);
}

#[tokio::test]
async fn an_unfit_parent_of_an_emitted_job_is_an_error_of_the_attempt_that_asked_for_it() {
    let daemon = Daemon::start(quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let done = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &t, done).await, State::Finished);
    let cases = [
        (JobId::new(7).unwrap(), "parent: there is no job 7".to_owned()),
        (done, format!("job {done} neither runs nor waits for children")),
    ];
    for (parent, why) in cases {
        let payload = format!(r#"200 emit u {{"parent":"{parent}"}}"#);
        let id = daemon.engine.add(&t, jobs(&[&payload]), None).await.unwrap().ids[0];
        assert_eq!(ended(&daemon, &t, id).await, State::Failed);
        let job = daemon.engine.job(&t.tenant, id).await.unwrap().job;
        assert_eq!((job.attempt, job.last.unwrap().code), (3, Code::Error));
        let logs = daemon.engine.job_log(&t.tenant, id).await.unwrap();
        let expected = format!("said 200\n[windlass] its new jobs were not accepted: {why}");
        let as_expected = |log: &String| log.starts_with(&expected);
        let logs: Vec<String> = logs.iter().map(|log| log.log.to_string()).collect();
        assert!(logs.len() == 3 && logs.iter().all(as_expected), "{logs:?}");
        assert!(logs[2].ends_with("[windlass] no attempts left\n"), "{logs:?}");
    }
    let types = daemon.engine.types(&t.tenant).await.unwrap();
    assert!(types.iter().all(|of| of.key != u), "nothing entered");
}

/// Its parent is in the store, so it does not matter that ingest is behind.
#[tokio::test]
async fn a_child_enters_while_later_adds_wait_in_the_journal() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let direct = async |payload: &str| {
        let idempotency = IdempotencyKey { key: payload.into(), fingerprint: 1 };
        let added = daemon.engine.add(&t, jobs(&[payload]), Some(idempotency)).await.unwrap();
        daemon.runner.started(added.ids[0]).await;
        added.ids[0]
    };
    let parent = direct("hang").await;
    let emitter = direct(&format!(r#"hang emit u {{"parent":"{parent}"}}"#)).await;
    store.hold_inserts(true);
    daemon.engine.add(&u, jobs(&["200"]), None).await.unwrap();
    daemon.runner.finish(emitter);
    assert_eq!(ended(&daemon, &t, emitter).await, State::Finished);
    assert_eq!(daemon.engine.job(&t.tenant, emitter).await.unwrap().job.attempt, 1);
    let children = daemon.engine.types(&t.tenant).await.unwrap();
    let children = children.iter().find(|of_type| of_type.key == u).unwrap();
    assert_eq!(children.paused, 1, "{children:?}");
    store.hold_inserts(false);
}

/// The note about the next time belongs to the verdict that counts.
#[tokio::test]
async fn a_repeated_job_whose_new_jobs_are_refused_says_once_when_it_repeats() {
    let daemon = Daemon::start(|options| {
        quick(options);
        options.retry.attempts = 1;
    })
    .await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let mut job = jobs(&[r#"200 emit u {"parent":"7"}"#]);
    let repeat = Repeat::parse("FINISHED, +1 HOUR").unwrap();
    job[0].options.extra.repeat = Some(repeat.as_str().into());
    let id = daemon.engine.add(&t, job, None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    let refused = async {
        loop {
            let logs = daemon.engine.job_log(&t.tenant, id).await.unwrap();
            match logs.into_iter().next() {
                Some(log) => return log.log.to_string(),
                None => tokio::task::yield_now().await,
            }
        }
    };
    let log = tokio::time::timeout(crate::PATIENCE, refused).await.unwrap();
    assert!(log.contains("its new jobs were not accepted"), "{log}");
    assert_eq!(log.matches("repeats at").count(), 1, "{log}");
}

#[tokio::test]
async fn emitted_jobs_enter_although_their_job_waits_for_its_children() {
    let (daemon, t, u, parent) = running_parent().await;
    daemon.runner.finish(parent);
    assert_eq!(ended(&daemon, &t, parent).await, State::Finished);
    let parent = daemon.engine.add(&t, jobs(&["hang emit v"]), None).await.unwrap().ids[0];
    daemon.runner.started(parent).await;
    let child = daemon.engine.add(&u, children(&["hang"], parent), None).await.unwrap().ids[0];
    daemon.runner.finish(parent);
    daemon.runner.started(child).await;
    assert_eq!(state(&daemon, &t, parent).await, State::Paused);
    let types = daemon.engine.types(&t.tenant).await.unwrap();
    assert!(types.iter().any(|of| of.key.name.as_str() == "v" && of.ready == 1), "{types:?}");
}

#[tokio::test]
async fn a_handler_may_emit_children_of_its_own_job() {
    let (daemon, t, u, parent) = running_parent().await;
    let emitting = format!(r#"200 emit u {{"parent":"{parent}"}}"#);
    let other = daemon.engine.add(&t, jobs(&[&emitting]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &t, other).await, State::Finished);
    let of_u = async || {
        let types = daemon.engine.types(&t.tenant).await.unwrap();
        let of_u = types.into_iter().find(|of| of.key == u).unwrap();
        (of_u.paused, of_u.finished)
    };
    assert_eq!(of_u().await, (1, 0));
    daemon.runner.finish(parent);
    daemon.runner.started_times(parent, 2).await;
    assert_eq!(of_u().await, (0, 1));
}
