//! `windlass run`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass run hello.py --payload world
  windlass run thumbnail.sh --payload a.png --payload b.png
  windlass run mail.js --tenant acme --env SMTP_HOST=localhost < addresses.txt

The language is taken from the file extension or the #! line. Options go into the first comment of
the file, such as '# windlass: timeout=30s retry.attempts=3'. The handler is set only if it differs
from the current one, and it stays: add more jobs with `windlass add TYPE`.

Ctrl-C stops following; the jobs keep running. The exit code is 1 if a job does not succeed.")]
pub(crate) struct Run {
    /// Source file of the handler.
    pub(crate) file: PathBuf,
    /// Type to set the handler for; by default the file name without its extension.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) name: Option<String>,
    /// One job per payload; without any, one job per line of standard input.
    #[arg(long, value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub(crate) payload: Vec<String>,
    /// Environment variable for the handler; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
}
