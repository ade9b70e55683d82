//! The arguments of `jobd` and `jobd-master`: which program is meant, and its options.

use std::path::{Path, PathBuf};

/// The programs of jobd that this binary contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Worker,
    Master,
    Ctl,
}

impl Program {
    fn named(name: &str) -> Option<Program> {
        match name {
            "jobd" => Some(Program::Worker),
            "jobd-master" => Some(Program::Master),
            "jobctl" => Some(Program::Ctl),
            _ => None,
        }
    }
}

/// The program that a command line means, by its file name or its first word, and the program's
/// arguments. `None` if it means Windlass itself.
pub(crate) fn program_of(line: &[String]) -> Option<(Program, &[String])> {
    let (file, words) = line.split_first()?;
    let file = Path::new(file).file_name().and_then(|name| name.to_str());
    if let Some(program) = file.and_then(Program::named) {
        return Some((program, words));
    }
    let (first, rest) = words.split_first()?;
    Program::named(first).map(|program| (program, rest))
}

/// What a daemon should do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    Usage,
    Version,
    Run(PathBuf),
}

impl Invocation {
    /// Errors are sentences.
    pub(crate) fn read(words: &[String], default_config: &str) -> Result<Invocation, String> {
        if words.is_empty() {
            return Ok(Invocation::Usage);
        }
        let (mut config, mut help, mut version) = (default_config, false, false);
        let mut rest = words.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            match word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))) {
                ("--config", value) => {
                    config =
                        value.or_else(|| rest.next()).ok_or("Option --config needs a value.")?;
                }
                ("--help", None) => help = true,
                ("--version", None) => version = true,
                _ if word.starts_with('-') => return Err(format!("Unknown option: '{word}'")),
                _ => return Err(format!("Unexpected argument: '{word}'")),
            }
        }
        Ok(match (help, version) {
            (true, _) => Invocation::Usage,
            (false, true) => Invocation::Version,
            (false, false) => Invocation::Run(config.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_program_is_meant_by_its_file_or_by_the_first_word() {
        for (line, program, count) in [
            ("/usr/bin/jobd --config x", Some(Program::Worker), 2),
            ("jobd-master", Some(Program::Master), 0),
            ("./jobctl jobd", Some(Program::Ctl), 1),
            ("windlass jobd --config x", Some(Program::Worker), 2),
            ("windlass jobctl --json list-targets", Some(Program::Ctl), 2),
            ("windlass --json jobs list", None, 0),
            ("windlass", None, 0),
            ("", None, 0),
        ] {
            let line = words(line);
            let meant = program_of(&line).map(|(program, rest)| (program, rest.len()));
            assert_eq!(meant, program.map(|program| (program, count)), "{line:?}");
        }
    }

    #[test]
    fn a_daemon_is_told_its_file_or_asked_about_itself() {
        let run = |path: &str| Ok(Invocation::Run(path.into()));
        for (line, asked) in [
            ("", Ok(Invocation::Usage)),
            ("--help", Ok(Invocation::Usage)),
            ("--version", Ok(Invocation::Version)),
            ("--config x", run("x")),
            ("--config=x=y", run("x=y")),
            ("--config x --config y", run("y")),
            ("--config", Err("Option --config needs a value.")),
            ("--confg x", Err("Unknown option: '--confg'")),
            ("start", Err("Unexpected argument: 'start'")),
        ] {
            let read = Invocation::read(&words(line), "/etc/jobd.conf");
            assert_eq!(read, asked.map_err(str::to_owned), "{line}");
        }
    }
}
