//! Commands without a waiting client: `Connection: forget` runs at once, delayed ones run later.
//! As in Bedrock they are kept in memory only, and delayed ones are lost when the door closes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_net::Memory;

use crate::connection::DoorState;
use crate::execute::{Call, Commands, run_safely};
use crate::wire::Request;

/// Maximum number of queued commands.
const QUEUED_MAX: usize = 10_000;
/// Maximum size of their requests together.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) struct Background {
    slots: Arc<Semaphore>,
    memory: Memory,
}

impl Default for Background {
    fn default() -> Background {
        Background {
            slots: Arc::new(Semaphore::new(QUEUED_MAX)),
            memory: Memory::new(QUEUED_BYTES_MAX),
        }
    }
}

/// Runs the request after a delay. False if too many are already waiting.
pub(crate) fn queue<C: Commands>(
    door: &Arc<DoorState<C>>,
    request: Request,
    peer: IpAddr,
    delay: Duration,
) -> bool {
    let background = &door.background;
    let Ok(slot) = background.slots.clone().try_acquire_owned() else { return false };
    let Some(share) = background.memory.take(request.bytes()) else { return false };
    let due = Instant::now() + delay;
    let owned = door.clone();
    door.connections.spawn(slot, async move {
        let _share = share;
        if !delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = owned.closing.cancelled() => {
                    tracing::warn!(
                        verb = request.verb(),
                        "the door closes before a command's commandExecuteTime; it is lost"
                    );
                    return;
                }
            }
        }
        let nobody = CancellationToken::new();
        nobody.cancel();
        let call = Call { peer, until: Instant::now(), gone: nobody };
        let reply = run_safely(&*owned.commands, &Arc::new(request), call).await;
        if !reply.handed_out.is_empty() {
            owned.commands.undelivered(reply.handed_out).await;
        }
    });
    true
}
