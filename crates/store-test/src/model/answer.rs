//! A store's answer to an operation as text, normalised where the contract leaves a choice.

use std::collections::BTreeMap;
use std::fmt::Debug;

use windlass_core::Job;
use windlass_core::edit::{FullJob, MovedJobs, TakeAnswer, TakenJob};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{
    Added, Changed, ChangedTypes, ClaimAnswer, Claimed, Durability, Error, GiveUp, Insert,
    LeaseRef, Piece, Revision, TypedJob, WaitingType,
};

use super::op::{Op, Read};
use super::value;
use super::world::World;
use crate::fixture::{Subject, give_up_expired, lease_ref};

pub(super) async fn of(store: &Subject, op: &Op, world: &mut World) -> String {
    match op {
        Op::Claim(claim) => {
            let claimed = store.job_claim(claim.clone()).await;
            for claimed in claimed.iter().flat_map(|answer| &answer.jobs) {
                world.remember(lease_ref(claimed));
            }
            let plain = |ClaimAnswer { jobs, rests }| {
                (jobs.into_iter().map(plain_claimed).collect::<Vec<_>>(), rests)
            };
            text(claimed.map(plain))
        }
        Op::Take(plan) => {
            let took = store.job_take(plan.take()).await;
            for taken in took.iter().flat_map(|took| &took.given) {
                let Job { id, key, lease, .. } = &taken.job;
                let (tenant, id) = (key.tenant.clone(), *id);
                let lease = lease.map(|lease| LeaseRef { tenant, id, token: lease.token });
                lease.into_iter().for_each(|lease| world.remember(lease));
            }
            text(took.map(plain_took))
        }
        Op::Read(read) => of_read(store, read).await,
        op => of_change(store, op).await,
    }
}

async fn of_change(store: &Subject, op: &Op) -> String {
    match op {
        Op::Insert(insert) => text(store.job_insert(insert.clone()).await),
        Op::Add(add) => match store.job_add(add.clone()).await {
            Ok(Added::New { ids, moved }) => format!("{ids:?} {:?}", plain_moved(*moved)),
            other => text(other),
        },
        Op::InsertLarge(new, pieces) => {
            for (piece, index) in pieces.iter().zip(0..) {
                store
                    .payload_put(vec![Piece { id: new.id, index, bytes: piece.clone() }])
                    .await
                    .unwrap();
            }
            let (jobs, keys, durability) = (vec![new.clone()], Vec::new(), Durability::Synced);
            text(store.job_insert(Insert { jobs, keys, mark: None, durability }).await)
        }
        Op::Renew(renew) => {
            let mut lost = store.job_renew(renew.clone()).await;
            if let Ok(lost) = &mut lost {
                lost.sort_by_key(|lease| (lease.id, lease.tenant.clone(), lease.token));
            }
            text(lost)
        }
        Op::Settle(settlements, durability) => {
            let answer = store.job_settle(settlements.clone(), *durability).await;
            text(answer.map(|answer| (answer.settled, plain_moved(answer.moved))))
        }
        Op::Progress(progress) => text(store.job_progress(progress.clone()).await),
        Op::LeaseExpired(limit) => text(store.lease_expired(*limit).await.map(by_expiry)),
        Op::Cancel(end) => text(store.job_cancel(end.clone()).await.map(plain_changed)),
        Op::Rerun(tenant, id) => text(store.job_rerun(tenant, *id).await.map(plain_changed)),
        Op::Requeue(requeue) => text(store.job_requeue(requeue.clone()).await),
        Op::Delete(tenant, id) => text(store.job_delete(tenant, *id).await.map(plain_changed)),
        Op::Decide(plan) => {
            let decided = store.job_decide(plan.ask()).await;
            text(decided.map(|decided| (decided.ids, plain_moved(decided.moved))))
        }
        Op::GiveUp(give_up) => text(store.job_give_up(give_up.clone()).await.map(by_id)),
        Op::Purge(limit) => text(store.job_purge(*limit).await),
        Op::HandlerPut(id, key, spec) => text(store.handler_put(*id, key, spec.clone()).await),
        Op::HandlerDelete(key) => text(store.handler_delete(key).await),
        Op::Suspend(key, suspended) => text(store.type_suspend(key, *suspended).await),
        Op::SettingsPut(key, settings) => {
            text(store.type_settings_put(key, settings.clone()).await)
        }
        Op::BootNext => text(store.boot_next().await),
        Op::Flush => text(store.flush().await),
        op => unreachable!("{op:?} is answered elsewhere"),
    }
}

async fn of_read(store: &Subject, read: &Read) -> String {
    match read {
        Read::Job(tenant, id) => {
            let job = store.job_get(tenant, *id).await.unwrap().map(|job| {
                let progress = job.progress.clone();
                Job { progress, ..plain(job) }
            });
            let typed = store.job_typed(tenant, *id).await.unwrap();
            let typed = typed.map(|TypedJob { settings, handler, .. }| (settings, handler));
            let log = store.job_log(tenant, *id).await.unwrap();
            let result = store.job_result(tenant, *id).await.unwrap();
            let payload = store.job_payload(tenant, *id).await.unwrap();
            format!("{:?}", (job, typed, log, result, payload))
        }
        Read::Piece(id, index) => text(store.payload_piece(*id, *index).await),
        Read::List(list) => {
            let jobs: Vec<Job> = store.listed(list.clone()).await.into_iter().map(plain).collect();
            format!("{jobs:?}")
        }
        Read::Waiting => {
            without_expired(store).await;
            format!("{:?}", by_key(store.waiting(store.now()).await))
        }
        Read::Ring => {
            without_expired(store).await;
            // Which due jobs are already promoted may differ; a look promotes them.
            store.waiting(store.now()).await;
            let first = store.type_first(None, usize::MAX, usize::MAX).await.unwrap();
            let tenants = value::tenants().map(|tenant| (tenant, None)).collect();
            let next = store.type_next(tenants, usize::MAX).await.unwrap();
            format!("{:?}", (sorted(first), sorted(next)))
        }
        Read::Named(look) => {
            without_expired(store).await;
            let found = store.type_named(look.clone()).await.unwrap();
            format!("{:?}", (sorted(found.types), found.next, found.full))
        }
        Read::Stats(tenant) => {
            without_expired(store).await;
            let mut stats = store.type_stats(tenant.as_ref()).await.unwrap();
            stats.sort_by(|a, b| a.key.cmp(&b.key));
            format!("{stats:?}")
        }
        Read::Handler(key, version) => text(store.handler_get(key, *version).await),
        Read::Handlers(tenant) => text(store.handler_list(tenant).await),
        Read::Settings(key) => text(store.type_settings_get(key).await),
        Read::Idempotency(tenant, key) => text(store.idempotency_get(tenant, key).await),
        Read::Journal(journal) => text(store.journal_position(*journal).await),
        Read::LeaseMine(owner, after) => text(store.lease_mine(*owner, *after, 3).await),
        Read::LeaseClaimed(tokens) => text(store.lease_claimed(tokens.clone(), 3).await),
        Read::Unhandled(keys) => text(store.type_unhandled(keys.clone()).await),
        Read::Sysids => {
            let mut sysids = store.sysid_list().await.unwrap();
            sysids.sort();
            format!("{sysids:?}")
        }
    }
}

/// Expired jobs may count as ready until a claim has skipped them; those that are given up do not.
async fn without_expired(store: &Subject) {
    let all = GiveUp { limit: BATCH_JOBS_MAX, ..give_up_expired() };
    store.job_give_up(all).await.unwrap();
}

const ERROR: &str = "error: ";

/// The text of an error is up to the store.
fn text<T: Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(Error::Conflict(_)) => format!("{ERROR}conflict"),
        Err(error) => format!("{ERROR}{error:?}"),
    }
}

pub(super) fn is_error(answer: &str) -> bool {
    answer.starts_with(ERROR)
}

/// Progress is only promised for reads of a single job.
fn plain(job: Job) -> Job {
    Job { progress: None, ..job }
}

fn plain_claimed(claimed: Claimed) -> Claimed {
    Claimed { job: plain(claimed.job), left: 0, ..claimed }
}

fn plain_whole(whole: FullJob) -> FullJob {
    FullJob { job: plain(whole.job), ..whole }
}

fn plain_took(took: TakeAnswer) -> impl Debug {
    let given = took.given.into_iter().map(|taken| TakenJob {
        before: plain_whole(taken.before),
        job: plain(taken.job),
        parent: taken.parent.map(plain_whole),
        ..taken
    });
    (given.collect::<Vec<_>>(), took.kept, plain_moved(took.moved))
}

/// The same types in the same order.
fn plain_moved(moved: MovedJobs) -> impl Debug {
    let ready: BTreeMap<_, _> = moved.ready.into_iter().collect();
    let back = moved.back.into_iter().map(|(before, after)| (plain(before), plain(after)));
    let back: Vec<(Job, Job)> = back.collect();
    (ready, moved.due, moved.stopped, moved.touched, moved.entered, back)
}

fn plain_changed(changed: Changed) -> Changed {
    match changed {
        Changed::Done(job) => Changed::Done(Box::new(plain(*job))),
        other => other,
    }
}

fn by_id(mut jobs: Vec<Job>) -> Vec<Job> {
    jobs.sort_by_key(|job| job.id);
    jobs.into_iter().map(plain).collect()
}

/// The order of leases that expire at the same moment is not defined.
fn by_expiry(jobs: Vec<Job>) -> Vec<Job> {
    let expiry = |job: &Job| job.lease.map(|lease| lease.expires_at);
    assert!(jobs.is_sorted_by_key(expiry), "the oldest expiry comes first: {jobs:?}");
    by_id(jobs)
}

fn by_key(waiting: ChangedTypes) -> impl Debug {
    (sorted(waiting.types), waiting.next_due_at)
}

/// How many revisions a type gets is up to the store, and so is the order of types.
fn sorted(types: Vec<WaitingType>) -> Vec<WaitingType> {
    let plain = |of_type| WaitingType { revision: Revision::default(), ..of_type };
    let mut types: Vec<WaitingType> = types.into_iter().map(plain).collect();
    types.sort_by(|a, b| a.key.cmp(&b.key));
    types
}
