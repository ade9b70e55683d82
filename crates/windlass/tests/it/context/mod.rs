//! Handlers in warm contexts, in every language that keeps one.

mod edge;
mod fail;
mod isolate;
mod log;
mod result;
mod share;
mod stop;
mod warm;
