//! The flags of Disbatch's programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;

/// Be the command interface of Disbatch.
#[derive(Debug, Args)]
#[command(after_help = DCI_HELP)]
pub(crate) struct Dci {
    /// Configuration file of Disbatch's programs.
    #[arg(long, value_name = "FILE", default_value = windlass_door_disbatch::DEFAULT_PATH)]
    pub(crate) config: PathBuf,
}

/// Be an execution node of Disbatch.
#[derive(Debug, Args)]
#[command(after_help = DEN_HELP)]
pub(crate) struct Den {
    /// Configuration file of Disbatch's programs.
    #[arg(long, value_name = "FILE", default_value = windlass_door_disbatch::DEFAULT_PATH)]
    pub(crate) config: PathBuf,
}

const DEN_HELP: &str = "\
The least that FILE must have:
  {
    \"mongohost\": \"mongodb://localhost\",
    \"database\": \"disbatch\",
    \"plugins\": {\"/usr/local/bin/my-plugin\": {\"type\": \"default\"}},
  }

Also runs as `disbatchd --config FILE`. SIGTERM, SIGINT, SIGHUP and SIGQUIT end it: it takes no
more tasks, and those that run have `stop_timeout` seconds; a second signal ends them at once.
Exit status: 128 and the number of the signal, 1 when it could not start or a hook ended it.";

const DCI_HELP: &str = "\
It listens on 127.0.0.1:8080 unless FILE says otherwise in `listen`; an address that others can
reach needs `tls`, and `users` or `tokens` say who may come in.

SIGTERM, SIGINT, SIGHUP and SIGQUIT end it: requests under way are answered, a second signal ends it
at once. Exit status: 128 and the number of the signal, 1 when it could not start.";

/// A program's own name stands for its word; anything else is left as it is.
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
