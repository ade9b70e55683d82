//! Every bound of the domain, by name. Bounds that an operator can change are defaults of the
//! configuration; those here are fixed.

use std::time::Duration;

use crate::range::Range;

/// Longest tenant name, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;
/// Longest type name, in bytes.
pub const TYPE_BYTES_MAX: usize = 255;
/// Longest `unique` key and longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Most urgent priority; 0 is the least urgent.
pub const PRIORITY_MAX: u16 = 1000;
/// Priority of a job that names none.
pub const PRIORITY_DEFAULT: u16 = 500;
/// Payloads above this size are stored and moved in pieces; only decisions see them in one buffer
/// (`WHOLE_BYTES_MAX`).
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 1024 * 1024;
/// Size of one piece of a large payload; the last piece may be shorter but not empty.
pub const PAYLOAD_PIECE_BYTES: usize = 256 * 1024;
/// Payloads up to this size are shown to decisions in one buffer, however they are kept.
pub const WHOLE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Largest result data of one job.
pub const RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default size of the log tail that is kept of an attempt.
pub const LOG_BYTES_MAX: usize = 64 * 1024;
/// Longest line in a log; longer lines are cut.
pub const LOG_LINE_BYTES_MAX: usize = 8 * 1024;
/// Attempts whose log is kept; the oldest are dropped first.
pub const LOG_ATTEMPTS_MAX: u32 = 25;
/// New jobs that one attempt may emit.
pub const EMITTED_MAX: usize = 10_000;
/// Size of one handler: its body and scripts together.
pub const HANDLER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Smallest memory limit of a handler; a shell does not start with less.
pub const MEMORY_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Smallest private space of a handler: its sources have to fit in.
pub const SCRATCH_BYTES_MIN: u64 = 2 * HANDLER_BYTES_MAX as u64;
/// Largest process limit of a handler.
pub const PROCESSES_MAX: u32 = 100_000;
/// Entries of `options.network` of a handler.
pub const DESTINATIONS_MAX: usize = 100;
/// Versions of one handler that are kept; the oldest are dropped first.
pub const HANDLER_VERSIONS_MAX: usize = 100;
/// Jobs in one insert, claim, settlement or listing.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// Jobs in one page of a listing.
pub const PAGE_JOBS_MAX: usize = 1000;
/// Ended children of each kind that are returned with their parent in a take.
pub const CHILDREN_SHOWN_MAX: usize = 100_000;
/// Retention of jobs that were cancelled because their parent was removed.
pub const ORPHAN_RETENTION: Duration = Duration::from_secs(3 * 24 * 3600);
/// Retention of jobs that were cancelled because another add used their idempotency key: longer
/// than the key is remembered.
pub const REPEATED_RETENTION: Duration =
    Duration::from_secs(IDEMPOTENCY_TTL.as_secs() + ORPHAN_RETENTION.as_secs());
/// Age at which payload pieces without a job are removed. The job normally follows at once; older
/// pieces were left by a crash.
pub const ORPHAN_PIECES_AGE: Duration = Duration::from_secs(24 * 3600);
/// Daemons on one store: the sysid has 12 bits, and 0 is not used.
pub const SYSID_MAX: u16 = 4095;
/// Longest text in what a daemon says of itself, in bytes, and the most sentences about layers of
/// isolation in it.
pub const DAEMON_TEXT_BYTES_MAX: usize = 1000;
pub const DAEMON_LAYERS_MAX: usize = 16;
/// How long a daemon that is gone is listed if its journal has no known jobs left.
pub const DAEMON_GONE_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// How long a daemon that is gone is listed in any case: its disk will not come back.
pub const DAEMON_LEFT_RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);
/// How far ids may be ahead of the clock after it was set back or in a burst: a year, because a
/// clock that was wrong once must not stop adds until it has caught up.
pub const ID_BORROW_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// A clock this far behind the newest id was set back; no burst of ids gets this far ahead.
pub const CLOCK_STEP_MIN: Duration = Duration::from_secs(60);
/// How long an idempotency key is remembered.
pub const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 3600);
/// Longest accepted duration (ten years).
pub const DURATION_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// API keys in one store.
pub const KEYS_MAX: usize = 100_000;
/// API keys of one tenant, including ended ones while they are kept (`KEY_RETENTION`).
pub const TENANT_KEYS_MAX: usize = 1000;
/// Longest name of an API key, in bytes.
pub const KEY_NAME_BYTES_MAX: usize = 100;
/// How often the use of an API key is noted.
pub const KEY_TOUCH_INTERVAL: Duration = Duration::from_secs(60);
/// How long an API key is kept after it has expired or was revoked.
pub const KEY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest text of an entry of the audit, in bytes.
pub const AUDIT_TEXT_BYTES_MAX: usize = 200;
/// Entries of the audit that a store looks at for one page.
pub const AUDIT_LOOK_MAX: usize = 10_000;
/// Secrets of one tenant.
pub const SECRETS_MAX: usize = 200;
/// Longest name of a secret, in bytes.
pub const SECRET_NAME_BYTES_MAX: usize = 100;
/// Longest value of a secret, in bytes.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Shortest value of a secret that is replaced in logs and results, in bytes.
pub const SECRET_MASKED_BYTES_MIN: usize = 4;
/// Secrets of one handler. Together they fit into the environment of a process.
pub const HANDLER_SECRETS_MAX: usize = 20;
/// Keys that seal secrets in one key file.
pub const SEAL_KEYS_MAX: usize = 16;
/// Tenants with settings of their own.
pub const TENANT_SETTINGS_MAX: usize = 100_000;
/// Longest message of a progress report, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 1024;

/// Shortest time limit: zero would fail every attempt.
const MS: Duration = Duration::from_millis(1);

/// `limit` of a claim: jobs that a pulling worker gets at once.
pub const PULL_JOBS: Range<u32> = Range::new(1, 1000);
/// Inline payloads that a pulling worker gets at once, except for the last job: what an answer has
/// room for.
pub const PULL_PAYLOAD_BYTES_MAX: u64 = 16 * 1024 * 1024;

// What clients may set for a type or a handler.

/// `weight` of a type, its share of picks, and of a tenant, its share of slots.
pub const WEIGHT: Range<u32> = Range::new(1, 1000);
/// `slots_min` and `slots_max` of a tenant.
pub const TENANT_SLOTS: Range<u32> = Range::new(1, 100_000);
/// `concurrency` of a type; a type that must not run is suspended instead.
pub const CONCURRENCY: Range<u32> = Range::new(1, 1_000_000);
/// `rate` of a type, in starts per second. The slowest is one start in eleven days.
pub const RATE: Range<f64> = Range::new(0.000_001, 1_000_000.0);
/// `timeout` of one attempt.
pub const TIMEOUT: Range<Duration> = Range::new(MS, DURATION_MAX);
/// `retention` of ended jobs.
pub const RETENTION: Range<Duration> = Range::new(Duration::ZERO, DURATION_MAX);
/// `retry.delay` and `retry.delay_max`.
pub const RETRY_DELAY: Range<Duration> = Range::new(Duration::ZERO, DURATION_MAX);
/// `retry.factor`: each delay is the one before it times this.
pub const RETRY_FACTOR: Range<f64> = Range::new(1.0, 1000.0);
/// `retry.attempts`, the first included.
pub const RETRY_ATTEMPTS: Range<u32> = Range::new(1, 1_000_000);
/// `retry.age`: no further attempt when the job first came due this long ago.
pub const RETRY_AGE: Range<Duration> = Range::new(Duration::ZERO, DURATION_MAX);
/// `options.batch`: jobs handed to a context at once.
pub const BATCH: Range<u32> = Range::new(1, 1000);
/// `options.contexts` of one handler in one daemon.
pub const CONTEXTS: Range<u32> = Range::new(1, 100);
/// `options.context_jobs`: jobs before a context is replaced.
pub const CONTEXT_JOBS: Range<u32> = Range::new(1, 1_000_000);
/// `options.idle`: an idle context ends after this.
pub const IDLE: Range<Duration> = Range::new(Duration::ZERO, DURATION_MAX);
/// `options.memory` of each process.
pub const MEMORY: Range<u64> = Range::new(MEMORY_BYTES_MIN, u64::MAX);
/// `options.cpu`: processor time of each process.
pub const CPU: Range<Duration> = Range::new(MS, DURATION_MAX);
/// `options.processes` at the same time.
pub const PROCESSES: Range<u32> = Range::new(1, PROCESSES_MAX);
/// `options.file_size`: the largest file that may be written.
pub const FILE_SIZE: Range<u64> = Range::new(1, u64::MAX);
/// `options.scratch`: the private space of a handler, which its own scripts need, too.
pub const SCRATCH: Range<u64> = Range::new(SCRATCH_BYTES_MIN, u64::MAX);

#[cfg(test)]
mod tests;
