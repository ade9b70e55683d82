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
mod record;
mod report;
mod requeue;
mod retry;
mod status;
mod update;
mod value;
mod view;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::edit::{self, Decided, Decision, FamilyView, Target};
use windlass_core::key::Right;
use windlass_core::{Tenant, Timestamp};
use windlass_engine::{Engine, Error};

use crate::execute::{Call, Commands, HandedOut, Reply};
use crate::wire::{Request, Response};

use crash::Crashed;

/// The state of the commands.
#[derive(Clone)]
pub(crate) struct Bedrock {
    engine: Engine,
    tenant: Tenant,
    version: &'static str,
    crashed: Arc<Crashed>,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;

/// A verb, and what a request with it needs: the same as of a route of the HTTP door, which says
/// whether it is audited. There are no keys here.
struct Command {
    verb: &'static str,
    needs: fn(&Request) -> Right,
    run: for<'a> fn(&'a Bedrock, &'a Request, Call) -> Running<'a>,
}

/// Every verb of the door. `Query` may have its SQL in the method line, after a colon.
const COMMANDS: [Command; 18] = [
    Command {
        verb: "CreateJob",
        needs: |_| Right::Add,
        run: |door, request, _| Box::pin(create::run(door, request)),
    },
    Command {
        verb: "CreateJobs",
        needs: |_| Right::Add,
        run: |door, request, _| Box::pin(create_jobs::run(door, request)),
    },
    Command {
        verb: "GetJob",
        needs: |_| Right::Work,
        run: |door, request, call| Box::pin(get::get_job(door, request, call)),
    },
    Command {
        verb: "GetJobs",
        needs: |_| Right::Work,
        run: |door, request, call| Box::pin(get::get_jobs(door, request, call)),
    },
    Command {
        verb: "QueryJob",
        needs: |_| Right::ReadJob,
        run: |door, request, _| Box::pin(query_job::run(door, request)),
    },
    Command {
        verb: "UpdateJob",
        needs: update::needs,
        run: |door, request, _| Box::pin(update::run(door, request)),
    },
    Command {
        verb: "FinishJob",
        needs: |_| Right::Work,
        run: |door, request, _| Box::pin(finish::run(door, request)),
    },
    Command {
        verb: "RetryJob",
        needs: |_| Right::Work,
        run: |door, request, _| Box::pin(retry::run(door, request)),
    },
    Command {
        verb: "FailJob",
        needs: |_| Right::Work,
        run: |door, request, _| Box::pin(fail::run(door, request)),
    },
    Command {
        verb: "CancelJob",
        needs: |_| Right::Manage,
        run: |door, request, _| Box::pin(cancel::run(door, request)),
    },
    Command {
        verb: "DeleteJob",
        needs: |_| Right::Manage,
        run: |door, request, _| Box::pin(delete::run(door, request)),
    },
    Command {
        verb: "RequeueJobs",
        needs: |_| Right::Manage,
        run: |door, request, _| Box::pin(requeue::run(door, request)),
    },
    Command {
        verb: "CrashBedrockJob",
        needs: |_| Right::Operate,
        run: |door, request, call| Box::pin(crash::add(door, request, call)),
    },
    Command {
        verb: "ClearCrashedBedrockJobs",
        needs: |_| Right::Operate,
        run: |door, _, call| Box::pin(crash::clear(door, call)),
    },
    Command {
        verb: "Query",
        needs: query::needs,
        run: |door, request, _| Box::pin(query::run(door, request)),
    },
    Command {
        verb: "Query:",
        needs: query::needs,
        run: |door, request, _| Box::pin(query::run(door, request)),
    },
    Command {
        verb: "Status",
        needs: |_| Right::Open,
        run: |door, _, _| Box::pin(status::run(door)),
    },
    Command {
        verb: "Ping",
        needs: |_| Right::Open,
        run: |_, _, _| Box::pin(std::future::ready(done())),
    },
];

#[async_trait]
impl Commands for Bedrock {
    async fn run(&self, request: Arc<Request>, call: Call) -> Reply {
        let Some(command) = COMMANDS.iter().find(|command| request.is(command.verb)) else {
            return Response::error(430, "Unrecognized command").into();
        };
        if (command.needs)(&request).is_audited() {
            record::change(self, command, request, call).await
        } else {
            command.answer(self, &request, call).await
        }
    }

    fn refused(&self, peer: IpAddr) {
        record::refused(self, peer);
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

impl Command {
    async fn answer(&self, door: &Bedrock, request: &Request, call: Call) -> Reply {
        match (self.run)(door, request, call).await {
            Ok(reply) => reply,
            Err(refusal) => refusal.response().into(),
        }
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
            Error::Invalid(_)
            | Error::Above(_)
            | Error::Conflict(_)
            | Error::KeyReused
            | Error::Internal(_) => {
                tracing::error!(%error, "a command failed");
                (500, "Unhandled Exception").into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written down a second time: reads, and the traffic of producers and workers.
    const NOT_AUDITED: [&str; 13] = [
        "CreateJob",
        "CreateJobs",
        "GetJob",
        "GetJobs",
        "QueryJob",
        "UpdateJob",
        "FinishJob",
        "RetryJob",
        "FailJob",
        "Query",
        "Query:",
        "Status",
        "Ping",
    ];

    fn is_audited(verb: &str, headers: &[(&str, &str)]) -> bool {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let request = Request::new(verb.to_owned(), headers.iter().map(own).collect());
        let command = COMMANDS.iter().find(|command| request.is(command.verb)).unwrap();
        (command.needs)(&request).is_audited()
    }

    #[test]
    fn every_command_but_the_ordinary_traffic_is_audited() {
        for Command { verb, .. } in &COMMANDS {
            assert_eq!(is_audited(verb, &[]), !NOT_AUDITED.contains(verb), "{verb}");
        }
    }

    #[test]
    fn an_update_of_more_than_the_data_is_audited() {
        let job = [("jobID", "1"), ("data", "{}")];
        let update = |more: (&str, &str)| is_audited("UpdateJob", &[job[0], job[1], more]);
        for more in ["repeat", "jobPriority", "nextRun", "shouldClearRepeat"] {
            assert!(update((more, "1")), "{more}");
            assert!(!update((more, "")), "{more} without a value changes nothing");
        }
        assert!(!update(("shouldClearRepeat", "0")));
    }

    #[test]
    fn a_query_that_may_write_is_audited() {
        let read = "SELECT * FROM jobs WHERE state = 'QUEUED';";
        assert!(!is_audited("Query", &[("query", read)]));
        for word in ["Update", "delete", "INSERT", "replace"] {
            let sql = format!("SELECT 1; /**/{word}/**/ jobs;");
            assert!(is_audited("Query", &[("query", &sql)]), "{sql}");
        }
    }
}
