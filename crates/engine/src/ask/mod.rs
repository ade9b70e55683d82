//! Ask: reads and changes of jobs by doors.

pub(crate) mod change;
pub(crate) mod decide;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod waiter;
