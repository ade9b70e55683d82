//! Requests to the URL of an `http` handler: one job, one `POST`.
//!
//! The payload is the body, streamed if it is large. `Windlass-Job-Id`, `Windlass-Tenant`,
//! `Windlass-Type` and `Windlass-Attempt` identify the job. The status of the answer becomes the
//! status of the job, its body the result. Redirects are not followed, proxies are not used, no
//! request is sent twice, and connections are made only where the handler's policy allows them
//! (`http_client`).

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Url};
use tokio::time::{Instant, sleep};
use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::{Assignment, Report, Reports, Stop};
use windlass_core::{HandlerSpec, Invalid, Json, Log, Network, Payload, Status, TypeKey};

use crate::Error;
use crate::http_client::HttpClients;
use crate::network::{Policies, Refusal};
use crate::payload::PayloadReader;
use crate::stop::Watch;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(crate) const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Sends the requests of `http` handlers.
pub(crate) struct Http {
    clients: HttpClients,
}

/// Where the requests of a handler go, and what it may connect to.
pub(crate) struct Target {
    pub(crate) url: Url,
    network: Option<Network>,
}

/// A server's answer. `cut` gives the reason if the body was not read to its end.
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) is_json: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) cut: Option<Cut>,
}

/// Why a body was not read to its end.
pub(crate) enum Cut {
    TooLarge,
    Broken(String),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::TooLarge => write!(f, "the answer has more than {RESULT_BYTES_MAX} bytes"),
            Cut::Broken(reason) => write!(f, "the answer is incomplete: {reason}"),
        }
    }
}

impl Http {
    pub(crate) fn new(policies: Arc<Policies>) -> Result<Http, Error> {
        Ok(Http { clients: HttpClients::new(policies)? })
    }

    /// Runs one job to its end.
    pub(crate) async fn run_one(
        &self,
        target: &Target,
        assignment: &Assignment,
        payload: PayloadReader,
        watch: &mut Watch,
        reports: &dyn Reports,
    ) {
        let job = &assignment.job;
        reports.started(assignment.id).await;
        let started_at = Instant::now();
        let mut headers = identity(&job.key, &job.id.to_string(), &job.attempt.to_string());
        headers.insert(CONTENT_TYPE, content_type(&assignment.payload));
        let bytes = payload.len();
        let answer = tokio::select! {
            answer = self.post(target, headers, bytes, streamed(payload)) => Ok(answer),
            (_, why) = watch.stopped(std::slice::from_ref(&assignment.id)) => Err(why),
            () = sleep(assignment.timeout) => Err(Stop::TimedOut),
        };
        let run_time = started_at.elapsed();
        let report = match answer {
            Ok(answer) => report(&target.url, answer, run_time),
            Err(why) => stopped(&target.url, why, run_time),
        };
        reports.ended(assignment.id, report).await;
    }

    /// Sends a request and reads its answer, keeping at most `RESULT_BYTES_MAX` bytes. The error is
    /// the reason why there is no answer.
    pub(crate) async fn post(
        &self,
        target: &Target,
        headers: HeaderMap,
        bytes: u64,
        body: Body,
    ) -> Result<HttpAnswer, String> {
        let client = self.clients.client(&target.url, target.network.as_ref()).await?;
        let request = client.post(target.url.clone()).headers(headers);
        let request = request.header(CONTENT_LENGTH, bytes).body(body);
        let mut response = request.send().await.map_err(reason)?;
        let mut answer = HttpAnswer {
            status: response.status().as_u16(),
            is_json: is_json(response.headers()),
            body: Vec::new(),
            cut: None,
        };
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if answer.body.len() + chunk.len() > RESULT_BYTES_MAX => {
                    let room = RESULT_BYTES_MAX - answer.body.len();
                    answer.body.extend_from_slice(&chunk[..room]);
                    answer.cut = Some(Cut::TooLarge);
                    break;
                }
                Ok(Some(chunk)) => answer.body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(source) => {
                    answer.cut = Some(Cut::Broken(reason(source)));
                    break;
                }
            }
        }
        Ok(answer)
    }
}

impl Target {
    pub(crate) fn of(spec: &HandlerSpec) -> Result<Target, Invalid> {
        Ok(Target { url: parse_url(&spec.body)?, network: spec.options.network.clone() })
    }
}

/// The URL in a handler's body.
pub(crate) fn parse_url(body: &str) -> Result<Url, Invalid> {
    let refuse = |reason: String| Invalid::new("body", reason);
    let url = Url::parse(body.trim()).map_err(|reason| refuse(format!("not a URL: {reason}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse(format!("the URL must be http or https, not {}", url.scheme())));
    }
    Ok(url)
}

/// The headers that identify the job. `id` and `attempt` may be lists.
pub(crate) fn identity(key: &TypeKey, id: &str, attempt: &str) -> HeaderMap {
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes()).expect("names have no control characters")
    };
    HeaderMap::from_iter([
        (HeaderName::from_static("windlass-job-id"), value(id)),
        (HeaderName::from_static("windlass-tenant"), value(key.tenant.as_str())),
        (HeaderName::from_static("windlass-type"), value(key.name.as_str())),
        (HeaderName::from_static("windlass-attempt"), value(attempt)),
    ])
}

/// The report of a job whose request was abandoned.
pub(crate) fn stopped(url: &Url, why: Stop, run_time: Duration) -> Report {
    let mut log = Log::new();
    note(&mut log, url, why.as_str());
    let (status, stopped) = (Status::ERROR, Some(why));
    Report { status, stopped, data: None, log, emitted: Vec::new(), run_time }
}

/// The report of a completed request.
pub(crate) fn finished(status: Status, data: Option<Json>, log: Log, time: Duration) -> Report {
    Report { status, stopped: None, data, log, emitted: Vec::new(), run_time: time }
}

/// Adds a line to the log. Secrets in the URL are left out.
pub(crate) fn note(log: &mut Log, url: &Url, text: &str) {
    let mut shown = url.clone();
    // These fail only for URLs that have neither, such as mailto.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    log.note(&format!("POST {shown}: {text}"));
}

/// The status of an answer; anything outside 100 to 599 is an error.
pub(crate) fn status_of(number: u16) -> Status {
    Status::new(i64::from(number)).unwrap_or(Status::ERROR)
}

fn report(url: &Url, answer: Result<HttpAnswer, String>, run_time: Duration) -> Report {
    let mut log = Log::new();
    let answer = match answer {
        Ok(answer) => answer,
        Err(reason) => {
            note(&mut log, url, &format!("no answer: {reason}"));
            return finished(Status::ERROR, None, log, run_time);
        }
    };
    note(&mut log, url, &answer.status.to_string());
    if let Some(cut) = answer.cut {
        note(&mut log, url, &cut.to_string());
        return finished(Status::ERROR, None, log, run_time);
    }
    let empty = answer.body.is_empty();
    let data = (!empty).then(|| data(answer.body, answer.is_json));
    finished(status_of(answer.status), data, log, run_time)
}

fn data(body: Vec<u8>, is_json: bool) -> Json {
    let text = String::from_utf8(body)
        .unwrap_or_else(|no_text| String::from_utf8_lossy(no_text.as_bytes()).into_owned());
    if is_json && let Ok(json) = Json::parse(text.trim().to_owned()) {
        return json;
    }
    Json::string(&text)
}

fn content_type(payload: &Payload) -> HeaderValue {
    match payload {
        Payload::Inline(bytes) if str::from_utf8(bytes).is_ok() => TEXT,
        // Whether a large payload is text is known only after reading it.
        Payload::Inline(_) | Payload::Pieces { .. } => BINARY,
    }
}

fn streamed(payload: PayloadReader) -> Body {
    let next = |mut payload: PayloadReader| async move {
        let next: Result<Option<Bytes>, String> = payload.next().await;
        next.map(|bytes| bytes.map(|bytes| (bytes, payload)))
    };
    Body::wrap_stream(stream::try_unfold(payload, next))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The error with its causes, without the URL, which may contain secrets. Of a refused connection
/// only the refusal: it is no problem of the network.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(refusal) = source.downcast_ref::<Refusal>() {
            return refusal.to_string();
        }
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_http_and_https_are_accepted() {
        for good in ["http://localhost:1/x", "https://example.org", " http://h/ \n"] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost", "/x", "ftp://h/", "file:///etc/passwd", "http://"] {
            assert_eq!(parse_url(bad).unwrap_err().field, "body", "{bad}");
        }
    }

    #[test]
    fn a_log_line_shows_no_secrets_of_a_url() {
        let url = parse_url("http://user:secret@host/path?token=secret#secret").unwrap();
        let mut log = Log::new();
        note(&mut log, &url, "200");
        assert_eq!(log.to_string(), "[windlass] POST http://host/path: 200\n");
    }

    #[test]
    fn a_body_is_json_when_it_says_so_and_is_and_a_string_otherwise() {
        let check = |body: &str, is_json, expected: &str| {
            assert_eq!(data(body.into(), is_json).as_str(), expected);
        };
        check(" {\"a\": [1]}\n", true, "{\"a\": [1]}");
        check("{\"a\": [1]}", false, "\"{\\\"a\\\": [1]}\"");
        check("{not json", true, "\"{not json\"");
        assert_eq!(data(vec![b'a', 0xff], false).as_str(), "\"a\u{fffd}\"");
    }
}
