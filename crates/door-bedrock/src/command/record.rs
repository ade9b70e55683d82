//! What the audit learns of a command: from where, which, and about what. Never data or SQL.

use std::net::IpAddr;
use std::sync::Arc;

use windlass_core::audit::{self, Act, Actor, Reason, Subject};
use windlass_core::{JobId, TypeName};
use windlass_engine::api::{self, Ended};

use crate::execute::{Call, Reply};
use crate::wire::Request;

use super::{Bedrock, Command, Refusal, value};

/// Who acts, in the audit: any client of this door.
const ACTOR: &str = "bedrock";
/// The action of a connection that was closed.
const CONNECT: &str = "bedrock_connect";

/// Makes a change between the entries of its begin and its end.
pub(super) async fn change(
    door: &Bedrock,
    command: &'static Command,
    request: Arc<Request>,
    call: Call,
) -> Reply {
    let subject = subject(door, &request);
    let act = act(call.peer, command.verb.trim_end_matches(':'), subject);
    let owned = door.clone();
    let change = async move {
        let reply = command.answer(&owned, &request, call).await;
        let status = reply.response.code();
        (reply, Ended { status, reason: None, about: Subject::default() })
    };
    let answered = door.engine.audited(act, change).await;
    answered.unwrap_or_else(|error| Refusal::from(error).response().into())
}

/// A connection was closed before it sent anything.
pub(super) fn refused(door: &Bedrock, peer: IpAddr) {
    let subject = Subject { tenant: Some(door.tenant.clone()), ..Subject::default() };
    let act = act(peer, CONNECT, subject);
    door.engine.audit_refused(api::Refusal { act, status: None, reason: Reason::Address });
}

fn act(peer: IpAddr, action: &str, subject: Subject) -> Act {
    let by = Actor::Door(ACTOR.into());
    Act { by, address: Some(peer), action: action.to_owned(), subject }
}

/// Only names and ids that are valid.
fn subject(door: &Bedrock, request: &Request) -> Subject {
    let name = request.header("name").and_then(|name| TypeName::new(name).ok());
    let id = value::job_id(request).ok().map(|id| id.to_string());
    let ids = value::list(request.header("jobIDs").unwrap_or_default());
    let ids: Vec<JobId> = ids.filter_map(|id| JobId::new(id.parse().ok()?)).collect();
    let detail = (!ids.is_empty()).then(|| jobs(&ids));
    Subject { tenant: Some(door.tenant.clone()), name, id, detail }
}

/// As many of the ids as an entry may have.
fn jobs(ids: &[JobId]) -> String {
    let mut text = format!("{} jobs:", ids.len());
    for id in ids {
        let next = format!("{text} {id}");
        if audit::cut(&next) != next {
            return text;
        }
        text = next;
    }
    text
}
