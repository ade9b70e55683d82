//! No call shows one tenant's data to another, or lets another change it.

use std::time::Duration;

use windlass_core::handler::TypeSettings;
use windlass_core::job::Progress;
use windlass_core::store::{
    Changed, Claimed, EndRequest, GiveUp, LeaseRef, Overdue, Pick, Requeue, Settled, Settlement,
};
use windlass_core::{Json, NewJob, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, claim_of, everything_of, give_up_expired,
    globex, handler_spec, id, job, job_of, key, lease_ref, release, said, settlement,
};

/// `acme` has the queued job 1, the running job 2 and the ended job 3; `globex` has nothing.
async fn acme_at_work(harness: &dyn Harness) -> (Subject, Claimed) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("ended", 3)]).await;
    let claimed = store.claim_one("ended", NOW).await;
    let end = Settlement {
        data: Some(Json::string("secret")),
        log: said("secret"),
        ..settlement(&claimed, FINISHED)
    };
    store.settle(end).await;
    store.add([job_of("running", 2)]).await;
    let running = store.claim_one("running", NOW).await;
    let waiting = NewJob { unique: Some("k".into()), expires_at: Some(after(600)), ..job(1) };
    store.add([waiting]).await;
    (store, running)
}

/// Everything that `acme` can see of its jobs.
async fn seen_by_acme(store: &Subject) -> String {
    let jobs = store.listed(everything_of(acme())).await;
    let mut seen = format!("{jobs:?}");
    for job in &jobs {
        let log = store.job_log(&acme(), job.id).await.unwrap();
        let result = store.job_result(&acme(), job.id).await.unwrap();
        let payload = store.job_payload(&acme(), job.id).await.unwrap();
        seen += &format!("{log:?}{result:?}{payload:?}");
    }
    seen
}

fn theirs(name: &str) -> TypeKey {
    TypeKey { tenant: globex(), ..key(name) }
}

pub async fn jobs_of_another_tenant_cannot_be_read(harness: &dyn Harness) {
    let (store, _) = acme_at_work(harness).await;
    for number in 1..=3 {
        assert_eq!(store.job_get(&globex(), id(number)).await.unwrap(), None);
        assert_eq!(store.job_full(&globex(), id(number)).await.unwrap(), None);
        assert_eq!(store.job_typed(&globex(), id(number)).await.unwrap(), None);
        assert_eq!(store.job_log(&globex(), id(number)).await.unwrap(), None);
        assert_eq!(store.job_result(&globex(), id(number)).await.unwrap(), None);
        assert_eq!(store.job_payload(&globex(), id(number)).await.unwrap(), None);
    }
    assert_eq!(store.listed(everything_of(globex())).await, []);
    assert_eq!(store.type_stats(Some(&globex())).await.unwrap(), []);
}

pub async fn jobs_of_another_tenant_cannot_be_settled(harness: &dyn Harness) {
    let (store, running) = acme_at_work(harness).await;
    let before = seen_by_acme(store.at(after(1800))).await;
    let stolen = LeaseRef { tenant: globex(), ..lease_ref(&running) };
    for verdict in [FINISHED, FAILED, again(NOW), release(NOW)] {
        for only_if_expired in [false, true] {
            let lease = stolen.clone();
            let log = said("stolen");
            let end = settlement(&running, verdict);
            let end = Settlement { lease, only_if_expired, log, ..end };
            assert_eq!(store.settle(end).await, Settled::Stale);
        }
    }
    let lost = store.renew(vec![stolen.clone()], after(3600)).await;
    assert_eq!(lost, std::slice::from_ref(&stolen));
    let progress = Progress { percent: 1.0, message: "stolen".into(), at: NOW };
    assert_eq!(store.job_progress(vec![(stolen, progress)]).await.unwrap()[0], Settled::Stale);
    assert_eq!(store.get(2).await, running.job);
    assert_eq!(seen_by_acme(&store).await, before);
}

pub async fn jobs_of_another_tenant_cannot_be_changed(harness: &dyn Harness) {
    let (store, _) = acme_at_work(harness).await;
    let before = seen_by_acme(&store).await;
    for number in 1..=4 {
        let id = id(number);
        let end = EndRequest { tenant: globex(), id, keep: Duration::ZERO };
        assert_eq!(store.job_cancel(end).await.unwrap(), Changed::NotFound);
        assert_eq!(store.at(NOW).job_rerun(&globex(), id).await.unwrap(), Changed::NotFound);
        assert_eq!(store.job_delete(&globex(), id).await.unwrap(), Changed::NotFound);
    }
    for name in ["t", "running", "ended"] {
        for state in State::ALL {
            let requeue = Requeue { key: theirs(name), state, limit: 100 };
            assert_eq!(store.job_requeue(requeue).await.unwrap(), 0);
        }
        let which = Overdue::Unhandled { key: theirs(name), due_for: Duration::ZERO };
        let give_up = GiveUp { which, ..give_up_expired() };
        assert_eq!(store.job_give_up(give_up).await.unwrap(), []);
    }
    assert_eq!(seen_by_acme(&store).await, before);
}

pub async fn jobs_of_another_tenant_cannot_be_claimed(harness: &dyn Harness) {
    let (store, _) = acme_at_work(harness).await;
    let before = seen_by_acme(&store).await;
    let picks =
        ["t", "running", "ended"].map(|name| Pick { key: theirs(name), limit: 100, floor: None });
    assert_eq!(store.at(after(3600)).job_claim(claim_of(picks.to_vec())).await.unwrap().jobs, []);
    assert_eq!(seen_by_acme(&store).await, before);
}

pub async fn handlers_and_settings_of_another_tenant_are_out_of_reach(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let settings = TypeSettings { weight: Some(5), ..TypeSettings::default() };
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    store.type_settings_put(&key("t"), settings.clone()).await.unwrap();
    assert_eq!(store.handler_get(&theirs("t"), None).await.unwrap(), None);
    assert_eq!(store.handler_get(&theirs("t"), Some(id(100))).await.unwrap(), None);
    assert_eq!(store.handler_list(&globex()).await.unwrap(), []);
    assert!(!store.handler_delete(&theirs("t")).await.unwrap());
    assert_eq!(store.type_settings_get(&theirs("t")).await.unwrap(), TypeSettings::default());

    store.at(NOW).handler_put(id(101), &theirs("t"), handler_spec()).await.unwrap();
    store.type_settings_put(&theirs("t"), TypeSettings::default()).await.unwrap();
    store.type_suspend(&theirs("t"), true).await.unwrap();
    assert!(store.handler_delete(&theirs("t")).await.unwrap());
    let in_force = store.handler_get(&key("t"), None).await.unwrap();
    assert_eq!(in_force.map(|handler| handler.id), Some(id(100)));
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), settings);
    assert!(!store.stats("t", NOW).await.expect("the type is there").suspended);
}

pub async fn a_unique_key_of_another_tenant_holds_nothing(harness: &dyn Harness) {
    let (store, _) = acme_at_work(harness).await;
    let same = NewJob { key: theirs("t"), unique: Some("k".into()), ..job(11) };
    store.add([same]).await;
    assert!(matches!(store.job_delete(&globex(), id(11)).await.unwrap(), Changed::Done(_)));
    assert_eq!(store.get(1).await.state, State::Queued);
}
