//! Helpers for the cases: short forms of the store's calls, and jobs described only by what matters
//! to the case.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use windlass_core::handler::{HandlerSpec, Lang};
use windlass_core::job::{Boot, Ended, Token};
use windlass_core::log::{Log, Stream};
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{
    Changed, ChangedLook, ChangedTypes, Claim, Claimed, Durability, EndRequest, GiveUp, Hold,
    Insert, Inserted, JournalId, LeaseRef, List, Overdue, Page, Pick, Renew, Revision,
    SettleAnswer, Settled, Settlement, TypeStats,
};
use windlass_core::time::ManualClock;
use windlass_core::{
    Clock, Job, JobId, NewJob, Payload, Priority, Status, Store, Sysid, Tenant, Timestamp, TypeKey,
    TypeName,
};

use crate::Harness;

/// The time at which the cases begin.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// How long a claim by the short forms lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// How long ended jobs are kept.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Pages after which a walk through a listing gives up.
const PAGES_MAX: usize = 10_000;

/// So many seconds after `NOW`.
pub(crate) fn after(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

pub(crate) fn id(number: i64) -> JobId {
    JobId::new(number).unwrap()
}

pub(crate) fn sysid(number: u16) -> Sysid {
    Sysid::new(number).unwrap()
}

pub(crate) fn journal(number: i64) -> JournalId {
    JournalId(number)
}

pub(crate) fn priority(number: i64) -> Priority {
    Priority::new(number).unwrap()
}

/// The tenant that most cases are about.
pub(crate) fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

/// The other tenant.
pub(crate) fn globex() -> Tenant {
    Tenant::new("globex").unwrap()
}

/// A type of `acme`.
pub(crate) fn key(name: &str) -> TypeKey {
    TypeKey { tenant: acme(), name: TypeName::new(name).unwrap() }
}

/// A job of `acme`'s type `t`, due at `NOW`.
pub(crate) fn job(number: i64) -> NewJob {
    let payload = Payload::Inline(Bytes::from(format!("payload {number}")));
    NewJob::new(id(number), key("t"), payload, NOW)
}

pub(crate) fn job_of(name: &str, number: i64) -> NewJob {
    NewJob { key: key(name), ..job(number) }
}

/// A job as a store returns it after it was inserted.
pub(crate) fn queued(new: &NewJob) -> Job {
    Job::queued(new.clone())
}

pub(crate) fn pick(name: &str, limit: u32) -> Pick {
    Pick { key: key(name), limit, floor: None }
}

/// A token that no other claim has.
pub(crate) fn token() -> Token {
    static CLAIMS: AtomicI64 = AtomicI64::new(1);
    Boot(1).token(CLAIMS.fetch_add(1, Ordering::Relaxed))
}

/// A claim by daemon 7 for a worker.
pub(crate) fn claim_of(picks: Vec<Pick>) -> Claim {
    let hold = Hold::For(LEASE);
    Claim { picks, owner: sysid(7), token: token(), hold, payload_bytes_max: u64::MAX }
}

pub(crate) fn lease_ref(claimed: &Claimed) -> LeaseRef {
    let token = claimed.job.lease.expect("a claimed job has a lease").token;
    LeaseRef { tenant: claimed.job.key.tenant.clone(), id: claimed.job.id, token }
}

/// The settlement of a claimed job, with a status that fits the verdict.
pub(crate) fn settlement(claimed: &Claimed, verdict: Verdict) -> Settlement {
    let status = match verdict {
        Verdict::End(Ending::Finished) | Verdict::Repeat { .. } => Some(Status::OK),
        Verdict::End(Ending::Failed) => Some(Status::FAILED),
        Verdict::Again { .. } => Some(Status::RETRY),
        Verdict::End(Ending::Cancelled) | Verdict::Release { .. } => None,
    };
    Settlement {
        lease: lease_ref(claimed),
        verdict,
        ended: status.map(Ended::from),
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: DAY,
        only_if_expired: false,
    }
}

pub(crate) const FINISHED: Verdict = Verdict::End(Ending::Finished);
pub(crate) const FAILED: Verdict = Verdict::End(Ending::Failed);

/// Another attempt, as long after this one as `run_at` is after `NOW`.
pub(crate) fn again(run_at: Timestamp) -> Verdict {
    Verdict::Again { after: run_at.since(NOW) }
}

/// Like `again`.
pub(crate) fn release(run_at: Timestamp) -> Verdict {
    Verdict::Release { after: Some(run_at.since(NOW)) }
}

/// A log with this output of a handler.
pub(crate) fn said(text: &str) -> Log {
    let mut log = Log::new();
    log.push(Stream::Out, text);
    log
}

/// Gives up expired jobs, with an error that says so.
pub(crate) fn give_up_expired() -> GiveUp {
    GiveUp {
        which: Overdue::Expired,
        ended: Ended::from(Status::ERROR),
        log: said("expired"),
        keep: DAY,
        limit: 100,
    }
}

/// A minimal handler.
pub(crate) fn handler_spec() -> HandlerSpec {
    HandlerSpec::new(Lang::Sh, "true")
}

pub(crate) fn everything_of(tenant: Tenant) -> List {
    List { tenant, name: None, state: None, before: None, limit: 100 }
}

/// The ids as plain numbers.
pub(crate) fn numbers<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<i64> {
    jobs.into_iter().map(|job| job.id.get()).collect()
}

pub(crate) fn claimed_numbers(claimed: &[Claimed]) -> Vec<i64> {
    numbers(claimed.iter().map(|claimed| &claimed.job))
}

/// A store under test; dereferences to the store.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
}

impl Deref for Subject {
    type Target = dyn Store;
    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Subject {
    pub(crate) async fn fresh(harness: &dyn Harness) -> Subject {
        Subject::of(harness, harness.fresh().await)
    }

    pub(crate) fn of(harness: &dyn Harness, store: Arc<dyn Store>) -> Subject {
        Subject { store, clock: harness.clock() }
    }

    /// The store, after its clock was moved to this time; never backwards.
    pub(crate) fn at(&self, now: Timestamp) -> &Subject {
        self.clock.advance_to(now);
        self
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sets the wall clock; no time passes.
    pub(crate) fn set_clock(&self, now: Timestamp) {
        self.clock.set(now);
    }

    /// A verdict made now: another attempt at this time.
    pub(crate) fn again(&self, run_at: Timestamp) -> Verdict {
        Verdict::Again { after: run_at.since(self.now()) }
    }

    /// A verdict made now: released until this time.
    pub(crate) fn release(&self, run_at: Timestamp) -> Verdict {
        Verdict::Release { after: Some(run_at.since(self.now())) }
    }

    pub(crate) async fn insert(&self, jobs: impl IntoIterator<Item = NewJob>) -> Vec<Inserted> {
        let jobs = jobs.into_iter().collect();
        let durability = Durability::Relaxed;
        let insert = Insert { jobs, keys: Vec::new(), mark: None, durability };
        self.job_insert(insert).await.unwrap().done().unwrap()
    }

    /// Inserts jobs that must be new.
    pub(crate) async fn add(&self, jobs: impl IntoIterator<Item = NewJob>) {
        let answers = self.insert(jobs).await;
        assert!(answers.iter().all(|answer| *answer == Inserted::New), "{answers:?}");
    }

    /// All types that are open.
    pub(crate) async fn waiting(&self, now: Timestamp) -> ChangedTypes {
        self.changed_since(Revision::default(), usize::MAX, now).await
    }

    /// Changes of types with and without a handler, together.
    pub(crate) async fn changed_since(
        &self,
        since: Revision,
        limit: usize,
        now: Timestamp,
    ) -> ChangedTypes {
        let store = self.at(now);
        let look = |handled| ChangedLook { since: Some(since), handled, each: usize::MAX, limit };
        let mut changed = store.type_changed(look(false)).await.unwrap();
        let handled = store.type_changed(look(true)).await.unwrap();
        let up_to = changed.up_to.min(handled.up_to);
        changed.types.extend(handled.types);
        changed.types.sort_by_key(|of_type| of_type.revision);
        changed.types.retain(|of_type| of_type.revision <= up_to);
        ChangedTypes { up_to, more: changed.more || handled.more, ..changed }
    }

    pub(crate) async fn claim(&self, name: &str, limit: u32, now: Timestamp) -> Vec<Claimed> {
        self.at(now).job_claim(claim_of(vec![pick(name, limit)])).await.unwrap().jobs
    }

    /// Claims the only ready job of the type.
    pub(crate) async fn claim_one(&self, name: &str, now: Timestamp) -> Claimed {
        let mut claimed = self.claim(name, 2, now).await;
        assert_eq!(claimed.len(), 1, "one job of {name} is due");
        claimed.remove(0)
    }

    /// Renews leases until this time; returns those that are lost.
    pub(crate) async fn renew(&self, leases: Vec<LeaseRef>, until: Timestamp) -> Vec<LeaseRef> {
        let renew = Renew { leases, hold: Some(until.since(self.now())) };
        self.job_renew(renew).await.unwrap()
    }

    pub(crate) async fn settle(&self, settlement: Settlement) -> Settled {
        self.settle_all([settlement]).await.settled[0]
    }

    pub(crate) async fn settle_all(
        &self,
        settlements: impl Into<Arc<[Settlement]>>,
    ) -> SettleAnswer {
        let settlements = settlements.into();
        let answer = self.job_settle(settlements.clone(), Durability::Synced).await.unwrap();
        assert_eq!(answer.settled.len(), settlements.len(), "one answer to each settlement");
        answer
    }

    /// Adds a job of a type that has no other due job, claims it, and settles it a second later.
    pub(crate) async fn ran(&self, new: NewJob, verdict: Verdict) -> Claimed {
        let (name, run_at) = (new.key.name.as_str().to_owned(), new.run_at);
        self.add([new]).await;
        let claimed = self.claim_one(&name, run_at.max(self.now())).await;
        self.clock.advance(Duration::from_secs(1));
        assert_ne!(self.settle(settlement(&claimed, verdict)).await, Settled::Stale);
        claimed
    }

    pub(crate) async fn cancel(&self, number: i64, now: Timestamp) -> Changed {
        let end = EndRequest { tenant: acme(), id: id(number), keep: DAY };
        self.at(now).job_cancel(end).await.unwrap()
    }

    pub(crate) async fn rerun(&self, number: i64, now: Timestamp) -> Changed {
        self.at(now).job_rerun(&acme(), id(number)).await.unwrap()
    }

    pub(crate) async fn delete(&self, number: i64) -> Changed {
        self.job_delete(&acme(), id(number)).await.unwrap()
    }

    pub(crate) async fn find(&self, number: i64) -> Option<Job> {
        self.job_get(&acme(), id(number)).await.unwrap()
    }

    pub(crate) async fn get(&self, number: i64) -> Job {
        self.find(number).await.expect("the job is there")
    }

    /// Every page of a listing, in order.
    pub(crate) async fn pages(&self, mut list: List) -> Vec<Page> {
        let mut pages = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.job_list(list.clone()).await.unwrap();
            assert!(page.jobs.len() <= list.limit, "a page keeps to its limit");
            let next = page.next;
            pages.push(page);
            match next {
                None => return pages,
                Some(next) => {
                    assert!(list.before.is_none_or(|before| next < before), "pages go on");
                    list.before = Some(next);
                }
            }
        }
        panic!("a listing without an end");
    }

    /// A whole listing, however it is split into pages.
    pub(crate) async fn listed(&self, list: List) -> Vec<Job> {
        self.pages(list).await.into_iter().flat_map(|page| page.jobs).collect()
    }

    /// The numbers of one of `acme`'s types at this time.
    pub(crate) async fn stats(&self, name: &str, now: Timestamp) -> Option<TypeStats> {
        let mut stats = self.at(now).type_stats(Some(&acme())).await.unwrap();
        stats.retain(|stats| stats.key == key(name));
        assert!(stats.len() <= 1, "a type is counted once");
        stats.pop()
    }
}
