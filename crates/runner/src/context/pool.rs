//! The existing contexts, as many as `bounds` allows. An idle one is kept for a while; it ends when
//! its handler is gone, when another context needs its slot, or when it has run enough jobs.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use windlass_core::secret::{OpenSecrets, SecretName, SecretVersion};
use windlass_core::sync::lock;
use windlass_core::{Handler, HandlerId, HandlerOptions, Lang, Tenant, TypeKey};

use super::bounds::{Bounds, ContextCounts};
use super::start::{Context, Loaded};

/// How long an idle context is kept, unless its handler sets a time.
pub(crate) const IDLE_DEFAULT: Duration = Duration::from_secs(60);

/// Types whose current version is remembered; beyond that number all are forgotten.
const CURRENT_MAX: usize = 10_000;

/// Contexts with equal keys are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ContextKey {
    pub(super) tenant: Tenant,
    lang: Lang,
    sharing: Sharing,
    /// What a process cannot change once it runs, as text.
    surroundings: String,
    /// Which values of which secrets it has.
    secrets: Vec<(SecretName, SecretVersion)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Sharing {
    Version(HandlerId),
    Eid(String),
}

impl ContextKey {
    pub(super) fn of(handler: &Handler, secrets: &OpenSecrets) -> ContextKey {
        let spec = &handler.spec;
        let sharing = match &spec.eid {
            Some(eid) => Sharing::Eid(eid.clone()),
            None => Sharing::Version(handler.id),
        };
        let HandlerOptions { env, limits, network, .. } = &spec.options;
        let surroundings = format!("{:?}", (env, limits, network));
        let tenant = handler.key.tenant.clone();
        let secrets = secrets.versions();
        ContextKey { tenant, lang: spec.lang, sharing, surroundings, secrets }
    }

    /// Whether it differs in nothing but the values of secrets.
    fn has_other_values(&self, of: &ContextKey) -> bool {
        let ContextKey { tenant, lang, sharing, surroundings, secrets } = of;
        self.secrets != *secrets
            && (&self.tenant, &self.lang) == (tenant, lang)
            && (&self.sharing, &self.surroundings) == (sharing, surroundings)
            && self.secrets.iter().map(|(name, _)| name).eq(secrets.iter().map(|(name, _)| name))
    }
}

pub(super) struct Pool {
    bounds: Bounds,
    state: Mutex<State>,
    /// A slot became free, or a context became idle.
    freed: Notify,
    /// A context became idle that expires before all others.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// The most recently used one is last.
    idle: Vec<Idle>,
    /// Contexts that are being started before a job needs them.
    starting: Vec<ContextKey>,
    alive: usize,
    alive_of: HashMap<Tenant, usize>,
    alive_like: HashMap<ContextKey, usize>,
    /// The current version of each type, as far as it is known here; `None` if it was deleted.
    current: HashMap<TypeKey, Option<HandlerId>>,
    closed: bool,
    sweeping: bool,
}

impl State {
    fn counts(&self, tenant: &Tenant) -> ContextCounts {
        let own = self.alive_of.get(tenant).copied().unwrap_or_default();
        ContextCounts { all: self.alive, own }
    }
}

struct Idle {
    key: ContextKey,
    context: Context,
    ends_at: Instant,
}

/// Permission to have one context; returned on drop.
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

/// A context that is being started. Dropped when it is ready or has failed.
pub(super) struct Starting {
    key: ContextKey,
    pool: Arc<Pool>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some(at) = state.starting.iter().position(|key| *key == self.key) {
            state.starting.swap_remove(at);
        }
        drop(state);
        self.pool.freed.notify_waiters();
    }
}

/// The result of asking for a context.
pub(super) enum Acquired {
    Warm(Box<Context>),
    /// Permission to start one.
    MayStart(Permit),
}

enum TryTake {
    Acquired(Acquired),
    /// This idle context must end first: it has other values of secrets, or its slot is needed.
    EndFirst(Box<Context>),
    /// All are busy, or one is being started.
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

    /// An idle context, or permission to start one. Waits while all are busy, or while there are
    /// `most` of this key.
    pub(super) async fn take(self: &Arc<Pool>, key: &ContextKey, most: Option<u32>) -> Acquired {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notification is missed, even before the wait.
            freed.as_mut().enable();
            match self.try_take(key, most) {
                TryTake::Acquired(acquired) => return acquired,
                TryTake::EndFirst(context) => context.process.end().await,
                TryTake::Full => freed.await,
            }
        }
    }

    /// Announces that a context is being started, so that a batch waits for it instead of starting
    /// another one. `None` if there is one already.
    pub(super) fn announce(self: &Arc<Pool>, key: &ContextKey) -> Option<Starting> {
        let mut state = self.lock();
        if state.starting.contains(key) || state.alive_like.contains_key(key) {
            return None;
        }
        state.starting.push(key.clone());
        Some(Starting { key: key.clone(), pool: Arc::clone(self) })
    }

    /// Permission to start one if a shared slot is free right now.
    pub(super) fn spare(self: &Arc<Pool>, key: &ContextKey) -> Option<Permit> {
        let mut state = self.lock();
        let has_room = self.bounds.has_shared_room(state.counts(&key.tenant));
        (has_room && !state.closed).then(|| self.permit(&mut state, key))
    }

    fn try_take(self: &Arc<Pool>, key: &ContextKey, most: Option<u32>) -> TryTake {
        let mut state = self.lock();
        let replaced = state.idle.iter().position(|idle| idle.key.has_other_values(key));
        if let Some(at) = replaced {
            return TryTake::EndFirst(Box::new(state.idle.remove(at).context));
        }
        let found = state.idle.iter().rposition(|idle| idle.key == *key);
        if let Some(at) = found {
            return TryTake::Acquired(Acquired::Warm(Box::new(state.idle.remove(at).context)));
        }
        let alike = state.alive_like.get(key).copied().unwrap_or_default();
        if state.starting.contains(key) || most.is_some_and(|most| alike >= most as usize) {
            return TryTake::Full;
        }
        let counts = state.counts(&key.tenant);
        let busy = ContextCounts { all: counts.all - state.idle.len(), ..counts };
        // A reserved place is used only if all shared ones are busy.
        if !self.bounds.has_shared_room(counts) && self.bounds.has_shared_room(busy) {
            return TryTake::EndFirst(Box::new(state.idle.remove(0).context));
        }
        if self.bounds.has_room(counts) {
            return TryTake::Acquired(Acquired::MayStart(self.permit(&mut state, key)));
        }
        match self.to_end(&state, &key.tenant) {
            Some(at) => TryTake::EndFirst(Box::new(state.idle.remove(at).context)),
            None => TryTake::Full,
        }
    }

    /// The idle context that makes room for one of this tenant: the longest idle one, of any tenant
    /// if that helps, otherwise of this one.
    fn to_end(&self, state: &State, tenant: &Tenant) -> Option<usize> {
        let is_own = |idle: &Idle| idle.key.tenant == *tenant;
        let ContextCounts { all, own } = state.counts(tenant);
        let busy = all - state.idle.len();
        let own_busy = own - state.idle.iter().filter(|idle| is_own(idle)).count();
        if self.bounds.has_room(ContextCounts { all: busy, own }) {
            return (!state.idle.is_empty()).then_some(0);
        }
        let own_help = self.bounds.has_room(ContextCounts { all: busy, own: own_busy });
        state.idle.iter().position(is_own).filter(|_| own_help)
    }

    fn permit(self: &Arc<Pool>, state: &mut State, key: &ContextKey) -> Permit {
        state.alive += 1;
        *state.alive_of.entry(key.tenant.clone()).or_default() += 1;
        *state.alive_like.entry(key.clone()).or_default() += 1;
        Permit { key: key.clone(), pool: Arc::clone(self) }
    }

    /// Keeps a context for later, or ends it if it is no longer useful.
    pub(super) async fn put(self: &Arc<Pool>, key: ContextKey, context: Context, idle: Duration) {
        if let Some(context) = self.keep(key, context, Instant::now() + idle) {
            context.process.end().await;
        }
    }

    /// Returns the context if it is no longer useful.
    fn keep(
        self: &Arc<Pool>,
        key: ContextKey,
        context: Context,
        ends_at: Instant,
    ) -> Option<Context> {
        let mut state = self.lock();
        if state.closed || is_outdated(&state, &key, &context) {
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

    /// Ends contexts whose idle time is over, as long as there are idle ones.
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

    /// Learns the current version of a type; `None` if it was deleted.
    pub(super) fn set_current(&self, key: &TypeKey, version: Option<HandlerId>) {
        let mut state = self.lock();
        if state.current.len() >= CURRENT_MAX {
            state.current.clear();
        }
        let known = state.current.get(key).copied().flatten();
        // A job may still arrive with an older version than the one set here.
        if version.is_none() || version > known {
            state.current.insert(key.clone(), version);
        }
    }

    /// Ends the idle contexts that have only outdated versions loaded.
    pub(super) async fn end_useless(&self) {
        let mut ended = Vec::new();
        {
            let mut state = self.lock();
            let useless = |state: &State| {
                state.idle.iter().position(|idle| is_outdated(state, &idle.key, &idle.context))
            };
            while let Some(at) = useless(&state) {
                ended.push(state.idle.remove(at).context);
            }
        }
        for context in ended {
            context.process.end().await;
        }
    }

    /// Handlers that idle contexts have loaded.
    pub(super) fn warm(&self) -> Vec<HandlerId> {
        let state = self.lock();
        state.idle.iter().flat_map(|idle| idle.context.loaded.iter().map(|l| l.id)).collect()
    }

    /// Ends every idle context; those that become idle later are ended, too.
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

/// Whether everything that the context has loaded is outdated.
fn is_outdated(state: &State, key: &ContextKey, context: &Context) -> bool {
    let is_over = |loaded: &Loaded| {
        let name = TypeKey { tenant: key.tenant.clone(), name: loaded.name.clone() };
        state.current.get(&name).is_some_and(|current| *current != Some(loaded.id))
    };
    !context.loaded.is_empty() && context.loaded.iter().all(is_over)
}
