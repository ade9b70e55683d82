//! End-to-end tests of the `windlass` program, from outside: processes, sockets, files, logs.
//!
//! The tests are written from the contracts, not from the code. A name that begins with a number
//! such as `s0_42` proves that requirement; `docs/requirements.md` lists which test proves which.
//! Volumes are named constants, scaled so that the whole suite takes a few minutes on two cores.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod accept;
mod archive;
mod bad_start;
mod bedrock_bad_input;
mod bedrock_both_doors;
mod bedrock_change;
mod bedrock_create;
mod bedrock_create_jobs;
mod bedrock_durability;
mod bedrock_family;
mod bedrock_finish;
mod bedrock_get;
mod bedrock_model;
mod bedrock_query;
mod bedrock_repeat;
mod bedrock_sample;
mod bedrock_transcript;
mod bedrock_wait;
mod bedrock_wire;
mod cancel;
mod chaos;
mod cli;
mod cluster;
mod context;
mod context_edge;
mod context_fail;
mod context_isolate;
mod context_log;
mod context_result;
mod context_share;
mod context_stop;
mod crash;
mod disk_full;
mod doctor;
mod example;
mod fair;
mod family;
mod fuzz;
mod guide;
mod handler;
mod handler_http;
mod handler_route;
mod harness;
mod isolation;
mod job;
mod journal;
mod large;
mod lease;
mod load;
mod log;
mod model;
mod operate;
mod option;
mod output;
mod pull;
mod repeat;
mod requirement;
mod result;
mod retry;
mod run;
mod schedule;
mod start_stop;
mod store_away;
mod sysid;
mod tenant;
mod types;
