//! The worker as its clients and its master see it.

mod harness;
mod life;
mod master;
mod request;
