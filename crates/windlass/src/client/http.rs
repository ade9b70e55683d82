//! Requests to a daemon. Every failure becomes one sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::RETRY_AFTER;
use reqwest::{ClientBuilder, Identity, Method, RequestBuilder, Response, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use windlass_core::{Tenant, TypeName};
use windlass_program::http::{ANSWER_BYTES_MAX, Address, AnswerError, body, root_cause};
use windlass_program::tls;

use super::pinned;
use crate::Usage;
use crate::keys::Login;

/// How long to wait for an answer, on top of the time the daemon was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause when the daemon has no room for requests that wait, and answers at once.
const CROWDED_PAUSE: Duration = Duration::from_secs(1);

/// Added to the daemon's words when it does not accept the key.
const KEY_HINT: &str =
    "pass one with --key or WINDLASS_KEY, or save it: `windlass login URL < FILE`";
const NO_JSON: &str = "the answer is not JSON, so this is not a Windlass daemon";

/// Besides letters and digits, these are not encoded in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One daemon, from the view of one tenant.
pub(crate) struct Daemon {
    address: Address,
    tenant: Tenant,
    key: Option<String>,
    http: reqwest::Client,
}

impl Daemon {
    pub(crate) fn new(url: &str, tenant: &str, login: Login) -> anyhow::Result<Daemon> {
        let wrong = || Usage(format!("--url takes an http or https URL, not '{url}'"));
        let address = Address::parse(url).ok_or_else(wrong)?;
        install_tls();
        let builder = address.client().user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
        let builder = match address.is_https() {
            true => secured(builder, &login)?,
            false => builder,
        };
        let http = builder
            .build()
            .map_err(|error| anyhow!("cannot set up the HTTP client ({})", root_cause(&error)))?;
        Ok(Daemon { address, tenant: Tenant::new(tenant)?, key: login.key, http })
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The URL, without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.address.base
    }

    /// The path below the tenant, with each part encoded.
    pub(crate) fn path(&self, parts: &[&str]) -> String {
        let mut path = format!("/v1/{}", self.tenant);
        for part in parts {
            path.push('/');
            path.extend(utf8_percent_encode(part, ENCODED));
        }
        path
    }

    pub(crate) async fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let request = self.request(Method::GET, path).query(query);
        json(self.send(request.timeout(ANSWER_TIMEOUT)).await?).await
    }

    /// `None` if there is no such thing.
    pub(crate) async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let request = self.request(Method::GET, path).timeout(ANSWER_TIMEOUT);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(json(self.accepted(response).await?).await?))
    }

    /// Gets a job, after waiting up to `wait` for it to end.
    pub(crate) async fn job_wait(&self, id: &str, wait: Duration) -> anyhow::Result<Value> {
        let path = self.path(&["jobs", id]);
        let text = windlass_core::time::format_duration(wait);
        let request = self.request(Method::GET, &path).query(&[("wait", text)]);
        let response = self.send(request.timeout(wait + ANSWER_TIMEOUT)).await?;
        let is_crowded = response.headers().contains_key(RETRY_AFTER);
        let bytes = bounded(response).await?;
        if is_crowded {
            tokio::time::sleep(CROWDED_PAUSE.min(wait)).await;
        }
        job(&String::from_utf8_lossy(&bytes))
    }

    pub(crate) async fn get_text(&self, path: &str) -> anyhow::Result<String> {
        let request = self.request(Method::GET, path).timeout(ANSWER_TIMEOUT);
        let bytes = bounded(self.send(request).await?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let request = self.request(Method::POST, path).timeout(ANSWER_TIMEOUT);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        json(self.send(request).await?).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.request(Method::PUT, path).timeout(ANSWER_TIMEOUT).json(body);
        json(self.send(request).await?).await
    }

    /// The body is text, and not JSON.
    pub(crate) async fn put_text(&self, path: &str, body: &str) -> anyhow::Result<Value> {
        let request = self.request(Method::PUT, path).timeout(ANSWER_TIMEOUT);
        let request = request.header("content-type", "text/plain").body(body.to_owned());
        json(self.send(request).await?).await
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.request(Method::DELETE, path).timeout(ANSWER_TIMEOUT);
        json(self.send(request).await?).await
    }

    /// Adds jobs and returns their ids. A large body may take long, so only silence is bounded, by
    /// the connection.
    pub(crate) async fn add(&self, name: &str, add: AddRequest<'_>) -> anyhow::Result<Vec<String>> {
        let path = self.path(&["jobs", name]);
        let request = self.request(Method::POST, &path).query(add.query);
        let mut request = request.header("content-type", add.content_type).body(add.body);
        if let Some(key) = add.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let answer = json(self.send(request).await?).await?;
        let ids = answer["ids"].as_array().context("the daemon's answer to an add has no ids")?;
        Ok(ids.iter().map(|id| id.as_str().unwrap_or_default().to_owned()).collect())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.address.base));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The body of a successful answer; a refusal is an error.
    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        self.accepted(response).await
    }

    async fn accepted(&self, response: Response) -> anyhow::Result<Response> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = bounded(response).await.unwrap_or_default();
        let mut sentence = refusal(&body);
        if status == StatusCode::UNAUTHORIZED {
            sentence = sentence.map(|sentence| format!("{sentence}; {KEY_HINT}"));
        }
        Err(anyhow!(sentence.unwrap_or_else(|| {
            format!("{} answered {status}, but not like a Windlass daemon", self.address.shown)
        })))
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let url = &self.address.shown;
        let reason = root_cause(error);
        if let Some(hint) = tls_hint(&reason).filter(|_| self.address.is_https()) {
            return anyhow!("no TLS connection to {url} ({reason}); {hint}");
        }
        if error.is_connect() {
            return anyhow!(
                "cannot reach {url} ({reason}); start a daemon with `windlass serve`, or choose \
                 another one with --url"
            );
        }
        if error.is_timeout() {
            return anyhow!("{url} did not answer in time");
        }
        anyhow!("the request to {url} failed ({reason})")
    }
}

/// Which daemons are trusted, and the certificate of the client.
fn secured(builder: ClientBuilder, login: &Login) -> anyhow::Result<ClientBuilder> {
    let identity = match &login.cert {
        Some(cert) => {
            let pem = tls::identity(cert, login.cert_key.as_deref());
            Some(pem.map_err(|reason| anyhow!("the client certificate: {reason}"))?)
        }
        None => None,
    };
    if let Some(certificate) = &login.pinned {
        let config = pinned::config(certificate.clone(), identity.as_deref())?;
        return Ok(builder.tls_backend_preconfigured(config));
    }
    let builder = match &login.ca {
        Some(file) => builder.tls_certs_only(tls::authorities(file).map_err(|why| anyhow!(why))?),
        None => builder,
    };
    Ok(match identity {
        Some(pem) => builder.identity(Identity::from_pem(&pem).map_err(|error| {
            anyhow!("the client certificate cannot be used ({})", root_cause(&error))
        })?),
        None => builder,
    })
}

/// What to do about an error of TLS.
fn tls_hint(reason: &str) -> Option<&'static str> {
    let has = |part: &str| reason.contains(part);
    if has("InvalidContentType") {
        Some("nothing there speaks TLS; use a URL that begins with http://")
    } else if has("CertificateRequired") {
        Some("it asks for a client certificate: --cert and --cert-key")
    } else if has("received fatal alert") {
        Some("it does not accept this client; check --cert and --cert-key")
    } else if has("certificate") {
        Some("if a private authority has signed it, name that with --ca")
    } else {
        None
    }
}

/// The request of an add.
pub(crate) struct AddRequest<'a> {
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) query: &'a [(&'static str, String)],
    pub(crate) idempotency_key: Option<&'a str>,
}

/// Installs the crypto provider for all TLS in this process.
pub(crate) fn install_tls() {
    // An error means that it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Checks a type name before it becomes part of a path. URL parsers would resolve `.` and `..` as
/// path segments.
pub(crate) fn type_name(name: &str) -> anyhow::Result<&str> {
    TypeName::new(name)?;
    if matches!(name, "." | "..") {
        bail!("the type '{name}' cannot be part of a URL");
    }
    Ok(name)
}

/// `message`, prefixed with the field unless it already starts with it.
fn refusal(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let message = answer["error"]["message"].as_str()?;
    match answer["error"]["field"].as_str() {
        Some("Authorization") => Some(message.to_owned()),
        Some(field) if !message.starts_with(field) => Some(format!("{field}: {message}")),
        _ => Some(message.to_owned()),
    }
}

/// The fields of an answer, exactly as the daemon sent them.
pub(crate) fn fields(text: &str) -> anyhow::Result<BTreeMap<String, Box<RawValue>>> {
    serde_json::from_str(text).context(NO_JSON)
}

/// A parsed job. A result nested too deeply to parse is kept as its text.
pub(crate) fn job(text: &str) -> anyhow::Result<Value> {
    let readable = |(name, raw): (String, Box<RawValue>)| {
        let value = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into());
        (name, value)
    };
    Ok(fields(text)?.into_iter().map(readable).collect::<Map<_, _>>().into())
}

async fn json(response: Response) -> anyhow::Result<Value> {
    let bytes = bounded(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).context(NO_JSON)
}

async fn bounded(response: Response) -> anyhow::Result<Vec<u8>> {
    // Requests that need a time limit have their own.
    body(response, Duration::MAX).await.map_err(|broken| match broken {
        AnswerError::Transport(error) => {
            anyhow::Error::new(error).context("the answer is incomplete")
        }
        AnswerError::Silent => anyhow!("the answer is incomplete"),
        AnswerError::TooLarge => anyhow!("the answer has more than {ANSWER_BYTES_MAX} bytes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_are_encoded_in_paths() {
        let daemon = Daemon::new("http://127.0.0.1:1/", "acme", Login::default()).unwrap();
        assert_eq!(
            daemon.path(&["jobs", "www-prod/Foo ä"]),
            "/v1/acme/jobs/www-prod%2FFoo%20%C3%A4"
        );
        assert!(type_name("..").is_err() && type_name("a|b").is_err() && type_name("a.b").is_ok());
    }

    #[test]
    fn urls_that_are_not_http_are_wrong_usage() {
        for url in ["", "localhost:7600", "ftp://x", "http://"] {
            let error = Daemon::new(url, "acme", Login::default()).err().expect(url);
            assert!(error.is::<Usage>(), "{url}");
        }
    }

    #[test]
    fn a_refusal_is_one_sentence_with_its_field() {
        let body = br#"{"error":{"code":"invalid_value","message":"too small","field":"limit"}}"#;
        assert_eq!(refusal(body).unwrap(), "limit: too small");
        let body = br#"{"error":{"code":"x","message":"limit is too small","field":"limit"}}"#;
        assert_eq!(refusal(body).unwrap(), "limit is too small");
        assert_eq!(refusal(b"<html>"), None);
    }

    #[tokio::test]
    async fn a_daemon_that_is_not_there_is_named_without_a_password() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let url = format!("http://u:secret@127.0.0.1:{port}");
        let daemon = Daemon::new(&url, "acme", Login::default()).unwrap();
        let error = daemon.get("/v1/status", &[]).await.unwrap_err().to_string();
        assert!(error.contains(&format!("http://127.0.0.1:{port}")), "{error}");
        assert!(error.contains("windlass serve") && !error.contains("secret"), "{error}");
    }
}
