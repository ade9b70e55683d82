//! The layers around every request: unknown routes and wrong methods get the usual error body, a
//! panic becomes an answer and a log line, browsers must not guess content types, and cross-site
//! requests cannot change anything.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::Request;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use windlass_core::sync::panic_text;

use crate::door::Door;
use crate::error::Failure;

/// Browsers send this header to say where a request comes from; other clients do not.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) fn wrap(router: Router<Door>) -> Router<Door> {
    router
        .fallback(async |uri: Uri| Failure::no_such_route(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Failure::wrong_method(method.as_str(), uri.path())
        })
        .layer(from_fn(around))
}

async fn around(request: Request, next: Next) -> Response {
    let told = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (request.method().clone(), request.uri().path().to_owned()));
    let mut response = if is_forged(&request) {
        Failure::forbidden("a page of another site must not change anything here").into_response()
    } else {
        let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        answered.unwrap_or_else(|panic| {
            let what = panic_text(panic.as_ref());
            tracing::error!(what, "a request made the daemon panic; this is a bug");
            Failure::internal().into_response()
        })
    };
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some((method, path)) = told {
        // The query is not logged: it may contain keys.
        tracing::debug!(%method, path, status = response.status().as_u16(), "request");
    }
    response
}

/// Any web page can make a browser send requests to the local machine. The page cannot see the
/// answers, so only requests that change something matter.
fn is_forged(request: &Request) -> bool {
    let site = request.headers().get(FETCH_SITE);
    site.is_some_and(|site| site == "cross-site" || site == "same-site")
        && !matches!(*request.method(), Method::GET | Method::HEAD)
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
        let answer = crate::server::tests::exchange(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        let answer = tokio::select! { answer = answer => answer, () = server => String::new() };
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
        assert!(answer.contains(r#""code":"internal""#) && !answer.contains("on purpose"));
    }
}
