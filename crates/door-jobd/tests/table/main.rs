//! One suite for the table in every database: MariaDB and PostgreSQL on private servers, and SQLite.

#![allow(clippy::unwrap_used)]

mod harness;

mod fetch;
mod lease;
mod manual;
mod outage;
mod output;
mod run;
mod setup;
