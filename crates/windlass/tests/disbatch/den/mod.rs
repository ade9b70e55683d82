//! `windlass den`, an execution node.

mod change;
mod claim;
mod clock;
mod config;
mod counter;
mod entry;
mod files;
mod limit;
mod odd;
mod orphan;
mod reload;
mod stop;
mod wait;
