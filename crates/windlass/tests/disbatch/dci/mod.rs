//! `windlass dci`, the command interface.

mod access;
mod actions;
mod amount;
mod bad_input;
mod balance;
mod balancer;
mod changelog;
mod clock;
mod config;
mod create;
mod delete;
mod find;
mod info;
mod nodes;
mod old;
mod options;
mod perl;
mod queues;
mod session;
mod show;
mod stop;
mod tls;
mod v3;
mod wire;
