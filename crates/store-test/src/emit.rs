//! Jobs that an attempt emitted are inserted with its end, or not at all.

use bytes::Bytes;
use windlass_core::family::Unfit;
use windlass_core::job::Token;
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{Claimed, LeaseRef, Settled, Settlement};
use windlass_core::{Extra, NewJob, Payload, State, TypeKey, TypeName};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, globex, id, job, job_of, key, queued, said,
    settlement,
};

/// A job of the type `new`, emitted by an attempt that ends at `after(1)`.
fn new(number: i64) -> NewJob {
    NewJob { run_at: after(1), created_at: after(1), ..job_of("new", number) }
}

fn keyed(number: i64) -> NewJob {
    NewJob { unique: Some("key".into()), ..new(number) }
}

/// A child as an attempt emits it: the store decides its first state.
fn child_of(number: i64, parent: i64) -> NewJob {
    NewJob { parent: Some(id(parent)), ..new(number) }
}

fn asking(claimed: &Claimed, adds: Vec<NewJob>) -> Settlement {
    Settlement { adds, ..settlement(claimed, FINISHED) }
}

/// A store in which job 1 is running.
async fn running(harness: &dyn Harness) -> (Subject, Claimed) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    (store, claimed)
}

pub async fn s0_29_jobs_enter_in_order_with_the_end_of_the_attempt(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let options = NewJob {
        priority: crate::fixture::priority(9),
        timeout: Some(std::time::Duration::from_secs(5)),
        expires_at: Some(after(99)),
        then: Some(TypeName::new("then").unwrap()),
        extra: Extra { repeat: Some("FINISHED, +1 HOUR".into()), ..Extra::default() },
        ..new(5)
    };
    let later = NewJob { run_at: after(60), ..new(4) };
    let adds = vec![options.clone(), new(3), later.clone(), job_of("other", 2)];
    let end = Settlement { follow: Some(job_of("next", 6)), ..asking(&claimed, adds) };
    let answer = store.settle_all([end]).await;
    assert_eq!(answer.settled, [Settled::Done]);
    assert_eq!(store.get(1).await.state, State::Finished);
    assert_eq!(store.get(5).await, queued(&options));
    assert_eq!(store.get(4).await, queued(&later));

    let entered = [(5, "new"), (3, "new"), (4, "new"), (2, "other"), (6, "next")];
    let entered = entered.map(|(number, name)| (id(number), key(name)));
    assert_eq!(answer.moved.entered, entered);
    let ready = [(key("new"), 2), (key("other"), 1), (key("next"), 1)];
    assert_eq!((answer.moved.ready, answer.moved.due), (ready.into(), Some(after(60))));
    assert_eq!(store.stats("new", after(1)).await.unwrap().ready, 2);
    let payload = store.job_payload(&acme(), id(3)).await.unwrap();
    assert_eq!(payload, Some(new(3).payload));
}

pub async fn jobs_enter_whatever_the_verdict_is(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, verdict) in [(1, FAILED), (2, again(after(60))), (3, FINISHED)] {
        store.add([job(number)]).await;
        let claimed = store.claim_one("t", NOW).await;
        let end = Settlement { verdict, ..asking(&claimed, vec![new(10 + number)]) };
        assert_eq!(store.settle(end).await, Settled::Done);
        assert_eq!(store.get(10 + number).await, queued(&new(10 + number)));
    }
}

pub async fn s0_50_nothing_enters_with_a_stale_verdict(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let end = asking(&claimed, vec![new(2), keyed(3), child_of(4, 1), child_of(5, 99)]);
    let lease = LeaseRef { token: Token(end.lease.token.0 + 1), ..end.lease.clone() };
    let of_another = Settlement { lease, ..end.clone() };
    let of_another_tenant = LeaseRef { tenant: globex(), ..end.lease.clone() };
    let of_another_tenant = Settlement { lease: of_another_tenant, ..end.clone() };
    let too_early = Settlement { only_if_expired: true, ..end.clone() };
    let stale = [of_another, of_another_tenant, too_early];
    let answer = store.settle_all(stale).await;
    assert_eq!(answer.settled, [Settled::Stale; 3]);
    assert_eq!(answer.moved, Default::default());
    store.cancel(1, after(1)).await;
    assert_eq!(store.settle(end).await, Settled::Stale, "cancelled meanwhile");
    for number in 2..=5 {
        assert_eq!(store.find(number).await, None);
    }
    assert_eq!(store.stats("new", after(1)).await, None, "not even their type");
}

pub async fn a_second_verdict_of_the_same_attempt_adds_nothing(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let ends = [asking(&claimed, vec![new(2)]), asking(&claimed, vec![new(3)])];
    let answer = store.settle_all(ends).await;
    assert_eq!(answer.settled, [Settled::Done, Settled::Stale]);
    assert_eq!(answer.moved.entered, [(id(2), key("new"))]);
    assert_eq!(store.find(3).await, None);
}

pub async fn a_held_key_keeps_a_job_out_and_no_other(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    store.add([job(2)]).await;
    let second = store.claim_one("t", NOW).await;
    let answer = store.settle_all([asking(&claimed, vec![keyed(3), keyed(4), new(5)])]).await;
    assert_eq!(answer.settled, [Settled::Done]);
    assert_eq!(answer.moved.entered, [(id(3), key("new")), (id(5), key("new"))]);
    let answer = store.settle_all([asking(&second, vec![keyed(6), new(7)])]).await;
    assert_eq!(answer.settled, [Settled::Done], "held by a job of an earlier attempt");
    assert_eq!(answer.moved.entered, [(id(7), key("new"))]);
    assert_eq!((store.find(4).await, store.find(6).await), (None, None));
    assert_eq!(store.get(1).await.state, State::Finished);
}

pub async fn an_id_that_is_there_enters_once(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    store.add([job_of("old", 2)]).await;
    let first = NewJob { priority: crate::fixture::priority(1), ..new(3) };
    let adds = vec![new(2), first.clone(), new(3), new(1), new(4)];
    let answer = store.settle_all([asking(&claimed, adds)]).await;
    assert_eq!(answer.settled, [Settled::Done]);
    assert_eq!(answer.moved.entered, [(id(3), key("new")), (id(4), key("new"))]);
    assert_eq!(store.get(2).await, queued(&job_of("old", 2)));
    assert_eq!(store.get(3).await, queued(&first));
}

pub async fn a_child_begins_as_its_parent_lets_it(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    store.add([job(2), job(3), job(4)]).await;
    let others = store.claim("t", 2, NOW).await;
    let adds = vec![child_of(10, 2), NewJob { unique: Some("key".into()), ..child_of(11, 2) }];
    let answer = store.settle_all([asking(&claimed, adds)]).await;
    assert_eq!(answer.settled, [Settled::Done]);
    assert_eq!(answer.moved.entered.len(), 2);
    assert_eq!((answer.moved.ready, answer.moved.due), ([].into(), None), "its parent runs");
    assert_eq!(store.states([10, 11]).await, [State::Paused; 2]);
    assert!(store.get(2).await.children);
    assert_eq!(store.settle(settlement(&others[0], FINISHED)).await, Settled::Paused);
    let answer = store.settle_all([asking(&others[1], vec![child_of(12, 2)])]).await;
    assert_eq!(answer.moved.ready, [(key("new"), 1)].into(), "its parent waits");
    assert_eq!(store.states([10, 11, 12]).await, [State::Queued; 3]);
    assert_eq!(store.get(12).await.parent, Some(id(2)));
}

pub async fn a_child_that_is_kept_out_makes_no_parent(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    store.add([keyed(2)]).await;
    let adds = vec![NewJob { parent: Some(id(1)), ..keyed(3) }, child_of(2, 1)];
    let end = Settlement { verdict: FAILED, ..asking(&claimed, adds) };
    let answer = store.settle_all([end]).await;
    assert_eq!((answer.settled, answer.moved), (vec![Settled::Done], Default::default()));
    assert!(!store.get(1).await.children);
}

pub async fn a_child_of_a_hidden_parent_is_hidden(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let extra = Extra { hidden: true, ..Extra::default() };
    store.add([NewJob { extra, ..job_of("hidden", 2) }]).await;
    let hidden = store.full_job(2).await;
    store.edit(vec![crate::kin::put(crate::kin::leased(&hidden, NOW))]).await;
    let end = asking(&claimed, vec![child_of(3, 2)]);
    assert_eq!(store.settle(end).await, Settled::Done);
    assert!(store.get(3).await.extra.hidden);
}

pub async fn an_attempt_that_asked_for_children_of_its_own_job_waits_for_them(
    harness: &dyn Harness,
) {
    let (store, claimed) = running(harness).await;
    let adds = vec![child_of(2, 1), new(3), child_of(4, 1)];
    let end = Settlement { follow: Some(job_of("next", 9)), ..asking(&claimed, adds) };
    let answer = store.settle_all([end]).await;
    assert_eq!(answer.settled, [Settled::Paused]);
    assert_eq!(store.states([1, 2, 3, 4]).await[0], State::Paused);
    assert_eq!(store.states([2, 3, 4]).await, [State::Queued; 3], "set free by its end");
    assert_eq!(store.find(9).await, None, "what follows waits");
    let children = store.claim("new", 3, after(1)).await;
    for claimed in &children {
        store.settle(settlement(claimed, FINISHED)).await;
    }
    assert_eq!(store.claim_one("t", after(2)).await.job.id, id(1), "it runs again");
}

pub async fn children_of_an_attempt_that_did_not_end_well_stay_paused(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let cancelled = Verdict::End(Ending::Cancelled);
    for (number, verdict, expected) in [
        (1, FAILED, State::Paused),
        (2, again(after(600)), State::Paused),
        (3, cancelled, State::Cancelled),
    ] {
        store.add([job(number)]).await;
        let claimed = store.claim_one("t", NOW).await;
        let adds = vec![child_of(10 + number, number)];
        let end = Settlement { verdict, ..asking(&claimed, adds) };
        assert_eq!(store.settle(end).await, Settled::Done);
        assert_eq!(store.state(10 + number).await, expected, "{verdict:?}");
        assert!(store.get(number).await.children);
    }
}

pub async fn jobs_enter_although_theirs_waits_for_older_children(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    let answer = store.settle_all([asking(&parent, vec![new(3), keyed(4)])]).await;
    assert_eq!(answer.settled, [Settled::Paused]);
    assert_eq!(answer.moved.entered, [(id(3), key("new")), (id(4), key("new"))]);
    assert_eq!(store.states([3, 4]).await, [State::Queued; 2]);
}

pub async fn an_unfit_parent_refuses_the_settlement_and_changes_nothing(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    store.ran(job_of("ended", 2), FINISHED).await;
    store.add([job_of("parent", 8)]).await;
    let grandparent = store.claim_one("parent", NOW).await;
    let child = NewJob { parent: Some(id(8)), ..job_of("child", 5) };
    assert_eq!(store.settle(asking(&grandparent, vec![child])).await, Settled::Paused);
    store.claim_one("child", NOW).await;
    let foreign = TypeKey { tenant: globex(), ..key("t") };
    store.add([NewJob { key: foreign, ..job(6) }, job(7)]).await;
    let other = store.claim_one("t", NOW).await;
    let before = store.get(1).await;
    let unfit =
        [(99, Unfit::Missing), (6, Unfit::Missing), (2, Unfit::NotOpen), (5, Unfit::Grandchild)];
    for (parent, unfit) in unfit {
        let adds = vec![new(10), keyed(11), child_of(12, 1), child_of(13, parent)];
        let end = Settlement {
            log: said("not kept"),
            data: Some(windlass_core::Json::string("not kept")),
            follow: Some(new(14)),
            ..asking(&claimed, adds)
        };
        let answer = store.settle_all([end]).await;
        assert_eq!(answer.settled, [Settled::Unfit { parent: id(parent), unfit }]);
        assert_eq!(answer.moved, Default::default());
        assert_eq!(store.get(1).await, before);
        assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));
        assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
        for number in 10..=14 {
            assert_eq!(store.find(number).await, None);
        }
        assert_eq!(store.stats("new", after(1)).await, None);
    }
    let refused = asking(&claimed, vec![new(10), child_of(11, 2)]);
    let answers = store.settle_all([refused, asking(&other, vec![new(12)])]).await;
    let unfit = Settled::Unfit { parent: id(2), unfit: Unfit::NotOpen };
    assert_eq!(answers.settled, [unfit, Settled::Done], "the others are carried out");
    assert_eq!(answers.moved.entered, [(id(12), key("new"))]);
    assert_eq!(store.settle(asking(&claimed, vec![])).await, Settled::Done, "still the owner");
}

pub async fn large_payloads_are_split(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let whole: Bytes = (0..=PAYLOAD_INLINE_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    let large = NewJob { payload: Payload::Inline(whole.clone()), ..new(2) };
    let held = NewJob { payload: Payload::Inline(whole.clone()), ..keyed(4) };
    let end = asking(&claimed, vec![large, keyed(3), held]);
    assert_eq!(store.settle(end).await, Settled::Done);
    let mut kept = Vec::new();
    for index in 0.. {
        let Some(piece) = store.payload_piece(id(2), index).await.unwrap() else { break };
        kept.extend_from_slice(&piece);
    }
    assert!(kept == whole, "{} bytes", kept.len());
    assert_eq!(store.payload_piece(id(4), 0).await.unwrap(), None, "it was held");
}

pub async fn the_most_jobs_of_one_attempt_enter_at_once(harness: &dyn Harness) {
    let (store, claimed) = running(harness).await;
    let most = windlass_core::limit::EMITTED_MAX as i64;
    let adds = (2..2 + most).map(new).collect();
    let answer = store.settle_all([asking(&claimed, adds)]).await;
    assert_eq!((answer.settled, answer.moved.entered.len()), (vec![Settled::Done], most as usize));
    assert_eq!(store.stats("new", after(1)).await.unwrap().ready, most as u64);
}

pub async fn an_answer_tells_only_of_what_entered(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    let answer = store.settle_all([settlement(&parent, FINISHED)]).await;
    assert_eq!((answer.settled, answer.moved), (vec![Settled::Paused], Default::default()));
    assert_eq!(store.state(2).await, State::Queued, "it became ready, with nothing said");
    store.add([job(3)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let answer = store.settle_all([settlement(&claimed, again(NOW))]).await;
    assert_eq!((answer.settled, answer.moved), (vec![Settled::Done], Default::default()));
}
