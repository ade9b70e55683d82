//! The domain of Windlass: what a job is, how its state may change, when it is retried, and the
//! interfaces (`Store`, `Runner`, `Launcher`) behind which everything with a disk or a socket
//! lives.
//!
//! | module | owns |
//! |---|---|
//! | `add` | the options of an add |
//! | `name` | tenants and types, and which names are allowed |
//! | `id` | job ids and the generator that never repeats one |
//! | `size` | sizes such as `512MB` |
//! | `time` | timestamps, the `Clock`, short durations such as `90s` |
//! | `job` | the job, its options, its payload, its lease |
//! | `state` | the states and the table of every allowed change |
//! | `outcome` | status numbers and the four codes |
//! | `retry` | when a failed attempt is retried, and when it is not |
//! | `calendar` | SQLite's date arithmetic |
//! | `repeat`, `cron` | when a job runs again: date arithmetic on a base, or cron in a time zone |
//! | `handler` | how a type is run, and the settings of a type |
//! | `tenant` | the settings of a tenant |
//! | `maxima` | the most that a handler, a type, a job or a worker may ask for |
//! | `network` | the networks and names that handlers may connect to |
//! | `record` | the text form in which stores keep options of handlers, and settings |
//! | `edit` | changes by a pure decision on jobs that a store shows it |
//! | `family` | parents and children: who waits for whom |
//! | `key` | API keys, roles and rights |
//! | `audit` | who changed what, and who was refused |
//! | `secret` | secrets of handlers, and how they are encrypted for a store |
//! | `file_name` | files in messages, without their directories |
//! | `glob` | the patterns with which workers name types |
//! | `store`, `runner`, `launch` | the interfaces |
//! | `memory` | the reference store, against which all others are compared |
//! | `log` | the lines of an attempt, and where each came from |
//! | `sync` | locks that a panic does not poison |
//! | `limit` | every bound of the domain, by name |
//! | `rate` | how many jobs of a type may start now |
//! | `range` | ranges of numbers: checked where they enter, clamped where they are read |
//! | `fuzz` | rules that any text keeps, for the fuzzer and the tests |
//!
//! Nothing here does I/O, reads a clock or the environment, or knows a wire format.

pub mod add;
pub mod audit;
pub mod calendar;
mod cron;
pub mod edit;
pub mod family;
pub mod file_name;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod glob;
pub mod handler;
pub mod id;
pub mod job;
pub mod key;
pub mod launch;
pub mod limit;
pub mod log;
pub mod maxima;
pub mod memory;
pub mod name;
pub mod network;
pub mod outcome;
pub mod range;
pub mod rate;
pub mod record;
pub mod repeat;
pub mod retry;
pub mod runner;
pub mod secret;
pub mod size;
pub mod state;
pub mod store;
pub mod sync;
pub mod tenant;
pub mod time;

pub use add::AddOptions;
pub use calendar::Modifiers;
pub use handler::{Handler, HandlerId, HandlerOptions, HandlerSpec, Lang, Limits, TypeSettings};
pub use id::{IdGenerator, JobId, Sysid};
pub use job::{AttemptId, Extra, Job, Lease, NewJob, Payload, Priority};
pub use key::{Key, KeyId, KeyText, Right, Role};
pub use log::Log;
pub use maxima::Maxima;
pub use name::{Invalid, Tenant, TypeKey, TypeName};
pub use network::Network;
pub use outcome::{Code, Json, Status};
pub use repeat::Repeat;
pub use retry::RetryPolicy;
pub use runner::Runner;
pub use state::State;
pub use store::Store;
pub use tenant::TenantSettings;
pub use time::{Clock, Timestamp};
