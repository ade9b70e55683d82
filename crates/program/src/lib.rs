//! What the programs of Windlass share beside the queue, whatever they do.
//!
//! | module | owns |
//! |---|---|
//! | `stop` | how a daemon is asked to end, first in order and then at once |
//! | `secret` | text that is used and never printed |
//! | `http` | the parts of an HTTP client: addresses, bounded answers, reasons for failures |
//! | `name` | the name of this host, and the known name that a mistyped one may mean |

pub mod http;
mod name;
mod secret;
mod stop;

pub use name::{host_name, nearest};
pub use secret::Secret;
pub use stop::Stop;
