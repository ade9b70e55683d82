//! What only this store has: it can be switched off, and it has aids for tests.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use super::*;
use crate::handler::{HandlerSpec, Lang};
use crate::job::{Ended, NewJob, Token};
use crate::limit::WHOLE_BYTES_MAX;
use crate::log::Log;
use crate::name::TypeName;
use crate::outcome::Status;
use crate::retry::Verdict;
use crate::state::Ending;
use crate::store::prelude::*;
use crate::store::{
    Add, ChangedLook, Claim, Claimed, Durability, Hold, Insert, LeaseRef, NamedLook, Pick, Settled,
    Settlement, SysidRenew, SysidReserve,
};

/// The answer to a call that does not wait.
fn ready<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the call waits"),
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The answer to a call that waits until it is released, and is woken then.
fn held<T>(call: impl Future<Output = T>, release: impl FnOnce()) -> T {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut call, mut ctx) = (pin!(call), Context::from_waker(&waker));
    assert!(call.as_mut().poll(&mut ctx).is_pending(), "the call does not wait");
    release();
    assert!(woken.0.load(Ordering::SeqCst), "nobody woke it");
    match call.poll(&mut ctx) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the call still waits"),
    }
}

fn key(name: &str) -> TypeKey {
    TypeKey::new("acme", name).unwrap()
}

fn id(number: i64) -> JobId {
    JobId::new(number).unwrap()
}

fn job(number: i64) -> NewJob {
    NewJob::new(id(number), key("t"), Payload::Inline(Bytes::new()), Timestamp(0))
}

fn insert(store: &MemoryStore, number: i64) -> Result<(), Error> {
    let (jobs, durability) = (vec![job(number)], Durability::Relaxed);
    ready(store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability })).map(drop)
}

fn is_there(store: &MemoryStore, number: i64) -> bool {
    ready(store.job_get(&key("t").tenant, id(number))).unwrap().is_some()
}

fn claim(count: i64) -> Claim {
    let picks = vec![Pick { key: key("t"), limit: 1, floor: None }];
    let (token, hold) = (Token(count), Hold::For(Duration::from_secs(9)));
    Claim { picks, owner: Sysid::FIRST, token, hold, payload_bytes_max: u64::MAX }
}

/// The end of an attempt that succeeded.
fn finished(claimed: &Claimed) -> Settlement {
    let (tenant, id) = (claimed.job.key.tenant.clone(), claimed.job.id);
    let token = claimed.job.lease.as_ref().expect("it runs").token;
    Settlement {
        lease: LeaseRef { tenant, id, token },
        verdict: Verdict::End(Ending::Finished),
        ended: Some(Ended::from(Status::OK)),
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::from_secs(9),
        only_if_expired: false,
    }
}

#[test]
fn it_can_be_switched_off_and_on() {
    let store = MemoryStore::default();
    store.set_available(false);
    assert!(matches!(ready(store.ping()), Err(Error::Unavailable(_))));
    store.set_available(true);
    assert_eq!(ready(store.ping()), Ok(()));
}

#[test]
fn a_closed_store_stays_closed() {
    let store = MemoryStore::default();
    ready(store.close());
    store.set_available(true);
    assert!(matches!(ready(store.ping()), Err(Error::Unavailable(_))));
}

#[test]
fn an_insert_panics_as_often_as_it_is_to() {
    let store = MemoryStore::default();
    store.set_panics(1);
    assert!(catch_unwind(AssertUnwindSafe(|| insert(&store, 1))).is_err());
    assert!(!is_there(&store, 1));
    insert(&store, 1).unwrap();
    assert!(is_there(&store, 1));
}

#[test]
fn reads_are_held_until_they_are_released() {
    let store = MemoryStore::default();
    insert(&store, 1).unwrap();
    store.hold_looks(true);
    assert_eq!(store.looks_waiting(), 0);
    let look = ChangedLook { since: Some(Revision(0)), handled: false, each: 9, limit: 9 };
    let release = || {
        assert_eq!(store.looks_waiting(), 1);
        store.hold_looks(false);
    };
    let changed = held(store.type_changed(look), release).unwrap();
    assert_eq!((changed.types.len(), store.looks_waiting()), (1, 0));
    store.hold_stats(true);
    ready(store.type_stats(Some(&key("t").tenant))).unwrap();
    assert_eq!(held(store.type_stats(None), || store.hold_stats(false)).unwrap().len(), 1);
}

#[test]
fn an_add_that_is_held_is_carried_out_and_a_beat_is_not() {
    let store = MemoryStore::default();
    store.hold_add_answers(true);
    let add = Add { tenant: key("t").tenant, jobs: vec![job(1)], key: None };
    let release = || {
        assert!(is_there(&store, 1));
        store.hold_add_answers(false);
    };
    held(store.job_add(add), release).unwrap();
    let lease = Duration::from_secs(9);
    let grant = ready(store.sysid_reserve(SysidReserve { wanted: None, lease })).unwrap();
    let renew = || SysidRenew { grant, lease, id_newest: Some(id(99)), report: None };
    store.hold_beats(true);
    let release = || {
        assert_eq!(ready(store.id_newest()), Ok(Some(id(1))));
        store.hold_beats(false);
    };
    held(store.sysid_renew(renew()), release).unwrap();
    assert_eq!(ready(store.id_newest()), Ok(Some(id(99))));
    store.damage_beats(1);
    assert_eq!(store.beats_damaged(), 1);
    assert!(matches!(ready(store.sysid_renew(renew())), Err(Error::Corrupt(_))));
    assert_eq!(store.beats_damaged(), 0);
    ready(store.sysid_renew(renew())).unwrap();
}

#[test]
fn what_looks_ask_and_get_is_counted() {
    let store = MemoryStore::default();
    let other = NewJob { key: key("other"), ..job(2) };
    insert(&store, 1).unwrap();
    let (jobs, durability) = (vec![other], Durability::Relaxed);
    ready(store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability })).unwrap();
    let names = vec!["*".to_owned()];
    let look = NamedLook { tenant: key("t").tenant, names, after: None, limit: 9 };
    for _ in 0..2 {
        ready(store.type_named(look.clone())).unwrap();
        ready(store.type_unhandled(vec![key("t")])).unwrap();
    }
    assert_eq!((store.named_looks(), store.handlers_asked()), (2, 2));
    assert_eq!(store.types_reported(), 4, "by name");
    let look = ChangedLook { since: Some(Revision(0)), handled: false, each: 9, limit: 9 };
    ready(store.type_changed(look)).unwrap();
    assert_eq!(store.types_reported(), 6, "changed ones");
    for (number, name) in [(3, "t"), (4, "other")] {
        let spec = HandlerSpec::new(Lang::Sh, "true");
        ready(store.handler_put(id(number), &key(name), spec)).unwrap();
    }
    ready(store.type_first(None, 9, 9)).unwrap();
    assert_eq!(store.types_reported(), 8, "the first of all tenants");
    let after: Option<TypeName> = None;
    ready(store.type_next(vec![(key("t").tenant, after)], 9)).unwrap();
    assert_eq!(store.types_reported(), 10, "the next of one tenant");
}

#[test]
fn held_inserts_go_on_one_by_one_or_all() {
    let store = MemoryStore::default();
    store.hold_inserts(true);
    assert!(!store.is_insert_held());
    let put = |number| {
        let (jobs, durability) = (vec![job(number)], Durability::Relaxed);
        store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability })
    };
    let release = || {
        assert!(store.is_insert_held() && !is_there(&store, 1));
        store.let_one_insert();
        assert!(!store.is_insert_held());
    };
    held(put(1), release).unwrap();
    assert!(is_there(&store, 1));
    held(put(2), || store.hold_inserts(false)).unwrap();
    insert(&store, 3).unwrap();
}

#[test]
fn a_claim_whose_answer_is_held_or_lost_is_carried_out() {
    let store = MemoryStore::default();
    (1..=3).for_each(|number| insert(&store, number).unwrap());
    let runs = |number: i64| {
        let job = ready(store.job_get(&key("t").tenant, id(number))).unwrap();
        job.expect("it was inserted").lease.is_some()
    };
    store.hold_answers(true);
    assert!(!store.is_answer_held());
    let release = || {
        assert!(store.is_answer_held() && runs(1));
        store.hold_answers(false);
        assert!(!store.is_answer_held());
    };
    assert_eq!(held(store.job_claim(claim(1)), release).unwrap().jobs.len(), 1);
    store.lose_claims(1);
    assert!(matches!(ready(store.job_claim(claim(2))), Err(Error::Unavailable(_))));
    assert!(runs(2));
    assert_eq!(ready(store.job_claim(claim(3))).unwrap().jobs.len(), 1);
}

#[test]
fn an_insert_whose_answer_is_lost_is_carried_out() {
    let store = MemoryStore::default();
    store.lose_answers(1);
    assert!(matches!(insert(&store, 1), Err(Error::Unavailable(_))));
    assert!(is_there(&store, 1));
    assert_eq!(insert(&store, 2), Ok(()));
}

#[test]
fn a_damaged_job_cannot_be_read_until_it_is_mended() {
    let store = MemoryStore::default();
    insert(&store, 1).unwrap();
    let typed = || ready(store.job_typed(&key("t").tenant, id(1)));
    store.set_damaged(id(1), true);
    assert!(matches!(typed(), Err(Error::Corrupt(_))));
    store.set_damaged(id(1), false);
    assert!(typed().unwrap().is_some());
}

#[test]
fn a_damaged_job_keeps_its_whole_batch_from_being_settled() {
    let store = MemoryStore::default();
    (1..=2).for_each(|number| insert(&store, number).unwrap());
    let mut claimed = ready(store.job_claim(claim(1))).unwrap().jobs;
    claimed.extend(ready(store.job_claim(claim(2))).unwrap().jobs);
    let settle = || {
        let settlements = claimed.iter().map(finished).collect();
        ready(store.job_settle(settlements, Durability::Relaxed))
    };
    store.set_damaged(id(2), true);
    assert!(matches!(settle(), Err(Error::Corrupt(_))));
    store.set_damaged(id(2), false);
    assert_eq!(
        settle().unwrap().settled,
        [Settled::Done, Settled::Done],
        "neither had been settled"
    );
}

#[test]
fn a_hook_comes_before_its_call() {
    let store = Arc::new(MemoryStore::default());
    insert(&store, 1).unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (seen, inner) = (calls.clone(), store.clone());
    store.set_hook(move |call| {
        lock(&seen).push((call, inner.locked().named_looks));
        std::future::ready(())
    });
    let names = vec!["t".to_owned()];
    let look = NamedLook { tenant: key("t").tenant, names, after: None, limit: 9 };
    ready(store.type_named(look)).unwrap();
    ready(store.job_claim(claim(1))).unwrap();
    assert_eq!(*lock(&calls), [("type_named", 0), ("job_claim", 1)]);
}

#[test]
fn a_search_by_pattern_ends_with_its_last_type() {
    let store = MemoryStore::default();
    let other = NewJob { key: key("other"), ..job(2) };
    let (jobs, durability) = (vec![job(1), other], Durability::Relaxed);
    ready(store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability })).unwrap();
    let look = |limit| {
        let names = vec!["*".to_owned()];
        let look = NamedLook { tenant: key("t").tenant, names, after: None, limit };
        let found = ready(store.type_named(look)).unwrap();
        (found.types.len(), found.next.map(|name| name.as_str().to_owned()))
    };
    assert_eq!((look(1), look(2)), ((1, Some("other".to_owned())), (2, None)));
}

#[test]
fn a_payload_is_shown_in_one_buffer_up_to_a_bound() {
    let store = MemoryStore::default();
    let shown = |number, bytes| {
        // Expired, so that it needs none of its pieces.
        let expires_at = Some(job(number).created_at);
        let new = NewJob { payload: Payload::Pieces { bytes }, expires_at, ..job(number) };
        let (jobs, durability) = (vec![new], Durability::Relaxed);
        ready(store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability })).unwrap();
        ready(store.job_full(&key("t").tenant, id(number))).unwrap().expect("it was inserted")
    };
    assert!(!shown(1, WHOLE_BYTES_MAX).payload.is_in_pieces());
    let bytes = WHOLE_BYTES_MAX + 1;
    assert_eq!(shown(2, bytes).payload, Payload::Pieces { bytes });
}

#[test]
fn what_is_no_change_of_a_job_is_not_undone() {
    let store = MemoryStore::undoable(true, Arc::new(SystemClock));
    let look = || {
        let look = ChangedLook { since: Some(Revision(0)), handled: false, each: 9, limit: 9 };
        ready(store.type_changed(look)).unwrap()
    };
    ready(store.flush()).unwrap();
    insert(&store, 1).unwrap();
    let newest = look().newest;
    store.hold_looks(true);
    store.undo_relaxed();
    assert!(!is_there(&store, 1) && store.capabilities().forgets);
    assert_eq!(store.types_reported(), 1);
    let waiting = ChangedLook { since: Some(Revision(0)), handled: false, each: 9, limit: 9 };
    let release = || {
        store.undo_relaxed();
        store.hold_looks(false);
    };
    held(store.type_changed(waiting), release).unwrap();
    insert(&store, 2).unwrap();
    assert!(look().newest > newest, "a revision is used once");
    store.set_available(false);
    store.undo_relaxed();
    assert!(ready(store.ping()).is_err(), "it is still switched off");
    store.set_available(true);
    ready(store.close());
    store.undo_relaxed();
    assert!(ready(store.ping()).is_err(), "it is still closed");
}
