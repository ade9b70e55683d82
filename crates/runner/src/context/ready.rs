//! Gets a context for a handler: an idle one if there is one, otherwise a new one. Also starts
//! contexts before the first job, and compiles sources without running them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::network::Network;
use windlass_core::runner::NotCompiled;
use windlass_core::secret::OpenSecrets;
use windlass_core::sync::lock;
use windlass_core::{AttemptId, Handler, HandlerSpec, Invalid, JobId, TypeKey};

use super::compilers::Busy;
use super::language::Language;
use super::pool::{Acquired, IDLE_DEFAULT};
use super::start::{Context, LOADED_MAX, Starter, Unready};
use super::{Contexts, Equipped};
use crate::output::Output;
use crate::stop::{Stops, Watch};

/// How long an interpreter may take to answer the greeting.
const GREETING_MAX: Duration = Duration::from_secs(30);
/// Time limit of `before` in the background, unless the handler has one.
const PREPARE_MAX: Duration = Duration::from_secs(30);
/// Time limit for the greeting, and then for compiling, when a handler is set: nothing of the
/// handler runs, and others wait.
const COMPILE_MAX: Duration = Duration::from_secs(15);

/// A context with the handler loaded, and the time it took.
pub(super) struct Ready {
    pub(super) context: Context,
    pub(super) took: Duration,
    /// Output of `before`.
    pub(super) output: Output,
}

impl Contexts {
    /// A context with the handler loaded.
    pub(super) async fn ready(
        &self,
        equipped: &Equipped,
        watch: &mut Watch,
        id: AttemptId,
        timeout: Duration,
    ) -> Result<Ready, (Unready, Output)> {
        let handler = &equipped.handler;
        let mut output = Output::new(self.log_bytes_max).masked(&equipped.mask);
        let key = equipped.key();
        self.pool.set_current(&handler.key, Some(handler.id));
        let begun = Instant::now();
        let mut context = loop {
            let most = handler.spec.options.contexts;
            let place = tokio::select! {
                place = self.pool.take(&key, most) => place,
                (_, why) = watch.stopped(std::slice::from_ref(&id)) => {
                    return Err((Unready::Stopped(why), output));
                }
            };
            match place {
                Acquired::Warm(mut context) => {
                    let knows = context.number_of(handler.id).is_some();
                    if context.process.is_whole() && (knows || context.loaded.len() < LOADED_MAX) {
                        // Output written while nothing ran belongs to no job.
                        drop(context.process.drain());
                        break *context;
                    }
                    context.process.end().await;
                }
                Acquired::MayStart(permit) => {
                    let starter = match self.starter(equipped) {
                        Ok(starter) => Arc::new(starter),
                        Err(Invalid { reason, .. }) => {
                            return Err((Unready::Broken { field: None, reason }, output));
                        }
                    };
                    match starter.start(Some(permit), watch, &[id], &mut output).await {
                        Ok(context) => break context,
                        Err(unready) => return Err((unready, output)),
                    }
                }
            }
        };
        if context.number_of(handler.id).is_some() {
            return Ok(Ready { context, took: Duration::ZERO, output });
        }
        let limit = Instant::now() + timeout;
        match context.load(handler, limit, watch, &[id], &mut output).await {
            Ok(_) => Ok(Ready { context, took: begun.elapsed(), output }),
            Err(unready) => {
                context.process.kill().await;
                for (stream, bytes) in context.process.drain_all() {
                    output.push(stream, &bytes);
                }
                context.process.remove().await;
                Err((unready, output))
            }
        }
    }

    fn starter(&self, equipped: &Equipped) -> Result<Starter, Invalid> {
        let lang = equipped.handler.spec.lang;
        let language = Language::of(lang)
            .ok_or_else(|| Invalid::new("lang", format!("{lang} has no contexts")))?;
        Ok(Starter {
            language,
            interpreter: language.interpreter(&self.ground.path)?,
            ground: Arc::clone(&self.ground),
            equipped: equipped.clone(),
            greeting_max: GREETING_MAX,
        })
    }

    /// Whether the language's own compiler accepts the sources.
    pub(crate) async fn compile(
        &self,
        key: &TypeKey,
        spec: &HandlerSpec,
    ) -> Result<(), NotCompiled> {
        // It has no number yet, and nothing of it is kept.
        let Some(id) = JobId::new(1) else { return Ok(()) };
        let created_at = self.clock.now();
        let handler =
            Handler { id, key: key.clone(), created_at, spec: without_surroundings(spec) };
        // What only compiles needs no secrets.
        let equipped = Equipped::new(Arc::new(handler), Arc::default());
        let starter = self.starter(&equipped)?;
        let starter = Arc::new(Starter { greeting_max: COMPILE_MAX, ..starter });
        // Not counted among the working contexts, so that it need not wait for one of them.
        let place = self.compilers.place(&key.tenant).await;
        let _place = place.map_err(|Busy(reason)| NotCompiled::Busy(reason))?;
        let mut watch = Arc::new(Stops::default()).watch(Vec::new());
        let mut output = Output::new(self.log_bytes_max);
        let mut context = match starter.start(None, &mut watch, &[], &mut output).await {
            Ok(context) => context,
            Err(unready) => return Ok(refusal("lang", unready, output)?),
        };
        let limit = Instant::now() + COMPILE_MAX;
        let compiled = context.compile(spec, limit, &mut watch, &[], &mut output).await;
        context.process.end().await;
        match compiled {
            Ok(()) => Ok(()),
            Err(unready) => Ok(refusal("body", unready, output)?),
        }
    }

    /// Starts a context before the first job comes, if there is room. Jobs that need it meanwhile
    /// wait for it.
    pub(crate) fn prepare(&self, handler: Arc<Handler>, secrets: Arc<OpenSecrets>) {
        let contexts = self.clone();
        let equipped = Equipped::new(Arc::clone(&handler), secrets);
        let key = equipped.key();
        self.pool.set_current(&handler.key, Some(handler.id));
        let starting = self.pool.announce(&key);
        self.in_background(async move {
            contexts.pool.end_useless().await;
            let Some(starting) = starting else { return };
            if let Some(context) = contexts.prepared(&equipped).await {
                let idle = handler.spec.options.idle.unwrap_or(IDLE_DEFAULT);
                contexts.pool.put(key, context, idle).await;
            }
            drop(starting);
        });
    }

    /// Ends the contexts of a deleted handler, busy ones after their batch.
    pub(crate) fn forget(&self, key: &TypeKey) {
        self.pool.set_current(key, None);
        let pool = Arc::clone(&self.pool);
        self.in_background(async move { pool.end_useless().await });
    }

    /// Runs a task in the background, bounded by the life of the runner.
    fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.background);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    async fn prepared(&self, equipped: &Equipped) -> Option<Context> {
        let handler = &equipped.handler;
        let permit = self.pool.spare(&equipped.key())?;
        let starter = Arc::new(self.starter(equipped).ok()?);
        let mut watch = Arc::new(Stops::default()).watch(Vec::new());
        let mut output = Output::new(self.log_bytes_max);
        let mut context = starter.start(Some(permit), &mut watch, &[], &mut output).await.ok()?;
        let limit = Instant::now() + handler.spec.options.timeout.unwrap_or(PREPARE_MAX);
        match context.load(handler, limit, &mut watch, &[], &mut output).await {
            Ok(_) => Some(context),
            // The first job will fail the same way, and its log will say why.
            Err(_) => {
                context.process.kill().await;
                context.process.remove().await;
                None
            }
        }
    }
}

/// What is needed to compile. The variables of a handler could run code in the interpreter before
/// it compiles anything, and names in its list of destinations would have to be looked up.
fn without_surroundings(spec: &HandlerSpec) -> HandlerSpec {
    let mut spec = spec.clone();
    spec.options.env.clear();
    spec.options.network = Some(Network::None);
    spec
}

/// The error for the author when a handler cannot be set.
fn refusal(field: &str, unready: Unready, output: Output) -> Result<(), Invalid> {
    match unready {
        // The handler is not at fault.
        Unready::Exhausted(_) | Unready::Stopped(_) => Ok(()),
        Unready::Broken { field: named, reason } => {
            let (log, _) = output.finish();
            let said: Vec<&str> = log.lines().map(|(_, line)| line).collect();
            let said = said.join(" ");
            let reason = if said.is_empty() { reason } else { format!("{reason}: {said}") };
            Err(Invalid::new(named.unwrap_or_else(|| field.to_owned()), reason))
        }
    }
}
