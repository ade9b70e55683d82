//! The process of one attempt: its command, environment and directory. It gets nothing of the
//! daemon's own environment, and no descriptor except the three pipes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use windlass_core::secret::OpenSecrets;
use windlass_core::{Handler, Invalid, Job, Lang};

use crate::Ground;
use crate::cell::{Streams, Variables};
use crate::context::language::find_program;
use crate::isolate::{Order, Places};
use crate::scratch::AttemptDir;
use crate::spare::{Seat, Started, Use};
use crate::tree;

/// Name of the file with the script of a handler of sh.
const SCRIPT: &str = "script";
/// Variables that differ between jobs of one handler.
const OF_JOB: [&str; 3] = ["WINDLASS_JOB_ID", "WINDLASS_ATTEMPT", "WINDLASS_CHILDREN"];

/// Everything needed to start the process of one attempt.
pub(crate) struct Launch {
    pub(crate) ground: Arc<Ground>,
    pub(crate) handler: Arc<Handler>,
    pub(crate) job: Arc<Job>,
    pub(crate) secrets: Arc<OpenSecrets>,
    /// What it may connect to, as text.
    pub(crate) network: String,
}

/// Why no process was started.
pub(crate) enum NotStarted {
    /// The machine temporarily lacks something: descriptors, processes, memory, disk.
    Exhausted(io::Error),
    /// The handler cannot be started, so its attempt has failed.
    Refused(String),
}

impl Launch {
    /// Starts the process. Blocks for some milliseconds, unless a cell waits for it.
    pub(crate) fn start(&self) -> Result<Started, NotStarted> {
        if self.ground.isolation.keeps_cells() {
            return self.start_in_kept_cell();
        }
        let dir = self.ground.scratch.attempt(self.job.id).map_err(NotStarted::Exhausted)?;
        let places = self.ground.isolation.places(&dir);
        let argv = self.words(&dir, &places)?;
        let (env, program) = (self.environment(&places), self.program());
        let order = self.order(argv, env, &dir, &program, Stdio::piped());
        let mut main = self.ground.isolation.start(order, &self.ground.scratch.gate)?;
        let piped = "all three streams are piped";
        let streams = Streams {
            stdin: main.child.stdin.take().expect(piped),
            stdout: main.child.stdout.take().expect(piped),
            stderr: main.child.stderr.take().expect(piped),
        };
        Ok(Started { seat: Seat { main, _dir: dir, use_for: None, jobs: 0 }, streams })
    }

    /// In a cell that has run other jobs of the same handler, or that will.
    fn start_in_kept_cell(&self) -> Result<Started, NotStarted> {
        let isolation = &self.ground.isolation;
        let (of_job, env): (Variables, Variables) = self
            .environment(&isolation.places_inside())
            .into_iter()
            .partition(|(name, _)| OF_JOB.iter().any(|of_job| name == of_job));
        let (handler, network) = (Arc::clone(&self.handler), self.network.clone());
        let use_for = Use { handler, network, env };
        while let Some(seat) = self.ground.spares.take(&use_for) {
            // One that died while it waited is not missed.
            if let Ok(started) = seat.start(&of_job) {
                return Ok(started);
            }
        }
        let dir = self.ground.scratch.cell().map_err(NotStarted::Exhausted)?;
        let argv = self.words(&dir, &isolation.places(&dir))?;
        let (name, program) = (argv[0].clone(), self.program());
        let order = self.order(argv, use_for.env.clone(), &dir, &program, Stdio::null());
        let main = isolation.open(order, &self.ground.scratch.gate)?;
        let seat = Seat { main, _dir: dir, use_for: Some(use_for), jobs: 0 };
        seat.start(&of_job).map_err(|reason| isolation.not_started(&name, reason))
    }

    fn order<'a>(
        &'a self,
        argv: Vec<OsString>,
        env: Variables,
        dir: &'a AttemptDir,
        program: &'a Path,
        stdin: Stdio,
    ) -> Order<'a> {
        Order {
            argv,
            env,
            stdin,
            channels: None,
            dir,
            program,
            tenant: &self.job.key.tenant,
            limits: &self.handler.spec.options.limits,
            network: self.network.clone(),
        }
    }

    /// The program, if its installation may be read: only if it was found in the daemon's own
    /// `PATH`. Other paths named by the author of a handler grant no access.
    fn program(&self) -> PathBuf {
        let words = split(&self.handler.spec.body).unwrap_or_default();
        let named = words.first().filter(|_| self.handler.spec.lang == Lang::Exec);
        let found = named.filter(|name| !name.contains('/'));
        found.and_then(|name| find_program(name, &self.ground.path)).unwrap_or_default()
    }

    fn words(&self, dir: &AttemptDir, places: &Places) -> Result<Vec<OsString>, NotStarted> {
        let body = &self.handler.spec.body;
        if self.handler.spec.lang == Lang::Exec {
            let words = split(body).map_err(|invalid| NotStarted::Refused(invalid.to_string()))?;
            return Ok(words.into_iter().map(OsString::from).collect());
        }
        // A file, because an argument is at most 128 KiB long and standard input is the payload.
        dir.hand(SCRIPT, body.as_bytes()).map_err(NotStarted::Exhausted)?;
        Ok(vec!["sh".into(), places.inbox.join(SCRIPT).into()])
    }

    /// Later entries replace earlier ones: a handler cannot set those of its job.
    fn environment(&self, places: &Places) -> Vec<(OsString, OsString)> {
        let mut env = Environment::new(&self.ground.path, places, &self.handler.spec.options.env);
        env.add_secrets(&self.secrets);
        env.set("WINDLASS_JOB_ID", self.job.id.to_string());
        env.set("WINDLASS_TENANT", self.job.key.tenant.as_str());
        env.set("WINDLASS_TYPE", self.job.key.name.as_str());
        env.set("WINDLASS_ATTEMPT", self.job.attempt.to_string());
        if self.job.children {
            env.set("WINDLASS_CHILDREN", "1");
        }
        env.finish(places)
    }
}

/// The environment of a handler's process.
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub(crate) fn new(path: &str, places: &Places, own: &BTreeMap<String, String>) -> Environment {
        let mut env = Environment(BTreeMap::new());
        env.set("PATH", path);
        env.set("HOME", &places.work);
        env.set("TMPDIR", &places.tmp);
        env.set("LANG", "C.UTF-8");
        for (name, value) in own {
            env.set(name, value);
        }
        env
    }

    pub(crate) fn add_secrets(&mut self, secrets: &OpenSecrets) {
        for secret in secrets.iter() {
            self.set(secret.name.as_str(), secret.value.reveal());
        }
    }

    /// Replaces an earlier value.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.0.insert(name.into(), value.as_ref().to_owned());
    }

    pub(crate) fn finish(mut self, places: &Places) -> Vec<(OsString, OsString)> {
        self.set(tree::MARKER, &places.dir);
        self.0.into_iter().collect()
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
    use windlass_core::launch::is_exhaustion;

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
