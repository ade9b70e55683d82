//! Black-box tests of `windlass den`, `windlass dci` and `windlass disbatch`: the real binary, a
//! server that speaks MongoDB's wire protocol, and a database of its own for each test.
//!
//! They are written from the contract, not from the code; `docs/requirements.md` lists which test
//! proves which statement.

#![allow(clippy::unwrap_used)]

mod chaos_database;
mod chaos_kill;
mod client_access;
mod client_more;
mod client_queues;
mod client_tasks;
mod dci_access;
mod dci_actions;
mod dci_amount;
mod dci_bad_input;
mod dci_balance;
mod dci_balancer;
mod dci_changelog;
mod dci_clock;
mod dci_config;
mod dci_create;
mod dci_delete;
mod dci_find;
mod dci_info;
mod dci_nodes;
mod dci_old;
mod dci_options;
mod dci_perl;
mod dci_queues;
mod dci_session;
mod dci_show;
mod dci_stop;
mod dci_tls;
mod dci_v3;
mod dci_wire;
mod den_change;
mod den_claim;
mod den_clock;
mod den_config;
mod den_counter;
mod den_entry;
mod den_files;
mod den_limit;
mod den_odd;
mod den_orphan;
mod den_reload;
mod den_stop;
mod den_wait;
mod dtr;
mod dtr_refusal;
mod foreign_share;
mod harness;
mod packaging;
mod page;
mod task_handover;
mod task_odd;
mod task_outcome;
mod task_output;
