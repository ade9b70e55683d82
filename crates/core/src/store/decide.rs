//! Changes by pure decisions (see `edit`).

use async_trait::async_trait;

use super::Error;
use crate::edit::{Ask, Decided, Take, TakeAnswer};

#[async_trait]
pub trait Decides: Send + Sync {
    /// Shows jobs with their families to a decision and carries out its edits, all or nothing. A
    /// decision that panics is an `Error::Internal` and changes nothing.
    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error>;

    /// Hands out due jobs by name; the decision says what each becomes, all or nothing. Jobs become
    /// ready as for `job_claim`. `Error::Conflict`, and nothing is taken, if a job had a larger
    /// token before. Not synced.
    async fn job_take(&self, take: Take) -> Result<TakeAnswer, Error>;
}
