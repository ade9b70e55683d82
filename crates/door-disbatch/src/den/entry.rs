//! A node's name and lease: acquired, renewed by a separate task, and released.
//!
//! ```text
//! renewal sent ──► succeeded: a tick for the fence, with the time of the sending
//!              └─► not answered: the hosts are asked; all refuse: a tick as well
//!              └─► the entry is not ours: lost; everything ends, and another boot begins
//! ```

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::Document;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use windlass_core::launch::{BootTime, Fence};
use windlass_core::sync::lock;

use super::here;
use super::lease::{DatabasePath, Host, Lease};
use crate::database::{Clock, Database, DbError, Entered, NodeBoot, Process};

/// If a renewal takes longer, we probe whether the database is reachable.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(250);
const PROBE_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause before a failed renewal is retried.
const AGAIN_PAUSE: Duration = Duration::from_millis(500);

/// Pause between two ticks while nothing runs.
const IDLE_PAUSE: Duration = Duration::from_millis(500);

/// Ticks the fence while nothing is started, until this is dropped.
pub(super) fn idle(fence: &Arc<dyn Fence>) -> AbortOnDropHandle<()> {
    let fence = Arc::clone(fence);
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            fence.tick(here::boot_time());
            sleep(IDLE_PAUSE).await;
        }
    }))
}

/// The values that stay the same each time the node enters.
#[derive(Clone)]
pub(super) struct EntryContext {
    pub(super) database: Database,
    pub(super) clock: Clock,
    pub(super) fence: Arc<dyn Fence>,
    pub(super) heartbeat: Duration,
    pub(super) orphan_after: Duration,
    pub(super) host: String,
    pub(super) version: String,
}

impl EntryContext {
    fn process(&self) -> Process {
        Process {
            host: self.host.clone(),
            pid: std::process::id(),
            fence: self.fence.process_id(),
            orphan_after: self.orphan_after,
            version: self.version.clone(),
        }
    }

    /// Tries to acquire the node's entry for this boot.
    pub(super) async fn enter(&self, me: &NodeBoot) -> Result<Result<Term, Document>, DbError> {
        let (sent, process) = (here::boot_time(), self.process());
        match self.database.node_enter(me, &process, self.clock.now()).await? {
            Entered::Taken(entry) => Ok(Err(entry)),
            Entered::Mine => {
                self.fence.tick(sent);
                Ok(Ok(Term::new(self.clone(), me.clone(), sent, process.fence)))
            }
        }
    }
}

/// The period in which a node holds its name under one boot.
pub(super) struct Term {
    entry_context: EntryContext,
    pub(super) me: NodeBoot,
    lease: Mutex<Lease>,
    database_path: Mutex<DatabasePath>,
    /// The fence recorded in the entry.
    announced_fence: Mutex<Option<u32>>,
    /// Cancelled when the name is lost.
    pub(super) lost: CancellationToken,
    look: Notify,
}

impl Term {
    fn new(entry_context: EntryContext, me: NodeBoot, sent: BootTime, fence: Option<u32>) -> Term {
        let lease = Lease::new(entry_context.orphan_after, sent.0);
        let hosts = entry_context.database.hosts().into_iter().collect();
        Term {
            entry_context,
            me,
            lease: Mutex::new(lease),
            database_path: Mutex::new(DatabasePath { hosts, ..DatabasePath::default() }),
            announced_fence: Mutex::new(fence),
            lost: CancellationToken::new(),
            look: Notify::new(),
        }
    }

    /// Whether a task may be claimed and started now.
    pub(super) fn may_start(&self) -> bool {
        let fresh = lock(&self.lease).is_fresh(here::boot_time().0);
        fresh && !self.lost.is_cancelled() && self.entry_context.fence.process_id().is_some()
    }

    /// The entry may have been lost; triggers a renewal, which finds out.
    pub(super) fn check_entry(&self) {
        self.look.notify_one();
    }

    /// Updates what is known about the servers and the location of other nodes.
    pub(super) fn learn_database_path(&self, hosts: Vec<Host>, vouched: bool, far_nodes: bool) {
        let mut database_path = lock(&self.database_path);
        database_path.hosts =
            self.entry_context.database.hosts().into_iter().chain(hosts).collect();
        (database_path.vouched, database_path.far_nodes) = (vouched, far_nodes);
    }

    /// Renews the lease until the name is lost. If this is dropped, the lease expires.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut failing = false;
        let mut fired = self.entry_context.fence.fired();
        let mut pause = self.entry_context.heartbeat;
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = self.look.notified() => {}
            }
            let sent = here::boot_time();
            let renewed = tokio::select! {
                renewed = self.renew(sent) => renewed,
                never = self.probe_all_along() => match never {},
            };
            pause = self.entry_context.heartbeat;
            match renewed {
                Ok(true) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("renewing the lease works again");
                    }
                }
                Ok(false) => {
                    tracing::error!(
                        node = self.me.node,
                        "this node was declared dead or its entry was taken; it ends all tasks \
                         and enters again"
                    );
                    self.lost.cancel();
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("cannot renew the lease: {error}");
                    }
                    self.probe().await;
                    pause = AGAIN_PAUSE.min(self.entry_context.heartbeat);
                }
            }
            let now_fired = self.entry_context.fence.fired();
            if std::mem::replace(&mut fired, now_fired) != now_fired {
                tracing::error!("the lease expired; all tasks of this node were ended");
            }
        }
    }

    /// False: the name is lost.
    async fn renew(&self, sent: BootTime) -> Result<bool, DbError> {
        let fence = self.entry_context.fence.process_id();
        let same_fence = *lock(&self.announced_fence) == fence;
        if same_fence && self.entry_context.database.node_beat(&self.me).await? {
            self.tick(sent);
            return Ok(true);
        }
        if same_fence && self.entry_context.database.node(&self.me.node).await?.is_some() {
            return Ok(false);
        }
        // The entry was removed, or must name another fence. While our lease is fresh, no other
        // node treats us as dead, so an answer within that time keeps us the same node.
        let process = self.entry_context.process();
        let now = self.entry_context.clock.now();
        let entered = self.entry_context.database.node_enter(&self.me, &process, now).await?;
        let fresh = lock(&self.lease).is_fresh(here::boot_time().0);
        let mine = matches!(entered, Entered::Mine) && fresh;
        if mine {
            *lock(&self.announced_fence) = process.fence;
            self.tick(sent);
        }
        Ok(mine)
    }

    fn tick(&self, at: BootTime) {
        lock(&self.lease).renewed(at.0);
        self.entry_context.fence.tick(at);
    }

    async fn probe_all_along(&self) -> std::convert::Infallible {
        sleep(PATIENCE).await;
        loop {
            self.probe().await;
            sleep(PROBE_PAUSE).await;
        }
    }

    /// While the database refuses all connections, no other node can check whether we are alive.
    async fn probe(&self) {
        let Some(hosts) = lock(&self.database_path).witnesses() else { return };
        let at = here::boot_time();
        if join_all(hosts.iter().map(refuses)).await.into_iter().all(|refuses| refuses) {
            self.tick(at);
        }
    }

    /// Releases the name.
    pub(super) async fn leave(&self) -> Result<(), DbError> {
        self.entry_context.database.node_leave(&self.me).await
    }
}

/// Whether every address of a host refuses connections at once.
async fn refuses(host: &Host) -> bool {
    let all = async {
        let addresses: Vec<SocketAddr> = lookup_host(host).await.ok()?.collect();
        let connects = addresses.iter().map(|address| TcpStream::connect(*address));
        let refused = |connect: &std::io::Result<TcpStream>| {
            connect.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        Some(!addresses.is_empty() && join_all(connects).await.iter().all(refused))
    };
    timeout(PROBE_TIME_MAX, all).await.ok().flatten().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn only_a_refusal_is_a_refusal() {
        // A bound port without a listener is ours and refuses connections.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let host = ("127.0.0.1".to_owned(), socket.local_addr().unwrap().port());
        assert!(refuses(&host).await);
        let _listener = socket.listen(1).unwrap();
        assert!(!refuses(&host).await);
        assert!(!refuses(&("no.such.host.invalid".to_owned(), 1)).await);
    }
}
