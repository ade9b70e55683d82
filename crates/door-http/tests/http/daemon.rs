//! A daemon with an open HTTP door, and a runner that obeys the payload: a number ends the job with
//! that status, `hang` runs until it is stopped, anything else is 200 with the payload as its
//! result.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use windlass_core::log::{Log, Stream};
use windlass_core::memory::MemoryStore;
use windlass_core::runner::{Assignment, Batch, Report, Reports, Stop};
use windlass_core::secret::MemoryKeys;
use windlass_core::store::prelude::*;
use windlass_core::time::SystemClock;
use windlass_core::{
    AttemptId, Handler, HandlerId, HandlerSpec, Invalid, JobId, Json, Lang, Payload, Runner, Status,
};
use windlass_door_http::{Access, Options};
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Parts, RealDisk};
use windlass_test_kit::wait::{in_time, pause};

use crate::client::{Client, Response, request};

pub struct Daemon {
    pub address: SocketAddr,
    pub store: Arc<MemoryStore>,
    pub runner: Arc<FakeRunner>,
    pub engine: Engine,
    pub shutdown: CancellationToken,
    pub serving: JoinHandle<std::io::Result<()>>,
    pub data: TempDir,
}

impl Daemon {
    pub async fn start() -> Daemon {
        Daemon::start_with(|_| {}).await
    }

    pub async fn start_with(adjust: impl FnOnce(&mut Options)) -> Daemon {
        let data = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let runner = Arc::new(FakeRunner::default());
        let clock = Arc::new(SystemClock);
        let parts = Parts {
            store: store.clone(),
            runner: runner.clone(),
            clock,
            disk: Arc::new(RealDisk),
            seal_keys: Arc::new(MemoryKeys::default()),
        };
        let engine_options = windlass_engine::Options::new(data.path().to_owned());
        let engine =
            Engine::start(parts, engine_options, Arc::new(Metrics::default())).await.unwrap();
        let mut options =
            Options { version: "1.2.3", access: Access::Everybody, ..Options::default() };
        adjust(&mut options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving =
            windlass_door_http::serve(listener, engine.clone(), options, shutdown.clone());
        let serving = tokio::spawn(serving);
        Daemon { address, store, runner, engine, shutdown, serving, data }
    }

    /// One request on its own connection.
    pub async fn call(&self, line: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Response {
        Client::connect(self.address).await.call(&request(line, headers, body)).await
    }

    pub async fn get(&self, path: &str) -> Response {
        self.call(&format!("GET {path}"), &[], "").await
    }

    pub async fn post(&self, path: &str) -> Response {
        self.call(&format!("POST {path}"), &[], "").await
    }

    pub async fn json(&self, line: &str, body: Value) -> Response {
        self.call(line, &["content-type: application/json"], body.to_string()).await
    }

    /// Adds lines and returns their ids.
    pub async fn add(&self, path: &str, lines: &str) -> Vec<String> {
        let answer = self.call(&format!("POST {path}"), &["content-type: text/plain"], lines).await;
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.ids()
    }

    /// Sets a handler for the type; it obeys the payloads.
    pub async fn handle(&self, path: &str) {
        let body = serde_json::json!({"lang": "sh", "body": "as the payload says"});
        assert_eq!(self.json(&format!("PUT {path}"), body).await.status, 200);
    }

    /// Returns when an aborted request has left nothing behind: files are removed by other threads.
    pub async fn no_leftovers(&self) {
        let clean = async {
            while !self.leftovers().await.is_empty() {
                pause().await;
            }
        };
        in_time("everything is removed in the end", clean).await;
    }

    /// Everything that a request may have left behind.
    pub async fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for stats in self.store.type_stats(None).await.unwrap() {
            left.push(format!("{stats:?}"));
        }
        let payloads = self.data.path().join("payload");
        for entry in std::fs::read_dir(payloads).into_iter().flatten() {
            left.push(entry.unwrap().path().display().to_string());
        }
        left
    }
}

#[derive(Default)]
pub struct FakeRunner {
    running: watch::Sender<Vec<JobId>>,
    stops: Mutex<HashMap<AttemptId, watch::Sender<Option<Stop>>>>,
}

impl FakeRunner {
    /// Returns when this job hangs.
    pub async fn hangs(&self, id: &str) {
        let id: JobId = id.parse().unwrap();
        let mut running = self.running.subscribe();
        in_time("the job hangs", running.wait_for(|ids| ids.contains(&id))).await.unwrap();
    }

    async fn hang(&self, attempt: AttemptId) -> Stop {
        let (sender, mut stop) = watch::channel(None);
        self.stops.lock().unwrap().insert(attempt, sender);
        self.running.send_modify(|ids| ids.push(attempt.job));
        let stop = stop.wait_for(Option::is_some).await.unwrap();
        stop.expect("waited for")
    }
}

#[async_trait]
impl Runner for FakeRunner {
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid> {
        match spec.lang {
            Lang::Php => Err(Invalid::new("lang", "php is not installed on this machine")),
            _ => Ok(()),
        }
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        10
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        for Assignment { id, payload, .. } in batch.jobs {
            reports.started(id).await;
            let text = match &payload {
                Payload::Inline(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Payload::Pieces { bytes } => format!("{bytes} bytes in pieces"),
            };
            let stopped = if text == "hang" { Some(self.hang(id).await) } else { None };
            let status = text.parse().ok().and_then(Status::new).unwrap_or(Status::OK);
            let mut log = Log::new();
            log.push(Stream::Out, &format!("saw {text}"));
            log.push(Stream::Err, "no locale");
            let data = Some(Json::string(&text));
            let emitted = Vec::new();
            let run_time = Duration::ZERO;
            let report = Report { status, stopped, data, log, emitted, run_time };
            reports.ended(id, report).await;
        }
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        if let Some(sender) = self.stops.lock().unwrap().get(&attempt) {
            sender.send_replace(Some(why));
        }
    }

    fn warm(&self) -> Vec<HandlerId> {
        Vec::new()
    }

    async fn close(&self) {}
}
