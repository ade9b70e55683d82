//! What a layer is worth, by what the attacker could do.

use crate::isolate::{Landlock, Layers, Missing, landlock_version};

use super::attack::LAST;
use super::target::Target;
use super::{Finding, LayerStatus, NOT_TRIED, found, missing};

/// An attack by the word that the attacker has for it, and what the handler did if it succeeded.
type Deed = (&'static str, &'static str);

const NAMESPACES: [Deed; 3] = [
    ("see", "saw the daemon's process"),
    ("segment", "found shared memory of another process (System V)"),
    ("names", "found a file that it was not shown"),
];
const DAEMON: [Deed; 6] = [
    ("signal", "could send the daemon signals"),
    ("prlimit", "could set limits of the daemon"),
    ("priority", "could set the priority of the daemon"),
    ("scheduling", "could set on which processors the daemon runs"),
    ("memory", "opened the daemon's memory"),
    ("environ", "read the daemon's environment"),
];
const CHANGES: [Deed; 2] = [
    ("mode", "changed the mode of a file of the daemon's user (chmod)"),
    ("times", "changed the times of such a file that it had open for reading"),
];
const SYSTEM_CALLS: [Deed; 4] = [
    ("unshare", "made a user namespace"),
    ("keyctl", "used the kernel's keyrings (keyctl)"),
    ("io_uring", "made a ring for system calls (io_uring_setup)"),
    ("ptrace", "could be traced (ptrace)"),
];
const FILES: [Deed; 2] =
    [("write", "wrote a file that is not its own"), ("read", "read a file that is not its own")];

/// What the attacker has printed, and what has arrived.
pub(super) struct Attacked {
    log: String,
    reached: Vec<&'static str>,
}

impl Attacked {
    pub(super) fn of(log: String, target: &Target) -> Attacked {
        Attacked { log, reached: target.reached() }
    }

    /// Whether all attacks were tried.
    fn has_run(&self) -> bool {
        self.log.lines().any(|line| line == LAST)
    }

    fn made(&self, attack: &str) -> bool {
        self.log.lines().any(|line| line.strip_prefix("made ") == Some(attack))
    }

    /// What those of these attacks did that succeeded.
    fn deeds(&self, deeds: &[Deed]) -> Option<String> {
        let made = deeds.iter().filter(|(attack, _)| self.made(attack));
        sentence(made.map(|(_, deed)| (*deed).to_owned()).collect())
    }

    /// The end of what it printed instead.
    fn not_tried(&self) -> String {
        match self.log.lines().last() {
            Some(line) => format!("{NOT_TRIED}: {line}"),
            None => NOT_TRIED.to_owned(),
        }
    }

    fn judged(
        &self,
        layer: &'static str,
        why: Option<&Missing>,
        deeds: Option<String>,
        stopped: &str,
    ) -> Finding {
        match deeds {
            Some(deeds) => missing(layer, why, &deeds),
            None if !self.has_run() => missing(layer, why, &self.not_tried()),
            None => found(layer, true, stopped),
        }
    }

    pub(super) fn namespaces(&self, layers: &Layers) -> Finding {
        let stopped = "processes, files and shared memory of others do not exist for a handler";
        self.judged("namespaces", layers.lacks("namespaces"), self.deeds(&NAMESPACES), stopped)
    }

    /// A daemon of root gives its handlers other users. One that cannot gives them a namespace in
    /// which they are nobody.
    pub(super) fn user(&self) -> Finding {
        let is_root = rustix::process::geteuid().is_root();
        let users = self.log.lines().find_map(|line| line.strip_prefix("users "));
        let ours = std::fs::read_link("/proc/self/ns/user");
        let same_users = ours.is_ok_and(|ours| users.is_none_or(|users| ours.as_os_str() == users));
        match (same_users, is_root) {
            _ if !self.has_run() => found("user", false, self.not_tried()),
            (false, _) => found("user", true, "nobody, of a user namespace of its own"),
            (true, false) => found("user", false, "the daemon's own"),
            (true, true) if self.made("private") => {
                found("user", false, "a handler read a file of the daemon's user")
            }
            (true, true) => found("user", true, "a file of the daemon's user could not be read"),
        }
    }

    pub(super) fn daemon(&self, layers: &Layers) -> Finding {
        let deeds = self.deeds(&DAEMON);
        let stopped = "a handler could not signal, limit, slow down or look into the daemon";
        // Each of them stops most of it.
        let why = layers.lacks("system call filter").or(layers.lacks("namespaces"));
        self.judged("daemon's process", why, deeds, stopped)
    }

    /// Files that a handler may read.
    pub(super) fn changes(&self, layers: &Layers) -> Finding {
        let stopped = "a file that a handler may read keeps its mode and its times";
        // Each of them stops all of it.
        let why = layers.lacks("namespaces").and(layers.lacks("network policy"));
        self.judged("files of others", why, self.deeds(&CHANGES), stopped)
    }

    pub(super) fn network(&self, layers: &Layers) -> Finding {
        let deeds = sentence(self.reached.iter().map(|way| format!("reached {way}")).collect());
        let stopped = "ports and sockets of this machine could not be reached (TCP, UDP, UNIX)";
        self.judged("network policy", layers.lacks("network policy"), deeds, stopped)
    }

    pub(super) fn system_calls(&self, layers: &Layers) -> Finding {
        let layer = "system call filter";
        let deeds = self.deeds(&SYSTEM_CALLS);
        // Where the kernel allows none of these to anybody, that tells nothing about the filter.
        let deeds = deeds.or_else(|| (!layers.filter).then(|| "no filter could be set".into()));
        let stopped = "keyctl, io_uring, ptrace and new namespaces are refused";
        self.judged(layer, layers.lacks(layer), deeds, stopped)
    }

    /// Of an attack without a cell.
    pub(super) fn landlock(&self, wanted: Landlock) -> Finding {
        let layer = "files (Landlock)";
        let (deeds, version) = (self.deeds(&FILES), landlock_version());
        match (wanted, version, deeds) {
            (Landlock::Off, _, deeds) => {
                let tried = deeds.unwrap_or_else(|| "no file could be reached either".into());
                let detail = format!("isolation.landlock is off; without a cell, {tried}");
                Finding { layer, status: LayerStatus::Absent, detail }
            }
            (_, Err(reason), _) => {
                let detail = format!(
                    "this kernel has none ({reason}); it needs Linux 5.13 or later with landlock \
                     in its list of security modules (lsm=landlock,… on its command line)"
                );
                found(layer, false, detail)
            }
            (_, Ok(_), _) if !self.has_run() => found(layer, false, self.not_tried()),
            (_, Ok(_), Some(deeds)) => found(layer, false, format!("without a cell, {deeds}")),
            (_, Ok(version), None) => {
                let stopped = "other files cannot be read or written, not even without a cell";
                found(layer, true, format!("version {version}: {stopped}"))
            }
        }
    }
}

fn sentence(deeds: Vec<String>) -> Option<String> {
    (!deeds.is_empty()).then(|| format!("a handler {}", deeds.join(", ")))
}
