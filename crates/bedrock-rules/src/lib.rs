//! Bedrock's rules, for those who show jobs in its words: the door, and the table `jobs` that a
//! store which speaks SQL shows to Bedrock's tools. Pure; the queue itself knows nothing of them.
//!
//! | module | owns |
//! |---|---|
//! | `column` | the columns of the table `jobs` |
//! | `data` | the keys in a job's data that the queue reads |
//! | `date_text` | times as texts, and the order of jobs that follows from them |
//! | `merge` | changes to JSON texts that keep what they do not touch |
//! | `state` | the words for states |

pub mod column;
pub mod data;
pub mod date_text;
pub mod merge;
pub mod state;
