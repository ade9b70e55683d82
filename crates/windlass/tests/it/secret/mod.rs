//! Secrets: who gets them, who does not, and what becomes of them without their keys.

mod command;
mod hidden;
mod key_file;
mod language;
mod route;
