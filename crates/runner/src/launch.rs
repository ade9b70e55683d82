//! The process of one attempt: its command, environment and directory. It gets nothing of the
//! daemon's own environment, and no descriptor except the three pipes.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use windlass_core::launch::is_exhaustion;
use windlass_core::{Handler, Invalid, Job, Lang};

use crate::context::language::find_program;
use crate::isolate::{Confinement, Isolation};
use crate::scratch::{AttemptDir, Scratch};
use crate::tree::{self, Main};

/// Everything needed to start the process of one attempt.
pub(crate) struct Launch {
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) handler: Arc<Handler>,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) path: Arc<str>,
    pub(crate) job: Arc<Job>,
}

/// Why no process was started.
pub(crate) enum NotStarted {
    /// The machine temporarily lacks something: descriptors, processes, memory, disk.
    Exhausted(io::Error),
    /// The handler cannot be started, so its attempt has failed.
    Refused(String),
}

impl Launch {
    /// Starts the process. Blocks for a fork and a few small files.
    pub(crate) fn start(&self) -> Result<(Main, AttemptDir), NotStarted> {
        let dir = self.scratch.attempt(self.job.id).map_err(NotStarted::Exhausted)?;
        let mut command = self.command(&dir)?;
        self.set_environment(&mut command, &dir);
        command.current_dir(dir.work());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let confine = Confinement {
            dir: dir.path(),
            program: &self.program(),
            limits: &self.handler.spec.options.limits,
            channels: None,
        };
        self.isolation.arm(&mut command, confine).map_err(NotStarted::Exhausted)?;
        match Main::start(&mut command, dir.path(), &self.scratch.gate) {
            Ok(main) => Ok((main, dir)),
            Err(reason) if is_exhaustion(&reason) => Err(NotStarted::Exhausted(reason)),
            Err(reason) => {
                let program = command.get_program().to_string_lossy();
                let hint = self.isolation.hint(&reason);
                Err(NotStarted::Refused(format!("{program} cannot be started: {reason}{hint}")))
            }
        }
    }

    /// The program, if its installation may be read: only if it was found in the daemon's own
    /// `PATH`. Other paths named by the author of a handler grant no access.
    fn program(&self) -> PathBuf {
        let words = split(&self.handler.spec.body).unwrap_or_default();
        let named = words.first().filter(|_| self.handler.spec.lang == Lang::Exec);
        let found = named.filter(|name| !name.contains('/'));
        found.and_then(|name| find_program(name, &self.path)).unwrap_or_default()
    }

    fn command(&self, dir: &AttemptDir) -> Result<Command, NotStarted> {
        let body = &self.handler.spec.body;
        if self.handler.spec.lang == Lang::Exec {
            let words = split(body).map_err(|invalid| NotStarted::Refused(invalid.to_string()))?;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            return Ok(command);
        }
        // A file, because an argument is at most 128 KiB long and standard input is the payload.
        fs::write(dir.script(), body).map_err(NotStarted::Exhausted)?;
        let mut command = Command::new("sh");
        command.arg(dir.script());
        Ok(command)
    }

    fn set_environment(&self, command: &mut Command, dir: &AttemptDir) {
        command
            .env_clear()
            .env("PATH", &*self.path)
            .env("HOME", dir.work())
            .env("TMPDIR", dir.tmp())
            .env("LANG", "C.UTF-8")
            .envs(&self.handler.spec.options.env)
            .env("WINDLASS_JOB_ID", self.job.id.to_string())
            .env("WINDLASS_TENANT", self.job.key.tenant.as_str())
            .env("WINDLASS_TYPE", self.job.key.name.as_str())
            .env("WINDLASS_ATTEMPT", self.job.attempt.to_string())
            .env(tree::MARKER, dir.path());
        if self.job.children {
            command.env("WINDLASS_CHILDREN", "1");
        }
    }
}

/// The words of a command line, split like a shell would; there is at least one.
pub(crate) fn split(line: &str) -> Result<Vec<String>, Invalid> {
    let refuse = |reason: &str| Err(Invalid::new("body", reason));
    if line.contains('\0') {
        return refuse("a command line must not contain NUL bytes");
    }
    match shlex::split(line) {
        None => refuse("the command line ends within a quote or after a backslash"),
        Some(words) if words.first().is_none_or(String::is_empty) => {
            refuse("the command line names no program")
        }
        Some(words) => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_command_line_is_split_like_a_shell_would() {
        let words = split(r#"prog -a 'b c' "d \"e" f\ g '' # not an argument"#).unwrap();
        assert_eq!(words, ["prog", "-a", "b c", "d \"e", "f g", ""]);
        assert_eq!(split("prog $HOME *").unwrap(), ["prog", "$HOME", "*"]);
    }

    #[test]
    fn a_command_line_without_a_program_or_an_end_is_refused() {
        for line in ["", "  ", "'unended", "\"unended", "x \\", "''", "# comment", "a\0b"] {
            assert_eq!(split(line).unwrap_err().field, "body", "{line:?}");
        }
    }

    #[test]
    fn only_limits_of_the_machine_count_as_exhaustion() {
        let limits =
            [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT];
        for errno in limits {
            assert!(is_exhaustion(&errno.into()));
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::TOOBIG, Errno::NOEXEC] {
            assert!(!is_exhaustion(&errno.into()));
        }
    }
}
