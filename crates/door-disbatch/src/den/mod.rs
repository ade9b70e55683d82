//! The execution node.

mod lease;
mod limit;
mod liveness;
mod turn;

#[cfg(test)]
mod simulation_tests;
