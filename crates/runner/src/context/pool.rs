//! The living contexts: as many as `bounds` allows. An idle one is kept for a while; it ends when
//! its handler is gone, when another context needs its place, or when it has run enough jobs.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use windlass_core::sync::lock;
use windlass_core::{Handler, HandlerId, Lang, Tenant, TypeKey};

use super::bounds::{Bounds, Living};
use super::start::{Context, Loaded};

/// How long an idle context lives if its handler does not say.
pub(crate) const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Types whose version in force is remembered; when there are more, all are forgotten.
const CURRENT_MAX: usize = 10_000;

/// Contexts with equal keys are as good as each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ContextKey {
    pub(super) tenant: Tenant,
    lang: Lang,
    sharing: Sharing,
    /// What a process cannot change once it runs, as text.
    surroundings: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sharing {
    Version(HandlerId),
    Eid(String),
}

impl ContextKey {
    pub(super) fn of(handler: &Handler) -> ContextKey {
        let spec = &handler.spec;
        let sharing = match &spec.eid {
            Some(eid) => Sharing::Eid(eid.clone()),
            None => Sharing::Version(handler.id),
        };
        let surroundings = format!("{:?}", (&spec.options.env, &spec.options.limits));
        let tenant = handler.key.tenant.clone();
        ContextKey { tenant, lang: spec.lang, sharing, surroundings }
    }
}

pub(super) struct Pool {
    bounds: Bounds,
    state: Mutex<State>,
    /// A place became free, or an idle context came back.
    freed: Notify,
    /// A context became idle that ends before all others.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// The one that was used last is at the end.
    idle: Vec<Idle>,
    /// Contexts that are being made ready before anybody needs them.
    coming: Vec<ContextKey>,
    alive: usize,
    alive_of: HashMap<Tenant, usize>,
    alive_like: HashMap<ContextKey, usize>,
    /// The version in force of each type, as far as it is known here; `None` if it was deleted.
    current: HashMap<TypeKey, Option<HandlerId>>,
    closed: bool,
    sweeping: bool,
}

impl State {
    fn living(&self, tenant: &Tenant) -> Living {
        let own = self.alive_of.get(tenant).copied().unwrap_or_default();
        Living { all: self.alive, own }
    }
}

struct Idle {
    key: ContextKey,
    context: Context,
    ends_at: Instant,
}

/// The right to have one context alive; given back when it is dropped.
pub(super) struct Permit {
    key: ContextKey,
    pool: Arc<Pool>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.alive -= 1;
        count_down(&mut state.alive_of, &self.key.tenant);
        count_down(&mut state.alive_like, &self.key);
        drop(state);
        self.pool.freed.notify_waiters();
    }
}

fn count_down<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// A context that is being made ready; it has come, or never will, when this is dropped.
pub(super) struct Coming {
    key: ContextKey,
    pool: Arc<Pool>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(at) = state.coming.iter().position(|key| *key == self.key) {
            state.coming.swap_remove(at);
        }
        drop(state);
        self.pool.freed.notify_waiters();
    }
}

/// What somebody who needs a context gets.
pub(super) enum Place {
    Warm(Box<Context>),
    /// The right to start one.
    Free(Permit),
}

enum Try {
    Got(Place),
    /// An idle context must end first, so that there is a place.
    End(Box<Context>),
    /// All are busy, or one is on its way.
    Full,
}

impl Pool {
    pub(super) fn new(bounds: Bounds) -> Arc<Pool> {
        Arc::new(Pool {
            bounds,
            state: Mutex::default(),
            freed: Notify::new(),
            sooner: Notify::new(),
        })
    }

    /// An idle context, or the right to start one. Waits for a place while all are busy, or `most`
    /// of this key.
    pub(super) async fn take(self: &Arc<Pool>, key: &ContextKey, most: Option<u32>) -> Place {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on nothing is missed, also not what happens before the wait.
            freed.as_mut().enable();
            match self.try_take(key, most) {
                Try::Got(place) => return place,
                Try::End(context) => context.process.end().await,
                Try::Full => freed.await,
            }
        }
    }

    /// Says that a context is being made ready, so that who needs one waits for it instead of
    /// starting another. `None` if there is one already.
    pub(super) fn announce(self: &Arc<Pool>, key: &ContextKey) -> Option<Coming> {
        let mut state = self.lock();
        if state.coming.contains(key) || state.alive_like.contains_key(key) {
            return None;
        }
        state.coming.push(key.clone());
        Some(Coming { key: key.clone(), pool: Arc::clone(self) })
    }

    /// The right to start one if a shared place is free right now.
    pub(super) fn spare(self: &Arc<Pool>, key: &ContextKey) -> Option<Permit> {
        let mut state = self.lock();
        let has_room = self.bounds.has_shared_room(state.living(&key.tenant));
        (has_room && !state.closed).then(|| self.permit(&mut state, key))
    }

    fn try_take(self: &Arc<Pool>, key: &ContextKey, most: Option<u32>) -> Try {
        let mut state = self.lock();
        let found = state.idle.iter().rposition(|idle| idle.key == *key);
        if let Some(at) = found {
            return Try::Got(Place::Warm(Box::new(state.idle.remove(at).context)));
        }
        let alike = state.alive_like.get(key).copied().unwrap_or_default();
        if state.coming.contains(key) || most.is_some_and(|most| alike >= most as usize) {
            return Try::Full;
        }
        if self.bounds.has_room(state.living(&key.tenant)) {
            return Try::Got(Place::Free(self.permit(&mut state, key)));
        }
        match self.to_end(&state, &key.tenant) {
            Some(at) => Try::End(Box::new(state.idle.remove(at).context)),
            None => Try::Full,
        }
    }

    /// The idle context that is to make room for one of this tenant: the one that was idle for the
    /// longest time, of any tenant if that can help, else of its own.
    fn to_end(&self, state: &State, tenant: &Tenant) -> Option<usize> {
        let is_own = |idle: &Idle| idle.key.tenant == *tenant;
        let Living { all, own } = state.living(tenant);
        let busy = all - state.idle.len();
        let own_busy = own - state.idle.iter().filter(|idle| is_own(idle)).count();
        if self.bounds.has_room(Living { all: busy, own }) {
            return (!state.idle.is_empty()).then_some(0);
        }
        let own_help = self.bounds.has_room(Living { all: busy, own: own_busy });
        state.idle.iter().position(is_own).filter(|_| own_help)
    }

    fn permit(self: &Arc<Pool>, state: &mut State, key: &ContextKey) -> Permit {
        state.alive += 1;
        *state.alive_of.entry(key.tenant.clone()).or_default() += 1;
        *state.alive_like.entry(key.clone()).or_default() += 1;
        Permit { key: key.clone(), pool: Arc::clone(self) }
    }

    /// Keeps a context for later, or ends it when nobody will need it.
    pub(super) async fn put(self: &Arc<Pool>, key: ContextKey, context: Context, idle: Duration) {
        if let Some(context) = self.keep(key, context, Instant::now() + idle) {
            context.process.end().await;
        }
    }

    /// Gives the context back when nobody will need it.
    fn keep(
        self: &Arc<Pool>,
        key: ContextKey,
        context: Context,
        ends_at: Instant,
    ) -> Option<Context> {
        let mut state = self.lock();
        if state.closed || is_useless(&state, &key, &context) {
            return Some(context);
        }
        if state.idle.iter().all(|idle| ends_at < idle.ends_at) {
            self.sooner.notify_one();
        }
        state.idle.push(Idle { key, context, ends_at });
        if !std::mem::replace(&mut state.sweeping, true) {
            tokio::spawn(Arc::clone(self).sweep());
        }
        drop(state);
        self.freed.notify_waiters();
        None
    }

    /// Ends contexts whose idle time is over, for as long as there are idle ones.
    async fn sweep(self: Arc<Pool>) {
        loop {
            let mut over = Vec::new();
            let next = {
                let mut state = self.lock();
                let now = Instant::now();
                while let Some(at) = state.idle.iter().position(|idle| idle.ends_at <= now) {
                    over.push(state.idle.remove(at).context);
                }
                let next = state.idle.iter().map(|idle| idle.ends_at).min();
                state.sweeping = next.is_some();
                next
            };
            for context in over {
                context.process.end().await;
            }
            match next {
                Some(at) => {
                    let _ = timeout_at(at, self.sooner.notified()).await;
                }
                None => return,
            }
        }
    }

    /// Learns which version of a type is in force; `None` if it was deleted.
    pub(super) fn set_current(&self, key: &TypeKey, version: Option<HandlerId>) {
        let mut state = self.lock();
        if state.current.len() >= CURRENT_MAX {
            state.current.clear();
        }
        let known = state.current.get(key).copied().flatten();
        // A job may still come with an older version than the one that was set here.
        if version.is_none() || version > known {
            state.current.insert(key.clone(), version);
        }
    }

    /// Ends the idle contexts that know only versions which are no longer in force.
    pub(super) async fn end_useless(&self) {
        let mut ended = Vec::new();
        {
            let mut state = self.lock();
            let useless = |state: &State| {
                state.idle.iter().position(|idle| is_useless(state, &idle.key, &idle.context))
            };
            while let Some(at) = useless(&state) {
                ended.push(state.idle.remove(at).context);
            }
        }
        for context in ended {
            context.process.end().await;
        }
    }

    /// Handlers that an idle context has loaded.
    pub(super) fn warm(&self) -> Vec<HandlerId> {
        let state = self.lock();
        state.idle.iter().flat_map(|idle| idle.context.loaded.iter().map(|l| l.id)).collect()
    }

    /// Ends every idle context; those that come back later are ended, too.
    pub(super) async fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        let ends = idle.into_iter().map(|idle| idle.context.process.end());
        futures_util::future::join_all(ends).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whether all that the context knows is no longer in force.
fn is_useless(state: &State, key: &ContextKey, context: &Context) -> bool {
    let is_over = |loaded: &Loaded| {
        let name = TypeKey { tenant: key.tenant.clone(), name: loaded.name.clone() };
        state.current.get(&name).is_some_and(|current| *current != Some(loaded.id))
    };
    !context.loaded.is_empty() && context.loaded.iter().all(is_over)
}
