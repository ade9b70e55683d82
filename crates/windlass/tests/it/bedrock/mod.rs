//! The commands of the Bedrock door, one by one.

mod change;
mod create;
mod create_jobs;
mod family;
mod finish;
mod get;
mod query;
mod repeat;
