//! Jobs while they run, in handlers or at workers that pull them, and how they end.

mod cancel;
mod handler;
mod handler_http;
mod handler_route;
mod isolation;
mod output;
mod pull;
mod result;
mod retry;
