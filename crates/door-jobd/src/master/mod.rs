//! The master: workers register with it, clients speak to all of them through it.

mod manual;
mod registry;
mod signal;
mod throttle;
mod wanted;
