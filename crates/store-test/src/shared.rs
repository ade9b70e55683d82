//! Two handles on the same data, as of two daemons, see each other's changes. These cases do
//! nothing for a store that is for one daemon only.

use std::time::Duration;

use windlass_core::handler::TypeSettings;
use windlass_core::job::Token;
use windlass_core::retry::Verdict;
use windlass_core::store::{
    Added, Claim, Durability, Error, Hold, IdempotencyRecord, Insert, Inserted, Insertion,
    JournalMark, Settled, SysidRenew, SysidReserve,
};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, NewJob, State};

use crate::Harness;
use crate::add::{add_of, keyed};
use crate::fixture::{
    FINISHED, LEASE, NOW, Subject, acme, after, claim_of, claimed_numbers, handler_spec, id, job,
    journal, key, lease_ref, pick, priority, release, settlement, sysid,
};
use crate::kin::{glob, take};

/// Adds that another daemon may miss before it must have been notified of one.
const ADDS_UNHEARD_MAX: i64 = 100;
const BETWEEN_ADDS: Duration = Duration::from_millis(100);
/// How long a change of a type may take to be heard of.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn two(harness: &dyn Harness) -> Option<(Subject, Subject)> {
    let first = Subject::fresh(harness).await;
    let second = harness.second().await?;
    Some((first, Subject::of(harness, second)))
}

pub async fn each_sees_what_the_other_did(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    first.add([job(1)]).await;
    assert_eq!(second.get(1).await, first.get(1).await);
    assert_eq!(second.insert([job(1)]).await, [Inserted::Duplicate]);
    assert_eq!(second.waiting(NOW).await.types.len(), 1);
    let claimed = second.claim_one("t", NOW).await;
    assert_eq!(first.get(1).await, claimed.job);
    assert!(first.claim("t", 10, NOW).await.is_empty());
    assert_eq!(first.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    assert_eq!(second.settle(settlement(&claimed, FINISHED)).await, Settled::Stale);
    assert_eq!(second.get(1).await, first.get(1).await);
    assert_eq!(second.stats("t", after(1)).await, first.stats("t", after(1)).await);
}

pub async fn handlers_and_settings_are_common(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    let settings = TypeSettings { weight: Some(9), ..TypeSettings::default() };
    first.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    first.type_settings_put(&key("t"), settings.clone()).await.unwrap();
    let in_force = second.handler_get(&key("t"), None).await.unwrap();
    assert_eq!(in_force.map(|handler| handler.id), Some(id(100)));
    assert_eq!(second.type_settings_get(&key("t")).await.unwrap(), settings);
    second.type_suspend(&key("t"), true).await.unwrap();
    first.add([job(1)]).await;
    assert!(first.claim("t", 10, NOW).await.is_empty());
    assert!(first.waiting(NOW).await.types.is_empty());

    second.type_suspend(&key("t"), false).await.unwrap();
    second.at(NOW).handler_put(id(101), &key("t"), handler_spec()).await.unwrap();
    assert_eq!(first.waiting(NOW).await.types[0].handler, Some(id(101)));
    assert_eq!(first.claim_one("t", NOW).await.handler, Some(id(101)));
}

pub async fn s0_19_numbers_and_boots_are_common(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    let reserve = |wanted| SysidReserve { wanted, lease: LEASE };
    let one = first.sysid_reserve(reserve(Some(sysid(7)))).await.unwrap();
    let taken = second.sysid_reserve(reserve(Some(sysid(7)))).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");
    let two = second.sysid_reserve(reserve(None)).await.unwrap();
    assert!(two.sysid != one.sysid && two.boot > one.boot);
    assert_eq!(first.at(NOW).sysid_list().await.unwrap().len(), 2);
}

pub async fn marks_and_ids_are_common(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    let mark = Some(JournalMark { journal: journal(7), from: None, position: id(5) });
    let (jobs, keys, durability) = (vec![job(5)], Vec::new(), Durability::Synced);
    first.job_insert(Insert { jobs, keys, mark, durability }).await.unwrap();
    assert_eq!(second.journal_position(journal(7)).await.unwrap(), Some(id(5)));
    assert_eq!(second.id_newest().await.unwrap(), Some(id(5)));
}

pub async fn tokens_grow_across_daemons(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    first.add([job(1)]).await;
    let mut last: Option<Token> = None;
    for store in [&first, &second, &first] {
        let claimed = store.claim_one("t", NOW).await;
        let token = lease_ref(&claimed).token;
        assert!(last.is_none_or(|last| token > last));
        last = Some(token);
        store.settle(settlement(&claimed, release(NOW))).await;
    }
}

pub async fn an_idempotency_key_counts_for_both(harness: &dyn Harness) {
    const KEYS: i64 = 20;
    let Some((first, second)) = two(harness).await else { return };
    for number in 1..=KEYS {
        let add = |number| add_of([job(number)], keyed(&format!("key {}", number % KEYS)));
        let both = tokio::join!(first.job_add(add(number)), second.job_add(add(number + KEYS)));
        let ids = |added: Result<Added, Error>| match added.unwrap() {
            Added::New { ids, .. } => ids,
            Added::Known(record) => record.ids,
            other => panic!("{other:?}"),
        };
        assert_eq!(ids(both.0), ids(both.1));
    }
    let ready = first.stats("t", NOW).await.expect("the type is there").ready;
    assert_eq!(ready, KEYS as u64);
}

pub async fn with_wakes_one_hears_of_what_the_other_added(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    if !second.capabilities().wakes {
        return;
    }
    let mut heard = tokio::spawn(async move { second.changed().await });
    // The first adds may come before the other daemon listens.
    for number in 1..=ADDS_UNHEARD_MAX {
        first.add([job(number)]).await;
        if tokio::time::timeout(BETWEEN_ADDS, &mut heard).await.is_ok() {
            return;
        }
    }
    panic!("the other daemon heard nothing of {ADDS_UNHEARD_MAX} jobs");
}

pub async fn with_wakes_one_hears_of_every_change_of_a_type(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    if !second.capabilities().wakes {
        return;
    }
    let hears = async |within| tokio::time::timeout(within, second.changed()).await.is_ok();
    let mut number = 0;
    while !hears(BETWEEN_ADDS).await {
        number += 1;
        assert!(number <= ADDS_UNHEARD_MAX, "the other daemon does not listen");
        first.add([job(number)]).await;
    }
    for change in ["handler", "settings", "suspend", "resume", "delete"] {
        // What is still under way is not of this change.
        while hears(BETWEEN_ADDS).await {}
        match change {
            "handler" => {
                let spec = handler_spec();
                first.handler_put(id(7), &key("t"), spec).await.unwrap();
            }
            "settings" => {
                let settings = TypeSettings { concurrency: Some(3), ..TypeSettings::default() };
                first.type_settings_put(&key("t"), settings).await.unwrap();
            }
            "delete" => assert!(first.handler_delete(&key("t")).await.unwrap()),
            _ => first.type_suspend(&key("t"), change == "suspend").await.unwrap(),
        }
        assert!(hears(PATIENCE).await, "of {change}");
    }
}

pub async fn s0_48_they_never_claim_the_same_job(harness: &dyn Harness) {
    const JOBS: i64 = 1000;
    let Some((first, second)) = two(harness).await else { return };
    first.add((1..=JOBS).map(job)).await;
    let take_all = |store: Subject, owner: u16| async move {
        let mut taken: Vec<JobId> = Vec::new();
        for _ in 0..JOBS {
            let claim = Claim { owner: sysid(owner), ..claim_of(vec![pick("t", 5)]) };
            let claimed = store.job_claim(claim).await.unwrap().jobs;
            if claimed.is_empty() {
                break;
            }
            taken.extend(claimed.iter().map(|claimed| claimed.job.id));
        }
        taken
    };
    let tasks = [(&first, 1), (&second, 2), (&first, 3), (&second, 4)]
        .map(|(store, owner)| tokio::spawn(take_all(store.clone(), owner)));
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.unwrap());
    }
    taken.sort();
    assert_eq!(taken, (1..=JOBS).map(id).collect::<Vec<_>>());
    let running = second.stats("t", NOW).await.expect("the type is there").running;
    assert_eq!(running, JOBS as u64);
    assert_eq!(second.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));
}

/// A store that remembers where a queue begins must notice jobs that come before that place.
pub async fn a_job_before_those_that_were_claimed_comes_next(harness: &dyn Harness) {
    const JOBS: i64 = 60;
    let Some((first, second)) = two(harness).await else { return };
    first.add((1..=JOBS).map(job)).await;
    for round in 1..=JOBS / 3 {
        let claimed = first.claim("t", 2, after(5)).await;
        assert_eq!(claimed_numbers(&claimed), [2 * round - 1, 2 * round]);
        let earlier = NewJob { run_at: Timestamp(NOW.ms() - round), ..job(100 + round) };
        second.add([earlier]).await;
        let next = first.claim("t", 1, after(5)).await.remove(0);
        assert_eq!(next.job.id, id(100 + round), "it has been due the longest");
        second.settle(settlement(&next, Verdict::Release { after: None })).await;
        let next = first.claim("t", 1, after(5)).await;
        assert_eq!(claimed_numbers(&next), [100 + round], "it was released");
        let urgent = NewJob { priority: priority(600 + round), ..job(200 + round) };
        second.add([urgent]).await;
        let next = first.claim("t", 1, after(5)).await;
        assert_eq!(claimed_numbers(&next), [200 + round], "it is urgent");
        let less = NewJob { priority: priority(10), ..job(300 + round) };
        second.add([less]).await;
    }
    let rest = first.claim("t", 100, after(5)).await;
    let of_default = 2 * (JOBS / 3) + 1..=JOBS;
    let less_urgent = 301..=300 + JOBS / 3;
    assert_eq!(claimed_numbers(&rest), of_default.chain(less_urgent).collect::<Vec<_>>());
}

pub async fn a_concurrency_counts_for_both(harness: &dyn Harness) {
    const MOST: u32 = 5;
    let Some((first, second)) = two(harness).await else { return };
    let settings = TypeSettings { concurrency: Some(MOST), ..TypeSettings::default() };
    first.type_settings_put(&key("t"), settings).await.unwrap();
    second.add((1..=100).map(job)).await;
    for round in 0..3 {
        let mut takers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let store = if number % 2 == 0 { first.clone() } else { second.clone() };
            takers.spawn(async move { store.claim("t", 2, NOW).await });
        }
        let claimed = takers.join_all().await.concat();
        assert_eq!(claimed.len(), MOST as usize, "round {round}");
        let full = second.job_take(take(glob("t"), 9, NOW)).await.unwrap();
        assert_eq!((full.given.len(), full.full), (0, true));
        for (claimed, store) in claimed.iter().zip([&first, &second].into_iter().cycle()) {
            assert_eq!(store.settle(settlement(claimed, FINISHED)).await, Settled::Done);
        }
    }
}

pub async fn a_mark_that_the_other_moved_is_behind(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    let insert = |number, from: Option<i64>| {
        let mark = JournalMark { journal: journal(7), from: from.map(id), position: id(number) };
        let (jobs, durability) = (vec![job(number)], Durability::Relaxed);
        Insert { jobs, keys: Vec::new(), mark: Some(mark), durability }
    };
    let done = Insertion::Done(vec![Inserted::New]);
    assert_eq!(first.job_insert(insert(1, None)).await.unwrap(), done);
    let behind = second.job_insert(insert(2, None)).await.unwrap();
    assert_eq!(behind, Insertion::Behind(Some(id(1))));
    assert_eq!(second.job_insert(insert(2, Some(1))).await.unwrap(), done);
    let behind = first.job_insert(insert(3, Some(1))).await.unwrap();
    assert_eq!(behind, Insertion::Behind(Some(id(2))));
    assert_eq!(first.find(3).await, None);
}

/// One add is decided in the store; the other was accepted while the store was away.
pub async fn a_key_that_the_other_used_makes_an_ingest_a_repeat(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    first.job_add(add_of([job(1)], keyed("k"))).await.unwrap();
    let key = keyed("k").expect("a key");
    let record = IdempotencyRecord::new(&acme(), &key, vec![id(2)], NOW);
    let (jobs, durability) = (vec![job(2)], Durability::Relaxed);
    let insert = Insert { jobs, keys: vec![record], mark: None, durability };
    let answer = second.job_insert(insert).await.unwrap();
    assert_eq!(answer, Insertion::Done(vec![Inserted::Repeated]));
    assert_eq!(first.state(2).await, State::Cancelled);
    let known = second.job_add(add_of([job(3)], keyed("k"))).await.unwrap();
    assert!(matches!(known, Added::Known(record) if record.ids == [id(1)]));
}

pub async fn a_beat_of_one_is_seen_by_the_other(harness: &dyn Harness) {
    let Some((first, second)) = two(harness).await else { return };
    let reserve = SysidReserve { wanted: Some(sysid(7)), lease: LEASE };
    let grant = first.sysid_reserve(reserve).await.unwrap();
    first.add([job(1)]).await;
    let hold = Hold::Beat(grant.boot);
    let claimed =
        first.job_claim(Claim { hold, ..claim_of(vec![pick("t", 1)]) }).await.unwrap().jobs;
    let renew = SysidRenew { grant, lease: LEASE, id_newest: Some(id(90)), report: None };
    first.at(after(8)).sysid_renew(renew).await.unwrap();
    assert_eq!(second.at(after(17)).lease_expired(9).await.unwrap(), []);
    assert_eq!(second.sysid_list().await.unwrap(), [sysid(7)]);
    assert_eq!(second.id_newest().await.unwrap(), Some(id(90)));
    let held = second.lease_mine(sysid(7), None, 9).await.unwrap();
    assert_eq!(held, [lease_ref(&claimed[0])]);
    assert_eq!(second.at(after(18)).lease_expired(9).await.unwrap().len(), 1);
}
