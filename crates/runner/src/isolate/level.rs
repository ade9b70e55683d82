//! Which layers of isolation this machine allows. Nothing is assumed: a cell is started with each
//! of them, once, when the runner is created.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use windlass_core::{JobId, Tenant};

use super::Isolation;
use super::group::Groups;
use crate::Error;
use crate::cell::{Memory, NoCell, Plan, Room, User};
use crate::gate::Gate;
use crate::scratch::{AttemptDir, Scratch};

/// How much isolation is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// All that the machine allows.
    #[default]
    Auto,
    /// Otherwise the runner does not start: namespaces, system call filters, network.
    Required,
    /// None, for development.
    Off,
}

/// What is in force.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// Whether processes are started in cells at all.
    pub(crate) is_cell: bool,
    /// How namespaces are made; absent without them.
    pub(crate) room: Option<User>,
    pub(crate) filter: bool,
    pub(crate) network: bool,
    pub missing: Vec<Missing>,
}

/// A layer that is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub layer: &'static str,
    pub reason: String,
    /// What would help.
    pub help: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}); {}", self.layer, self.reason, self.help)
    }
}

const ROOM: &str = "namespaces";
const ROOM_HELP: &str = "allow unprivileged user namespaces (kernel.unprivileged_userns_clone, \
     user.max_user_namespaces, AppArmor's kernel.apparmor_restrict_unprivileged_userns; in Docker \
     a seccomp profile that allows unshare and mount), or run the daemon as root";
const NETWORK: &str = "network policy";
const NETWORK_HELP: &str = "it needs Linux 5.14 with seccomp user notification, and a container \
     that allows pidfd_getfd and process_vm_readv";
const GROUPS: &str = "control groups";
const GROUPS_HELP: &str = "let systemd run the daemon with Delegate=yes, or run it as root; until \
     then the memory of a handler is added up several times a second, and memory that is shared \
     without a file is refused";
const FILTER: &str = "system call filter";
const FILTER_HELP: &str = "it needs a kernel with seccomp filters";
/// Tenants' users are numbered from here on: far above those of people and services.
const FIRST_USER: u32 = 0x7000_0000;
const USERS: u64 = 0x0FFF_FFFF;
/// Scratch space of a trial, its memory, and its tasks.
const TRIAL_BYTES: u64 = 1 << 20;
const TRIAL_MEMORY: u64 = 64 << 20;
const TRIAL_TASKS: u64 = 64;
/// Something that exists and cannot be run: when that is the failure, everything before it worked.
const NO_PROGRAM: &str = "/";

/// The user of a tenant, if the daemon is root: always the same one.
pub(super) fn user_of(tenant: &Tenant) -> u32 {
    // FNV-1a.
    let hash = tenant.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_USER | ((hash ^ (hash >> 32)) & USERS) as u32
}

pub(super) fn find_layers(
    level: Level,
    isolation: &Isolation,
    scratch: &Scratch,
) -> Result<Layers, Error> {
    if level == Level::Off {
        tracing::warn!("isolation.level is off: handlers can reach this machine and its network");
        return Ok(Layers::default());
    }
    let failed = |source| Error::Scratch { path: scratch.root().to_owned(), source };
    let dir = scratch.attempt(JobId::new(1).expect("1 is an id")).map_err(failed)?;
    let trial = Trial { isolation, dir: &dir, gate: &scratch.gate };
    let run = |user, filter, network| trial.run(user, filter, network, Memory::Unbounded);
    let layers = find(level, rustix::process::geteuid().is_root(), run)?;
    layers.missing.iter().for_each(Missing::warn);
    Ok(layers)
}

/// Tries one layer after the other. `run` starts a cell with a user, a filter and a network policy,
/// or says why that does not work.
fn find(
    level: Level,
    is_root: bool,
    run: impl Fn(Option<User>, bool, bool) -> Result<(), String>,
) -> Result<Layers, Error> {
    let mut layers = Layers { is_cell: true, ..Layers::default() };
    let missing = |layer, help| move |reason| Missing { layer, reason, help };
    let kinds =
        if is_root { &[User::Number(FIRST_USER), User::Nobody][..] } else { &[User::Nobody] };
    let tried: Vec<_> = kinds.iter().map(|user| run(Some(*user), false, false)).collect();
    layers.room = kinds.iter().zip(&tried).find(|(_, tried)| tried.is_ok()).map(|(user, _)| *user);
    if layers.room.is_none() {
        let reason = tried.into_iter().find_map(Result::err).unwrap_or_default();
        layers.missing.push(missing(ROOM, ROOM_HELP)(reason));
    }
    match run(layers.room, true, false) {
        Ok(()) => layers.filter = true,
        Err(reason) => layers.missing.push(missing(FILTER, FILTER_HELP)(reason)),
    }
    match run(layers.room, layers.filter, true) {
        Ok(()) => layers.network = true,
        Err(reason) => layers.missing.push(missing(NETWORK, NETWORK_HELP)(reason)),
    }
    if level == Level::Required && !layers.missing.is_empty() {
        return Err(Error::Isolation(layers.missing.remove(0)));
    }
    Ok(layers)
}

/// Starts a cell in a control group. The reason if that does not work.
pub(super) fn try_group(
    isolation: &Isolation,
    groups: &Groups,
    scratch: &Scratch,
) -> Result<(), String> {
    let text = |reason: io::Error| reason.to_string();
    let dir = scratch.attempt(JobId::new(1).expect("1 is an id")).map_err(text)?;
    let group = groups.make(Some(TRIAL_MEMORY), Some(TRIAL_TASKS)).map_err(text)?;
    let trial = Trial { isolation, dir: &dir, gate: &scratch.gate };
    trial.run(isolation.layers.room, false, false, Memory::Group(group.of_cell().clone()))
}

impl Layers {
    /// The layer of this name, if it is missing.
    pub(crate) fn lacks(&self, layer: &str) -> Option<&Missing> {
        self.missing.iter().find(|missing| missing.layer == layer)
    }

    /// Not one of those that can be required: what takes its place holds, but costs more.
    pub(super) fn lacks_groups(&mut self, reason: String) {
        let missing = Missing { layer: GROUPS, reason, help: GROUPS_HELP };
        missing.warn();
        self.missing.push(missing);
    }
}

impl Missing {
    /// Whether this is the kernel's bound for the memory of whole handlers.
    pub(crate) fn is_groups(&self) -> bool {
        self.layer == GROUPS
    }

    fn warn(&self) {
        let Missing { layer, reason, help } = self;
        tracing::warn!(layer, reason, help, "a layer of isolation is missing");
    }
}

struct Trial<'a> {
    isolation: &'a Isolation,
    dir: &'a AttemptDir,
    gate: &'a Arc<Gate>,
}

impl Trial<'_> {
    /// Starts a cell with these layers. The reason if one of them does not work.
    fn run(
        &self,
        user: Option<User>,
        filter: bool,
        network: bool,
        memory: Memory,
    ) -> Result<(), String> {
        let room = user.map(|user| Room {
            user,
            base: self.dir.root(),
            read: self.isolation.visible(Path::new("")),
            write: Vec::new(),
            inbox: self.dir.inbox(),
            scratch_bytes: TRIAL_BYTES,
        });
        let plan = Plan {
            argv: vec![NO_PROGRAM.into()],
            env: Vec::new(),
            cwd: "/".into(),
            limits: Vec::new(),
            room,
            filter,
            network: network.then(|| "mode none\n".to_owned()),
            files: None,
            memory,
            takes_orders: false,
        };
        match self.isolation.cells.start(&plan, Stdio::null(), None, self.dir.path(), self.gate) {
            Ok(_) => Err("the root directory was run as a program".into()),
            Err(NoCell::Program(_)) => Ok(()),
            Err(NoCell::Other(reason)) => Err(reason.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found on a machine that lacks these layers.
    fn on_machine_without(lacks: &[&str], level: Level, is_root: bool) -> Result<Layers, Error> {
        let run = |user: Option<User>, filter, network| {
            let wants = [(ROOM, user.is_some()), (FILTER, filter), (NETWORK, network)];
            let refused = wants.iter().find(|(layer, wanted)| *wanted && lacks.contains(layer));
            refused.map_or(Ok(()), |(layer, _)| Err(format!("no {layer} here")))
        };
        find(level, is_root, run)
    }

    #[test]
    fn a_required_layer_that_is_missing_is_an_error_that_names_it() {
        let cases: [(&[&str], &str); 7] = [
            (&[ROOM], ROOM),
            (&[FILTER], FILTER),
            (&[NETWORK], NETWORK),
            (&[ROOM, FILTER], ROOM),
            (&[ROOM, NETWORK], ROOM),
            (&[FILTER, NETWORK], FILTER),
            (&[ROOM, FILTER, NETWORK], ROOM),
        ];
        for (lacks, named) in cases {
            for is_root in [false, true] {
                let refused = on_machine_without(lacks, Level::Required, is_root);
                let Err(Error::Isolation(missing)) = refused else { panic!("without {lacks:?}") };
                let reason = format!("no {named} here");
                assert_eq!((missing.layer, missing.reason), (named, reason), "{lacks:?}");
                let found = on_machine_without(lacks, Level::Auto, is_root).unwrap();
                let missing: Vec<&str> = found.missing.iter().map(|layer| layer.layer).collect();
                assert_eq!(missing, lacks);
                let others = [ROOM, FILTER, NETWORK].map(|layer| !lacks.contains(&layer));
                assert_eq!([found.room.is_some(), found.filter, found.network], others);
            }
        }
    }

    #[test]
    fn where_no_layer_is_missing_a_required_level_is_met() {
        for (is_root, user) in [(false, User::Nobody), (true, User::Number(FIRST_USER))] {
            let found = on_machine_without(&[], Level::Required, is_root).unwrap();
            assert!(found.is_cell && found.filter && found.network, "{found:?}");
            assert_eq!((found.room, found.missing), (Some(user), Vec::new()));
        }
    }

    /// Root may lack the right to make namespaces in a container, where a user namespace helps.
    #[test]
    fn a_daemon_of_root_falls_back_to_a_user_namespace() {
        let run = |user: Option<User>, _, _| match user {
            Some(User::Number(_)) => Err("not permitted".to_owned()),
            Some(User::Nobody) | None => Ok(()),
        };
        assert_eq!(find(Level::Required, true, run).unwrap().room, Some(User::Nobody));
    }
}
