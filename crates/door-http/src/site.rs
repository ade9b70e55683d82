//! Which web pages may use this door. By default only its own: another site's page must neither
//! change anything nor read answers, whatever name it has pointed here.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST,
    ORIGIN, VARY,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use windlass_net::{Page, Sites};

use crate::error::Failure;

/// Answers under any name, because it tells nothing: load balancers ask for it.
const HEALTH: &str = "/healthz";
/// Longest part of a host's name that an error shows.
const SHOWN_CHARS_MAX: usize = 100;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const ALL: HeaderValue = HeaderValue::from_static("*");
/// How long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// A page of a listed origin sent the request.
pub(crate) struct Listed(HeaderValue);

/// `None` if no foreign page is involved.
pub(crate) fn admit(sites: &Sites, request: &Request) -> Result<Option<Listed>, Failure> {
    let headers = request.headers();
    if !sites.has_host(headers) && request.uri().path() != HEALTH {
        let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        let host: String = String::from_utf8_lossy(host).chars().take(SHOWN_CHARS_MAX).collect();
        return Err(Failure::forbidden(&format!(
            "this daemon is not known as '{}'; if it should be, add the name to http.hosts",
            host.escape_default()
        )));
    }
    match sites.page(headers) {
        Page::Listed(origin) => Ok(Some(Listed(origin.clone()))),
        Page::Foreign if headers.contains_key(ORIGIN) => Err(Failure::forbidden(
            "pages of other sites may not use this daemon; see http.origins",
        )),
        _ if sites.is_forged(request.method(), headers) => {
            Err(Failure::forbidden("cross-site requests may not change anything"))
        }
        _ => Ok(None),
    }
}

impl Listed {
    /// The answer to a browser that asks whether the page may send a request.
    pub(crate) fn preflight(&self, request: &Request) -> Response {
        let wanted = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.extend(wanted.map(|wanted| (ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone())));
        self.mark(response)
    }

    /// Lets the page read an answer.
    pub(crate) fn mark(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ALL);
        headers.append(VARY, HeaderValue::from_static("origin"));
        response
    }
}
