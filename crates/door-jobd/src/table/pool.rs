//! A few connections to a database server, opened on demand and kept while healthy. Each
//! transaction has one for itself, so that a fetch and a result never share one.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use windlass_core::sync::lock;

use super::session::Fault;

/// Transactions at a time.
const CONNECTIONS_MAX: usize = 4;

pub(super) struct Pool<C> {
    idle: Arc<Mutex<Vec<C>>>,
    places: Arc<Semaphore>,
}

/// A borrowed connection. It is returned only by `keep`; after a failed transaction it is closed,
/// which rolls the transaction back.
pub(super) struct Loan<C> {
    connection: Option<C>,
    idle: Arc<Mutex<Vec<C>>>,
    _place: OwnedSemaphorePermit,
}

impl<C> Pool<C> {
    pub(super) fn new() -> Self {
        Self { idle: Arc::default(), places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// A place, and an idle connection if there is one.
    pub(super) async fn place(&self) -> Result<Loan<C>, Fault> {
        let closed = |_| Fault::Away("the connections were closed".into());
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        let mut loan = Loan { connection: None, idle: Arc::clone(&self.idle), _place: place };
        loan.take_idle();
        Ok(loan)
    }

    /// Closes idle connections and lends no more.
    pub(super) fn close(&self) -> Vec<C> {
        self.places.close();
        std::mem::take(&mut *lock(&self.idle))
    }
}

impl<C> Loan<C> {
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
