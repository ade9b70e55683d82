//! `windlass handler …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Handler {
    /// Set a new version of a handler.
    Set(Box<HandlerSet>),
    /// Show the handler of a type.
    Get(HandlerGet),
    /// List the handlers of the tenant.
    List,
    /// Remove the handler of a type; its jobs wait until there is a new one.
    Rm {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass handler set thumbnail thumbnail.py --timeout 30s
  windlass handler set mail mail.js --batch 20 --env SMTP_HOST=localhost
  windlass handler set report --lang exec --body '/usr/bin/report --daily'
  windlass handler set hook --lang http --body https://example.org/jobs --retry-attempts 5
  echo 'tr a-z A-Z' | windlass handler set shout - --lang sh

Options may also be given in the first comment of the file, such as
'# windlass: timeout=30s batch=5'. Flags override them.")]
pub(crate) struct HandlerSet {
    /// Type whose jobs the handler runs.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// File with the source, URL or command line; - means standard input.
    #[arg(required_unless_present = "body")]
    pub(crate) file: Option<PathBuf>,
    /// The source, URL or command line itself, instead of a file.
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// node, python, php, sh, exec or http; by default from the file extension or the #! line.
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: Option<String>,
    /// File with code to run once when a context starts.
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// File with code to run before each batch.
    #[arg(long, value_name = "FILE")]
    pub(crate) before_each: Option<PathBuf>,
    /// File with code to run after each batch.
    #[arg(long, value_name = "FILE")]
    pub(crate) after_each: Option<PathBuf>,
    /// Handlers of a tenant with the same language and the same name share contexts.
    #[arg(long, value_name = "NAME")]
    pub(crate) eid: Option<String>,
    /// Time limit of one attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Maximum number of jobs per batch.
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u32>,
    /// Maximum number of contexts in one daemon.
    #[arg(long, value_name = "N")]
    pub(crate) contexts: Option<u32>,
    /// Replace a context after this many jobs.
    #[arg(long, value_name = "N")]
    pub(crate) context_jobs: Option<u32>,
    /// End a context that has been idle for this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle: Option<String>,
    /// Memory limit of each process, such as 512MB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// CPU time limit of each process.
    #[arg(long, value_name = "DURATION")]
    pub(crate) cpu: Option<String>,
    /// Maximum number of simultaneous processes.
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u32>,
    /// Maximum size of files that it writes, such as 1GB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<String>,
    /// Size of its private space to write to, such as 256MB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) scratch: Option<String>,
    /// What it may connect to: none, public, or networks and names between commas.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) network: Option<String>,
    /// Environment variable for the handler; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Secret that becomes an environment variable; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Vec<String>,
    /// Maximum number of attempts, including the first.
    #[arg(long, value_name = "N")]
    pub(crate) retry_attempts: Option<u32>,
    /// Delay before the second attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_delay: Option<String>,
    /// Factor by which each delay grows.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) retry_factor: Option<f64>,
    /// Longest delay between two attempts.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_delay_max: Option<String>,
    /// No more attempts once the job has been due for this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_age: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HandlerGet {
    /// The type.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// ID of an earlier version.
    #[arg(long, value_name = "ID")]
    pub(crate) handler_version: Option<String>,
}
