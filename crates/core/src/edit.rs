//! Changes that depend on the current state: the store shows jobs to a pure decision and carries
//! out the edits that it returns, in one change. So rules about several jobs at once are pure
//! functions, and no store needs to know them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::id::{JobId, Sysid};
use crate::job::{AttemptId, Extra, Job, NewJob, Payload, Priority, Token};
use crate::name::{Tenant, TypeKey, TypeName};
use crate::state::State;
use crate::store::{Durability, Error, Rest};
use crate::time::Timestamp;

/// A request to change jobs by a decision on their current state.
#[derive(Clone)]
pub struct Ask {
    pub tenant: Tenant,
    /// What is decided, one after the other; each decision sees the changes of those before it. At
    /// most `BATCH_JOBS_MAX`.
    pub targets: Vec<Target>,
    pub decide: Decide,
    pub durability: Durability,
}

#[derive(Debug, Clone)]
pub enum Target {
    /// An existing job.
    Job(JobId),
    /// A new job: shows its parent and, if it is to be the only one of its type, the job that is in
    /// its way (see `FamilyView::job`).
    New { only: Option<Only>, parent: Option<JobId> },
}

/// Allows one job of a type at a time.
#[derive(Debug, Clone)]
pub struct Only {
    pub name: TypeName,
    pub hidden: bool,
}

/// Pure: gets the number of the target, the jobs as they are, and the store's time. May be called
/// more than once. A refusal fails the whole request with `Error::Refused`, a panic with
/// `Error::Internal`; then nothing changes.
pub type Decide =
    Arc<dyn Fn(usize, &FamilyView, Timestamp) -> Result<Decision, Refusal> + Send + Sync>;

/// Why a decision refused, in its door's own terms; stores and the engine pass it on unread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {text}")]
pub struct Refusal {
    pub code: u16,
    pub text: Cow<'static, str>,
}

impl Refusal {
    pub fn new(code: u16, text: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { code, text: text.into() }
    }
}

/// A job with its family, as a decision sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FamilyView {
    /// For `Target::New`: the job with the smallest id of that type, hidden or not, that has not
    /// ended, has failed, or is an ended child.
    pub job: Option<FullJob>,
    pub parent: Option<FullJob>,
    /// The children of the job.
    pub children: Children,
    /// The other children of the parent.
    pub siblings: Children,
}

/// A job with its payload.
#[derive(Debug, Clone, PartialEq)]
pub struct FullJob {
    pub job: Job,
    /// In one buffer up to `WHOLE_BYTES_MAX`.
    pub payload: Payload,
    /// The retention of its type, if it is set.
    pub retention: Option<Duration>,
}

/// The states in which there are children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Children {
    /// Queued or running.
    pub active: bool,
    pub paused: bool,
    pub failed: bool,
    pub finished: bool,
    pub cancelled: bool,
}

impl Children {
    /// Whether there is a child that has not ended.
    pub fn pending(self) -> bool {
        self.active || self.paused
    }

    pub fn any(self) -> bool {
        self != Children::default()
    }

    /// Notes that there is a child in this state.
    pub fn note(&mut self, state: State) {
        match state {
            State::Queued | State::Running => self.active = true,
            State::Paused => self.paused = true,
            State::Finished => self.finished = true,
            State::Failed => self.failed = true,
            State::Cancelled => self.cancelled = true,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub edits: Vec<Edit>,
    /// The result for the caller: the id of the new job, or of the one in its way.
    pub id: Option<JobId>,
}

/// One change of the store. Edits are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// A new job; its parent is marked as having children. Its payload is inline even if it is too
    /// large for that. If its id or unique key is taken, the whole request fails.
    Insert(Box<NewJob>),
    /// Replaces the job with this id: type, state, times and everything else. A store moves it
    /// between the queue, the leases and the ended jobs accordingly. Its number of bytes follows
    /// its payload; result, log and progress stay. If it gives the job a lease with a smaller token
    /// than the job has had, the whole request fails with `Error::Conflict`.
    Put(Box<Put>),
    /// Removes the job with all its data.
    Delete(JobId),
    /// Changes all children of this parent in the state `from`.
    Children { parent: JobId, from: State, to: ChildMove },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Put {
    pub job: Job,
    /// A new payload; `None` keeps the old one.
    pub payload: Option<Bytes>,
    /// When an ended job is removed; `None` means never.
    pub purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildMove {
    /// Queued, to run at their time.
    Queue,
    /// Detached from the parent; removed at this time if they have ended.
    Detach { purge_at: Timestamp },
    /// Cancelled; removed at this time.
    Cancel { purge_at: Timestamp },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decided {
    /// `Decision::id` of each decision.
    pub ids: Vec<Option<JobId>>,
    pub moved: MovedJobs,
}

/// What a change did to jobs, for the log, waiting requests, the scheduler and the runner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MovedJobs {
    /// How many jobs of these types became ready.
    pub ready: BTreeMap<TypeKey, u64>,
    /// When the earliest job that was queued for later comes due.
    pub due: Option<Timestamp>,
    /// Attempts that no longer have a lease: a worker has reported, or the job was changed. If one
    /// still runs, it is stopped.
    pub stopped: Vec<AttemptId>,
    /// Other jobs that changed or are gone.
    pub touched: Vec<JobId>,
    /// Jobs that entered.
    pub entered: Vec<(JobId, TypeKey)>,
    /// Jobs that a worker had and no longer has, each before and after the change.
    pub back: Vec<(Job, Job)>,
}

/// A request for due jobs by name, with a pure decision on each that is found: most urgent first,
/// then the one that has been due the longest (within one millisecond by `Extra::tie`), then by
/// name, then by id. Suspended types give nothing, and expired jobs are skipped, as by a claim; a
/// type with a `concurrency` or a `rate` gives no more jobs than it allows to run, or to start now.
#[derive(Clone)]
pub struct Take {
    pub tenant: Tenant,
    pub names: Names,
    /// Only jobs of this priority.
    pub priority: Option<Priority>,
    /// Hidden jobs too.
    pub hidden: bool,
    /// 1 to `BATCH_JOBS_MAX`.
    pub limit: u32,
    /// Jobs with larger payloads are skipped. Of the payloads of a job's ended children, only those
    /// that fit together are shown.
    pub payload_bytes_max: u64,
    /// The take ends before the first job that does not fit together with those before it, each
    /// with all payloads that are shown of its family. The engine sets it.
    pub bytes_max: u64,
    /// Called for each job in turn, for at most `limit` jobs.
    pub decide: TakeDecide,
    /// For leases that the decision makes. The engine sets it.
    pub claimant: Claimant,
    /// Where an earlier search stopped that found nothing. The engine sets it.
    pub after: Option<TakeCursor>,
}

/// A position in a search among the types of a tenant. Only the store that made it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeCursor {
    pub place: [i64; 3],
    pub name: String,
}

/// Pure: gets the job as it is, the owner and token of a lease that it may make, and the store's
/// time.
pub type TakeDecide = Arc<dyn Fn(&FullJob, Claimant, Timestamp) -> TakeDecision + Send + Sync>;

/// Who takes jobs: the daemon, and the token of this take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant {
    pub owner: Sysid,
    pub token: Token,
}

impl Claimant {
    /// Before the engine has set one. No token of a real claim is as small.
    pub const UNSET: Claimant = Claimant { owner: Sysid::FIRST, token: Token(0) };
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Names {
    /// Matches the whole name; see `glob`.
    Glob(String),
    AnyOf(Vec<TypeName>),
}

/// What becomes of a job that a `Take` found.
#[derive(Debug, Clone, PartialEq)]
pub struct TakeDecision {
    /// Must not leave the job queued and due.
    pub put: Put,
    /// Whether the caller gets it.
    pub give: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct TakeAnswer {
    pub given: Vec<TakenJob>,
    /// Jobs that were found and not given.
    pub kept: u32,
    pub moved: MovedJobs,
    /// Nothing was taken, because the first job alone has more than `Take::bytes_max`.
    pub oversized: bool,
    /// The `concurrency` of a type may hold back some of its jobs.
    pub full: bool,
    /// Types that have used up their `rate` with this take; if it found nothing, those whose `rate`
    /// holds back jobs. Sorted.
    pub rests: Vec<Rest>,
    /// Where the search continues, if nothing was found so far: a store looks at a bounded number
    /// of types in one call.
    pub next: Option<TakeCursor>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TakenJob {
    /// As it was before.
    pub before: FullJob,
    /// As it is now.
    pub job: Job,
    /// Its new payload, if the take changed it.
    pub payload: Option<Bytes>,
    pub parent: Option<FullJob>,
    /// Its ended children, at most `CHILDREN_SHOWN_MAX` of each kind. A payload that is not shown
    /// is `Pieces`.
    pub finished: Vec<(JobId, Payload)>,
    pub cancelled: Vec<(JobId, Payload)>,
}

/// What a take may still hold: see `Take::bytes_max`.
#[derive(Debug)]
pub struct TakeRoom {
    bytes_left: u64,
}

const A_DECISION: &str = "a decision on jobs";

impl Ask {
    /// Calls the decision for target number `index`. On an error, which includes a panic, the store
    /// undoes the whole request.
    pub fn decision(
        &self,
        index: usize,
        seen: &FamilyView,
        now: Timestamp,
    ) -> Result<Decision, Error> {
        Error::caught(A_DECISION, || (self.decide)(index, seen, now))?.map_err(Error::Refused)
    }
}

impl Take {
    /// Any jobs of these names, however large.
    pub fn new(tenant: Tenant, names: Names, limit: u32, decide: TakeDecide) -> Take {
        Take {
            tenant,
            names,
            priority: None,
            hidden: false,
            limit,
            payload_bytes_max: u64::MAX,
            bytes_max: u64::MAX,
            decide,
            claimant: Claimant::UNSET,
            after: None,
        }
    }

    /// What becomes of this job; as with `Ask::decision`, an error undoes the whole take.
    pub fn decision(&self, before: &FullJob, now: Timestamp) -> Result<TakeDecision, Error> {
        Error::caught(A_DECISION, || (self.decide)(before, self.claimant, now))
    }
}

impl TakeRoom {
    pub fn of(take: &Take) -> TakeRoom {
        TakeRoom { bytes_left: take.bytes_max }
    }

    /// Whether a job with these payloads fits.
    pub fn has_place<'a>(&mut self, payloads: impl IntoIterator<Item = &'a Payload>) -> bool {
        let bytes = payloads.into_iter().map(Payload::inline_len).sum();
        let fits = bytes <= self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        fits
    }
}

impl Put {
    /// The job that a store keeps in place of `before`, without fields that do not fit its state.
    pub fn tidied(&self, before: &Job, now: Timestamp) -> Result<Job, Error> {
        let Put { job, payload, .. } = self;
        if job.key.tenant != before.key.tenant {
            return Err(Error::Conflict(format!("job {} belongs to another tenant", job.id)));
        }
        let (running, ended) = (job.state == State::Running, job.state.is_ended());
        if running && job.lease.is_none() {
            return Err(Error::Internal(
                format!("job {} is to run without a lease", job.id).into(),
            ));
        }
        let lent = job.extra.lent && job.state == State::Queued;
        Ok(Job {
            id: before.id,
            lease: job.lease.filter(|_| running),
            started_at: job.started_at.or(running.then_some(now)),
            finished_at: ended.then(|| job.finished_at.unwrap_or(now)),
            children: job.children || before.children,
            extra: Extra { lent, ..job.extra.clone() },
            payload_bytes: payload.as_ref().map_or(before.payload_bytes, |p| p.len() as u64),
            progress: None,
            ..job.clone()
        })
    }
}

impl ChildMove {
    /// What becomes of this child.
    pub fn put(self, child: &Job, now: Timestamp) -> Put {
        let (mut job, payload) = (child.clone(), None);
        let purge_at = match self {
            ChildMove::Queue => {
                job.state = State::Queued;
                None
            }
            ChildMove::Detach { purge_at } => {
                job.parent = None;
                job.state.is_ended().then_some(purge_at)
            }
            ChildMove::Cancel { purge_at } => {
                (job.state, job.finished_at) = (State::Cancelled, Some(now));
                Some(purge_at)
            }
        };
        Put { job, payload, purge_at }
    }
}

impl MovedJobs {
    /// A job has entered the store.
    pub fn note_entered(&mut self, new: &NewJob, now: Timestamp) {
        self.entered.push((new.id, new.key.clone()));
        if !new.paused {
            self.note_queued(&new.key, new.run_at, new.is_due(now));
        }
    }

    pub fn note_changed(&mut self, before: &Job, after: &Job, now: Timestamp) {
        self.note_lease(before, after.lease.map(|lease| lease.token));
        if before.is_out() && !after.is_out() {
            self.back.push((before.clone(), after.clone()));
        }
        let place = |job: &Job| (job.state, job.run_at, job.extra.hidden, job.key.clone());
        if after.state == State::Queued && place(before) != place(after) {
            self.note_queued(&after.key, after.run_at, after.run_at <= now);
        }
    }

    pub fn note_gone(&mut self, before: &Job) {
        self.note_lease(before, None);
    }

    /// Each attempt and each job once, in the order of ids.
    pub fn tidy(&mut self) {
        self.stopped.sort();
        self.stopped.dedup();
        self.touched.sort();
        self.touched.dedup();
    }

    fn note_queued(&mut self, key: &TypeKey, run_at: Timestamp, due: bool) {
        if due {
            *self.ready.entry(key.clone()).or_default() += 1;
        } else {
            self.due = Some(self.due.map_or(run_at, |due| due.min(run_at)));
        }
    }

    fn note_lease(&mut self, before: &Job, token: Option<Token>) {
        match before.attempt_id().filter(|held| token != Some(held.token)) {
            Some(lost) => self.stopped.push(lost),
            None => self.touched.push(before.id),
        }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("tenant", &self.tenant).field("targets", &self.targets).finish()
    }
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Take { tenant, names, priority, hidden, limit, .. } = self;
        f.debug_struct("Take")
            .field("tenant", tenant)
            .field("names", names)
            .field("priority", priority)
            .field("hidden", hidden)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Sysid;
    use crate::job::tests::running_job;
    use crate::job::{Lease, Progress};

    const NOW: Timestamp = Timestamp(50);

    fn job(state: State) -> Job {
        let owner = Sysid::new(1).unwrap();
        let lease = Lease { owner, token: Token(1), expires_at: NOW, on_beat: false };
        let lease = (state == State::Running).then_some(lease);
        Job { state, lease, ..running_job(1, Timestamp(40)) }
    }

    #[test]
    fn a_job_has_only_what_goes_with_its_state() {
        let odd = |state| {
            let extra = Extra { lent: true, ..Extra::default() };
            let progress = Some(Progress { percent: 5.0, message: String::new(), at: NOW });
            Job { state, extra, progress, payload_bytes: 9, ..job(State::Running) }
        };
        for state in State::ALL {
            let put = Put { job: odd(state), payload: Some(Bytes::from("abc")), purge_at: None };
            let kept = put.tidied(&job(State::Queued), NOW).unwrap();
            assert_eq!(kept.lease.is_some(), state == State::Running, "{state}");
            assert_eq!(kept.extra.lent, state == State::Queued, "{state}");
            assert_eq!(kept.finished_at, state.is_ended().then_some(NOW), "{state}");
            assert_eq!((kept.payload_bytes, kept.progress), (3, None));
            let same = Put { payload: None, ..put };
            assert_eq!(same.tidied(&job(State::Queued), NOW).unwrap().payload_bytes, 0);
        }
        let unleased = Job { state: State::Running, ..job(State::Queued) };
        let put = |job| Put { job, payload: None, purge_at: None };
        assert!(matches!(put(unleased).tidied(&job(State::Queued), NOW), Err(Error::Internal(_))));
        let stolen = Job { key: TypeKey::new("globex", "t").unwrap(), ..job(State::Queued) };
        assert!(matches!(put(stolen).tidied(&job(State::Queued), NOW), Err(Error::Conflict(_))));
    }

    #[test]
    fn a_job_that_is_set_to_running_starts_now_unless_it_has_started() {
        let started = |state, started_at| {
            let job = Job { started_at, ..job(state) };
            let put = Put { job, payload: None, purge_at: None };
            put.tidied(&self::job(State::Queued), NOW).unwrap().started_at
        };
        assert_eq!(started(State::Running, None), Some(NOW));
        assert_eq!(started(State::Running, Some(Timestamp(7))), Some(Timestamp(7)));
        assert_eq!(started(State::Failed, Some(Timestamp(7))), Some(Timestamp(7)));
        assert_eq!(started(State::Queued, None), None);
    }

    #[test]
    fn a_put_never_moves_a_job_to_another_id() {
        let other = Job { id: JobId::new(9).unwrap(), ..job(State::Queued) };
        let put = Put { job: other, payload: None, purge_at: None };
        let before = job(State::Queued);
        assert_eq!(put.tidied(&before, NOW).unwrap().id, before.id);
    }

    #[test]
    fn a_job_with_children_keeps_them() {
        let kept = |before, after| {
            let with = |children| Job { children, ..job(State::Queued) };
            let put = Put { job: with(after), payload: None, purge_at: None };
            put.tidied(&with(before), NOW).unwrap().children
        };
        assert!(kept(true, false) && kept(false, true) && !kept(false, false));
    }

    #[test]
    fn a_decision_is_passed_on_and_its_refusal_and_its_panic_are_errors() {
        let decide: Decide = Arc::new(|index, _, _| match index {
            0 => Ok(Decision { id: JobId::new(7), ..Decision::default() }),
            1 => Err(Refusal::new(402, "no")),
            _ => panic!("a defect of a door"),
        });
        let tenant = job(State::Queued).key.tenant;
        let ask = Ask { tenant, targets: Vec::new(), decide, durability: Durability::Relaxed };
        let decided = |index| ask.decision(index, &FamilyView::default(), Timestamp(0));
        assert_eq!(decided(0).unwrap().id, JobId::new(7));
        assert!(matches!(decided(1), Err(Error::Refused(refusal)) if refusal.code == 402));
        assert!(matches!(decided(2), Err(Error::Internal(_))));
    }

    #[test]
    fn a_take_holds_jobs_while_there_is_room() {
        let payload = |bytes| Payload::Inline(Bytes::from(vec![0; bytes]));
        let has_places = |bytes_left, jobs: &[&[usize]]| -> Vec<bool> {
            let mut room = TakeRoom { bytes_left };
            let mut has_place = |sizes: &&[usize]| {
                let payloads: Vec<Payload> = sizes.iter().copied().map(payload).collect();
                room.has_place(&payloads)
            };
            jobs.iter().map(&mut has_place).collect()
        };
        assert_eq!(has_places(9, &[&[10]]), [false]);
        assert_eq!(has_places(9, &[&[9], &[0], &[1]]), [true, true, false]);
        assert_eq!(has_places(9, &[&[2, 3], &[2, 2], &[1]]), [true, true, false]);
        assert_eq!(has_places(9, &[&[4], &[6], &[0]]), [true, false, true]);
    }

    #[test]
    fn children_of_each_state_are_noted() {
        for state in State::ALL {
            let mut children = Children::default();
            assert!(!children.any() && !children.pending());
            children.note(state);
            assert!(children.any(), "{state}");
            assert_eq!(children.pending(), !state.is_ended(), "{state}");
            let expected = Children {
                active: matches!(state, State::Queued | State::Running),
                paused: state == State::Paused,
                failed: state == State::Failed,
                finished: state == State::Finished,
                cancelled: state == State::Cancelled,
            };
            assert_eq!(children, expected, "{state}");
        }
    }

    #[test]
    fn a_job_that_enters_is_ready_due_later_or_paused() {
        let entered = |run_at, paused| {
            let new = running_job(1, Timestamp(40));
            let payload = Payload::Inline(Bytes::new());
            let new = NewJob { paused, run_at, ..NewJob::new(new.id, new.key, payload, NOW) };
            let mut moved = MovedJobs::default();
            moved.note_entered(&new, NOW);
            assert_eq!(moved.entered, [(new.id, new.key)]);
            (moved.ready.values().sum::<u64>(), moved.due)
        };
        assert_eq!(entered(NOW, false), (1, None));
        assert_eq!(entered(Timestamp(60), false), (0, Some(Timestamp(60))));
        assert_eq!(entered(NOW, true), (0, None));
    }

    #[test]
    fn a_job_is_reported_once_and_is_ready_only_when_it_became_so() {
        let changed = |before: &Job, after: &Job| {
            let mut moved = MovedJobs::default();
            moved.note_changed(before, after, NOW);
            moved.note_changed(after, after, NOW);
            moved.tidy();
            (moved.ready.values().sum::<u64>(), moved.due, moved.stopped.len(), moved.touched.len())
        };
        let (queued, running) = (job(State::Queued), job(State::Running));
        let later = Job { run_at: Timestamp(60), ..queued.clone() };
        assert_eq!(changed(&queued, &queued), (0, None, 0, 1));
        assert_eq!(changed(&later, &queued), (1, None, 0, 1));
        assert_eq!(changed(&queued, &later), (0, Some(Timestamp(60)), 0, 1));
        assert_eq!(changed(&running, &queued), (1, None, 1, 1));
        assert_eq!(changed(&running, &running), (0, None, 0, 1));
    }

    #[test]
    fn a_job_is_back_when_its_worker_no_longer_has_it() {
        let back = |before: &Job, after: &Job| {
            let mut moved = MovedJobs::default();
            moved.note_changed(before, after, NOW);
            moved.back.len()
        };
        let (queued, running) = (job(State::Queued), job(State::Running));
        assert_eq!(back(&running, &queued), 1);
        assert_eq!((back(&running, &running), back(&queued, &queued)), (0, 0));
        assert_eq!(back(&queued, &running), 0);
    }

    #[test]
    fn the_attempt_of_a_job_that_is_gone_is_stopped() {
        let gone = |state| {
            let mut moved = MovedJobs::default();
            moved.note_gone(&job(state));
            (moved.stopped.len(), moved.touched.len())
        };
        assert_eq!((gone(State::Running), gone(State::Queued)), ((1, 0), (0, 1)));
    }
}
