//! House: background services that make sure that nothing is lost, stuck or kept for ever.

pub(crate) mod beat;
pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod contact;
pub(crate) mod health;
pub(crate) mod keep;
pub(crate) mod listen;
pub(crate) mod purge;
pub(crate) mod reap;
pub(crate) mod report;
pub(crate) mod service;
pub(crate) mod unhandled;
