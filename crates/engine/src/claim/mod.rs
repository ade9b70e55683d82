//! Claim: how waiting jobs are taken under leases, by workers outside and by doors.

pub(crate) mod answer;
pub(crate) mod hunger;
pub(crate) mod pull;
pub(crate) mod take;
pub(crate) mod token;
