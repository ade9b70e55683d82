//! Who may use a route. The table of routes says what each needs (`route`); the key of a request
//! says who sends it (`windlass_core::key`).
//!
//! | key | answer |
//! |---|---|
//! | none, wrong, expired, revoked | `401` |
//! | too many wrong ones from one address (`tries`) | `429` |
//! | its role may not do this | `403` |
//! | the path has another tenant | `404`, as if there were none |

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;

use windlass_core::key::{Right, Role};
use windlass_core::name::Tenant;
use windlass_engine::api::{Caller, KeyRefusal};

use crate::door::Door;
use crate::error::Failure;
use crate::path;
use crate::presence::Presence;

const SCHEME: &str = "bearer ";

/// Whether requests need keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Keys,
    /// Every request may do everything.
    Everybody,
}

/// What one route needs.
#[derive(Clone)]
struct Gate {
    door: Door,
    needs: Right,
    waits: bool,
    /// Which part of the path is the tenant.
    tenant_at: Option<usize>,
}

/// The tenant whose keys a request may manage; `None`: all.
#[derive(Debug, Clone)]
pub(crate) struct KeysOf(pub(crate) Option<Tenant>);

/// Puts the check in front of a route.
pub(crate) fn guard(
    handler: MethodRouter<Door>,
    path: &'static str,
    needs: Right,
    waits: bool,
    door: &Door,
) -> MethodRouter<Door> {
    if needs == Right::Open || door.access == Access::Everybody {
        return handler;
    }
    let is_tenant = |part: &str| matches!(part, "{tenant}" | "{client}");
    let tenant_at = path.split('/').skip(1).position(is_tenant);
    let gate = Gate { door: door.clone(), needs, waits, tenant_at };
    handler.route_layer(from_fn_with_state(gate, admit))
}

async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    if gate.is_open_to(&request) {
        return next.run(request).await;
    }
    match gate.check(&request) {
        Ok(caller) => {
            if gate.needs == Right::Keys {
                request.extensions_mut().insert(KeysOf(caller.tenant));
            }
            if !gate.waits {
                return next.run(request).await;
            }
            // What was claimed for it meanwhile is given back, as for a client that disconnects.
            tokio::select! {
                biased;
                () = gate.door.engine.key_ended(caller.id) => ended().into_response(),
                response = next.run(request) => response,
            }
        }
        Err(refused) => refused.into_response(),
    }
}

impl Gate {
    /// The metrics need no key from listed networks: scrapers often cannot send one.
    fn is_open_to(&self, request: &Request) -> bool {
        self.needs == Right::Metrics
            && !request.headers().contains_key(AUTHORIZATION)
            && address_of(request).is_some_and(|address| {
                self.door.metrics_allow.iter().any(|network| network.contains(address))
            })
    }

    fn check(&self, request: &Request) -> Result<Caller, Failure> {
        let Some(text) = bearer(request.headers())? else { return Err(no_key()) };
        let caller = self.door.engine.key_check(text).map_err(|refusal| match refusal {
            KeyRefusal::Unknown => wrong_key(&self.door, request),
            KeyRefusal::Expired => Failure::unauthorized("this key has expired; ask for a new one"),
            KeyRefusal::Revoked => Failure::unauthorized("this key was revoked; ask for a new one"),
        })?;
        if let (Some(own), Some(index)) = (&caller.tenant, self.tenant_at)
            && !path::tenant(request.uri().path(), index).is_ok_and(|tenant| tenant == *own)
        {
            return Err(Failure::no_such_tenant());
        }
        match caller.role.may(self.needs) {
            true => Ok(caller),
            false => Err(may_not(caller.role, self.needs)),
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

/// Where a request comes from, if that is known.
fn address_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Presence>().and_then(Presence::address)
}

fn ended() -> Failure {
    Failure::unauthorized("this key ended while the request was waiting; ask for a new one")
}

fn no_key() -> Failure {
    Failure::unauthorized(
        "this needs a key: send it as 'Authorization: Bearer KEY'; `windlass key create` makes one",
    )
}

fn wrong_key(door: &Door, request: &Request) -> Failure {
    match door.tries.wrong(address_of(request), door.clock.steady()) {
        true => Failure::unauthorized("this key is not valid"),
        false => Failure::limited("too many wrong keys from this address; try again later"),
    }
}

fn may_not(role: Role, needs: Right) -> Failure {
    let able: Vec<_> =
        Role::ALL.iter().filter(|role| role.may(needs)).map(|r| r.as_str()).collect();
    let able = able.join(", ");
    Failure::forbidden(&format!("a key of the role {role} may not do this; it takes one of {able}"))
}

impl<S: Sync> FromRequestParts<S> for KeysOf {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<KeysOf, Failure> {
        // Without keys, every request may manage all of them.
        Ok(parts.extensions.get::<KeysOf>().cloned().unwrap_or(KeysOf(None)))
    }
}
