//! The flags of Disbatch's programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;

/// Run a Disbatch-compatible command interface (HTTP API and web page).
#[derive(Debug, Args)]
#[command(after_help = DCI_HELP)]
pub(crate) struct Dci {
    /// Configuration file, in Disbatch's format.
    #[arg(long, value_name = "FILE", default_value = windlass_door_disbatch::DEFAULT_PATH)]
    pub(crate) config: PathBuf,
}

/// Run a Disbatch-compatible execution node.
#[derive(Debug, Args)]
#[command(after_help = DEN_HELP)]
pub(crate) struct Den {
    /// Configuration file, in Disbatch's format.
    #[arg(long, value_name = "FILE", default_value = windlass_door_disbatch::DEFAULT_PATH)]
    pub(crate) config: PathBuf,
}

const DEN_HELP: &str = "\
Minimal FILE:
  {
    \"mongohost\": \"mongodb://localhost\",
    \"database\": \"disbatch\",
    \"plugins\": {\"/usr/local/bin/my-plugin\": {\"type\": \"default\"}},
  }

Also available as `disbatchd --config FILE`. SIGTERM, SIGINT, SIGHUP and SIGQUIT stop it: it takes
no more tasks, and running tasks get `stop_timeout` seconds to end; a second signal stops them now.
Exit code: 128 plus the signal number, or 1 if it could not start or a hook stopped it.";

const DCI_HELP: &str = "\
Listens on 127.0.0.1:8080 unless FILE sets `listen`. An address that other machines can reach needs
`tls`; `users` and `tokens` restrict access.

SIGTERM, SIGINT, SIGHUP and SIGQUIT stop it after the requests in progress; a second signal stops it
at once. Exit code: 128 plus the signal number, or 1 if it could not start.";

/// Started under a program's own name, the matching subcommand is inserted.
pub(super) fn by_name(mut line: Vec<String>) -> Vec<String> {
    let file = line.first().and_then(|file| Path::new(file).file_name()).map(OsStr::to_owned);
    if file.is_some_and(|file| file == "disbatchd") {
        line.splice(..1, ["windlass".to_owned(), "den".to_owned()]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_meant_by_its_file() {
        let line = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let meant = by_name(line("/usr/bin/disbatchd --config x"));
        assert_eq!(meant, ["windlass", "den", "--config", "x"]);
        assert_eq!(by_name(line("windlass den")), ["windlass", "den"]);
        assert!(by_name(Vec::new()).is_empty());
    }
}
