//! The connection to the master, on which the master sends requests.
//!
//! The worker listens as soon as it is connected, because remembered polls may arrive before the
//! answer to the registration. Whenever the connection ends, the worker reconnects after a pause.
//!
//! When the targets change, a second connection is registered with the new ones, and the first is
//! closed as soon as all its requests are answered. Every master supports this, and no poll is lost
//! in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::Worker;
use super::request::{self, Requester};
use crate::net::{self, Handler, Peer};
use crate::password::Password;
use crate::wire::Json;

/// Time limit for connecting and for each answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// A master that is silent for two of these counts as gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Old connections that still have requests to answer.
const LEAVING_MAX: usize = 8;

/// The address of the master.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    /// The worker's own one.
    pub(super) password: Option<Password>,
    pub(super) reconnect_pause: Duration,
}

/// Keeps the worker registered with the master. Runs forever.
pub(super) async fn run(worker: &Arc<Worker>, master: &Address, mut targets: watch::Receiver<u64>) {
    let leaving = Arc::new(Semaphore::new(LEAVING_MAX));
    let mut current: Option<Link> = None;
    loop {
        targets.borrow_and_update();
        match register(worker, master).await {
            Ok(link) => {
                worker.log.info(format_args!("registered with the master {}", link.peer.addr()));
                worker.set_master(Some(link.peer.clone()));
                if let Some(old) = current.take()
                    && let Ok(permit) = leaving.clone().acquire_owned().await
                {
                    tokio::spawn(async move {
                        old.leave().await;
                        drop(permit);
                    });
                }
                tokio::select! {
                    () = link.peer.closed() => {
                        worker.log.warn("the connection to the master is lost");
                        worker.set_master(None);
                        sleep(master.reconnect_pause).await;
                    }
                    // It ends only with the worker.
                    _ = targets.changed() => current = Some(link),
                }
            }
            Err(reason) => {
                worker.log.error(format_args!("cannot register with the master: {reason}"));
                sleep(master.reconnect_pause).await;
            }
        }
    }
}

async fn register(worker: &Arc<Worker>, master: &Address) -> Result<Link, String> {
    let link = connect(worker, master).await?;
    let names = worker.state().queue.names();
    let data = Json::from([("name", (&worker.rules.name).into()), ("targets", names.into())]);
    let answer = link.peer.ask("register-worker", Some(data)).within(ANSWER_TIME_MAX).await;
    if let Err(error) = answer {
        link.peer.close();
        return Err(error.to_string());
    }
    let peer = link.peer.clone();
    tokio::spawn(async move { peer.ping_every(PING_INTERVAL).await });
    Ok(link)
}

async fn connect(worker: &Arc<Worker>, master: &Address) -> Result<Link, String> {
    let requests = Arc::new(Requests {
        worker: Arc::clone(worker),
        under_way: AtomicUsize::new(0),
        answered: Notify::new(),
    });
    let connecting = net::connect(
        &master.host,
        master.port,
        master.password.clone(),
        Arc::clone(&requests) as Arc<dyn Handler>,
        &worker.log,
    );
    match timeout(ANSWER_TIME_MAX, connecting).await {
        Ok(Ok(peer)) => Ok(Link { peer, requests }),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no connection in time".to_owned()),
    }
}

/// Tells the master that there are jobs, on a separate connection, so that a leaving worker is not
/// polled for them itself.
pub(super) async fn poke(worker: &Arc<Worker>, master: &Address, targets: Vec<String>) {
    let told = async {
        let link = connect(worker, master).await?;
        let asked = link.peer.ask("poke", Some(poke_data(targets))).within(ANSWER_TIME_MAX).await;
        link.peer.close();
        asked.map_err(|error| error.to_string())
    };
    if let Err(reason) = told.await {
        worker.log.warn(format_args!("cannot tell the master about waiting jobs: {reason}"));
    }
}

pub(super) fn poke_data(targets: Vec<String>) -> Json {
    Json::from([("targets", targets.into())])
}

struct Link {
    peer: Peer,
    requests: Arc<Requests>,
}

impl Link {
    /// Ends the connection when all is answered.
    async fn leave(self) {
        let answered = async {
            let mut changed = std::pin::pin!(self.requests.answered.notified());
            loop {
                changed.as_mut().enable();
                if self.requests.under_way.load(Ordering::Acquire) == 0 {
                    break;
                }
                changed.as_mut().await;
                changed.set(self.requests.answered.notified());
            }
            // When the master answers this, it has received everything before it.
            let _ = self.peer.ask("status", None).within(ANSWER_TIME_MAX).await;
        };
        tokio::select! {
            () = answered => {}
            () = self.peer.closed() => {}
        }
        self.peer.close();
    }
}

/// Answers the master on one connection, and counts the requests in progress.
struct Requests {
    worker: Arc<Worker>,
    under_way: AtomicUsize,
    answered: Notify,
}

#[async_trait]
impl Handler for Requests {
    async fn handle(&self, _: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let answer = request::answer(&self.worker, Requester::Master, kind, data).await;
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.answered.notify_waiters();
        answer
    }
}
