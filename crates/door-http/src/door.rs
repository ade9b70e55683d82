//! The state shared by all routes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use windlass_core::Clock;
use windlass_engine::Engine;
use windlass_net::{Memory, Network, Sites};

use crate::access::Access;
use crate::room::Room;
use crate::tries::Tries;

/// Shared by all requests of one door; cheap to clone.
#[derive(Clone)]
pub(crate) struct Door(Arc<DoorState>);

pub(crate) struct DoorState {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) body_bytes_max: u64,
    pub(crate) body_timeout: Duration,
    pub(crate) access: Access,
    pub(crate) tries: Tries,
    pub(crate) metrics_allow: Vec<Network>,
    pub(crate) sites: Sites,
    pub(crate) version: &'static str,
    pub(crate) openapi: Bytes,
    pub(crate) memory: Memory,
    pub(crate) room: Room,
    /// Cancelled when the door closes: waiting requests are answered at once.
    pub(crate) closing: CancellationToken,
}

impl Door {
    pub(crate) fn new(state: DoorState) -> Door {
        Door(Arc::new(state))
    }
}

impl std::ops::Deref for Door {
    type Target = DoorState;
    fn deref(&self) -> &DoorState {
        &self.0
    }
}
