//! `windlass run`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass run thumbnail.sh --payload a.png --payload b.png
  windlass run mail.sh --env SMTP_HOST=localhost < addresses.txt

Nothing is kept. Jobs of other types that the handler asks for are shown, not run. The exit status
is 1 if a job does not succeed at its first attempt.")]
pub(crate) struct Run {
    /// File with the source; - is standard input.
    pub(crate) file: PathBuf,
    /// The type that the handler sees.
    #[arg(long = "type", value_name = "TYPE", default_value = "run")]
    pub(crate) name: String,
    /// One job for each; without any, one for each line of standard input.
    #[arg(long, value_name = "PAYLOAD", allow_hyphen_values = true)]
    pub(crate) payload: Vec<String>,
    /// node, python, php, sh, exec or http; by default after the ending .js, .py, .php or .sh.
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: Option<String>,
    /// Time limit of one job.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// A variable of the handler's environment; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
}
