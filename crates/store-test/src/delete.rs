//! A job is deleted with everything that belongs to it, unless it is running.

use bytes::Bytes;

use windlass_core::store::{Changed, Inserted, Piece, Settled, Settlement};
use windlass_core::{Json, NewJob, Payload, State};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, everything_of, id, job, queued, said, settlement,
};

pub async fn a_queued_job_goes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let deferred = NewJob { run_at: after(60), ..job(2) };
    store.add([job(1), deferred]).await;
    assert_eq!(store.delete(1).await, Changed::Done(Box::new(queued(&job(1)))));
    assert!(matches!(store.delete(2).await, Changed::Done(_)));
    assert_eq!(store.find(1).await, None);
    assert_eq!(store.listed(everything_of(acme())).await, []);
    assert!(store.claim("t", 10, after(99)).await.is_empty());
    assert!(store.waiting(after(99)).await.types.is_empty());
    assert_eq!(store.waiting(NOW).await.next_due_at, None);
}

pub async fn an_ended_job_goes_with_all_that_belongs_to_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store
        .payload_put(vec![Piece { id: id(1), index: 0, bytes: Bytes::from_static(b"piece") }])
        .await
        .unwrap();
    let new = NewJob { payload: Payload::Pieces { bytes: 5 }, ..job(1) };
    store.add([new]).await;
    let claimed = store.claim_one("t", NOW).await;
    let end = Settlement {
        data: Some(Json::string("data")),
        log: said("log"),
        ..settlement(&claimed, FINISHED)
    };
    assert_eq!(store.settle(end).await, Settled::Done);
    assert!(matches!(store.delete(1).await, Changed::Done(_)));

    assert_eq!(store.find(1).await, None);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.payload_piece(id(1), 0).await.unwrap(), None);

    // Nothing of it reappears with a job that has the same id.
    assert_eq!(store.insert([job(1)]).await, [Inserted::New]);
    assert_eq!(store.get(1).await, queued(&job(1)));
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
}

pub async fn every_ended_job_can_be_deleted(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.ran(job(2), FAILED).await;
    store.add([job(3)]).await;
    store.cancel(3, NOW).await;
    for number in 1..=3 {
        let before = store.get(number).await;
        assert_eq!(store.delete(number).await, Changed::Done(Box::new(before)));
        assert_eq!(store.find(number).await, None);
    }
}

pub async fn a_running_job_stays(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(store.delete(1).await, Changed::Refused(State::Running));
    assert_eq!(store.get(1).await, claimed.job);
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
}

pub async fn an_unknown_job_is_not_found(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    assert!(matches!(store.delete(1).await, Changed::Done(_)));
    assert_eq!(store.delete(1).await, Changed::NotFound);
    assert_eq!(store.delete(2).await, Changed::NotFound);
}

pub async fn a_paused_job_goes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { paused: true, unique: Some("k".into()), ..job(1) }]).await;
    assert!(matches!(store.delete(1).await, Changed::Done(_)));
    assert_eq!(store.find(1).await, None);
    assert_eq!(store.stats("t", NOW).await.expect("the type is there").paused, 0);
    let same = NewJob { unique: Some("k".into()), ..job(2) };
    assert_eq!(store.insert([same]).await, [Inserted::New]);
}
