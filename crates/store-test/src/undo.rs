//! A store loses what it had not synced while its clients live on: what was promised still exists,
//! and clients can repeat everything else. These cases do nothing for stores that cannot lose
//! anything.

use bytes::Bytes;

use windlass_core::edit::Ask;
use windlass_core::handler::TypeSettings;
use windlass_core::job::{Boot, Progress};
use windlass_core::store::{
    Add, Changed, Claim, Durability, Error, Hold, IdempotencyRecord, Insert, Inserted, Insertion,
    JournalMark, Piece, Requeue, Settled, Settlement, SysidGrant, SysidRenew, SysidReserve,
};
use windlass_core::{Json, NewJob, Payload, State};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, LEASE, NOW, Subject, acme, after, claim_of, handler_spec, id, job, job_of,
    journal, key, lease_ref, pick, queued, said, settlement, sysid,
};
use crate::kin::{edits, glob, insert, take, taken_numbers};

impl Subject {
    /// The store after it has lost everything that was not synced.
    async fn undone(self, harness: &dyn Harness) -> Option<Subject> {
        let store = harness.undo_relaxed(self.store).await?;
        Some(Subject::of(harness, store))
    }

    /// Something that is lost: it must not exist afterwards.
    async fn note(&self) {
        self.add([job_of("forgotten", 999)]).await;
    }

    async fn has_forgotten(&self) -> bool {
        self.find(999).await.is_none()
    }
}

async fn granted(store: &Subject) -> SysidGrant {
    let reserve = SysidReserve { wanted: Some(sysid(7)), lease: LEASE };
    store.sysid_reserve(reserve).await.unwrap()
}

fn on_beat(grant: SysidGrant) -> Claim {
    let (owner, hold) = (grant.sysid, Hold::Beat(grant.boot));
    Claim { owner, hold, ..claim_of(vec![pick("t", 9)]) }
}

/// Two jobs of one add with a key, as a journal brings them; one has its payload in pieces.
fn ingest(durability: Durability) -> Insert {
    let large = NewJob { payload: Payload::Pieces { bytes: 5 }, ..job(2) };
    let key = IdempotencyRecord {
        tenant: acme(),
        key: "k".into(),
        fingerprint: 1,
        ids: vec![id(1), id(2)],
        expires_at: after(600),
    };
    let mark = JournalMark { journal: journal(7), from: None, position: id(2) };
    Insert { jobs: vec![job(1), large], keys: vec![key], mark: Some(mark), durability }
}

async fn put_piece(store: &Subject) {
    let piece = Piece { id: id(2), index: 0, bytes: Bytes::from_static(b"piece") };
    store.payload_put(vec![piece]).await.unwrap();
}

pub async fn a_synced_change_keeps_all_that_came_before_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.renew(vec![lease_ref(&claimed)], after(60)).await;
    let progress = Progress { percent: 50.0, message: "half".into(), at: NOW };
    store.job_progress(vec![(lease_ref(&claimed), progress)]).await.unwrap();
    let before = store.get(1).await;
    store.boot_next().await.unwrap();
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.get(1).await, before);
    assert!(store.has_forgotten().await);
}

pub async fn a_forgotten_ingest_comes_again_with_its_mark_and_its_keys(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    put_piece(&store).await;
    let again = || store.job_insert(ingest(Durability::Relaxed));
    assert_eq!(again().await.unwrap(), Insertion::Done(vec![Inserted::New; 2]));
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.journal_position(journal(7)).await.unwrap(), None);
    assert_eq!(store.idempotency_get(&acme(), "k").await.unwrap(), None);
    assert_eq!((store.find(1).await, store.find(2).await), (None, None));

    put_piece(&store).await;
    let again = || store.job_insert(ingest(Durability::Relaxed));
    assert_eq!(again().await.unwrap(), Insertion::Done(vec![Inserted::New; 2]));
    assert_eq!(again().await.unwrap(), Insertion::Behind(Some(id(2))), "once");
    assert!(store.idempotency_get(&acme(), "k").await.unwrap().is_some());
    assert!(store.payload_piece(id(2), 0).await.unwrap().is_some());
    assert_eq!(store.claim("t", 9, NOW).await.len(), 2);
}

pub async fn a_synced_ingest_stays_with_its_mark_its_keys_and_its_pieces(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    put_piece(&store).await;
    store.job_insert(ingest(Durability::Synced)).await.unwrap();
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert!(store.has_forgotten().await);
    assert_eq!(store.journal_position(journal(7)).await.unwrap(), Some(id(2)));
    assert!(store.idempotency_get(&acme(), "k").await.unwrap().is_some());
    let piece = store.payload_piece(id(2), 0).await.unwrap();
    assert_eq!(piece, Some(Bytes::from_static(b"piece")));
    assert_eq!(store.claim("t", 9, NOW).await.len(), 2);
}

/// Once their job is durable, nothing would bring them again.
pub async fn no_job_enters_without_pieces_that_were_forgotten(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let large = || NewJob { payload: Payload::Pieces { bytes: 5 }, ..job(2) };
    let refused = |error| assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    // None of them was put; a part of them is not enough.
    let longer = NewJob { payload: Payload::Pieces { bytes: 6 }, ..large() };
    for (new, put) in [(large(), false), (longer, true)] {
        if put {
            put_piece(&store).await;
        }
        let jobs = vec![job(1), new];
        let insert = Insert { jobs: jobs.clone(), ..ingest(Durability::Synced) };
        refused(store.job_insert(insert).await.unwrap_err());
        let add = Add { tenant: acme(), jobs, key: None };
        refused(store.job_add(add).await.unwrap_err());
    }
    assert_eq!((store.find(1).await, store.find(2).await), (None, None));
    assert_eq!(store.journal_position(journal(7)).await.unwrap(), None);
    assert_eq!(store.idempotency_get(&acme(), "k").await.unwrap(), None);

    let Some(store) = store.undone(harness).await else { return };
    refused(store.job_insert(ingest(Durability::Synced)).await.unwrap_err());
    put_piece(&store).await;
    let again = store.job_insert(ingest(Durability::Synced)).await.unwrap();
    assert_eq!(again, Insertion::Done(vec![Inserted::New; 2]));
    assert_eq!(store.claim("t", 9, NOW).await.len(), 2);
}

/// Its payload cannot be read, so nothing can put the pieces.
pub async fn a_job_that_had_expired_at_once_enters_without_its_pieces(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let expires_at = Some(job(1).created_at);
    let payload = Payload::Pieces { bytes: 5 };
    store.add([NewJob { payload, expires_at, paused: true, ..job(1) }]).await;
    assert_eq!(store.state(1).await, State::Paused);
}

pub async fn the_token_of_a_forgotten_claim_is_worth_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.flush().await.unwrap();
    let forgotten = store.claim_one("t", NOW).await;
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.get(1).await, queued(&job(1)));
    let progress = Progress { percent: 50.0, message: "half".into(), at: NOW };
    let refused = async || {
        let lease = lease_ref(&forgotten);
        let lost = store.renew(vec![lease.clone()], after(60)).await;
        assert_eq!(lost, std::slice::from_ref(&lease));
        let said = store.job_progress(vec![(lease, progress.clone())]).await.unwrap();
        assert_eq!(said, [Settled::Stale]);
        assert_eq!(store.settle(settlement(&forgotten, FINISHED)).await, Settled::Stale);
    };
    refused().await;
    let present = store.claim_one("t", NOW).await;
    assert_eq!(present.job.attempt, 1);
    refused().await;
    assert_eq!(store.get(1).await, present.job);
    assert_eq!(store.settle(settlement(&present, FINISHED)).await, Settled::Done);
}

pub async fn a_daemon_learns_that_its_claim_was_forgotten(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store).await;
    store.add([job(1), job(2)]).await;
    let kept = store.job_claim(Claim { picks: vec![pick("t", 1)], ..on_beat(grant) }).await;
    let kept = lease_ref(&kept.unwrap().jobs[0]);
    store.flush().await.unwrap();
    assert_eq!(store.job_claim(on_beat(grant)).await.unwrap().jobs.len(), 1);
    assert_eq!(store.lease_mine(sysid(7), None, 9).await.unwrap().len(), 2);
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.lease_mine(sysid(7), None, 9).await.unwrap(), [kept]);
    assert_eq!(
        store.job_claim(on_beat(grant)).await.unwrap().jobs.len(),
        1,
        "it is still its number"
    );
}

/// A running job, synced, and the settlement of its attempt.
async fn running(harness: &dyn Harness) -> (Subject, Settlement) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { unique: Some("u".into()), ..job(1) }]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.flush().await.unwrap();
    let end = Settlement {
        data: Some(Json::string("data")),
        log: said("log"),
        adds: vec![job_of("new", 2)],
        follow: Some(job_of("next", 3)),
        ..settlement(&claimed, FINISHED)
    };
    (store, end)
}

/// Whether the job has ended, with everything that was stored with its end; panics if only a part
/// was.
async fn has_ended(store: &Subject) -> bool {
    let ended = store.state(1).await == State::Finished;
    for number in [2, 3] {
        assert_eq!(store.find(number).await.is_some(), ended, "{number}");
    }
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap().is_some(), ended);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap().unwrap().len(), usize::from(ended));
    let stats = store.stats("t", NOW).await.expect("the type is there");
    assert_eq!((stats.running, stats.finished), (u64::from(!ended), u64::from(ended)));
    ended
}

pub async fn a_forgotten_settlement_can_be_repeated(harness: &dyn Harness) {
    let (store, end) = running(harness).await;
    let before = store.get(1).await;
    let settled = store.job_settle([end.clone()].into(), Durability::Relaxed).await.unwrap();
    assert_eq!(settled.settled, [Settled::Done]);
    assert!(has_ended(&store).await);
    let Some(store) = store.undone(harness).await else { return };
    assert!(!has_ended(&store).await);
    assert_eq!(store.get(1).await, before, "under the same lease");
    assert_eq!(store.settle(end.clone()).await, Settled::Done);
    assert!(has_ended(&store).await);
    assert_eq!(store.settle(end).await, Settled::Stale);
}

pub async fn a_synced_settlement_stays_with_all_that_entered(harness: &dyn Harness) {
    let (store, end) = running(harness).await;
    let settled = store.job_settle([end.clone()].into(), Durability::Synced).await.unwrap();
    assert_eq!(settled.settled, [Settled::Done]);
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert!(store.has_forgotten().await && has_ended(&store).await);
    assert_eq!(store.settle(end).await, Settled::Stale);
}

pub async fn a_forgotten_beat_is_made_good_by_the_next(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store).await;
    store.add([job(1)]).await;
    store.job_claim(on_beat(grant)).await.unwrap();
    store.flush().await.unwrap();
    let renew = || SysidRenew { grant, lease: LEASE, id_newest: Some(id(90)), report: None };
    store.at(after(8)).sysid_renew(renew()).await.unwrap();
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.at(after(12)).sysid_renew(renew()).await.unwrap(), after(12));
    assert_eq!(store.sysid_list().await.unwrap(), [sysid(7)]);
    assert_eq!(store.id_newest().await.unwrap(), Some(id(90)));
    assert_eq!(store.get(1).await.lease.expect("a lease").expires_at, after(22));
    assert_eq!(store.lease_expired(9).await.unwrap(), []);
}

pub async fn a_number_that_was_given_stays_given(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let grant = granted(&store).await;
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert!(store.has_forgotten().await);
    let wanted = SysidReserve { wanted: Some(sysid(7)), lease: LEASE };
    let taken = store.sysid_reserve(wanted).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: None };
    store.sysid_renew(renew).await.unwrap();
    store.add([job(1)]).await;
    assert_eq!(store.job_claim(on_beat(grant)).await.unwrap().jobs.len(), 1);
}

/// Otherwise a token could be issued twice.
pub async fn no_boot_number_is_given_twice(harness: &dyn Harness) {
    let mut store = Subject::fresh(harness).await;
    let mut last = Boot(0);
    for round in 0..6 {
        let boot = match round % 2 {
            0 => store.boot_next().await.unwrap(),
            _ => {
                let reserve = SysidReserve { wanted: None, lease: LEASE };
                store.sysid_reserve(reserve).await.unwrap().boot
            }
        };
        assert!(boot > last, "{boot:?} after {last:?}");
        last = boot;
        let Some(undone) = store.undone(harness).await else { return };
        store = undone;
    }
}

pub async fn a_decision_is_as_durable_as_it_asked_to_be(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let deciding = |number, durability| Ask { durability, ..edits(vec![insert(job(number))]) };
    store.job_decide(deciding(1, Durability::Relaxed)).await.unwrap();
    store.job_decide(deciding(2, Durability::Synced)).await.unwrap();
    store.job_decide(deciding(3, Durability::Relaxed)).await.unwrap();
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.states([1, 2]).await, [State::Queued; 2]);
    assert_eq!(store.find(3).await, None);
    store.job_decide(deciding(3, Durability::Relaxed)).await.unwrap();
}

pub async fn a_forgotten_take_gives_the_job_again(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.flush().await.unwrap();
    let first = store.job_take(take(glob("*"), 1, NOW)).await.unwrap();
    assert_eq!(taken_numbers(&first), [1]);
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.get(1).await, queued(&job(1)));
    let second = store.job_take(take(glob("*"), 1, NOW)).await.unwrap();
    assert_eq!(taken_numbers(&second), [1]);
    assert_ne!(second.given[0].job.lease, first.given[0].job.lease);
}

pub async fn what_a_client_changed_is_durable(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FAILED).await;
    store.ran(job(2), FAILED).await;
    store.add([job_of("other", 3), job_of("other", 4)]).await;
    store.flush().await.unwrap();
    let done = |changed: Changed| assert!(matches!(changed, Changed::Done(_)), "{changed:?}");

    done(store.cancel(3, NOW).await);
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.state(3).await, State::Cancelled);
    assert!(store.has_forgotten().await);

    done(store.delete(4).await);
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.find(4).await, None);

    done(store.rerun(1, after(9)).await);
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.state(1).await, State::Queued);

    let requeue = Requeue { key: key("t"), state: State::Failed, limit: 9 };
    assert_eq!(store.job_requeue(requeue).await.unwrap(), 1);
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.states([1, 2]).await, [State::Queued; 2]);
}

pub async fn what_was_set_for_a_type_is_durable(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    store.note().await;
    let Some(store) = store.undone(harness).await else { return };
    assert!(store.handler_get(&key("t"), None).await.unwrap().is_some());
    assert!(store.has_forgotten().await);

    assert!(store.handler_delete(&key("t")).await.unwrap());
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.handler_get(&key("t"), None).await.unwrap(), None);
    assert!(store.handler_get(&key("t"), Some(id(100))).await.unwrap().is_some());

    let settings = TypeSettings { weight: Some(9), ..TypeSettings::default() };
    store.type_settings_put(&key("t"), settings.clone()).await.unwrap();
    let Some(store) = store.undone(harness).await else { return };
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), settings);

    store.type_suspend(&key("t"), true).await.unwrap();
    let Some(store) = store.undone(harness).await else { return };
    assert!(store.stats("t", NOW).await.expect("the type is there").suspended);
}

/// A daemon that lives on asks only for changes since its last look.
pub async fn what_opened_because_it_was_forgotten_is_told(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    if !store.capabilities().forgets {
        return;
    }
    store.add([job(1)]).await;
    store.flush().await.unwrap();
    store.claim_one("t", NOW).await;
    let since = store.waiting(NOW).await.newest;
    let Some(store) = store.undone(harness).await else { return };
    let told = store.changed_since(since, 9, NOW).await;
    assert_eq!(told.types.len(), 1, "{told:?}");
    assert_eq!(told.types[0].key, key("t"));
    assert!(told.newest > since);
}
