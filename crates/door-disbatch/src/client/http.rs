//! A command interface over HTTP. Every failure becomes one sentence.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode, header, redirect};
use serde_json::Value;
use windlass_program::http::{ANSWER_BYTES_MAX, Address, AnswerError, body, in_time, root_cause};
use windlass_program::tls;

use super::request::ApiRequest;
use super::{Failure, Login, Target, Trust};

/// How long to wait for an answer, and for each further piece of it: a long answer may take longer
/// in total. A server needs less for any request.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long to wait for a change, which may concern very many tasks.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(15 * 60);

const LOGIN: &str = "give --username and --password, or --token";

pub(super) struct Server {
    address: Address,
    login: Option<Login>,
    http: Client,
}

pub(super) struct ServerAnswer {
    pub(super) status: StatusCode,
    pub(super) text: String,
    pub(super) value: Value,
}

impl Server {
    pub(super) fn new(target: &Target) -> Result<Server, Failure> {
        let wrong =
            || Failure::Usage("--url takes an address such as http://localhost:8080".into());
        let address = Address::parse(&target.url).ok_or_else(wrong)?;
        Ok(Server { http: http(&address, &target.trust)?, address, login: target.login.clone() })
    }

    /// The answer to a successful request; a refusal is an error.
    pub(super) async fn send(&self, ask: &ApiRequest) -> Result<ServerAnswer, Failure> {
        let request =
            self.http.request(ask.method.clone(), format!("{}{}", self.address.base, ask.path));
        let request = request.header(header::ACCEPT, "application/json");
        let request = match &self.login {
            None => request,
            Some(Login::Basic { user, password }) => {
                request.basic_auth(user, Some(password.reveal()))
            }
            Some(Login::Token(token)) => request.bearer_auth(token.reveal()),
        };
        let request = match &ask.body {
            None => request,
            Some((kind, body)) => request.header(header::CONTENT_TYPE, *kind).body(body.clone()),
        };
        let looks = ask.method == reqwest::Method::GET;
        let request = if looks { request } else { request.timeout(CHANGE_TIME_MAX) };
        let silence_max = if looks { SILENCE_MAX } else { CHANGE_TIME_MAX };
        let response = in_time(silence_max, request.send()).await;
        let response = response.map_err(|broken| self.failed(broken, looks))?;
        let (status, location) = (response.status(), location(&response));
        let bytes = body(response, silence_max).await;
        let bytes = bytes.map_err(|broken| self.failed(broken, looks))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value: Option<Value> = serde_json::from_str(&text).ok();
        match value {
            Some(value) if status.is_success() => Ok(ServerAnswer { status, text, value }),
            value => {
                let why = self.refusal(status, value.as_ref(), location);
                // Shows the request's parameter as the option of this command line.
                let typed = why.replace("tasks=keep", "--tasks keep");
                Err(Failure::Failed(typed.replace("tasks=delete", "--tasks delete")))
            }
        }
    }

    fn refusal(
        &self,
        status: StatusCode,
        body: Option<&Value>,
        location: Option<String>,
    ) -> String {
        let shown = &self.address.shown;
        if let Some(location) = location.filter(|_| status.is_redirection()) {
            return format!("{shown} points to {location}; name that one with --url");
        }
        if status == StatusCode::UNAUTHORIZED {
            return match self.login {
                None => format!("{shown} asks for a login (401); {LOGIN}"),
                Some(_) => format!("{shown} does not accept this login (401)"),
            };
        }
        let told = body.filter(|_| !status.is_success()).and_then(sentence);
        told.unwrap_or_else(|| format!("{shown} answered {status}, but not like Disbatch"))
    }

    fn failed(&self, broken: AnswerError, looks: bool) -> Failure {
        let shown = &self.address.shown;
        let late = || format!("{shown} did not answer in time");
        // Without a connection nothing can have changed.
        let (why, may_be_done) = match broken {
            AnswerError::TooLarge => {
                (format!("the answer has more than {ANSWER_BYTES_MAX} bytes"), false)
            }
            AnswerError::Silent => (late(), true),
            AnswerError::Transport(error) if error.is_timeout() => (late(), !error.is_connect()),
            AnswerError::Transport(error) if error.is_connect() => {
                let reason = root_cause(&error);
                (format!("cannot reach {shown} ({reason}); name another server with --url"), false)
            }
            AnswerError::Transport(error) => {
                (format!("the request to {shown} failed ({})", root_cause(&error)), true)
            }
        };
        Failure::Failed(if looks || !may_be_done {
            why
        } else {
            format!("{why}; the request may still have been carried out, so check before you retry")
        })
    }
}

fn http(address: &Address, trust: &Trust) -> Result<Client, Failure> {
    let builder = address
        .client()
        // A changing request must not silently be repeated somewhere else.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("windlass-disbatch/", env!("CARGO_PKG_VERSION")));
    let builder = match trust {
        _ if !address.is_https() => builder,
        Trust::System => builder,
        Trust::CaFile(path) => {
            builder.tls_certs_only(tls::authorities(path).map_err(Failure::Failed)?)
        }
        Trust::Everybody => builder.tls_danger_accept_invalid_certs(true),
    };
    builder.build().map_err(|error| {
        Failure::Failed(format!("cannot set up the HTTP client ({})", root_cause(&error)))
    })
}

fn location(response: &Response) -> Option<String> {
    let value = response.headers().get(header::LOCATION)?;
    Some(value.to_str().ok()?.to_owned())
}

/// The server's `error`, and what it refers to.
fn sentence(body: &Value) -> Option<String> {
    let error = body.get("error")?;
    let Some(error) = error.as_str() else {
        let unmatched = error.get("matched_count").and_then(Value::as_u64) == Some(0);
        return unmatched.then(|| "there is no such entry".to_owned());
    };
    let about = ["plugin", "param", "key", "invalid_params"].iter().find_map(|key| body.get(*key));
    let about = match about {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(Value::Array(list)) => {
            let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            texts.join(", ")
        }
        _ => return Some(error.to_owned() + &made(body)),
    };
    Some(format!("{error}: {about}"))
}

/// What was done before the refusal, after a semicolon.
fn made(body: &Value) -> String {
    match body["MongoDB::InsertManyResult"]["inserted_count"].as_u64() {
        None | Some(0) => String::new(),
        Some(count) => format!("; {count} tasks were created before that"),
    }
}
