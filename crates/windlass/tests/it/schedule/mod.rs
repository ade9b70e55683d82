//! Which job runs when: times, turns, repeats, families, limits of types.

mod due;
mod fair;
mod family;
mod repeat;
mod types;
