//! The commands, one file each: read headers, check them in Bedrock's order, decide on the store's
//! current state, reply. Every rule of a command is a pure function.

mod cancel;
mod crash;
mod create;
mod create_jobs;
mod data;
mod delete;
mod fail;
mod finish;
mod get;
#[cfg(test)]
mod model_tests;
mod query;
mod query_job;
mod report;
mod requeue;
mod retry;
mod status;
mod update;
mod value;
mod view;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::edit::{self, Decided, Decision, FamilyView, Target};
use windlass_core::{Tenant, Timestamp};
use windlass_engine::{Engine, Error};

use crate::execute::{Call, Commands, HandedOut, Reply};
use crate::wire::{Request, Response};

use crash::Crashed;

/// The state of the commands.
pub(crate) struct Bedrock {
    engine: Engine,
    tenant: Tenant,
    version: &'static str,
    crashed: Arc<Crashed>,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;

struct Command {
    verb: &'static str,
    run: for<'a> fn(&'a Bedrock, &'a Request, Call) -> Running<'a>,
}

/// Every verb of the door. `Query` may have its SQL in the method line, after a colon.
const COMMANDS: [Command; 18] = [
    Command { verb: "CreateJob", run: |door, request, _| Box::pin(create::run(door, request)) },
    Command {
        verb: "CreateJobs",
        run: |door, request, _| Box::pin(create_jobs::run(door, request)),
    },
    Command {
        verb: "GetJob",
        run: |door, request, call| Box::pin(get::get_job(door, request, call)),
    },
    Command {
        verb: "GetJobs",
        run: |door, request, call| Box::pin(get::get_jobs(door, request, call)),
    },
    Command { verb: "QueryJob", run: |door, request, _| Box::pin(query_job::run(door, request)) },
    Command { verb: "UpdateJob", run: |door, request, _| Box::pin(update::run(door, request)) },
    Command { verb: "FinishJob", run: |door, request, _| Box::pin(finish::run(door, request)) },
    Command { verb: "RetryJob", run: |door, request, _| Box::pin(retry::run(door, request)) },
    Command { verb: "FailJob", run: |door, request, _| Box::pin(fail::run(door, request)) },
    Command { verb: "CancelJob", run: |door, request, _| Box::pin(cancel::run(door, request)) },
    Command { verb: "DeleteJob", run: |door, request, _| Box::pin(delete::run(door, request)) },
    Command { verb: "RequeueJobs", run: |door, request, _| Box::pin(requeue::run(door, request)) },
    Command {
        verb: "CrashBedrockJob",
        run: |door, request, call| Box::pin(crash::add(door, request, call)),
    },
    Command {
        verb: "ClearCrashedBedrockJobs",
        run: |door, _, call| Box::pin(crash::clear(door, call)),
    },
    Command { verb: "Query", run: |door, request, _| Box::pin(query::run(door, request)) },
    Command { verb: "Query:", run: |door, request, _| Box::pin(query::run(door, request)) },
    Command { verb: "Status", run: |door, _, _| Box::pin(status::run(door)) },
    Command { verb: "Ping", run: |_, _, _| Box::pin(std::future::ready(done())) },
];

#[async_trait]
impl Commands for Bedrock {
    async fn run(&self, request: &Request, call: Call) -> Reply {
        let Some(command) = COMMANDS.iter().find(|command| request.is(command.verb)) else {
            return Response::error(430, "Unrecognized command").into();
        };
        match (command.run)(self, request, call).await {
            Ok(reply) => reply,
            Err(refusal) => refusal.response().into(),
        }
    }

    async fn delivered(&self, handed_out: Vec<HandedOut>) {
        get::delivered(self, handed_out).await;
    }

    async fn hold(&self, handed_out: &[HandedOut]) {
        get::hold(self, handed_out).await;
    }

    async fn undelivered(&self, handed_out: Vec<HandedOut>) {
        get::undelivered(self, handed_out).await;
    }
}

impl Bedrock {
    pub(crate) fn new(engine: Engine, tenant: Tenant, version: &'static str) -> Bedrock {
        Bedrock { engine, tenant, version, crashed: Arc::default() }
    }

    /// Asks the store with a decision whose refusals are replies of the protocol. It gets the
    /// store's time, as one on taken jobs does.
    async fn decide<F>(&self, targets: Vec<Target>, decide: F) -> Result<Decided, Refusal>
    where
        F: Fn(usize, &FamilyView, Timestamp) -> Result<Decision, Refusal> + Send + Sync + 'static,
    {
        let decide = move |index: usize, seen: &FamilyView, now: Timestamp| {
            decide(index, seen, now).map_err(|refusal| refusal.0)
        };
        Ok(self.engine.decide(&self.tenant, targets, Arc::new(decide)).await?)
    }
}

fn done() -> Result<Reply, Refusal> {
    Ok(Response::ok().into())
}

/// A refusal: its code and its text, such as `402 Missing name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(edit::Refusal);

impl Refusal {
    fn response(self) -> Response {
        Response::error(self.0.code, self.0.text)
    }
}

impl From<(u16, &'static str)> for Refusal {
    fn from((code, text): (u16, &'static str)) -> Refusal {
        Refusal(edit::Refusal::new(code, text))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::Refused(refusal) => Refusal(refusal),
            Error::NotFound(_) => (404, "No job with this jobID").into(),
            Error::Unavailable(why) => Refusal(edit::Refusal::new(503, why)),
            Error::Invalid(_) | Error::Conflict(_) | Error::KeyReused | Error::Internal(_) => {
                tracing::error!(%error, "a command failed");
                (500, "Unhandled Exception").into()
            }
        }
    }
}
