//! `windlass run`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass run hello.py --payload world
  windlass run thumbnail.sh --payload a.png --payload b.png
  windlass run mail.js --tenant acme --env SMTP_HOST=localhost < addresses.txt

The language follows from the file's ending, or from its #! line. Options stand in its first
comment, such as '# windlass: timeout=30s retry.attempts=3'. The handler is set only if it differs
from the one in force, and it stays there: further jobs are added with `windlass add TYPE`.

Ctrl-C leaves the jobs alone: they go on without anybody watching. The exit status is 1 if a job
does not succeed.")]
pub(crate) struct Run {
    /// File with the source.
    pub(crate) file: PathBuf,
    /// The type whose handler it becomes; by default the name of the file without its ending.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) name: Option<String>,
    /// One job for each; without any, one for each line of standard input.
    #[arg(long, value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub(crate) payload: Vec<String>,
    /// A variable of the handler's environment; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
}
