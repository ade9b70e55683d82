//! The connection to the master, on which the master asks.
//!
//! The worker listens from the moment it is connected, because polls that the master remembered
//! come before the answer to the registration. Whenever the connection ends, in whatever phase,
//! another one is made after a pause.
//!
//! When the targets change, a second connection is registered with the new ones, and then the first
//! is left, as soon as all that was asked on it is answered. Every master understands that, and no
//! poll is lost in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::Worker;
use super::request::{self, Asker};
use crate::net::{self, Handler, Peer};
use crate::password::Password;
use crate::wire::Json;

/// For connecting, and for the answer to each of our requests.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// A master of whom nothing comes for two of these is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Connections that were left and still have something to answer.
const LEAVING_MAX: usize = 8;

/// Where the master is.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    /// The worker's own one.
    pub(super) password: Option<Password>,
    pub(super) reconnect_pause: Duration,
}

/// Stays registered with the master for ever.
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

/// Tells the master that there are jobs, on a connection of its own. For a worker that leaves: it
/// is not asked for them itself.
pub(super) async fn poke(worker: &Arc<Worker>, master: &Address, targets: Vec<String>) {
    let told = async {
        let link = connect(worker, master).await?;
        let asked = link.peer.ask("poke", Some(poke_data(targets))).within(ANSWER_TIME_MAX).await;
        link.peer.close();
        asked.map_err(|error| error.to_string())
    };
    if let Err(reason) = told.await {
        worker.log.warn(format_args!("the master is not told of jobs that wait: {reason}"));
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
            // When the master answers this, it has got everything before it.
            let _ = self.peer.ask("status", None).within(ANSWER_TIME_MAX).await;
        };
        tokio::select! {
            () = answered => {}
            () = self.peer.closed() => {}
        }
        self.peer.close();
    }
}

/// Answers the master on one connection, and knows how much is under way.
struct Requests {
    worker: Arc<Worker>,
    under_way: AtomicUsize,
    answered: Notify,
}

#[async_trait]
impl Handler for Requests {
    async fn handle(&self, _: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let answer = request::answer(&self.worker, Asker::Master, kind, data).await;
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.answered.notify_waiters();
        answer
    }
}
