//! Who may use a route. The table of routes says what each needs (`route`); the key of a request
//! says who sends it (`windlass_core::key`).
//!
//! | key | answer |
//! |---|---|
//! | none, wrong, expired, revoked | `401` |
//! | too many wrong ones from one address (`tries`) | `429` |
//! | its role may not do this | `403` |
//! | the path has another tenant | `404`, as if there were none |
//!
//! All of these are entered in the audit, and so are every change that needs an audited right, and
//! what a handler refuses with a reason of the audit (`record`).

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;

use windlass_core::audit::Reason;
use windlass_core::key::{Right, Role};
use windlass_core::name::Tenant;
use windlass_engine::api::{Caller, KeyRefusal};

use crate::door::Door;
use crate::error::Failure;
use crate::path;
use crate::presence::Presence;
use crate::record::{self, Asked, Record};

const SCHEME: &str = "bearer ";

/// Whether requests need keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Keys,
    /// Every request may do everything.
    Everybody,
}

/// What one route needs, and how its uses are recorded.
#[derive(Clone, Copy)]
pub(crate) struct Entrance {
    pub(crate) needs: Right,
    pub(crate) waits: bool,
    pub(crate) is_audited: bool,
    pub(crate) record: Record,
}

#[derive(Clone)]
struct Gate {
    door: Door,
    entrance: Entrance,
}

/// The tenant to which a request is limited where the path has none; `None`: all.
#[derive(Debug, Clone)]
pub(crate) struct Scope(pub(crate) Option<Tenant>);

impl Scope {
    /// The tenant of which things are listed, if only those of `wanted` are asked for.
    pub(crate) fn narrow(self, wanted: Option<Tenant>) -> Result<Option<Tenant>, Failure> {
        match (self.0, wanted) {
            (Some(own), Some(other)) if own != other => Err(Failure::no_such_tenant()),
            (own, wanted) => Ok(own.or(wanted)),
        }
    }
}

/// Puts the check and the audit in front of a route.
pub(crate) fn guard(
    handler: MethodRouter<Door>,
    entrance: Entrance,
    door: &Door,
) -> MethodRouter<Door> {
    if entrance.needs == Right::Open {
        return handler;
    }
    handler.route_layer(from_fn_with_state(Gate { door: door.clone(), entrance }, admit))
}

async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    if gate.is_open_to(&request) {
        return next.run(request).await;
    }
    let Gate { door, entrance } = &gate;
    let Entrance { needs, waits, is_audited, record } = entrance;
    let caller = match door.access {
        Access::Everybody => None,
        Access::Keys => match gate.check(&request) {
            Ok(caller) => {
                if let Some(presence) = request.extensions().get::<Presence>() {
                    presence.admit();
                }
                Some(caller)
            }
            Err(Refused { failure, caller }) => {
                let mut response = failure.into_response();
                record.note_refusal(door, caller.as_ref(), &Asked::of(&request), &mut response);
                return response;
            }
        },
    };
    let is_scoped = matches!(needs, Right::Keys | Right::Audit);
    if let Some(caller) = caller.as_ref().filter(|_| is_scoped) {
        request.extensions_mut().insert(Scope(caller.tenant.clone()));
    }
    if *is_audited {
        return record.change(door, caller.as_ref(), request, next).await;
    }
    let asked = Asked::of(&request);
    let mut response = match &caller {
        Some(caller) if *waits => {
            // What was claimed for it meanwhile is given back, as for a client that disconnects.
            tokio::select! {
                biased;
                () = door.engine.key_ended(caller.id) => ended().into_response(),
                response = next.run(request) => response,
            }
        }
        _ => next.run(request).await,
    };
    record.note_refusal(door, caller.as_ref(), &asked, &mut response);
    response
}

/// A request that its key does not allow.
struct Refused {
    failure: Failure,
    /// Whose key it has, if there is one.
    caller: Option<Caller>,
}

fn refused(reason: Reason, caller: Option<Caller>, failure: Failure) -> Refused {
    Refused { failure: failure.because(reason), caller }
}

impl Gate {
    /// The metrics need no key from listed networks: scrapers often cannot send one.
    fn is_open_to(&self, request: &Request) -> bool {
        self.entrance.needs == Right::Metrics
            && !request.headers().contains_key(AUTHORIZATION)
            && record::address(request).is_some_and(|address| {
                self.door.metrics_allow.iter().any(|network| network.contains(address))
            })
    }

    fn check(&self, request: &Request) -> Result<Caller, Refused> {
        let Entrance { needs, record, .. } = self.entrance;
        let no_valid_key = |failure| refused(Reason::NoKey, None, failure);
        let text = bearer(request.headers()).map_err(no_valid_key)?;
        let text = text.ok_or_else(|| no_valid_key(no_key()))?;
        let caller = self.door.engine.key_check(text).map_err(|refusal| match refusal {
            KeyRefusal::Unknown => wrong_key(&self.door, request),
            KeyRefusal::Expired(caller) => {
                let failure = Failure::unauthorized("this key has expired; ask for a new one");
                refused(Reason::Expired, Some(caller), failure)
            }
            KeyRefusal::Revoked(caller) => {
                let failure = Failure::unauthorized("this key was revoked; ask for a new one");
                refused(Reason::Revoked, Some(caller), failure)
            }
        })?;
        if let (Some(own), Some(index)) = (&caller.tenant, record.tenant_at())
            && !path::tenant(request.uri().path(), index).is_ok_and(|tenant| tenant == *own)
        {
            return Err(Refused { failure: Failure::no_such_tenant(), caller: Some(caller) });
        }
        match caller.role.may(needs) {
            true => Ok(caller),
            false => {
                let failure = may_not(caller.role, needs);
                Err(refused(Reason::Role, Some(caller), failure))
            }
        }
    }
}

/// Whether a request may see what is wrong with the daemon, where others see only that it is.
pub(crate) fn may_see_details(door: &Door, headers: &HeaderMap) -> bool {
    if door.access == Access::Everybody {
        return true;
    }
    let key = bearer(headers).ok().flatten();
    let caller = key.and_then(|text| door.engine.key_check(text).ok());
    caller.is_some_and(|caller| caller.role.may(Right::Metrics))
}

/// The key of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = HeaderValue::to_str(value).ok();
    let split = text.and_then(|text| text.split_at_checked(SCHEME.len()));
    match split {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(SCHEME) => Ok(Some(key.trim())),
        _ => Err(Failure::unauthorized("the header is 'Authorization: Bearer KEY'")),
    }
}

fn ended() -> Failure {
    Failure::unauthorized("this key ended while the request was waiting; ask for a new one")
        .because(Reason::Ended)
}

fn no_key() -> Failure {
    Failure::unauthorized(
        "this needs a key, sent as 'Authorization: Bearer KEY'; the first one is in admin.key in \
         the daemon's data directory",
    )
}

fn wrong_key(door: &Door, request: &Request) -> Refused {
    match door.tries.wrong(record::address(request), door.clock.steady()) {
        true => refused(Reason::WrongKey, None, Failure::unauthorized("this key is not valid")),
        false => {
            let message = "too many wrong keys from this address; try again later";
            refused(Reason::Limited, None, Failure::limited(message))
        }
    }
}

fn may_not(role: Role, needs: Right) -> Failure {
    let able: Vec<_> =
        Role::ALL.iter().filter(|role| role.may(needs)).map(|r| r.as_str()).collect();
    let able = able.join(", ");
    Failure::forbidden(&format!(
        "the role {role} may not do this; use a key with one of the roles {able}"
    ))
}

impl<S: Sync> FromRequestParts<S> for Scope {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Scope, Failure> {
        // Without keys, every request may see and manage all tenants.
        Ok(parts.extensions.get::<Scope>().cloned().unwrap_or(Scope(None)))
    }
}
