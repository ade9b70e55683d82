//! One suite for the table in every database: private servers of MariaDB and PostgreSQL, SQLite.

mod harness;

mod fetch;
mod lease;
mod manual;
mod outage;
mod output;
mod run;
mod setup;
