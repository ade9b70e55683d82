//! How a daemon is asked to end.

use tokio_util::sync::CancellationToken;

/// A request to end; all clones are one request.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// End in order: nothing new is begun, and what runs gets the time it was promised.
    pub asked: CancellationToken,
    /// End at once.
    pub now: CancellationToken,
}
