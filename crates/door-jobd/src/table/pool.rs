//! A few connections to a database server, opened on demand and kept while healthy. Each
//! transaction has one for itself, so that a fetch and a result never share one.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use windlass_core::sync::lock;

use super::session::Fault;

/// Maximum number of concurrent transactions.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct Pool<C> {
    idle: Arc<Mutex<Vec<C>>>,
    permits: Arc<Semaphore>,
}

/// A borrowed connection. It is returned only by `keep`; after a failed transaction it is closed,
/// which rolls the transaction back.
pub(super) struct PooledConnection<C> {
    connection: Option<C>,
    idle: Arc<Mutex<Vec<C>>>,
    _permit: OwnedSemaphorePermit,
}

impl<C> Pool<C> {
    pub(super) fn new() -> Self {
        Self { idle: Arc::default(), permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Borrows a slot, with an idle connection if there is one.
    pub(super) async fn borrow(&self) -> Result<PooledConnection<C>, Fault> {
        let closed = |_| Fault::Away("the connections were closed".into());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let mut pooled =
            PooledConnection { connection: None, idle: Arc::clone(&self.idle), _permit: permit };
        pooled.take_idle();
        Ok(pooled)
    }

    /// Closes idle connections and lends no more.
    pub(super) fn close(&self) -> Vec<C> {
        self.permits.close();
        std::mem::take(&mut *lock(&self.idle))
    }
}

impl<C> PooledConnection<C> {
    /// Replaces a dead idle connection by the next one.
    pub(super) fn take_idle(&mut self) {
        self.connection = lock(&self.idle).pop();
    }

    pub(super) fn connection(&mut self) -> Option<&mut C> {
        self.connection.as_mut()
    }

    pub(super) fn put(&mut self, connection: C) -> &mut C {
        self.connection.insert(connection)
    }

    pub(super) fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            lock(&self.idle).push(connection);
        }
    }
}
