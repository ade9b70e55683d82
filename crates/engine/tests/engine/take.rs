//! Workers that take jobs by name, with a decision of their own, and wait for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use windlass_core::edit::{
    Claimant, Decide, Decision, Edit, FullJob, Names, Put, Refusal, Take, TakeAnswer, TakeDecision,
    Target,
};
use windlass_core::job::{Lease, Token};
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, WHOLE_BYTES_MAX};
use windlass_core::memory::MemoryStore;
use windlass_core::runner::Stop;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert, LeaseRef};
use windlass_core::{
    AddOptions, Extra, Job, JobId, NewJob, Payload, Priority, State, Timestamp, TypeKey, TypeName,
    TypeSettings,
};
use windlass_engine::api::AddJob;
use windlass_engine::{Engine, Error};
use windlass_test_kit::wait::in_time;

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, wish};

const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn glob(text: &str) -> Names {
    Names::Glob(text.to_owned())
}

/// Takes one job, which then runs under a lease.
pub(crate) fn one_job(names: Names) -> Take {
    let decide = |whole: &FullJob, Claimant { owner, token }, now: Timestamp| {
        let job = Job {
            state: State::Running,
            lease: Some(Lease { owner, token, expires_at: now + LEASE, on_beat: false }),
            attempt: whole.job.attempt + 1,
            started_at: Some(now),
            ..whole.job.clone()
        };
        let put = Put { job, payload: Some("taken".into()), purge_at: None };
        TakeDecision { put, give: true }
    };
    Take::new(key("acme", "t").tenant, names, 1, Arc::new(decide))
}

fn ids(took: &TakeAnswer) -> Vec<JobId> {
    took.given.iter().map(|taken| taken.job.id).collect()
}

async fn take_now(engine: &Engine, name: &str) -> Vec<JobId> {
    ids(&engine.take(one_job(glob(name)), Duration::ZERO).await.unwrap())
}

/// Ends a job, whatever worker has it.
async fn finish(engine: &Engine, id: JobId) {
    let decide: Decide = Arc::new(|_, seen, _| {
        let job = seen.job.as_ref().ok_or(Refusal::new(404, "no job"))?.job.clone();
        let job = Job { state: State::Finished, lease: None, ..job };
        let put = Put { job, payload: None, purge_at: Some(Timestamp::NEVER) };
        Ok(Decision { edits: vec![Edit::Put(Box::new(put))], id: None })
    });
    let tenant = key("acme", "t").tenant;
    engine.decide(&tenant, vec![Target::Job(id)], decide).await.unwrap();
}

pub(crate) async fn full_job(engine: &Engine, id: JobId) -> FullJob {
    engine.full_job(&key("acme", "t").tenant, id).await.unwrap().unwrap()
}

fn with(options: AddOptions) -> Vec<AddJob> {
    let mut jobs = jobs(&["x"]);
    jobs[0].options = options;
    jobs
}

/// While its reply is being written.
#[tokio::test]
async fn the_leases_of_a_take_can_be_renewed_together() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.add(&t, jobs(&["a", "b"]), None).await.unwrap();
    let both = Take { limit: 2, ..one_job(glob("t")) };
    let took = daemon.engine.take(both, Duration::ZERO).await.unwrap();
    let leases: Vec<LeaseRef> =
        took.given.iter().filter_map(|taken| LeaseRef::of(&taken.job)).collect();
    assert_eq!(leases.len(), 2);
    daemon.engine.renew_all(leases, LEASE * 10).await.unwrap();
    for id in ids(&took) {
        let lease = daemon.engine.job(&t.tenant, id).await.unwrap().job.lease.unwrap();
        let was = took.given[0].job.lease.unwrap();
        assert!(lease.expires_at >= was.expires_at + LEASE * 8, "{lease:?}");
    }
}

#[tokio::test]
async fn a_waiting_worker_gets_what_it_named_the_moment_it_is_added() {
    let daemon = Daemon::start(|_| {}).await;
    let names =
        |list: &[&str]| Names::AnyOf(list.iter().map(|n| TypeName::new(n).unwrap()).collect());
    for names in [glob("t"), glob("t*"), glob("[s-u]"), names(&["s", "t"])] {
        let other = daemon.engine.add(&key("acme", "other"), jobs(&["x"]), None).await.unwrap();
        let waiting = tokio::spawn({
            let engine = daemon.engine.clone();
            async move { engine.take(one_job(names), PATIENCE).await }
        });
        let added = daemon.engine.add(&key("acme", "t"), jobs(&["x"]), None).await.unwrap();
        let took = waiting.await.unwrap().unwrap();
        assert_eq!(ids(&took), added.ids);
        assert_eq!(took.given[0].before.payload, Payload::Inline("x".into()));
        assert_eq!(take_now(&daemon.engine, "o*").await, other.ids);
    }
    assert!(take_now(&daemon.engine, "*").await.is_empty());
}

#[tokio::test]
async fn each_job_goes_to_one_of_those_who_wait_and_the_rest_goes_on_waiting() {
    const WAITING: usize = 300;
    const FIRST: usize = 100;
    let daemon = Daemon::start(|_| {}).await;
    let mut waiting = JoinSet::new();
    for n in 0..WAITING {
        let engine = daemon.engine.clone();
        let names = if n % 2 == 0 { glob("t") } else { glob("t*") };
        waiting.spawn(async move { engine.take(one_job(names), PATIENCE).await.unwrap() });
    }
    let mut taken = Vec::new();
    let mut added = Vec::new();
    for count in [FIRST, WAITING - FIRST] {
        let payloads = vec!["x"; count];
        added
            .extend(daemon.engine.add(&key("acme", "t"), jobs(&payloads), None).await.unwrap().ids);
        for _ in 0..count {
            taken.extend(ids(&waiting.join_next().await.unwrap().unwrap()));
        }
        assert_eq!(waiting.len(), WAITING - taken.len());
        assert!(waiting.try_join_next().is_none());
    }
    taken.sort();
    assert_eq!(taken, added);
}

#[tokio::test]
async fn a_job_that_comes_due_wakes_a_waiting_worker() {
    let daemon = Daemon::start(|_| {}).await;
    let run_at = Some(daemon.engine.now() + Duration::from_millis(200));
    let later = with(AddOptions { run_at, ..AddOptions::default() });
    let added = daemon.engine.add(&key("acme", "t"), later, None).await.unwrap();
    assert!(take_now(&daemon.engine, "*").await.is_empty());
    let took = daemon.engine.take(one_job(glob("*")), PATIENCE).await.unwrap();
    assert_eq!(ids(&took), added.ids);
}

#[tokio::test]
async fn a_worker_that_waits_in_vain_gets_nothing() {
    let daemon = Daemon::start(|_| {}).await;
    let short = one_job(glob("*"));
    assert_eq!(
        daemon.engine.take(short, Duration::from_millis(20)).await.unwrap(),
        TakeAnswer::default()
    );
    let none = Take { limit: 0, ..one_job(glob("*")) };
    assert!(matches!(daemon.engine.take(none, PATIENCE).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_worker_that_wants_one_priority_does_not_keep_others_from_theirs() {
    let daemon = Daemon::start(|_| {}).await;
    let urgent = Priority::new(1000).ok();
    let waiting = |priority| {
        let engine = daemon.engine.clone();
        tokio::spawn(async move {
            let take = Take { priority, ..one_job(glob("t")) };
            engine.take(take, PATIENCE).await.unwrap()
        })
    };
    let (picky, other) = (waiting(urgent), waiting(None));
    let t = key("acme", "t");
    let ordinary = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    assert_eq!(ids(&other.await.unwrap()), ordinary.ids);
    let options = AddOptions { priority: urgent.unwrap(), ..AddOptions::default() };
    let added = daemon.engine.add(&t, with(options), None).await.unwrap();
    assert_eq!(ids(&picky.await.unwrap()), added.ids);
}

#[tokio::test]
async fn hidden_jobs_wake_only_those_who_want_them() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let waiting = |hidden| {
        let engine = daemon.engine.clone();
        tokio::spawn(async move {
            let take = Take { hidden, ..one_job(glob("t")) };
            engine.take(take, PATIENCE).await.unwrap()
        })
    };
    let (plain, hidden) = (waiting(false), waiting(true));
    let extra = Extra { hidden: true, ..Extra::default() };
    let options = AddOptions { extra, ..AddOptions::default() };
    let added = daemon.engine.add(&t, with(options), None).await.unwrap();
    assert_eq!(ids(&hidden.await.unwrap()), added.ids);
    let added = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    assert_eq!(ids(&plain.await.unwrap()), added.ids);
}

#[tokio::test]
async fn a_type_gives_no_more_than_its_limit_until_one_of_its_jobs_has_ended() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let settings = TypeSettings { concurrency: Some(2), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&t, settings).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["x"; 5]), None).await.unwrap();
    let many = Take { limit: 5, ..one_job(glob("*")) };
    let took = daemon.engine.take(many.clone(), PATIENCE).await.unwrap();
    assert_eq!(ids(&took), added.ids[..2]);
    assert!(take_now(&daemon.engine, "*").await.is_empty());
    let waiting = tokio::spawn({
        let engine = daemon.engine.clone();
        async move { engine.take(many, PATIENCE).await }
    });
    finish(&daemon.engine, added.ids[0]).await;
    assert_eq!(ids(&waiting.await.unwrap().unwrap()), added.ids[2..3]);
}

#[tokio::test]
async fn a_type_over_its_rate_gives_the_next_job_when_it_has_rested() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let settings = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&t, settings).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["x"; 7]), None).await.unwrap();
    let many = Take { limit: 7, ..one_job(glob("t")) };
    assert_eq!(ids(&daemon.engine.take(many.clone(), PATIENCE).await.unwrap()), added.ids[..5]);
    assert_eq!(ids(&daemon.engine.take(many, PATIENCE).await.unwrap()), added.ids[5..]);
}

#[tokio::test]
async fn a_suspended_type_gives_nothing_until_it_is_resumed() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.type_suspend(&t, true).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    assert!(take_now(&daemon.engine, "t").await.is_empty());
    let waiting = tokio::spawn({
        let engine = daemon.engine.clone();
        async move { engine.take(one_job(glob("t")), PATIENCE).await }
    });
    daemon.engine.type_suspend(&t, false).await.unwrap();
    assert_eq!(ids(&waiting.await.unwrap().unwrap()), added.ids);
}

#[tokio::test]
async fn leases_that_are_kept_never_run_out() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
    assert_eq!(take_now(&daemon.engine, "t").await, [id]);
    let expires_at = |whole: FullJob| whole.job.lease.unwrap().expires_at;
    let taken = full_job(&daemon.engine, id).await;
    let token = taken.job.lease.unwrap().token;
    assert!(expires_at(taken) < Timestamp::NEVER);
    let lease = LeaseRef { tenant: t.tenant.clone(), id, token };
    let lost = LeaseRef { token: Token(1), ..lease.clone() };
    daemon.engine.keep(vec![lease, lost]).await;
    let kept = async {
        while expires_at(full_job(&daemon.engine, id).await) < Timestamp::NEVER {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, kept).await.unwrap();
}

#[tokio::test]
async fn a_decision_that_takes_a_lease_away_stops_the_run() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    let ending = tokio::spawn({
        let (engine, tenant) = (daemon.engine.clone(), t.tenant.clone());
        async move { engine.job_wait(&tenant, id, PATIENCE).await.unwrap() }
    });
    finish(&daemon.engine, id).await;
    assert_eq!(ending.await.unwrap().job.state, State::Finished);
    // The order is repeated until the attempt has ended.
    let mut stopped = daemon.runner.stopped();
    stopped.dedup();
    assert_eq!(stopped, [(id, Stop::LeaseLost)]);
}

#[tokio::test]
async fn a_decision_sees_what_was_just_added_and_may_refuse_in_its_own_words() {
    let daemon = Daemon::start(|_| {}).await;
    let t: TypeKey = key("acme", "t");
    let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
    let refuse: Decide =
        Arc::new(|_, seen, _| Err(Refusal::new(404, format!("it is {}", seen.job.is_some()))));
    let refused = daemon.engine.decide(&t.tenant, vec![Target::Job(id)], refuse.clone()).await;
    assert_eq!(refused, Err(Error::Refused(Refusal::new(404, "it is true"))));
    let others = key("other", "t").tenant;
    let refused = daemon.engine.decide(&others, vec![Target::Job(id)], refuse).await;
    assert_eq!(refused, Err(Error::Refused(Refusal::new(404, "it is false"))));
    assert_eq!(daemon.engine.full_job(&others, id).await.unwrap(), None);
    let no_sql = daemon.engine.query(&t.tenant, "SELECT 1;".into(), false, PATIENCE).await;
    assert!(matches!(no_sql, Err(Error::Conflict(_))), "{no_sql:?}");
}

/// The store carries out many takes at once, and answers none of them yet.
#[tokio::test]
async fn takes_together_bring_no_more_than_there_is_room_for() {
    const TAKES: usize = 20;
    const JOBS: u32 = 700;
    const ROOM_JOBS: u64 = 256;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let payload = Bytes::from(vec![b'x'; PAYLOAD_INLINE_BYTES_MAX]);
    let now = daemon.engine.now();
    let new = |number: i64| {
        let id = JobId::new(number).unwrap();
        NewJob::new(id, t.clone(), Payload::Inline(payload.clone()), now)
    };
    let jobs = (1..=i64::from(JOBS)).map(new).collect();
    let (keys, durability) = (Vec::new(), Durability::Relaxed);
    store.job_insert(Insert { jobs, keys, mark: None, durability }).await.unwrap();

    let (asked, mut takes) = mpsc::unbounded_channel();
    store.set_hook(move |call| {
        if call == "job_take" {
            let _ = asked.send(());
        }
        async {}
    });
    store.hold_answers(true);
    let mut taking = JoinSet::new();
    for _ in 0..TAKES {
        let engine = daemon.engine.clone();
        let many = one_job(glob("t"));
        let many = Take { limit: JOBS, payload_bytes_max: WHOLE_BYTES_MAX, ..many };
        taking.spawn(async move { engine.take(many, Duration::ZERO).await.unwrap() });
        in_time("the store is asked", takes.recv()).await;
    }
    let running = async {
        let stats = store.type_stats(Some(&t.tenant)).await.unwrap();
        stats.iter().map(|of| of.running).sum::<u64>()
    };
    let running = running.await;
    assert!(running > 0 && running <= ROOM_JOBS, "{running} jobs of 1 MiB are under way");
    store.hold_answers(false);
    while let Some(took) = in_time("all are answered", taking.join_next()).await {
        assert!(!took.unwrap().given.is_empty(), "those without room for one job get it alone");
    }
}

/// The daemon that started later has larger tokens, until the other one gets a new boot number.
#[tokio::test]
async fn a_taken_job_has_a_larger_token_than_all_claims_before() {
    let store = Arc::new(MemoryStore::default());
    let older = Daemon::start_on(store.clone(), |options| options.lease = LEASE).await;
    let newer = Daemon::start_on(store.clone(), |options| options.lease = LEASE).await;
    let t = key("acme", "t");
    let added = newer.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    let pulled = newer.engine.claim(wish(&t, PATIENCE)).await.unwrap().remove(0).job;
    newer.engine.release(LeaseRef::of(&pulled).unwrap(), Duration::ZERO).await.unwrap();
    let took = older.engine.take(one_job(glob("t")), PATIENCE).await.unwrap();
    assert_eq!(ids(&took), added.ids);
    assert!(took.given[0].job.lease.unwrap().token > pulled.lease.unwrap().token);
}
