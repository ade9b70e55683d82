//! `windlass add`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass add mail 'to=ann@example.org'
  windlass add mail --delay 10m --priority 900 'to=bob@example.org'
  windlass add thumbnail --wait < list-of-files.txt
  windlass add report --repeat 'cron: 0 9 * * MON-FRI Europe/Vienna' weekly
  seq 1000000 | windlass add count > ids.txt

Lines from standard input are sent in requests of at most 10,000 lines. With --idempotency-key, the
first request uses the key as given and the following ones append .2, .3 and so on, so it is safe to
send the same input again.")]
pub(crate) struct Add {
    /// Type of the jobs.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// One job per payload; without any, one job per line of standard input.
    #[arg(value_name = "PAYLOAD")]
    pub(crate) payloads: Vec<String>,
    /// Don't run before this much time has passed, such as 90s, 5m, 2h, 1d.
    #[arg(long, value_name = "DURATION", conflicts_with = "run_at")]
    pub(crate) delay: Option<String>,
    /// Don't run before this time, such as 2030-01-31T04:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) run_at: Option<String>,
    /// Priority among jobs of the same type, 0 to 1000, higher first [default: 500].
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u16>,
    /// Time limit of one attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Give up if the job has not ended after this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
    /// If an unfinished job of this type has this key, add nothing and print that job's ID.
    #[arg(long, value_name = "KEY")]
    pub(crate) unique: Option<String>,
    /// Repeat the job, such as 'FINISHED, +1 HOUR', 'SCHEDULED, +1 DAY', DAILY, or
    /// 'cron: 0 9 * * MON-FRI Europe/Vienna'.
    #[arg(long, value_name = "WHEN")]
    pub(crate) repeat: Option<String>,
    /// Make it a child of this job, which must be running or waiting for children. The parent runs
    /// again when all its children have ended.
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// When a job succeeds, add a job of this type with its result as the payload.
    #[arg(long, value_name = "TYPE")]
    pub(crate) then: Option<String>,
    /// Answer when the jobs are in the daemon's journal, or in the store.
    #[arg(long, value_name = "WHERE", value_parser = ["journal", "store"])]
    pub(crate) durable: Option<String>,
    /// Make the add safe to repeat: within 24 hours, the same key adds nothing twice.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Wait until all jobs have ended; the exit code is 1 if one did not succeed.
    #[arg(long)]
    pub(crate) wait: bool,
}
