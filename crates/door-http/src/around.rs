//! The layers around every request: unknown routes and wrong methods get the usual error body, a
//! panic becomes an answer and a log line, browsers must not guess content types, and web pages of
//! other sites are kept out (`site`).

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use windlass_core::sync::panic_text;

use crate::door::Door;
use crate::error::Failure;
use crate::record;
use crate::site;

pub(crate) fn wrap(router: Router<Door>, door: &Door) -> Router<Door> {
    router
        .fallback(async |uri: Uri| Failure::no_such_route(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Failure::wrong_method(method.as_str(), uri.path())
        })
        .layer(from_fn_with_state(door.clone(), guard))
        .layer(from_fn(around))
}

/// Refuses requests of foreign web pages, and answers those of listed ones as browsers want it.
async fn guard(State(door): State<Door>, request: Request, next: Next) -> Response {
    match site::admit(&door.sites, &request) {
        Err(refused) => {
            record::refused_by_site(&door, &request, &refused);
            refused.into_response()
        }
        Ok(None) => next.run(request).await,
        Ok(Some(listed)) if request.method() == Method::OPTIONS => listed.preflight(&request),
        Ok(Some(listed)) => listed.mark(next.run(request).await),
    }
}

async fn around(request: Request, next: Next) -> Response {
    let told = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (request.method().clone(), request.uri().path().to_owned()));
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|panic| {
        let what = panic_text(panic.as_ref());
        tracing::error!(what, "a request made the daemon panic; this is a bug");
        Failure::internal().into_response()
    });
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some((method, path)) = told {
        // The query is not logged: it may contain keys.
        tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_answer() {
        use axum::http::StatusCode;
        use axum::routing::get;
        async fn panics() -> StatusCode {
            panic!("on purpose")
        }
        let router: Router = Router::new().route("/", get(panics)).layer(from_fn(around));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = crate::server::tests::serve_plain(listener, router);
        let answer =
            crate::server::tests::exchange(address, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let answer = tokio::select! { answer = answer => answer, () = server => String::new() };
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
        assert!(answer.contains(r#""code":"internal""#) && !answer.contains("on purpose"));
    }
}
