//! Running jobs, in handlers or with pull workers, and how they end.

mod cancel;
mod handler;
mod handler_http;
mod handler_route;
mod isolation;
mod output;
mod pull;
mod result;
mod retry;
