//! Ask: everything that doors want to know of jobs, or to change about them from outside.

pub(crate) mod change;
pub(crate) mod decide;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod waiter;
