//! Bedrock's rules, for the Bedrock door and for the table `jobs` that an SQL store shows to
//! Bedrock's tools. Pure; the queue itself does not know them.
//!
//! | module | owns |
//! |---|---|
//! | `column` | the columns of the table `jobs` |
//! | `data` | the keys in a job's data that the queue reads |
//! | `date_text` | times as text, and the order of jobs that follows from it |
//! | `merge` | edits of JSON text that leave the rest unchanged |
//! | `state` | the names of states |
//! | `fuzz` | rules that any text keeps, for the fuzzer and the tests |

pub mod column;
pub mod data;
pub mod date_text;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod merge;
pub mod state;
