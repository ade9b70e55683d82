//! `disbatch`, the client of a command interface.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use windlass_door_disbatch::{ClientEnv, Failure, client};

use crate::client::http::install_tls;
use crate::{Usage, output};

const NAME: &str = "disbatch";
/// Its name as a subcommand.
pub(crate) const COMMAND: &str = "windlass disbatch";

/// The name and the arguments of `disbatch`, if the command line means it by its file name or its
/// first word.
pub(crate) fn arguments_of(line: &[String]) -> Option<(&'static str, &[String])> {
    let (file, words) = line.split_first()?;
    if Path::new(file).file_name().is_some_and(|name| name == NAME) {
        return Some((NAME, words));
    }
    let (_, rest) = words.split_first().filter(|(first, _)| *first == NAME)?;
    Some((COMMAND, rest))
}

/// Runs `disbatch` with the arguments after its name.
pub(crate) fn run(called: &'static str, words: &[String]) -> anyhow::Result<ExitCode> {
    install_tls();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    let variable = |name: &str| std::env::var(name).ok();
    let env = ClientEnv {
        version: env!("CARGO_PKG_VERSION"),
        variable: &variable,
        is_terminal: io::stdout().is_terminal(),
    };
    match runtime.block_on(client(called, words, &env)) {
        Ok(text) => output::print(&text)?,
        Err(Failure::Printed(code)) => return Ok(ExitCode::from(code)),
        Err(Failure::Usage(why)) => bail!(Usage(why)),
        Err(Failure::Failed(why)) => bail!(why),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_meant_by_its_file_or_by_the_first_word() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (line, meant) in [
            ("/usr/bin/disbatch queues", Some(("disbatch", 1))),
            ("disbatch", Some(("disbatch", 0))),
            ("windlass disbatch --json queues", Some(("windlass disbatch", 2))),
            ("windlass queues disbatch", None),
            ("windlass", None),
        ] {
            let line = words(line);
            let read = arguments_of(&line).map(|(called, words)| (called, words.len()));
            assert_eq!(read, meant, "{line:?}");
        }
    }
}
