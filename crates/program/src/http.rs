//! The parts of an HTTP client for one server. Requests and error messages are up to the caller.

use std::time::Duration;

use reqwest::{Client, ClientBuilder, Response, Url};

/// How long to wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum size of an answer.
pub const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The address of a server.
#[derive(Debug, Clone)]
pub struct Address {
    /// As given, without a trailing slash.
    pub base: String,
    /// For messages: without user and password.
    pub shown: String,
    is_https: bool,
}

impl Address {
    /// `None` unless it is an http or https URL with a host.
    pub fn parse(url: &str) -> Option<Address> {
        let mut shown = Url::parse(url).ok()?;
        let is_https = match shown.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        if !shown.has_host() {
            return None;
        }
        // Cannot fail for a URL with a host.
        let _ = shown.set_password(None);
        let _ = shown.set_username("");
        Some(Address {
            base: url.trim_end_matches('/').to_owned(),
            shown: shown.as_str().trim_end_matches('/').to_owned(),
            is_https,
        })
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// A client for this server, without a proxy.
    pub fn client(&self) -> ClientBuilder {
        let builder = Client::builder().no_proxy().connect_timeout(CONNECT_TIME_MAX);
        // Plain HTTP needs no certificates, and a small machine may have none.
        if self.is_https { builder } else { builder.tls_certs_only([]) }
    }
}

/// Why there is no complete answer.
#[derive(Debug)]
pub enum AnswerError {
    /// The request or the answer failed in transit.
    Transport(reqwest::Error),
    /// Nothing came for too long.
    Silent,
    /// It has more than [`ANSWER_BYTES_MAX`].
    TooLarge,
}

/// Waits for one step of a request, with a time limit.
pub async fn in_time<T>(
    time_max: Duration,
    step: impl Future<Output = reqwest::Result<T>>,
) -> Result<T, AnswerError> {
    match tokio::time::timeout(time_max, step).await {
        Ok(done) => done.map_err(AnswerError::Transport),
        Err(_) => Err(AnswerError::Silent),
    }
}

/// The body of an answer; the time limit applies to each piece.
pub async fn body(mut response: Response, silence_max: Duration) -> Result<Vec<u8>, AnswerError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = in_time(silence_max, response.chunk()).await? {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(AnswerError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The innermost cause, which people recognize, such as "Connection refused".
pub fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = Address::parse("https://al:s3cret@host:1/below/").unwrap();
        assert_eq!(address.base, "https://al:s3cret@host:1/below");
        assert_eq!(address.shown, "https://host:1/below");
        assert!(address.is_https());
        assert!(!Address::parse("http://host").unwrap().is_https());
    }

    #[test]
    fn only_urls_of_http_with_a_host_are_addresses() {
        for wrong in ["", "host", "host:80", "/below", "ftp://host", "http://", "file:///x"] {
            assert!(Address::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_not_waited_for_for_ever() {
        let silent = in_time::<()>(Duration::from_secs(90), std::future::pending()).await;
        assert!(matches!(silent, Err(AnswerError::Silent)));
    }
}
