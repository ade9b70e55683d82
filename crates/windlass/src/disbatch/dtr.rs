//! `windlass dtr`, also under the name `task_runner`: one task that a node has claimed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use windlass_door_disbatch::{RunnerArgs, task_runner};
use windlass_runner::CommandLauncher;

use super::{live, read};
use crate::{FAILED, output};

/// Under this file name, the binary is a task runner.
pub(crate) const FILE: &str = "task_runner";

/// The arguments of the task runner, if the binary was started under its name.
pub(crate) fn arguments_of(line: &[String]) -> Option<&[String]> {
    let (file, words) = line.split_first()?;
    (Path::new(file).file_name()? == FILE).then_some(words)
}

/// `name` is how it was called. Nodes only check whether the exit code is 0, so wrong usage is 1
/// like every failure.
pub(crate) fn run(name: &str, words: &[String]) -> ExitCode {
    match RunnerArgs::read(words) {
        Ok(Some(args)) => run_task(&args).unwrap_or_else(|error| refused(&format!("{error:#}"))),
        Ok(None) => {
            // A closed output is not a failure.
            let _ = output::print(&RunnerArgs::USAGE.replace(FILE, name));
            ExitCode::SUCCESS
        }
        Err(mistake) => refused(&mistake),
    }
}

fn refused(why: &str) -> ExitCode {
    output::print_error(why);
    ExitCode::from(FAILED)
}

fn run_task(args: &RunnerArgs) -> anyhow::Result<ExitCode> {
    let (config, warnings) = read(&args.config)?;
    live(&config, &warnings, async |stop| {
        let launcher = CommandLauncher::new().map_err(|error| error.to_string())?;
        task_runner(&config, args, Arc::new(launcher), stop).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_runner_is_known_by_its_file() {
        let line = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(arguments_of(&line("/usr/bin/task_runner --task 1")).unwrap(), ["--task", "1"]);
        assert_eq!(arguments_of(&line("windlass task_runner")), None);
        assert_eq!(arguments_of(&[]), None);
    }
}
