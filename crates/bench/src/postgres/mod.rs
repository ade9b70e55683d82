//! Queues on one private PostgreSQL server: Windlass's store, and the plain queue beside it.

pub(crate) mod cycle;
pub(crate) mod database;
pub(crate) mod plain;
pub(crate) mod store;
