//! The keys in a job's data that the queue itself reads.

use crate::merge::json_get_top;

/// Marks a job as mocked: only workers that ask for mocked jobs get it.
pub const MOCK: &str = "mockRequest";

pub fn is_mocked(data: &str) -> bool {
    json_get_top(data, MOCK).is_some()
}
