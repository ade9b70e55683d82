//! How a daemon is asked to stop.

use tokio_util::sync::CancellationToken;

/// A request to stop; all clones are the same request.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Stop gracefully: start nothing new, and give running work its promised time.
    pub asked: CancellationToken,
    /// Stop at once.
    pub now: CancellationToken,
}
