//! Many callers at once, and each job still belongs to one of them.

use std::collections::BTreeSet;
use std::future::Future;

use windlass_core::job::Boot;
use windlass_core::store::{
    Added, Changed, Claim, Error, Inserted, Settled, SysidGrant, SysidReserve,
};
use windlass_core::{JobId, NewJob};

use crate::Harness;
use crate::add::{add_of, keyed};
use crate::fixture::{
    FINISHED, LEASE, NOW, Subject, after, claim_of, id, job, job_of, pick, release, settlement,
    sysid,
};

const TAKERS: u16 = 8;
const JOBS: i64 = 2000;

/// Runs the same work that many times at once and collects the results.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    count: u16,
    work: impl Fn(u16) -> F,
) -> Vec<T> {
    let tasks: Vec<_> = (1..=count).map(|number| tokio::spawn(work(number))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// Claims small batches until there is nothing left, and settles them if it is asked to.
async fn take_all(store: Subject, owner: u16, finish: bool) -> Vec<JobId> {
    let mut taken = Vec::new();
    for _ in 0..JOBS {
        let picks = vec![pick("a", 7), pick("b", 7)];
        let claim = Claim { owner: sysid(owner), ..claim_of(picks) };
        let claimed = store.job_claim(claim).await.unwrap().jobs;
        if claimed.is_empty() {
            break;
        }
        taken.extend(claimed.iter().map(|claimed| claimed.job.id));
        if finish {
            let ends: Vec<_> = claimed.iter().map(|c| settlement(c, FINISHED)).collect();
            let settled = store.settle_all(ends).await.settled;
            assert!(settled.iter().all(|settled| *settled == Settled::Done));
        }
    }
    taken
}

async fn backlog(store: &Subject) {
    store.add((1..=JOBS).map(|n| job_of(if n % 2 == 0 { "a" } else { "b" }, n))).await;
}

fn assert_each_once(mut taken: Vec<JobId>) {
    taken.sort();
    assert_eq!(taken, (1..=JOBS).map(id).collect::<Vec<_>>());
}

pub async fn s0_48_eight_takers_never_take_the_same_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    backlog(&store).await;
    let taken = at_once(TAKERS, |number| take_all(store.clone(), number, false)).await;
    assert_each_once(taken.into_iter().flatten().collect());
}

pub async fn s0_48_jobs_that_are_settled_meanwhile_do_not_come_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    backlog(&store).await;
    let taken = at_once(TAKERS, |number| take_all(store.clone(), number, true)).await;
    assert_each_once(taken.into_iter().flatten().collect());
    let done = store.stats("a", after(1)).await.expect("the type is there");
    assert_eq!((done.ready, done.running, done.finished), (0, 0, JOBS as u64 / 2));
}

pub async fn s0_19_twenty_daemons_at_once_get_twenty_numbers(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grants: Vec<SysidGrant> = at_once(20, |_| {
        let store = store.clone();
        let reserve = SysidReserve { wanted: None, lease: LEASE };
        async move { store.sysid_reserve(reserve).await.unwrap() }
    })
    .await;
    let sysids: BTreeSet<_> = grants.iter().map(|grant| grant.sysid).collect();
    let boots: BTreeSet<Boot> = grants.iter().map(|grant| grant.boot).collect();
    assert_eq!((sysids.len(), boots.len()), (20, 20));
}

pub async fn s0_19_one_of_many_gets_the_number_they_all_want(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = at_once(TAKERS, |_| {
        let store = store.clone();
        let reserve = SysidReserve { wanted: Some(sysid(7)), lease: LEASE };
        async move { store.sysid_reserve(reserve).await.is_ok() }
    })
    .await;
    assert_eq!(answers.iter().filter(|won| **won).count(), 1);
}

pub async fn a_unique_key_lets_one_of_many_in(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = at_once(TAKERS, |number| {
        let store = store.clone();
        let new = NewJob { unique: Some("k".into()), ..job(i64::from(number)) };
        async move { (new.id, store.insert([new]).await[0]) }
    })
    .await;
    let new: Vec<_> = answers.iter().filter(|(_, answer)| *answer == Inserted::New).collect();
    assert_eq!(new.len(), 1);
    let holder = new[0].0;
    let held = answers.iter().filter(|(_, answer)| *answer == Inserted::Held(holder));
    assert_eq!(held.count(), usize::from(TAKERS) - 1);
}

pub async fn one_id_inserted_by_many_enters_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = at_once(TAKERS, |_| {
        let store = store.clone();
        async move { store.insert((1..=50).map(job)).await }
    })
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(answers.iter().filter(|answer| **answer == Inserted::New).count(), 50);
    assert_eq!(store.stats("t", NOW).await.expect("the type is there").ready, 50);
}

pub async fn one_idempotency_key_sent_by_many_adds_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = at_once(TAKERS, |number| {
        let store = store.clone();
        async move { store.job_add(add_of([job(number.into())], keyed("k"))).await.unwrap() }
    })
    .await;
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Added::New { ids, .. } => new.push(ids),
            Added::Known(record) => known.push(record.ids),
            Added::Unfit { .. } => panic!("{answer:?}"),
        }
    }
    assert_eq!((new.len(), known.len()), (1, usize::from(TAKERS) - 1));
    assert!(known.iter().all(|ids| *ids == new[0]), "{known:?}");
    assert_eq!(store.stats("t", NOW).await.expect("the type is there").ready, 1);
}

pub async fn a_job_is_settled_or_cancelled_but_not_both(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in 1..=20 {
        store.add([job(number)]).await;
        let claimed = store.claim_one("t", NOW).await;
        let settling = store.clone();
        let settle = tokio::spawn(async move {
            settling.settle(settlement(&claimed, FINISHED)).await == Settled::Done
        });
        let cancelling = store.clone();
        let cancel = tokio::spawn(async move {
            matches!(cancelling.cancel(number, NOW).await, Changed::Done(_))
        });
        let (settled, cancelled) = (settle.await.unwrap(), cancel.await.unwrap());
        assert!(settled != cancelled, "settled {settled}, cancelled {cancelled}");
    }
}

pub async fn tokens_stay_distinct_when_a_job_goes_round(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let tokens = at_once(TAKERS, |owner| {
        let store = store.clone();
        async move {
            let mut tokens = Vec::new();
            for _ in 0..50 {
                let claim = Claim { owner: sysid(owner), ..claim_of(vec![pick("t", 1)]) };
                // A claim with a larger token may have been faster.
                let claimed = match store.job_claim(claim).await {
                    Err(Error::Conflict(_)) => continue,
                    claimed => claimed.unwrap().jobs,
                };
                for claimed in claimed {
                    tokens.push(claimed.job.lease.expect("a lease").token);
                    let back = store.settle(settlement(&claimed, release(NOW))).await;
                    assert_eq!(back, Settled::Done);
                }
            }
            tokens
        }
    })
    .await;
    let all: Vec<_> = tokens.into_iter().flatten().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!(store.get(1).await.attempt, 0);
}
