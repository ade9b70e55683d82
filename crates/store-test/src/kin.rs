//! Helpers for cases about decisions and families.

use std::sync::Arc;

use windlass_core::edit::{
    Ask, Decided, Decision, Edit, FamilyView, FullJob, Names, Put, Refusal, Take, TakeAnswer,
    TakeDecision, Target,
};
use windlass_core::job::Token;
use windlass_core::store::{Claimed, Durability, Error};
use windlass_core::{Extra, Job, Lease, NewJob, State, Timestamp, TypeName};

use crate::fixture::{LEASE, NOW, Subject, acme, id, job_of, sysid, token};

/// A decision about `acme`'s jobs.
pub(crate) fn ask(
    targets: Vec<Target>,
    decide: impl Fn(usize, &FamilyView) -> Result<Decision, Refusal> + Send + Sync + 'static,
) -> Ask {
    let (tenant, durability) = (acme(), Durability::Relaxed);
    let decide = Arc::new(move |index, seen: &FamilyView, _| decide(index, seen));
    Ask { tenant, targets, decide, durability }
}

/// A decision that does not depend on what it is shown.
pub(crate) fn edits(edits: Vec<Edit>) -> Ask {
    let targets = vec![Target::New { only: None, parent: None }];
    ask(targets, move |_, _| Ok(Decision { edits: edits.clone(), id: None }))
}

pub(crate) fn put(job: Job) -> Edit {
    Edit::Put(Box::new(Put { job, payload: None, purge_at: None }))
}

pub(crate) fn insert(new: NewJob) -> Edit {
    Edit::Insert(Box::new(new))
}

/// A paused child of this parent.
pub(crate) fn child(number: i64, parent: i64) -> NewJob {
    NewJob { parent: Some(id(parent)), paused: true, ..job_of("child", number) }
}

/// The job under a lease of daemon 7 in boot 1.
pub(crate) fn leased(whole: &FullJob, now: Timestamp) -> Job {
    leased_by(token(), whole, now)
}

pub(crate) fn leased_by(token: Token, whole: &FullJob, now: Timestamp) -> Job {
    Job {
        state: State::Running,
        attempt: whole.job.attempt + 1,
        started_at: Some(now),
        lease: Some(Lease { owner: sysid(7), token, expires_at: now + LEASE, on_beat: false }),
        ..whole.job.clone()
    }
}

/// Takes up to `limit` of `acme`'s due jobs with these names under leases that begin at `now`.
pub(crate) fn take(names: Names, limit: u32, now: Timestamp) -> Take {
    // A decision may be called more than once, so it must not make the token.
    let token = token();
    let decide = move |whole: &FullJob, _, _| {
        let put = Put { job: leased_by(token, whole, now), payload: None, purge_at: None };
        TakeDecision { put, give: true }
    };
    Take::new(acme(), names, limit, Arc::new(decide))
}

pub(crate) fn glob(pattern: &str) -> Names {
    Names::Glob(pattern.into())
}

pub(crate) fn any_of(names: &[&str]) -> Names {
    Names::AnyOf(names.iter().map(|name| TypeName::new(name).unwrap()).collect())
}

pub(crate) fn taken_numbers(took: &TakeAnswer) -> Vec<i64> {
    took.given.iter().map(|taken| taken.job.id.get()).collect()
}

pub(crate) fn run_at_text(text: &str) -> Extra {
    Extra { run_at_text: Some(text.into()), ..Extra::default() }
}

impl Subject {
    /// Applies edits, which must succeed.
    pub(crate) async fn edit(&self, list: Vec<Edit>) -> Decided {
        self.job_decide(edits(list)).await.unwrap()
    }

    /// What a decision is shown.
    pub(crate) async fn seen(&self, target: Target) -> FamilyView {
        let seen = Arc::new(std::sync::Mutex::new(FamilyView::default()));
        let shown = seen.clone();
        let look = ask(vec![target], move |_, seen| {
            *shown.lock().unwrap() = seen.clone();
            Ok(Decision::default())
        });
        self.job_decide(look).await.unwrap();
        seen.lock().unwrap().clone()
    }

    pub(crate) async fn full_job(&self, number: i64) -> FullJob {
        let full = self.job_full(&acme(), id(number)).await.unwrap();
        assert_eq!(full, self.seen(Target::Job(id(number))).await.job, "decisions see the same");
        full.expect("the job is there")
    }

    /// Applies `change` to the job.
    pub(crate) async fn alter(&self, number: i64, change: impl FnOnce(&mut Job)) -> Decided {
        let mut job = self.get(number).await;
        change(&mut job);
        self.edit(vec![put(job)]).await
    }

    /// Expects these edits to be refused.
    pub(crate) async fn refused(&self, ask: Ask) {
        let answer = self.job_decide(ask).await;
        assert!(matches!(answer, Err(Error::Conflict(_))), "it is not refused: {answer:?}");
    }

    pub(crate) async fn take_of(&self, names: Names, limit: u32) -> Vec<i64> {
        taken_numbers(&self.job_take(take(names, limit, NOW)).await.unwrap())
    }

    pub(crate) async fn state(&self, number: i64) -> State {
        self.get(number).await.state
    }

    /// The states of these jobs.
    pub(crate) async fn states(&self, jobs: impl IntoIterator<Item = i64>) -> Vec<State> {
        let mut states = Vec::new();
        for number in jobs {
            states.push(self.state(number).await);
        }
        states
    }

    /// Running job 1 of the type `parent`, with children of the type `child`.
    pub(crate) async fn parent_with(&self, children: impl IntoIterator<Item = i64>) -> Claimed {
        self.add([job_of("parent", 1)]).await;
        let claimed = self.claim_one("parent", NOW).await;
        self.edit(children.into_iter().map(|number| insert(child(number, 1))).collect()).await;
        claimed
    }
}
