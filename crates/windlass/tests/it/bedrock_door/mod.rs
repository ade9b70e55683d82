//! The Bedrock door as a whole: bytes, waiting, sessions, the other door, crashes.

mod audit;
mod bad_input;
mod both_doors;
mod durability;
mod model;
mod sample;
mod transcript;
mod wait;
mod wire;
