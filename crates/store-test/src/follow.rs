//! A job that follows another is inserted with its end, or not at all.

use bytes::Bytes;
use windlass_core::job::Token;
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES};
use windlass_core::store::{LeaseRef, Settled, Settlement};
use windlass_core::{NewJob, Payload, State, TypeName};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, id, job, job_of, priority, queued, settlement,
};

/// A job of the type `next`, as it follows a job that ended at `after(1)`.
fn follow(number: i64) -> NewJob {
    NewJob {
        run_at: after(1),
        created_at: after(1),
        priority: priority(700),
        then: Some(TypeName::new("last, but ä").unwrap()),
        ..job_of("next", number)
    }
}

pub async fn what_follows_a_job_is_kept(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let then = Some(TypeName::new("next, with ü").unwrap());
    let first = NewJob { then: then.clone(), ..job(1) };
    store.add([first.clone(), job(2)]).await;
    assert_eq!(store.get(1).await, queued(&first));
    assert_eq!(store.get(2).await.then, None);
    let claimed = store.claim("t", 2, NOW).await;
    let seen: Vec<_> = claimed.iter().map(|claimed| claimed.job.then.clone()).collect();
    assert_eq!(seen, [then.clone(), None]);
    store.settle(settlement(&claimed[0], FINISHED)).await;
    assert_eq!(store.get(1).await.then, then);
    store.rerun(1, after(5)).await;
    assert_eq!(store.get(1).await.then, then, "it follows the next end, too");
}

pub async fn s0_62_a_job_enters_with_the_end_of_another(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let end = Settlement { follow: Some(follow(2)), ..settlement(&claimed, FINISHED) };
    assert_eq!(store.settle(end.clone()).await, Settled::Done);
    assert_eq!(store.get(1).await.state, State::Finished);
    assert_eq!(store.get(2).await, queued(&follow(2)));
    assert_eq!(store.stats("next", after(1)).await.expect("a new type").ready, 1);

    assert_eq!(store.settle(end).await, Settled::Stale, "said twice");
    let followed = store.claim_one("next", after(1)).await;
    assert_eq!(followed.job.id, id(2));
    assert_eq!(Some(followed.payload), store.job_payload(&acme(), id(2)).await.unwrap());
    assert!(store.id_newest().await.unwrap() >= Some(id(2)));
}

pub async fn s0_62_nothing_follows_a_stale_verdict(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let end = Settlement { follow: Some(follow(2)), ..settlement(&claimed, FINISHED) };
    let lease = LeaseRef { token: Token(end.lease.token.0 + 1), ..end.lease.clone() };
    let of_another = Settlement { lease, ..end.clone() };
    let too_early = Settlement { only_if_expired: true, ..end.clone() };
    for stale in [of_another, too_early] {
        assert_eq!(store.settle(stale).await, Settled::Stale);
        assert_eq!(store.find(2).await, None);
    }
    store.cancel(1, after(1)).await;
    assert_eq!(store.settle(end).await, Settled::Stale, "cancelled meanwhile");
    assert_eq!(store.find(2).await, None);
    assert_eq!(store.stats("next", after(1)).await, None, "not even its type");
}

pub async fn s0_62_each_verdict_of_a_batch_has_its_own(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2), job(3)]).await;
    let claimed = store.claim("t", 3, NOW).await;
    let with =
        |index: usize, follow| Settlement { follow, ..settlement(&claimed[index], FINISHED) };
    let mut stale = with(1, Some(follow(12)));
    stale.lease.token = Token(stale.lease.token.0 + 1);
    let verdicts = vec![with(0, Some(follow(11))), stale, with(2, None)];
    let answer = store.settle_all(verdicts).await;
    assert_eq!(answer.settled, [Settled::Done, Settled::Stale, Settled::Done]);
    assert_eq!(store.get(11).await, queued(&follow(11)));
    assert_eq!(store.find(12).await, None);
}

pub async fn s0_62_a_large_result_becomes_a_payload_in_pieces(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, bytes) in [(1, PAYLOAD_INLINE_BYTES_MAX), (2, PAYLOAD_INLINE_BYTES_MAX + 1)] {
        let name = format!("t{number}");
        store.add([job_of(&name, number)]).await;
        let claimed = store.claim_one(&name, NOW).await;
        let whole: Bytes = (0..bytes).map(|at| (at % 251) as u8).collect();
        let next = 10 + number;
        let follow = NewJob { payload: Payload::Inline(whole.clone()), ..job(next) };
        let end = Settlement { follow: Some(follow), ..settlement(&claimed, FINISHED) };
        assert_eq!(store.settle(end).await, Settled::Done);
        assert_eq!(store.get(next).await.payload_bytes, bytes as u64);

        let claimed = store.claim_one("t", NOW).await;
        let mut kept = Vec::new();
        match &claimed.payload {
            Payload::Inline(payload) => kept.extend_from_slice(payload),
            Payload::Pieces { bytes } => {
                assert_eq!(*bytes, whole.len() as u64);
                for index in 0.. {
                    let piece = store.payload_piece(id(next), index).await.unwrap();
                    let Some(piece) = piece else { break };
                    assert!((1..=PAYLOAD_PIECE_BYTES).contains(&piece.len()));
                    kept.extend_from_slice(&piece);
                }
            }
        }
        assert!(kept == whole, "{bytes} bytes");
        store.settle(settlement(&claimed, FINISHED)).await;
        store.delete(next).await;
        assert_eq!(store.payload_piece(id(next), 0).await.unwrap(), None);
    }
}

pub async fn a_follower_whose_id_is_there_does_not_enter(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job_of("old", 2)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let end = Settlement { follow: Some(follow(2)), ..settlement(&claimed, FINISHED) };
    let answer = store.settle_all([end]).await;
    assert_eq!((answer.settled, answer.moved), (vec![Settled::Done], Default::default()));
    assert_eq!(store.get(2).await, queued(&job_of("old", 2)));
}
