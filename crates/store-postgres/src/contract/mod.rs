//! The store's traits, area by area: the durability of each call, and the module that carries it
//! out. Claims and takes are relaxed, and repeated until due jobs are ready (`write_when_ready`);
//! for inserts, settlements and decisions the caller says how durable they are.

mod ask;
mod run;
mod set;

use async_trait::async_trait;
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::store::{Capabilities, Durability, Error, Store};

use crate::PostgresStore;

const SYNCED: Durability = Durability::Synced;
const RELAXED: Durability = Durability::Relaxed;

#[async_trait]
impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "postgres",
            wakes: self.inner.hints.are_on(),
            shared: true,
            forgets: true,
            payload_inline_bytes_max: PAYLOAD_INLINE_BYTES_MAX,
        }
    }

    async fn flush(&self) -> Result<(), Error> {
        self.inner.write(SYNCED, |_| Box::pin(async { Ok(()) })).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.read(|_| Box::pin(async { Ok(()) })).await
    }

    async fn changed(&self) {
        self.inner.hints.hinted().await;
    }

    async fn close(&self) {
        self.inner.hints.stop();
        self.inner.pool.close().await;
        self.beat.pool.close().await;
    }
}
