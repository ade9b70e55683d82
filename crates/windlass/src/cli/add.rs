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

Lines from standard input are sent in requests of at most 10,000 lines. With --idempotency-key the
first request has the key as it is, the following ones have .2, .3 and so on behind it, so the same
input can be sent again as a whole.")]
pub(crate) struct Add {
    /// What kind of job it is.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// One job for each; without any, one for each line of standard input.
    #[arg(value_name = "PAYLOAD")]
    pub(crate) payloads: Vec<String>,
    /// Run it not before this much time has passed, such as 90s, 5m, 2h, 1d.
    #[arg(long, value_name = "DURATION", conflicts_with = "run_at")]
    pub(crate) delay: Option<String>,
    /// Run it not before this time, such as 2030-01-31T04:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) run_at: Option<String>,
    /// How urgent it is beside others of its type, 0 to 1000; 500 is ordinary.
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u16>,
    /// Time limit of one attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Give up when it has not ended after this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
    /// While a job of this type with this key has not ended, add nothing and print its id.
    #[arg(long, value_name = "KEY")]
    pub(crate) unique: Option<String>,
    /// Run it again by itself, such as 'FINISHED, +1 HOUR', 'SCHEDULED, +1 DAY', DAILY, or
    /// 'cron: 0 9 * * MON-FRI Europe/Vienna'.
    #[arg(long, value_name = "WHEN")]
    pub(crate) repeat: Option<String>,
    /// Make it a child of this job, which runs, or waits for other children: it runs again when all
    /// of them have ended.
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// When a job ends well, add a job of this type with its result as the payload.
    #[arg(long, value_name = "TYPE")]
    pub(crate) then: Option<String>,
    /// Make the add repeatable: the same key within 24 hours adds nothing twice.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// Wait until all of them have ended; the exit status is 1 if one did not succeed.
    #[arg(long)]
    pub(crate) wait: bool,
}
