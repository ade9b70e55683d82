//! What all programs of Windlass share besides the queue.
//!
//! | module | owns |
//! |---|---|
//! | `stop` | how a daemon is asked to stop, first gracefully and then at once |
//! | `secret` | text that is never printed |
//! | `http` | the parts of an HTTP client: addresses, bounded answers, reasons for failures |
//! | `tls` | the TLS files of a client |
//! | `name` | the name of this host, and suggestions for mistyped names |

pub mod http;
mod name;
mod secret;
mod stop;
pub mod tls;

pub use name::{host_name, nearest};
pub use secret::Secret;
pub use stop::Stop;
