//! One connection of a client that speaks TLS, and HTTP in either version.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::header::AUTHORIZATION;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use windlass_test_kit::wait::PATIENCE;

use super::certificate::{Authority, Issued};
use crate::harness::Client;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

pub(super) const BOTH: [Speaks; 2] = [Speaks::Http1, Speaks::Http2];

/// Whom the client trusts, and who it is.
pub(super) struct Trust {
    roots: RootCertStore,
    identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

impl Trust {
    pub(super) fn of(authority: &Authority) -> Trust {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().into()).unwrap();
        Trust { roots, identity: None }
    }

    pub(super) fn with_identity(self, issued: &Issued) -> Trust {
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        Trust { identity: Some((issued.der.clone().into(), key)), ..self }
    }

    fn config(&self, speaks: Speaks) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.identity {
            Some((cert, key)) => {
                builder.with_client_auth_cert(vec![cert.clone()], key.clone_key()).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match speaks {
            Speaks::Http1 => vec![b"http/1.1".to_vec()],
            Speaks::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        config
    }
}

pub(super) struct Session {
    runtime: Runtime,
    sender: Sender,
    key: Option<String>,
    /// What the daemon has shown, in DER.
    pub(super) certificate: Vec<u8>,
    /// The name in the URL.
    pub(super) host: String,
}

#[derive(Clone)]
enum Sender {
    Http1(Arc<tokio::sync::Mutex<http1::SendRequest<Full<Bytes>>>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) version: Version,
    pub(super) retry_after: bool,
    pub(super) body: Bytes,
}

impl Answer {
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Session {
    /// Fails if the handshake does, or the daemon ends the connection right after it.
    pub(super) fn open(client: &Client, trust: &Trust, speaks: Speaks) -> Result<Session, String> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let connecting = async {
            let stream = TcpStream::connect(client.address).await.map_err(|e| e.to_string())?;
            let connector = TlsConnector::from(Arc::new(trust.config(speaks)));
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
            let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
            let chosen = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            assert_eq!(chosen, speaks == Speaks::Http2, "the daemon prefers HTTP/2");
            let io = TokioIo::new(stream);
            let sender = match speaks {
                Speaks::Http1 => {
                    let (sender, connection) =
                        http1::handshake(io).await.map_err(|e| format!("{e:?}"))?;
                    tokio::spawn(connection);
                    Sender::Http1(Arc::new(tokio::sync::Mutex::new(sender)))
                }
                Speaks::Http2 => {
                    let executor = TokioExecutor::new();
                    let (sender, connection) =
                        http2::handshake(executor, io).await.map_err(|e| format!("{e:?}"))?;
                    tokio::spawn(connection);
                    Sender::Http2(sender)
                }
            };
            Ok::<_, String>((sender, certificate))
        };
        let (sender, certificate) = runtime.block_on(async {
            tokio::time::timeout(PATIENCE, connecting).await.map_err(|e| e.to_string())?
        })?;
        let key = client.key.map(str::to_owned);
        Ok(Session { runtime, sender, key, certificate, host: "localhost".into() })
    }

    /// Whether the daemon has ended the connection.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.blocking_lock().is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request; the handle ends with its answer.
    pub(super) fn begin(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> JoinHandle<Result<Answer, String>> {
        let uri = match &self.sender {
            Sender::Http1(_) => path.to_owned(),
            Sender::Http2(_) => format!("https://{}{path}", self.host),
        };
        let mut request = Request::builder().method(method).uri(uri);
        if matches!(self.sender, Sender::Http1(_)) {
            request = request.header("host", &self.host);
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let kind = if body.starts_with('{') { "application/json" } else { "text/plain" };
        let request = request.header("content-type", kind);
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let sender = self.sender.clone();
        self.runtime.spawn(async move {
            let answer = match sender {
                Sender::Http1(sender) => sender.lock().await.send_request(request).await,
                Sender::Http2(mut sender) => sender.send_request(request).await,
            };
            let answer = answer.map_err(|error| format!("{error:?}"))?;
            let (status, version) = (answer.status().as_u16(), answer.version());
            let retry_after = answer.headers().contains_key("retry-after");
            let body = answer.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
            Ok(Answer { status, version, retry_after, body: body.to_bytes() })
        })
    }

    pub(super) fn wait(&self, begun: JoinHandle<Result<Answer, String>>) -> Result<Answer, String> {
        self.runtime.block_on(async {
            let ended = tokio::time::timeout(PATIENCE, begun).await;
            ended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?
        })
    }

    pub(super) fn try_call(&self, method: &str, path: &str, body: &str) -> Result<Answer, String> {
        self.wait(self.begin(method, path, body))
    }

    #[track_caller]
    pub(super) fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    #[track_caller]
    pub(super) fn ok(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.call(method, path, body);
        assert_eq!(answer.status / 100, 2, "{method} {path}: {answer:?}");
        answer.json()
    }
}
