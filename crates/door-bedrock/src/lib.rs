//! The Bedrock door: clients of Bedrock::Jobs talk to Windlass as they talk to Bedrock. Nothing here
//! decides what becomes of a job without the rules of the core.
//!
//! | module | owns |
//! |---|---|
//! | `wire` | bytes to requests, replies to bytes: pure |
//! | `execute` | the seam between connections and commands |

mod execute;
pub mod wire;
