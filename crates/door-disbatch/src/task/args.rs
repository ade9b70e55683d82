//! The command line of the stand-alone task runner, in the form of the releases and in the seed's.

use std::path::PathBuf;

use mongodb::bson::oid::ObjectId;

use crate::config::Gfs;

const USAGE: &str = "\
Usage: task_runner --config FILE --task ID [OPTIONS]

Runs one task that a node has claimed, and writes its result.

Options:
    --config FILE   Configuration file of Disbatch's programs.
    --task ID       The task, by the 24 digits of its id.
    --gfs [auto]    Keep output in GridFS: always, or with `auto` what is too large for a task.
                    Without it, never.
    --quiet         Handed on to plugins that end their task themselves.
    --testing       Without effect; nodes pass it.
    --handoff       The task runs already; another runner has called this one as its plugin.

In the form of older nodes, where output is kept in GridFS unless it says otherwise:
    task_runner --config FILE --plugin NAME --task ID --queue ID [--nogfs]

Exit status: 0 the task has ended, well or not; 1 it was left as it was, or in part;
128 and the number of a signal that ended it, such as 143.
";

/// The arguments of the task runner.
#[derive(Debug, PartialEq, Eq)]
pub struct RunnerArgs {
    /// The configuration file to read.
    pub config: PathBuf,
    pub(crate) task: ObjectId,
    /// Overrides the queue's plugin.
    pub(crate) plugin: Option<String>,
    pub(crate) gfs: Gfs,
    pub(crate) quiet: bool,
    /// The task is already marked as running.
    pub(crate) handoff: bool,
}

impl RunnerArgs {
    /// The help text, which calls the program `task_runner`.
    pub const USAGE: &str = USAGE;

    /// Parses the arguments after the program's name. `None` requests help; errors are complete
    /// sentences.
    pub fn read(words: &[String]) -> Result<Option<RunnerArgs>, String> {
        let (mut config, mut task, mut plugin, mut queue) = (None, None, None, None);
        let (mut gfs, mut nogfs, mut quiet, mut handoff) = (None, false, false, false);
        let mut rest = words.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            let option = option.ok_or_else(|| format!("unexpected argument {word:?}"))?;
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            let mut needed = || {
                let value = value.or_else(|| rest.next());
                value.map(str::to_owned).ok_or_else(|| format!("--{name} needs a value"))
            };
            match name {
                "config" => config = Some(needed()?),
                "task" => task = Some(needed()?),
                "plugin" => plugin = Some(needed()?),
                "queue" => queue = Some(needed()?),
                "gfs" => {
                    let value = value.or_else(|| rest.next_if(|next| !next.starts_with('-')));
                    gfs = Some(read_gfs(value.unwrap_or_default())?);
                }
                "nogfs" => nogfs = true,
                "quiet" => quiet = true,
                "handoff" => handoff = true,
                "testing" => {}
                "help" | "h" => return Ok(None),
                _ => return Err(format!("unknown option {word:?}")),
            }
        }
        let is_seed = plugin.is_some() || queue.is_some();
        let gfs = match (nogfs, gfs, is_seed) {
            (true, _, _) => Gfs::Never,
            (false, Some(gfs), _) => gfs,
            (false, None, true) => Gfs::Always,
            (false, None, false) => Gfs::Never,
        };
        let config = config.ok_or("config file must be passed with --config")?.into();
        let task = task.ok_or("task ID must be passed with --task")?;
        let task = ObjectId::parse_str(&task)
            .map_err(|_| format!("value for --task invalid: {task:?} are not 24 digits"))?;
        Ok(Some(RunnerArgs { config, task, plugin, gfs, quiet, handoff }))
    }
}

fn read_gfs(value: &str) -> Result<Gfs, String> {
    match value {
        "auto" => Ok(Gfs::Auto),
        "" | "1" | "true" => Ok(Gfs::Always),
        "0" | "false" => Ok(Gfs::Never),
        other => Err(format!("value for --gfs invalid: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "571fac85ee63413233049fbd";

    fn read(line: &str) -> Result<Option<RunnerArgs>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RunnerArgs::read(&words)
    }

    #[test]
    fn both_forms_are_read() {
        let id = ObjectId::parse_str(TASK).unwrap();
        let args = RunnerArgs {
            config: "/c".into(),
            task: id,
            plugin: None,
            gfs: Gfs::Never,
            quiet: false,
            handoff: false,
        };
        let with = |gfs| RunnerArgs {
            gfs,
            ..read(&format!("--config /c --task {TASK}")).unwrap().unwrap()
        };
        assert_eq!(with(Gfs::Never), args);
        for (more, gfs) in [
            ("", Gfs::Never),
            ("--testing", Gfs::Never),
            ("--gfs", Gfs::Always),
            ("--gfs auto", Gfs::Auto),
            ("--gfs=auto", Gfs::Auto),
            ("-gfs auto", Gfs::Auto),
            ("--gfs 0", Gfs::Never),
        ] {
            let line = format!("{more} --config=/c --task {TASK}");
            assert_eq!(read(&line), Ok(Some(with(gfs))), "{line}");
        }
        let quiet = read(&format!("--gfs --quiet -config /c -task {TASK} --handoff"));
        let expected =
            RunnerArgs { gfs: Gfs::Always, quiet: true, handoff: true, ..with(Gfs::Never) };
        assert_eq!(quiet, Ok(Some(expected)));
        for (more, gfs) in [("", Gfs::Always), ("--nogfs", Gfs::Never)] {
            let line = format!("--config /c --plugin A::B --task {TASK} --queue {TASK} {more}");
            let expected = RunnerArgs { plugin: Some("A::B".into()), ..with(gfs) };
            assert_eq!(read(&line), Ok(Some(expected)), "{line}");
        }
        assert_eq!(read("--help"), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (line, told) in [
            ("", "config file must be passed with --config"),
            ("--config /c", "task ID must be passed with --task"),
            ("--config", "--config needs a value"),
            ("--config /c --task 5", "value for --task invalid: \"5\" are not 24 digits"),
            ("--config /c --gfs maybe", "value for --gfs invalid: \"maybe\""),
            ("--confg /c", "unknown option \"--confg\""),
            ("config", "unexpected argument \"config\""),
        ] {
            assert_eq!(read(line), Err(told.to_owned()), "{line}");
        }
    }
}
