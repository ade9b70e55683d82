//! `jobctl`: one command to a worker or a master, its answer as a table or as JSON.

mod command;
mod show;
mod signal;
mod table;
