//! A worker on its own port, with a table and commands that tests control.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_core::launch::{LaunchSpec, Launched, Launcher, Running, SignalTo};
use windlass_core::time::SystemClock;
use windlass_test_kit::wait::eventually;

use super::super::*;
use crate::net::connect;
use crate::table::{End, Fetched, Manual, Origin, Recovered, Table, TableError, Unwritten};

/// Longer than anything takes here; a test that waits this long has failed.
pub(super) const LONG: Duration = windlass_test_kit::wait::PATIENCE;

pub(super) const CONFIG: &str = "name=w1\nhost=127.0.0.1\nport=1\nstorage=sqlite:///none\n\
    launcher=run {id}\nmysql_fetch_limit=10\nshutdown_timeout=60\n";

/// Waits for a condition.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, || is_so().then_some(())).await;
}

pub(super) fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

/// A worker on its own port.
pub(super) struct Fixture {
    pub(super) table: Arc<FakeTable>,
    pub(super) launcher: Arc<FakeLauncher>,
    pub(super) stop: Stop,
    port: u16,
    task: JoinHandle<()>,
}

impl Fixture {
    pub(super) async fn new(targets: &str) -> Fixture {
        Fixture::with(&format!("{CONFIG}[targets]\n{targets}")).await
    }

    pub(super) async fn with(config: &str) -> Fixture {
        let config = WorkerConfig::parse(config).unwrap();
        let table = Arc::new(FakeTable::default());
        let launcher = Arc::new(FakeLauncher::default());
        let stop = Stop::default();
        let access = config.access.clone();
        let server = Server::bind("127.0.0.1", 0, access, &Log::quiet()).await.unwrap();
        let port = server.addr().unwrap().port();
        let parts = parts(&table, &launcher);
        let task = tokio::spawn(serve(config, parts, server, stop.clone()));
        Fixture { table, launcher, stop, port, task }
    }

    pub(super) async fn client(&self) -> Peer {
        connect("127.0.0.1", self.port, None, Arc::new(Silent), &Log::quiet()).await.unwrap()
    }

    /// Sends one request on a new connection.
    pub(super) async fn ask(&self, kind: &str, data: &str) -> Result<String, String> {
        let answer = self.client().await.ask(kind, Some(json(data))).within(LONG).await;
        answer.map(|data| data.to_string()).map_err(|error| error.to_string())
    }

    /// A target's status: whether it is paused, its concurrency and its length.
    pub(super) async fn target(&self, name: &str) -> String {
        let status = json(&self.ask("status", "{}").await.unwrap());
        status.get("targets").and_then(|targets| targets.get(name)).unwrap().to_string()
    }

    pub(super) async fn stopped(self) {
        self.stop.asked.cancel();
        tokio::time::timeout(LONG, self.task).await.expect("it stops").unwrap();
    }
}

pub(super) fn parts(table: &Arc<FakeTable>, launcher: &Arc<FakeLauncher>) -> Parts {
    Parts {
        table: Arc::clone(table) as Arc<dyn Table>,
        launcher: Arc::clone(launcher) as Arc<dyn Launcher>,
        clock: Arc::new(SystemClock),
        log: Log::quiet(),
    }
}

/// Refuses everything.
pub(super) struct Silent;

#[async_trait]
impl Handler for Silent {
    async fn handle(&self, _: &Peer, kind: &str, _: Json) -> Result<Json, String> {
        Err(kind.to_owned())
    }
}

/// A table in memory.
#[derive(Default)]
pub(super) struct FakeTable {
    rows: Mutex<BTreeMap<u64, FakeRow>>,
    away: Mutex<bool>,
    /// The next result of `recover`.
    pub(super) lost: Mutex<Vec<Row>>,
    /// The next result of `renew`.
    pub(super) taken: Mutex<Vec<u64>>,
    /// Results are not written while a test holds this.
    pub(super) finish_gate: tokio::sync::Mutex<()>,
    /// Calls of `finish` so far.
    pub(super) finish_calls: AtomicUsize,
}

#[derive(Debug, Clone)]
pub(super) struct FakeRow {
    pub(super) target: String,
    pub(super) status: &'static str,
    pub(super) end: Option<End>,
}

impl FakeTable {
    pub(super) fn add(
        &self,
        ids: std::ops::RangeInclusive<u64>,
        target: &str,
        status: &'static str,
    ) {
        for id in ids {
            let row = FakeRow { target: target.into(), status, end: None };
            self.rows.lock().unwrap().insert(id, row);
        }
    }

    pub(super) fn status(&self, id: u64) -> &'static str {
        self.rows.lock().unwrap()[&id].status
    }

    pub(super) fn end(&self, id: u64) -> Option<End> {
        self.rows.lock().unwrap()[&id].end.clone()
    }

    pub(super) fn count(&self, status: &str) -> usize {
        self.rows.lock().unwrap().values().filter(|row| row.status == status).count()
    }

    pub(super) fn set_away(&self, away: bool) {
        *self.away.lock().unwrap() = away;
    }

    fn here(&self) -> Result<(), TableError> {
        let away = *self.away.lock().unwrap();
        if away { Err(TableError::Away("gone".into())) } else { Ok(()) }
    }

    fn set(&self, id: u64, status: &'static str) {
        if let Some(row) = self.rows.lock().unwrap().get_mut(&id) {
            row.status = status;
        }
    }
}

#[async_trait]
impl Table for FakeTable {
    async fn prepare(&self) -> Result<(), TableError> {
        self.here()
    }

    async fn fetch(
        &self,
        targets: &[String],
        limit: u32,
        _: Duration,
    ) -> Result<Fetched, TableError> {
        self.here()?;
        let mut fetched = Fetched::default();
        for (id, row) in self.rows.lock().unwrap().iter_mut() {
            if row.status == "waiting" && targets.contains(&row.target) {
                if fetched.rows.len() == limit as usize {
                    break;
                }
                row.status = "accepted";
                let target = row.target.clone();
                fetched.rows.push(Row { id: *id, target, origin: Origin::Waiting });
            }
        }
        fetched.more = fetched.rows.len() == limit as usize;
        Ok(fetched)
    }

    async fn accept_manual(
        &self,
        ids: &[u64],
        targets: &[String],
        _: Duration,
    ) -> Result<Vec<Manual>, TableError> {
        self.here()?;
        let mut rows = self.rows.lock().unwrap();
        let answers = ids.iter().map(|id| {
            let id = *id;
            let Some(row) = rows.get_mut(&id) else { return Manual::Missing(id) };
            let (status, target) = (row.status, row.target.clone());
            row.status = "ignored";
            if status != "manual" {
                return Manual::WrongStatus { id, status: status.into() };
            }
            if !targets.contains(&target) {
                return Manual::UnknownTarget { id, target };
            }
            row.status = "accepted";
            Manual::Accepted(Row { id, target, origin: Origin::Manual })
        });
        Ok(answers.collect())
    }

    async fn start(&self, ids: &[u64], _: i64) -> Result<Vec<u64>, TableError> {
        self.here()?;
        let ours: Vec<u64> =
            ids.iter().copied().filter(|id| self.status(*id) == "accepted").collect();
        ours.iter().for_each(|id| self.set(*id, "running"));
        Ok(ours)
    }

    async fn finish(&self, ends: &[End]) -> Result<Vec<Unwritten>, TableError> {
        self.here()?;
        self.finish_calls.fetch_add(1, Ordering::SeqCst);
        let _open = self.finish_gate.lock().await;
        for end in ends {
            self.set(end.id, "done");
            if let Some(row) = self.rows.lock().unwrap().get_mut(&end.id) {
                row.end = Some(end.clone());
            }
        }
        Ok(Vec::new())
    }

    async fn hand_back(&self, rows: &[Row]) -> Result<(), TableError> {
        self.here()?;
        for row in rows {
            self.set(row.id, if row.origin == Origin::Manual { "manual" } else { "waiting" });
        }
        Ok(())
    }

    async fn renew(&self, ids: &[u64], _: Duration) -> Result<Vec<u64>, TableError> {
        self.here()?;
        let mut taken = std::mem::take(&mut *self.taken.lock().unwrap());
        taken.retain(|id| ids.contains(id));
        Ok(taken)
    }

    async fn recover(
        &self,
        _: &[u64],
        _: Interrupted,
        _: i64,
        _: &str,
    ) -> Result<Recovered, TableError> {
        self.here()?;
        let back = std::mem::take(&mut *self.lost.lock().unwrap());
        back.iter().for_each(|row| self.set(row.id, "waiting"));
        Ok(Recovered { back, ..Recovered::default() })
    }

    async fn close(&self) {}
}

/// Commands that end on a test's request.
#[derive(Default)]
pub(super) struct FakeLauncher {
    commands: Mutex<HashMap<u64, watch::Sender<Option<Launched>>>>,
    order: Mutex<Vec<u64>>,
    signals: Arc<Mutex<Vec<SignalTo>>>,
}

impl FakeLauncher {
    /// In the order in which they were launched.
    pub(super) fn launched(&self) -> Vec<u64> {
        self.order.lock().unwrap().clone()
    }

    pub(super) fn signals(&self) -> Vec<SignalTo> {
        self.signals.lock().unwrap().clone()
    }

    /// Ends a command that was launched.
    pub(super) async fn end(&self, id: u64, code: i32) {
        until("the job is launched", || self.commands.lock().unwrap().contains_key(&id)).await;
        let launched = Launched { code: Some(code), ..Launched::default() };
        self.commands.lock().unwrap()[&id].send_replace(Some(launched));
    }
}

impl Launcher for FakeLauncher {
    fn launch(&self, spec: LaunchSpec) -> Box<dyn Running> {
        assert_eq!(spec.program, "run");
        let id = spec.args[0].parse().unwrap();
        let sender = watch::Sender::new(None);
        self.commands.lock().unwrap().insert(id, sender.clone());
        self.order.lock().unwrap().push(id);
        Box::new(FakeRunning { ended: sender, signals: Arc::clone(&self.signals) })
    }
}

struct FakeRunning {
    ended: watch::Sender<Option<Launched>>,
    signals: Arc<Mutex<Vec<SignalTo>>>,
}

#[async_trait]
impl Running for FakeRunning {
    fn signal(&self, signal: SignalTo) -> bool {
        self.signals.lock().unwrap().push(signal);
        true
    }

    fn kill_tree(&self) {
        let killed = Launched { signal: Some("SIGKILL".into()), ..Launched::default() };
        self.ended.send_replace(Some(killed));
    }

    async fn wait(&self) -> Launched {
        let mut ended = self.ended.subscribe();
        let launched = ended.wait_for(Option::is_some).await.unwrap();
        launched.clone().unwrap_or_default()
    }
}
