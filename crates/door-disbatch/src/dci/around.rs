//! The layers around every request: pages of other sites cannot change anything, clients without a
//! login see nothing, unknown routes and wrong methods get a JSON answer, and a panic becomes an
//! answer and a log line.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use windlass_core::sync::panic_text;
use windlass_net::Sites;

use super::error::Failure;
use super::{Dci, page};

pub(crate) fn wrap(router: Router<Dci>, dci: &Dci) -> Router<Dci> {
    router
        .fallback(unmatched)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            let message = format!("{} does not take {method}", uri.path());
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, message)
        })
        .layer(from_fn_with_state(dci.clone(), around))
}

/// A path without a route may be a file.
async fn unmatched(State(dci): State<Dci>, method: Method, uri: Uri) -> Response {
    let reading = matches!(method, Method::GET | Method::HEAD);
    if let (true, Some(root)) = (reading, &dci.config().web_root)
        && let Some(file) = page::file(root, uri.path()).await
    {
        return file;
    }
    Failure::not_found(format!("there is no {}", uri.path())).into_response()
}

async fn around(State(dci): State<Dci>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answering = AssertUnwindSafe(answer(&dci, request, next)).catch_unwind();
    let mut response = answering.await.unwrap_or_else(|panic| {
        let what = panic_text(panic.as_ref());
        tracing::error!(what, "a request made the command interface panic; this is a defect");
        let message = "internal error; see the log";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
    });
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    // Answers are private and change quickly, so they must not be cached.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(no_store);
    // Without the query, which may contain parameters of tasks.
    tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    response
}

async fn answer(dci: &Dci, request: Request, next: Next) -> Response {
    let sites = Sites::default();
    if sites.is_forged(request.method(), request.headers()) {
        let message = "a page of another site must not change anything here";
        return Failure::new(StatusCode::FORBIDDEN, message).into_response();
    }
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if let (true, Some(file)) = (reading, page::own(request.uri().path())) {
        return file;
    }
    if dci.guard().is_open() && dci.config().tls.is_none() && !sites.has_host(request.headers()) {
        let message = "an interface without a login answers only under an address or `localhost`: \
                       set `users`, or have the proxy ask for such a host";
        return Failure::new(StatusCode::FORBIDDEN, message).into_response();
    }
    if let Err(refused) = dci.guard().admit(request.headers()).await {
        return refused.into_response();
    }
    next.run(request).await
}
