//! One suite for the table in every database: private servers of MariaDB and PostgreSQL, SQLite.

#![allow(clippy::unwrap_used)]

mod harness;

mod fetch;
mod lease;
mod manual;
mod outage;
mod output;
mod run;
mod setup;
