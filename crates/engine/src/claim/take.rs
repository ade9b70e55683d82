//! Take: workers ask for jobs by name, and a pure decision of their door says what becomes of
//! each. The store is asked, not the scheduler: a worker gets the best job that there is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use windlass_core::edit::{
    Ask, Decide, Decision, Edit, Moved, Names, Put, Seen, Take, TakeDecide, Taken, Took, Which,
};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::Durability;
use windlass_core::{Invalid, Payload, TypeKey, TypeName, TypeSettings, glob};

use crate::api::TakeWish;
use crate::ask::decide;
use crate::claim::answer;
use crate::claim::hunger::{Pattern, Wants};
use crate::claim::pull::look_afresh;
use crate::error::{Error, store_error};
use crate::event;
use crate::schedule;
use crate::shared::Shared;

/// How long a take waits for jobs that were just added to reach the store.
const FRESH_PATIENCE: Duration = Duration::from_millis(500);
/// New types that a take asks about one by one; when there are more, it waits for a look.
const NEW_TYPES_MAX: usize = 16;

/// Takes jobs; waits for some when there are none. A caller that goes away at any moment leaves no
/// job behind that nobody knows of: what was taken for it goes back.
pub(crate) async fn take(shared: Arc<Shared>, wish: TakeWish) -> Result<Took, Error> {
    if wish.limit == 0 || wish.limit as usize > BATCH_JOBS_MAX {
        let reason = format!("a worker takes 1 to {BATCH_JOBS_MAX} jobs");
        return Err(Invalid::new("limit", reason).into());
    }
    let taking = shared.clone();
    let work = |gone| async move { take_or_wait(&taking, &wish, gone).await };
    let returning = shared.clone();
    let back = move |took: Took| {
        let shared = returning.clone();
        async move { hand_back(&shared, took.given).await }
    };
    let took = answer::or_back(work, back).await?;
    for taken in &took.given {
        shared.metrics.pulled(&taken.job.key);
        event::started(&taken.job);
    }
    Ok(took)
}

async fn take_or_wait(
    shared: &Shared,
    wish: &TakeWish,
    gone: CancellationToken,
) -> Result<Took, Error> {
    let deadline = tokio::time::Instant::now() + wish.wait;
    if let Some(newest) = shared.appended() {
        shared.ingested_up_to(newest, FRESH_PATIENCE).await;
    }
    if wish.wait.is_zero() {
        return take_now(shared, wish).await;
    }
    let mut place = shared.hunger.enter(Wants {
        tenant: wish.tenant.clone(),
        names: Pattern::of_names(&wish.names),
        priority: wish.priority,
        mocks: wish.mocks,
    });
    loop {
        let took = take_now(shared, wish).await;
        place.served();
        if !took.as_ref().is_ok_and(is_empty) {
            return took;
        }
        tokio::select! {
            () = place.called() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(Took::default()),
            () = gone.cancelled() => return Ok(Took::default()),
        }
        if gone.is_cancelled() {
            return Ok(Took::default());
        }
    }
}

fn is_empty(took: &Took) -> bool {
    took.given.is_empty() && took.kept == 0
}

async fn take_now(shared: &Shared, wish: &TakeWish) -> Result<Took, Error> {
    learn_types(shared, wish).await?;
    let limited = limited_types(shared, wish);
    // Two who count at the same time would both take the last place.
    let _counting = match limited.iter().any(|(_, settings, _)| settings.concurrency.is_some()) {
        true => Some(shared.counting.lock().await),
        false => None,
    };
    let room = room(shared, wish, &limited).await?;
    let now = shared.now();
    let decide: TakeDecide = {
        let decide = wish.decide.clone();
        Arc::new(move |whole| decide(whole, now))
    };
    let take = Take {
        tenant: wish.tenant.clone(),
        names: wish.names.clone(),
        priority: wish.priority,
        mocks: wish.mocks,
        limit: wish.limit,
        payload_bytes_max: wish.payload_bytes_max,
        room: room.clone(),
        now,
        decide,
    };
    let took = shared.store.job_take(take).await.map_err(store_error)?;
    let mut given: HashMap<&TypeKey, u32> = HashMap::new();
    for taken in &took.given {
        *given.entry(&taken.before.job.key).or_default() += 1;
    }
    let full = |(name, room): (&TypeName, &u32)| {
        let key = TypeKey { tenant: wish.tenant.clone(), name: name.clone() };
        given.get(&key).copied().unwrap_or_default() >= *room
    };
    if room.iter().any(full) {
        shared.room_wanted.store(true, Ordering::SeqCst);
    }
    {
        let mut scheduler = shared.scheduler();
        for (key, jobs) in given {
            scheduler.claiming(key, jobs);
            scheduler.spend_rate(key, u64::from(jobs), now);
        }
    }
    decide::tell(shared, &took.moved);
    Ok(took)
}

/// A type that has just come into being may have settings that the scheduler does not know yet. It
/// is asked about once: where jobs are taken as fast as they come, no look would ever tell of it.
async fn learn_types(shared: &Shared, wish: &TakeWish) -> Result<(), Error> {
    let mut unknown = shared.scheduler().unknown_of(&wish.tenant);
    unknown.retain(|key| is_wanted(&wish.names, &key.name));
    if unknown.len() > NEW_TYPES_MAX || *shared.looks.borrow() == 0 {
        look_afresh(shared).await;
        return Ok(());
    }
    for key in unknown {
        let settings = shared.store.type_settings_get(&key).await.map_err(store_error)?;
        let handler = shared.store.handler_get(&key, None).await.map_err(store_error)?;
        shared.scheduler().learn(&key, settings, handler.map(|handler| handler.id));
        shared.dispatch_wake.notify_one();
    }
    Ok(())
}

type Limited = Vec<(TypeName, Arc<TypeSettings>, bool)>;

/// Types that may not give all that they have, with whether they rest.
fn limited_types(shared: &Shared, wish: &TakeWish) -> Limited {
    let mut limited = shared.scheduler().limited_of(&wish.tenant, shared.now());
    limited.retain(|(name, ..)| is_wanted(&wish.names, name));
    limited
}

/// How many jobs limited types may give now.
async fn room(
    shared: &Shared,
    wish: &TakeWish,
    limited: &Limited,
) -> Result<HashMap<TypeName, u32>, Error> {
    let counted = limited.iter().any(|(_, settings, _)| settings.concurrency.is_some());
    let stats = match counted {
        true => shared.store.type_stats(Some(&wish.tenant)).await.map_err(store_error)?,
        false => Vec::new(),
    };
    let running = |name: &TypeName| {
        let of_type = stats.iter().find(|stats| stats.key.name == *name);
        u32::try_from(of_type.map_or(0, |stats| stats.running)).unwrap_or(u32::MAX)
    };
    let room = |(name, settings, rests): &(TypeName, Arc<TypeSettings>, bool)| {
        let free = settings.concurrency.map(|most| most.saturating_sub(running(name)));
        let burst = if *rests { 0 } else { schedule::burst(settings) };
        (name.clone(), free.unwrap_or(u32::MAX).min(burst))
    };
    Ok(limited.iter().map(room).collect())
}

fn is_wanted(names: &Names, name: &TypeName) -> bool {
    match names {
        Names::Glob(pattern) => glob::matches(pattern, name.as_str()),
        Names::AnyOf(names) => names.contains(name),
    }
}

/// Jobs of a caller that went away become what they were, unless somebody changed them since.
async fn hand_back(shared: &Shared, given: Vec<Taken>) {
    let Some(first) = given.first() else { return };
    let tenant = first.before.job.key.tenant.clone();
    let which = given.iter().map(|taken| Which::Job(taken.job.id)).collect();
    let decide: Decide = Arc::new(move |index, seen| Ok(as_before(&given[index], seen)));
    let (durability, now) = (Durability::Relaxed, shared.now());
    let ask = Ask { tenant, which, decide, durability, now };
    match shared.store.job_decide(ask).await {
        // Nobody was told that they started.
        Ok(decided) => decide::tell(shared, &Moved { back: Vec::new(), ..decided.moved }),
        Err(error) => tracing::warn!(%error, "jobs of a worker that went away wait for their time"),
    }
}

fn as_before(taken: &Taken, seen: &Seen) -> Decision {
    let before = &taken.before;
    let still_his = |now: &&windlass_core::edit::Whole| {
        let same = now.job.state == taken.job.state && now.job.run_at == taken.job.run_at;
        same && now.job.lease.map(|lease| lease.token) == taken.job.lease.map(|lease| lease.token)
    };
    let Some(now) = seen.job.as_ref().filter(still_his) else { return Decision::default() };
    let payload = match &before.payload {
        Payload::Inline(bytes) if now.payload != before.payload => Some(bytes.clone()),
        _ => None,
    };
    let put = Put { job: before.job.clone(), payload, purge_at: None };
    Decision { edits: vec![Edit::Put(Box::new(put))], id: None }
}
