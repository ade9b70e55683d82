//! Rates: how many jobs of a type start, in all daemons and by claims of all kinds together.

use std::time::Duration;

use windlass_core::edit::Take;
use windlass_core::store::{ClaimAnswer, NamedLook, Rest, Settled};
use windlass_core::time::Timestamp;
use windlass_core::{Extra, NewJob, TypeName, TypeSettings};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, claim_of, claimed_numbers, job, job_of, key, pick,
    settlement,
};
use crate::kin::{any_of, glob, take, taken_numbers};
use crate::shared::two;

fn at_most(rate: f64) -> TypeSettings {
    TypeSettings { rate: Some(rate), ..TypeSettings::default() }
}

fn after_ms(ms: u64) -> Timestamp {
    NOW + Duration::from_millis(ms)
}

fn rest(name: &str, rate: f64, ms: u64) -> Rest {
    Rest { key: key(name), rate, time: Duration::from_millis(ms) }
}

async fn claim(store: &Subject, limit: u32, now: Timestamp) -> ClaimAnswer {
    store.at(now).job_claim(claim_of(vec![pick("t", limit)])).await.unwrap()
}

/// A store with ready jobs 1 to 20 of `t`, which has this rate.
async fn limited_to(rate: f64, harness: &dyn Harness) -> Subject {
    let store = Subject::fresh(harness).await;
    store.add((1..=20).map(job)).await;
    store.type_settings_put(&key("t"), at_most(rate)).await.unwrap();
    store
}

pub async fn a_type_starts_no_more_than_its_rate(harness: &dyn Harness) {
    let store = limited_to(4.0, harness).await;
    let first = claim(&store, 9, NOW).await;
    assert_eq!(claimed_numbers(&first.jobs), [1, 2, 3, 4]);
    assert_eq!(first.jobs[0].left, 16, "its rate does not count for what is left");
    assert_eq!(first.rests, [rest("t", 4.0, 1000)]);
    let none = claim(&store, 9, after_ms(249)).await;
    assert_eq!(none, ClaimAnswer { jobs: Vec::new(), rests: vec![rest("t", 4.0, 1)] });
    let next = claim(&store, 9, after_ms(250)).await;
    assert_eq!((claimed_numbers(&next.jobs), next.rests), (vec![5], vec![rest("t", 4.0, 250)]));
    let later = claim(&store, 2, after_ms(5000)).await;
    assert_eq!((claimed_numbers(&later.jobs), later.rests), (vec![6, 7], vec![]), "two are left");
    let later = claim(&store, 9, after_ms(5000)).await;
    assert_eq!(claimed_numbers(&later.jobs), [8, 9], "unused starts are not saved up");
}

pub async fn jobs_that_end_give_no_start_back(harness: &dyn Harness) {
    let store = limited_to(2.0, harness).await;
    for claimed in claim(&store, 9, NOW).await.jobs {
        assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    }
    assert!(claim(&store, 9, NOW).await.jobs.is_empty());
}

pub async fn a_type_that_rests_stays_open_and_holds_up_no_other(harness: &dyn Harness) {
    let store = limited_to(1.0, harness).await;
    store.add([job_of("u", 30)]).await;
    assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 1);
    let both = claim_of(vec![pick("t", 9), pick("u", 9)]);
    let answer = store.at(NOW).job_claim(both).await.unwrap();
    assert_eq!(claimed_numbers(&answer.jobs), [30]);
    assert_eq!(answer.rests, [rest("t", 1.0, 1000)]);
    let names = vec!["t".to_owned()];
    let look = NamedLook { tenant: acme(), names, after: None, limit: 9 };
    let open = store.type_named(look).await.unwrap().types;
    assert_eq!((open[0].key.clone(), open[0].ready), (key("t"), 19));
}

pub async fn claims_and_takes_share_a_rate(harness: &dyn Harness) {
    let store = limited_to(4.0, harness).await;
    assert_eq!(claim(&store, 1, NOW).await.jobs.len(), 1);
    let took = store.job_take(take(glob("*"), 9, NOW)).await.unwrap();
    assert_eq!((taken_numbers(&took), took.rests), (vec![2, 3, 4], vec![rest("t", 4.0, 750)]));
    for names in [glob("*"), glob("t"), any_of(&["t", "u"])] {
        let none = store.job_take(take(names, 9, NOW)).await.unwrap();
        assert_eq!((taken_numbers(&none), none.rests), (vec![], vec![rest("t", 4.0, 250)]));
    }
    assert!(claim(&store, 9, NOW).await.jobs.is_empty());
}

/// Only those of which a job was wanted: their ends wake the worker that found nothing.
pub async fn a_take_names_the_types_whose_rests_it_met(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let hidden = Extra { hidden: true, ..Extra::default() };
    let later = NewJob { run_at: after(9), ..job_of("later", 1) };
    let out_of_sight = NewJob { extra: hidden, ..job_of("hidden", 2) };
    store.add([later, out_of_sight, job_of("now", 3), job_of("now", 4)]).await;
    for name in ["empty", "later", "hidden", "now"] {
        store.type_settings_put(&key(name), at_most(1.0)).await.unwrap();
    }
    let all = || any_of(&["empty", "later", "hidden", "now"]);
    let took = store.job_take(take(all(), 9, NOW)).await.unwrap();
    assert_eq!((taken_numbers(&took), took.rests), (vec![3], vec![rest("now", 1.0, 1000)]));
    for names in [all(), glob("*")] {
        let none = store.job_take(take(names.clone(), 9, NOW)).await.unwrap();
        assert_eq!((taken_numbers(&none), none.rests), (vec![], vec![rest("now", 1.0, 1000)]));
    }
    let hidden_too = Take { hidden: true, ..take(glob("*"), 9, NOW) };
    assert_eq!(taken_numbers(&store.job_take(hidden_too).await.unwrap()), [2]);
}

pub async fn a_new_rate_counts_what_has_started(harness: &dyn Harness) {
    let store = limited_to(4.0, harness).await;
    assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 4);
    store.type_settings_put(&key("t"), at_most(6.0)).await.unwrap();
    assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 2, "four of six have started");
    let concurrency = TypeSettings { concurrency: Some(9), ..at_most(6.0) };
    store.type_settings_put(&key("t"), concurrency).await.unwrap();
    assert!(claim(&store, 9, NOW).await.jobs.is_empty(), "it is the same rate");
    store.type_settings_put(&key("t"), TypeSettings::default()).await.unwrap();
    assert_eq!(claim(&store, 3, NOW).await.jobs.len(), 3);
    store.type_settings_put(&key("t"), at_most(1.0)).await.unwrap();
    assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 1, "it had no rate when those started");
}

pub async fn a_rest_lasts_as_long_as_it_was_to_when_the_clock_is_set(harness: &dyn Harness) {
    for hours in [-2_i64, 2] {
        let store = limited_to(1.0, harness).await;
        assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 1);
        let set = NOW.shifted(hours * 3_600_000);
        store.set_clock(set);
        // Any write follows the clock.
        store.add([job_of("u", 30)]).await;
        let soon = set + Duration::from_millis(900);
        assert!(claim(&store, 9, soon).await.jobs.is_empty(), "{hours}");
        let over = set + Duration::from_millis(1100);
        assert_eq!(claim(&store, 9, over).await.jobs.len(), 1, "{hours}");
    }
}

/// The settings of a type that nobody has mentioned yet.
pub async fn a_rate_may_be_set_before_the_first_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_settings_put(&key("t"), at_most(2.0)).await.unwrap();
    store.add((1..=5).map(job)).await;
    let named = TypeName::new("t").unwrap();
    assert_eq!(store.type_settings_get(&key(named.as_str())).await.unwrap(), at_most(2.0));
    assert_eq!(claim(&store, 9, NOW).await.jobs.len(), 2);
}

pub async fn a_rate_counts_for_both(harness: &dyn Harness) {
    const RATE: u32 = 5;
    let Some((first, second)) = two(harness).await else { return };
    first.type_settings_put(&key("t"), at_most(f64::from(RATE))).await.unwrap();
    second.add((1..=100).map(job)).await;
    for round in 0..3 {
        let now = after(10 * (round + 1));
        let mut takers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let store = if number % 2 == 0 { first.clone() } else { second.clone() };
            takers.spawn(async move { store.claim("t", 2, now).await });
        }
        let claimed = takers.join_all().await.concat();
        assert_eq!(claimed.len(), RATE as usize, "round {round}");
        let took = second.job_take(take(glob("t"), 9, now)).await.unwrap();
        assert!(took.given.is_empty() && !took.rests.is_empty());
    }
}
