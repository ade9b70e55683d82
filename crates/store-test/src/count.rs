//! Waiting types and the counters of every type, after every kind of change.

use std::time::Duration;

use windlass_core::handler::TypeSettings;
use windlass_core::store::{TypeStats, WaitingType};
use windlass_core::{NewJob, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, give_up_expired, globex, handler_spec, id,
    job, job_of, key, release, settlement,
};

fn empty(name: &str) -> TypeStats {
    TypeStats {
        key: key(name),
        handler: false,
        suspended: false,
        settings: false,
        ready: 0,
        deferred: 0,
        running: 0,
        paused: 0,
        finished: 0,
        failed: 0,
        cancelled: 0,
        oldest_ready_at: None,
    }
}

fn ready(count: u64) -> TypeStats {
    TypeStats { ready: count, oldest_ready_at: Some(NOW), ..empty("t") }
}

pub async fn s0_47_only_types_that_can_run_now_are_waiting(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job_of("done", 1), FINISHED).await;
    store.add([job_of("running", 2), job_of("suspended", 3), job_of("cancelled", 4)]).await;
    store.claim_one("running", NOW).await;
    store.type_suspend(&key("suspended"), true).await.unwrap();
    store.cancel(4, NOW).await;
    let deferred = NewJob { run_at: after(60), ..job_of("deferred", 5) };
    let later = NewJob { run_at: after(90), ..job_of("ready", 6) };
    store.add([deferred, later, job_of("ready", 7), job_of("ready", 8)]).await;
    store.type_settings_put(&key("empty"), TypeSettings::default()).await.unwrap();

    let waiting = store.waiting(after(10)).await;
    let ready = WaitingType {
        key: key("ready"),
        ready: 2,
        handler: None,
        settings: TypeSettings::default(),
        revision: waiting.types[0].revision,
    };
    assert_eq!(waiting.types, [ready]);
    assert_eq!(waiting.next_due_at, Some(after(60)));
}

pub async fn a_type_waits_from_the_moment_its_job_is_due(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { run_at: after(60), ..job(1) }]).await;
    let before = store.waiting(after(60) - Duration::from_millis(1)).await;
    assert_eq!((before.types.len(), before.next_due_at), (0, Some(after(60))));
    let then = store.waiting(after(60)).await;
    assert_eq!((then.types.len(), then.next_due_at), (1, None));
    assert_eq!(store.claim("t", 1, after(60)).await.len(), 1);
    let taken = store.waiting(after(60)).await;
    assert_eq!((taken.types.len(), taken.next_due_at), (0, None));
}

pub async fn the_next_due_time_is_the_earliest_of_any_type(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let at = |name, number, seconds| NewJob { run_at: after(seconds), ..job_of(name, number) };
    let theirs = NewJob { key: TypeKey { tenant: globex(), ..key("t") }, ..at("t", 3, 20) };
    store.add([at("t", 1, 30), at("other", 2, 40), theirs]).await;
    for (now, next) in [(0, Some(20)), (20, Some(30)), (30, Some(40)), (40, None)] {
        let waiting = store.waiting(after(now)).await;
        assert_eq!(waiting.next_due_at, next.map(after), "at {now}");
    }
}

pub async fn a_waiting_type_comes_with_handler_and_settings(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let settings = TypeSettings { weight: Some(7), rate: Some(2.5), ..TypeSettings::default() };
    store.type_settings_put(&key("t"), settings.clone()).await.unwrap();
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    let waiting = store.waiting(NOW).await;
    let (handler, revision) = (Some(id(100)), waiting.types[0].revision);
    let expected = WaitingType { key: key("t"), ready: 1, handler, settings, revision };
    assert_eq!(waiting.types, std::slice::from_ref(&expected));
    store.handler_delete(&key("t")).await.unwrap();
    let waiting = store.waiting(NOW).await;
    let revision = waiting.types[0].revision;
    assert_eq!(waiting.types, [WaitingType { handler: None, revision, ..expected }]);
}

pub async fn s0_59_a_job_is_counted_on_its_whole_way(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let check = async |at: u64, what: &str, expected: TypeStats| {
        assert_eq!(store.stats("t", after(at)).await, Some(expected), "{what}");
    };
    store.add([job(1)]).await;
    check(0, "queued", ready(1)).await;
    let claimed = store.claim_one("t", NOW).await;
    check(0, "running", TypeStats { running: 1, ..empty("t") }).await;
    store.settle(settlement(&claimed, release(NOW))).await;
    check(0, "released", ready(1)).await;
    let claimed = store.claim_one("t", NOW).await;
    store.settle(settlement(&claimed, again(after(5)))).await;
    check(1, "retried", TypeStats { deferred: 1, ..empty("t") }).await;
    check(5, "due again", TypeStats { oldest_ready_at: Some(after(5)), ..ready(1) }).await;
    let claimed = store.claim_one("t", after(5)).await;
    store.settle(settlement(&claimed, FAILED)).await;
    check(6, "failed", TypeStats { failed: 1, ..empty("t") }).await;
    store.rerun(1, after(7)).await;
    check(7, "rerun", TypeStats { oldest_ready_at: Some(after(7)), ..ready(1) }).await;
    store.cancel(1, after(8)).await;
    check(8, "cancelled", TypeStats { cancelled: 1, ..empty("t") }).await;
    store.rerun(1, after(9)).await;
    let claimed = store.claim_one("t", after(9)).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    check(10, "finished", TypeStats { finished: 1, ..empty("t") }).await;
    store.delete(1).await;
    check(10, "deleted", empty("t")).await;
}

pub async fn a_cancelled_running_job_no_longer_counts_as_running(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.cancel(1, NOW).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    let expected = TypeStats { cancelled: 1, ..empty("t") };
    assert_eq!(store.stats("t", after(1)).await, Some(expected));
}

pub async fn giving_up_and_purging_are_counted(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let expiring = |number| NewJob { expires_at: Some(after(5)), ..job(number) };
    store.add([expiring(1), NewJob { run_at: after(99), ..expiring(2) }, job(3)]).await;
    store.at(after(5)).job_give_up(give_up_expired()).await.unwrap();
    let expected = TypeStats { failed: 2, ..ready(1) };
    assert_eq!(store.stats("t", after(5)).await, Some(expected));
    store.at(after(366 * 24 * 3600)).job_purge(100).await.unwrap();
    assert_eq!(store.stats("t", after(5)).await.map(|stats| stats.failed), Some(0));
}

pub async fn what_does_not_change_a_job_does_not_change_a_number(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let claimed = store.claim("t", 1, NOW).await.remove(0);
    store.settle(settlement(&claimed, FINISHED)).await;
    let expected = store.stats("t", after(1)).await;
    store.settle(settlement(&claimed, FAILED)).await;
    store.insert([job(1), job(2)]).await;
    store.cancel(1, after(1)).await;
    store.rerun(2, after(1)).await;
    store.delete(99).await;
    assert_eq!(store.stats("t", after(1)).await, expected);
}

pub async fn the_oldest_ready_job_is_the_one_due_the_longest(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let at = |number, seconds| NewJob { run_at: after(seconds), ..job(number) };
    store.add([at(1, 30), at(2, 10), at(3, 20), at(4, 50)]).await;
    let oldest = async |now| store.stats("t", after(now)).await.and_then(|s| s.oldest_ready_at);
    assert_eq!(oldest(5).await, None);
    assert_eq!(oldest(10).await, Some(after(10)));
    assert_eq!(oldest(40).await, Some(after(10)));
    store.delete(2).await;
    assert_eq!(oldest(40).await, Some(after(20)));
    store.claim("t", 1, after(40)).await;
    assert_eq!(oldest(40).await, Some(after(30)));
    store.cancel(1, after(40)).await;
    assert_eq!(oldest(40).await, None);
    assert_eq!(oldest(50).await, Some(after(50)));
}

pub async fn every_type_with_a_job_a_handler_or_settings_is_counted(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("job", 1)]).await;
    store.at(NOW).handler_put(id(100), &key("handler"), handler_spec()).await.unwrap();
    store.type_settings_put(&key("settings"), TypeSettings::default()).await.unwrap();
    let mut stats = store.type_stats(None).await.unwrap();
    stats.sort_by(|a, b| a.key.cmp(&b.key));
    let names: Vec<_> = stats.iter().map(|stats| stats.key.name.as_str()).collect();
    assert_eq!(names, ["handler", "job", "settings"]);
    assert_eq!(stats.iter().map(|stats| stats.handler).collect::<Vec<_>>(), [true, false, false]);

    store.handler_delete(&key("handler")).await.unwrap();
    assert_eq!(store.stats("handler", NOW).await, Some(empty("handler")), "it has had one");
}

pub async fn the_numbers_of_all_tenants_leave_out_types_that_have_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job_of("purged", 1), FINISHED).await;
    store.at(after(366 * 24 * 3600)).job_purge(9).await.unwrap();
    store.at(NOW).handler_put(id(100), &key("deleted"), handler_spec()).await.unwrap();
    store.handler_delete(&key("deleted")).await.unwrap();
    store.type_suspend(&key("suspended"), true).await.unwrap();
    store.type_suspend(&key("resumed"), true).await.unwrap();
    store.type_suspend(&key("resumed"), false).await.unwrap();
    let names = |stats: Vec<TypeStats>| -> Vec<String> {
        let mut names: Vec<_> = stats.iter().map(|s| s.key.name.as_str().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(store.type_stats(None).await.unwrap()), ["suspended"]);
    let all = names(store.type_stats(Some(&acme())).await.unwrap());
    assert_eq!(all, ["deleted", "purged", "resumed", "suspended"], "one tenant's are all there");
    for state in ["ready", "deferred", "running", "paused", "failed", "cancelled"] {
        let number = 10 + store.type_stats(None).await.unwrap().len() as i64;
        let new = job_of(state, number);
        match state {
            "deferred" => store.add([NewJob { run_at: after(999_999_999), ..new }]).await,
            "paused" => store.add([NewJob { paused: true, ..new }]).await,
            _ => store.add([new]).await,
        };
        match state {
            "running" => drop(store.claim_one(state, NOW).await),
            "failed" => {
                let claimed = store.claim_one(state, NOW).await;
                store.settle(settlement(&claimed, FAILED)).await;
            }
            "cancelled" => drop(store.cancel(number, NOW).await),
            _ => {}
        }
        let shown = names(store.type_stats(None).await.unwrap());
        assert!(shown.contains(&state.to_owned()), "{state}: {shown:?}");
    }
}

pub async fn reading_brings_no_type_into_being(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_settings_get(&key("t")).await.unwrap();
    store.handler_get(&key("t"), None).await.unwrap();
    store.handler_delete(&key("t")).await.unwrap();
    store.claim("t", 10, NOW).await;
    assert_eq!(store.type_stats(None).await.unwrap(), []);
}

pub async fn a_suspended_type_keeps_its_numbers(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    let expected = TypeStats { suspended: true, ..ready(2) };
    assert_eq!(store.stats("t", NOW).await, Some(expected.clone()));
    store.type_settings_put(&key("t"), TypeSettings::default()).await.unwrap();
    let expected = TypeStats { settings: true, ..expected };
    assert_eq!(store.stats("t", NOW).await, Some(expected), "it has settings");
}

pub async fn numbers_are_of_one_tenant_or_of_all(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let theirs = TypeKey { tenant: globex(), ..key("t") };
    store.add([job(1), NewJob { key: theirs.clone(), ..job(2) }]).await;
    store.add([NewJob { key: theirs.clone(), ..job(3) }]).await;
    store.waiting(NOW).await;
    assert_eq!(store.type_stats(Some(&acme())).await.unwrap(), [ready(1)]);
    let expected = TypeStats { key: theirs, ..ready(2) };
    assert_eq!(store.type_stats(Some(&globex())).await.unwrap(), [expected]);
    assert_eq!(store.type_stats(None).await.unwrap().len(), 2);
}
