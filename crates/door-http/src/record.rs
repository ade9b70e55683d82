//! What the audit learns of a request: who, from where, which route, and what its path names. Never
//! a header, a query or a body; a handler adds what only it knows (`About`).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use windlass_core::audit::{self, Act, Actor, Reason, Subject, action};
use windlass_core::{JobId, KeyId, Tenant, TypeName};
use windlass_engine::Engine;
use windlass_engine::api::{Caller, Ended, Refusal};

use crate::access::Access;
use crate::door::Door;
use crate::error::Failure;
use crate::path;
use crate::presence::Presence;

/// What a handler adds to the entry of its request, as an extension of its answer.
#[derive(Clone)]
struct About(Subject);

/// Why a request was refused, as an extension of its answer.
#[derive(Clone, Copy)]
struct Why(Reason);

/// The request that this answers is entered as refused.
pub(crate) fn because(answer: &mut Response, reason: Reason) {
    answer.extensions_mut().insert(Why(reason));
}

/// The reason that `because` gave.
fn reason(answer: &mut Response) -> Option<Reason> {
    answer.extensions_mut().remove::<Why>().map(|Why(reason)| reason)
}

/// What the audit needs of a request, which is gone when its answer is known.
pub(crate) struct Asked {
    uri: Uri,
    address: Option<IpAddr>,
}

impl Asked {
    pub(crate) fn of(request: &Request) -> Asked {
        Asked { uri: request.uri().clone(), address: address(request) }
    }
}

/// Adds to the entry of the request that this answers.
pub(crate) fn about(mut answer: Response, subject: Subject) -> Response {
    answer.extensions_mut().insert(About(subject));
    answer
}

/// How the uses of one route are recorded.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    /// The id of its operation.
    action: &'static str,
    /// Which part of the path is the tenant, and which is what the request is about.
    tenant_at: Option<usize>,
    subject_at: Option<(usize, Named)>,
}

/// What a part of a path names.
#[derive(Clone, Copy)]
enum Named {
    Type,
    /// A job or a key.
    Id,
    IdOrType,
    Name,
}

impl Record {
    pub(crate) fn of(template: &str, action: &'static str) -> Record {
        let (mut tenant_at, mut subject_at) = (None, None);
        for (index, part) in template.split('/').skip(1).enumerate() {
            match part {
                "{tenant}" | "{client}" => tenant_at = Some(index),
                "{type}" => subject_at = Some((index, Named::Type)),
                "{id}" => subject_at = Some((index, Named::Id)),
                "{id_or_type}" => subject_at = Some((index, Named::IdOrType)),
                part if part.starts_with('{') => subject_at = Some((index, Named::Name)),
                _ => {}
            }
        }
        Record { action, tenant_at, subject_at }
    }

    pub(crate) fn tenant_at(&self) -> Option<usize> {
        self.tenant_at
    }

    /// Makes a change between the entries of its begin and its end.
    pub(crate) async fn change(
        &self,
        door: &Door,
        caller: Option<&Caller>,
        request: Request,
        next: Next,
    ) -> Response {
        let act = self.act(door, caller, &Asked::of(&request));
        let change = async move {
            let mut response = next.run(request).await;
            let about = response.extensions_mut().remove::<About>();
            let about = about.map(|About(subject)| subject).unwrap_or_default();
            let (status, reason) = (response.status().as_u16(), reason(&mut response));
            (response, Ended { status, reason, about })
        };
        let answered = door.engine.audited(act, change).await;
        answered.unwrap_or_else(|error| Failure::from(error).into_response())
    }

    /// Enters a request that was refused for a reason of the audit.
    pub(crate) fn note_refusal(
        &self,
        door: &Door,
        caller: Option<&Caller>,
        asked: &Asked,
        response: &mut Response,
    ) {
        let Some(reason) = reason(response) else { return };
        let mut act = self.act(door, caller, asked);
        if reason == Reason::Tenant {
            let wanted = self.tenant_at.and_then(|at| path::text(asked.uri.path(), at));
            let wanted = wanted.filter(|name| Tenant::new(name).is_ok());
            act.subject.detail = wanted.map(|name| format!("tenant {name}"));
        }
        door.engine.audit_refused(Refusal {
            act,
            status: Some(response.status().as_u16()),
            reason,
        });
    }

    fn act(&self, door: &Door, caller: Option<&Caller>, asked: &Asked) -> Act {
        let mut subject = self.subject(asked.uri.path());
        if let Some(own) = caller.and_then(|caller| caller.tenant.clone()) {
            subject.tenant = Some(own);
        }
        let by = match (caller, door.access) {
            (Some(caller), _) => Actor::Key { id: caller.id, role: caller.role },
            (None, Access::Keys) => Actor::Nobody,
            (None, Access::Everybody) => Actor::Insecure,
        };
        Act { by, address: asked.address, action: self.action.to_owned(), subject }
    }

    /// Only names and ids that are valid.
    fn subject(&self, path: &str) -> Subject {
        let tenant = self.tenant_at.and_then(|index| path::tenant(path, index).ok());
        let mut subject = Subject { tenant, ..Subject::default() };
        let Some((index, named)) = self.subject_at else { return subject };
        let Some(text) = path::text(path, index) else { return subject };
        let is_id = text.parse::<JobId>().is_ok() || text.parse::<KeyId>().is_ok();
        let name = TypeName::new(&text).ok();
        match named {
            Named::Type => subject.name = name,
            Named::IdOrType if !is_id => subject.name = name,
            Named::Id | Named::IdOrType => subject.id = is_id.then(|| text.into_owned()),
            Named::Name => subject.id = name.map(|name| audit::cut(name.as_str())),
        }
        subject
    }
}

/// A request was refused before its route was looked for.
pub(crate) fn refused_by_site(door: &Door, request: &Request, failure: &Failure) {
    let (action, subject) = (action::SITE.to_owned(), Subject::default());
    let act = Act { by: Actor::Nobody, address: address(request), action, subject };
    let status = Some(failure.status.as_u16());
    door.engine.audit_refused(Refusal { act, status, reason: Reason::Site });
}

/// A client was refused in its handshake.
pub(crate) fn refused_in_handshake(engine: &Engine, address: Option<IpAddr>) {
    let (action, subject) = (action::HANDSHAKE.to_owned(), Subject::default());
    let act = Act { by: Actor::Nobody, address, action, subject };
    engine.audit_refused(Refusal { act, status: None, reason: Reason::Certificate });
}

pub(crate) fn address(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Presence>().and_then(Presence::address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(template: &str, path: &str) -> (Option<String>, Option<String>, Option<String>) {
        let Subject { tenant, name, id, .. } = Record::of(template, "x").subject(path);
        (tenant.map(|tenant| tenant.to_string()), name.map(|name| name.to_string()), id)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_path_tells_the_tenant_and_what_the_request_is_about() {
        let handler = "/v1/{tenant}/handlers/{type}";
        assert_eq!(subject(handler, "/v1/a/handlers/b%2Fc"), (some("a"), some("b/c"), None));
        let either = "/v1/{tenant}/jobs/{id_or_type}";
        assert_eq!(subject(either, "/v1/a/jobs/17"), (some("a"), None, some("17")));
        assert_eq!(subject(either, "/v1/a/jobs/mail"), (some("a"), some("mail"), None));
        let old = "/{client}/handler/add/{type}/add";
        assert_eq!(subject(old, "/a/handler/add/t/add"), (some("a"), some("t"), None));
        let key = "0123456789abcdef";
        assert_eq!(subject("/v1/keys/{id}", &format!("/v1/keys/{key}")), (None, None, some(key)));
        let named = "/v1/{tenant}/things/{name}";
        assert_eq!(subject(named, "/v1/a/things/x"), (some("a"), None, some("x")));
        assert_eq!(subject("/v1/control/stop", "/v1/control/stop"), (None, None, None));
    }

    #[test]
    fn what_is_not_valid_is_left_out() {
        let handler = "/v1/{tenant}/handlers/{type}";
        assert_eq!(subject(handler, "/v1/%00/handlers/%0a"), (None, None, None));
        assert_eq!(subject(handler, "/v1/%ff/handlers/%ff"), (None, None, None));
        let key = format!("/v1/keys/wl_0123456789abcdef_{:064x}", 1);
        assert_eq!(subject("/v1/keys/{id}", &key), (None, None, None), "a whole key");
        let long = format!("/v1/a/things/{}", "x".repeat(10_000));
        assert_eq!(subject("/v1/{tenant}/things/{name}", &long), (some("a"), None, None));
    }
}
