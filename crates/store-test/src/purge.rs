//! Ended jobs are kept for their retention and then deleted.

use std::time::Duration;

use bytes::Bytes;

use windlass_core::limit::ORPHAN_PIECES_AGE;
use windlass_core::store::{EndRequest, GiveUp, Piece, Settlement};
use windlass_core::{Json, NewJob, Payload};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, everything_of, give_up_expired, id, job,
    numbers, said, settlement,
};

/// Runs a job that is due to be purged this many seconds after `NOW`.
async fn ended(store: &Subject, number: i64, purge_seconds: u64) {
    store.add([job(number)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let end = Settlement {
        keep: after(purge_seconds).since(store.now()),
        data: Some(Json::string("data")),
        log: said("log"),
        ..settlement(&claimed, FINISHED)
    };
    store.settle(end).await;
}

pub async fn s0_51_an_ended_job_goes_when_its_time_is_over(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    ended(&store, 1, 60).await;
    let just_before = after(60) - Duration::from_millis(1);
    assert_eq!(store.at(just_before).job_purge(10).await.unwrap(), 0);
    assert!(store.find(1).await.is_some());
    assert_eq!(store.at(after(60)).job_purge(10).await.unwrap(), 1);
    assert_eq!(store.find(1).await, None);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.at(after(60)).job_purge(10).await.unwrap(), 0);
    let stats = store.stats("t", after(60)).await.expect("the type stays");
    assert_eq!(stats.finished, 0);
}

pub async fn every_job_has_its_own_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    ended(&store, 1, 60).await;
    ended(&store, 2, 30).await;
    ended(&store, 3, 90).await;
    assert_eq!(store.at(after(45)).job_purge(10).await.unwrap(), 1);
    assert_eq!(numbers(&store.listed(everything_of(acme())).await), [3, 1]);
}

pub async fn no_more_than_the_limit_go(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for number in 1..=5 {
        ended(&store, number, 60).await;
    }
    for expected in [2, 2, 1, 0] {
        assert_eq!(store.at(after(60)).job_purge(2).await.unwrap(), expected);
    }
}

pub async fn a_job_that_has_not_ended_stays(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), again(after(1))).await;
    store.add([NewJob { run_at: after(999), ..job(2) }, job(3)]).await;
    store.claim("t", 1, NOW).await;
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(10).await.unwrap(), 0);
    assert_eq!(store.listed(everything_of(acme())).await.len(), 3);
}

pub async fn cancelled_and_given_up_jobs_go_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), NewJob { expires_at: Some(after(1)), ..job(2) }]).await;
    let (tenant, keep) = (acme(), Duration::from_secs(60));
    store.job_cancel(EndRequest { tenant, id: id(1), keep }).await.unwrap();
    let give_up = GiveUp { keep: Duration::from_secs(69), ..give_up_expired() };
    store.at(after(1)).job_give_up(give_up).await.unwrap();
    assert_eq!(store.at(after(59)).job_purge(10).await.unwrap(), 0);
    assert_eq!(store.at(after(60)).job_purge(10).await.unwrap(), 1);
    assert_eq!(numbers(&store.listed(everything_of(acme())).await), [2]);
    assert_eq!(store.at(after(70)).job_purge(10).await.unwrap(), 1);
}

pub async fn the_last_ending_counts(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    ended(&store, 1, 60).await;
    store.rerun(1, after(10)).await;
    let claimed = store.claim_one("t", after(10)).await;
    let end = Settlement { keep: Duration::from_secs(89), ..settlement(&claimed, FAILED) };
    store.settle(end).await;
    assert_eq!(store.at(after(60)).job_purge(10).await.unwrap(), 0);
    assert_eq!(store.at(after(99)).job_purge(10).await.unwrap(), 1);
}

pub async fn pieces_whose_job_never_came_go_when_they_have_waited_long_enough(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    let put = async |number: i64| {
        let piece = |index| Piece { id: id(number), index, bytes: Bytes::from_static(b"piece") };
        store.payload_put(vec![piece(0), piece(1)]).await.unwrap();
    };
    let has_pieces = async |number: i64| {
        let first = store.payload_piece(id(number), 0).await.unwrap();
        assert_eq!(store.payload_piece(id(number), 1).await.unwrap(), first, "all or none");
        first.is_some()
    };
    store.waiting(NOW).await;
    put(1).await;
    put(2).await;
    let payload = Payload::Pieces { bytes: 10 };
    store.add([NewJob { payload: payload.clone(), ..job(2) }]).await;
    put(2).await;
    store.waiting(after(60)).await;
    put(3).await;

    let waited = NOW + ORPHAN_PIECES_AGE;
    assert_eq!(store.at(waited - Duration::from_millis(1)).job_purge(10).await.unwrap(), 0);
    assert!(has_pieces(1).await, "its job may still come");
    assert_eq!(store.at(waited).job_purge(10).await.unwrap(), 0, "no job went");
    assert!(!has_pieces(1).await);
    assert!(has_pieces(2).await, "they belong to a job");
    assert!(has_pieces(3).await, "they came later");
    store.add([NewJob { payload, ..job(3) }]).await;
    store.at(waited + ORPHAN_PIECES_AGE).job_purge(10).await.unwrap();
    assert!(has_pieces(2).await && has_pieces(3).await);
}

pub async fn pieces_go_with_their_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store
        .payload_put(vec![Piece {
            id: id(1),
            index: 0,
            bytes: bytes::Bytes::from_static(b"piece"),
        }])
        .await
        .unwrap();
    let payload = windlass_core::Payload::Pieces { bytes: 5 };
    store.ran(NewJob { payload, ..job(1) }, FINISHED).await;
    assert!(store.payload_piece(id(1), 0).await.unwrap().is_some());
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(10).await.unwrap(), 1);
    assert_eq!(store.payload_piece(id(1), 0).await.unwrap(), None);
}

pub async fn very_many_pieces_without_a_job_go_with_several_purges(harness: &dyn Harness) {
    const JOBS: i64 = 150;
    let store = Subject::fresh(harness).await;
    for number in 1..=JOBS {
        let piece = |index| Piece { id: id(number), index, bytes: Bytes::from_static(b"piece") };
        store.payload_put(vec![piece(0), piece(1)]).await.unwrap();
    }
    store.at(NOW + ORPHAN_PIECES_AGE);
    for _ in 0..JOBS {
        store.job_purge(10).await.unwrap();
    }
    for number in 1..=JOBS {
        for index in [0, 1] {
            assert_eq!(store.payload_piece(id(number), index).await.unwrap(), None, "{number}");
        }
    }
}
