//! Hints to other daemons that waiting jobs may have changed, by LISTEN and NOTIFY on a connection
//! of their own.
//!
//! A notification is never part of a transaction that changes jobs: the server commits those that
//! notify one after the other. A hint that is lost costs a daemon the time until its next look.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{AsyncMessage, Client};

use crate::connect::{Connected, Connector};
use crate::error::Result;
use crate::open::Options;
use crate::watch::Watch;

/// All stores of a database use one channel; the payload is the schema.
const LISTEN: &str = "LISTEN windlass";
const NOTIFY: &str = "SELECT pg_notify('windlass', $1)";

/// At most one notification is sent in this time.
const PAUSE: Duration = Duration::from_millis(20);
/// Before a connection that was lost is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Sends and receives hints. Dropping it ends its connection.
pub(crate) struct Hints {
    shared: Arc<Shared>,
    /// `None` without LISTEN: nothing is sent or received.
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Notified when a hint is to be sent.
    noted: Notify,
    /// Notified when a hint arrives.
    hinted: Notify,
}

impl Hints {
    pub(crate) fn start(connector: Arc<Connector>, options: &Options) -> Hints {
        let shared = Arc::<Shared>::default();
        let serve = serve(connector, options.schema.clone(), shared.clone());
        let task = options.listen.then(|| tokio::spawn(serve));
        Hints { shared, task }
    }

    /// Whether this store receives hints from other daemons.
    pub(crate) fn are_on(&self) -> bool {
        self.task.is_some()
    }

    /// Tells other daemons soon that waiting jobs may have changed.
    pub(crate) fn send(&self) {
        self.shared.noted.notify_one();
    }

    /// Ends the connection.
    pub(crate) fn stop(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Returns when another daemon may have changed waiting jobs since the last call.
    pub(crate) async fn hinted(&self) {
        self.shared.hinted.notified().await;
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Keeps one connection open for as long as the store is.
async fn serve(connector: Arc<Connector>, schema: String, shared: Arc<Shared>) {
    let mut hints = Watch::new("hints from other daemons");
    loop {
        let line = hints.run(async {
            let line = listen(&connector, &schema, &shared).await;
            line.map_err(|error| error.translate(connector.name()))
        });
        if let Some(line) = line.await {
            let until_lost = async {
                line.serve(&schema, &shared).await;
                Ok::<_, Infallible>(())
            };
            hints.run(until_lost).await;
        }
        // Hints may have been missed.
        shared.hinted.notify_one();
        sleep(RECONNECT_PAUSE).await;
    }
}

struct Line {
    client: Client,
    /// Ends with the connection.
    incoming: JoinHandle<()>,
}

async fn listen(connector: &Connector, schema: &str, shared: &Arc<Shared>) -> Result<Line> {
    let Connected { client, mut connection, .. } = connector.connect().await?;
    let (schema, shared) = (schema.to_owned(), shared.clone());
    let (own_set, own) = tokio::sync::watch::channel(0);
    let incoming = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            let AsyncMessage::Notification(hint) = message else { continue };
            if hint.payload() == schema && hint.process_id() != *own.borrow() {
                shared.hinted.notify_one();
            }
        }
    });
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
    own_set.send_replace(row.try_get(0)?);
    client.batch_execute(LISTEN).await?;
    Ok(Line { client, incoming })
}

impl Line {
    /// Sends hints until the connection is lost.
    async fn serve(mut self, schema: &str, shared: &Shared) {
        let Ok(notify) = self.client.prepare(NOTIFY).await else { return };
        // A hint may be forgotten in a crash: no commit waits for it.
        if self.client.batch_execute("SET synchronous_commit = off").await.is_err() {
            return;
        }
        loop {
            tokio::select! {
                () = shared.noted.notified() => {
                    if self.client.execute(&notify, &[&schema]).await.is_err() {
                        return shared.noted.notify_one();
                    }
                    sleep(PAUSE).await;
                }
                ended = &mut self.incoming => match ended {
                    Err(panicked) if panicked.is_panic() => resume_unwind(panicked.into_panic()),
                    _ => return,
                },
            }
        }
    }
}
