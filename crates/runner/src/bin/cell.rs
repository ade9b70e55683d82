//! The outer process of a cell, for the tests of this crate: their own program cannot become one.

fn main() {
    windlass_runner::cell::enter_if_told();
}
