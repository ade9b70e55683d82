//! Which layers of isolation this machine allows. Nothing is assumed: a cell is started with each
//! of them, once, when the runner is created.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use windlass_core::{JobId, Tenant};

use super::Isolation;
use crate::Error;
use crate::cell::{NoCell, Plan, Room, User};
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
const FILTER: &str = "system call filter";
const FILTER_HELP: &str = "it needs a kernel with seccomp filters";
/// Tenants' users are numbered from here on: far above those of people and services.
const FIRST_USER: u32 = 0x7000_0000;
const USERS: u64 = 0x0FFF_FFFF;
/// Scratch space of a trial.
const TRIAL_BYTES: u64 = 1 << 20;
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
    let mut layers = Layers { is_cell: true, ..Layers::default() };
    let missing = |layer, help| move |reason| Missing { layer, reason, help };
    let is_root = rustix::process::geteuid().is_root();
    let kinds =
        if is_root { &[User::Number(FIRST_USER), User::Nobody][..] } else { &[User::Nobody] };
    let tried: Vec<_> = kinds.iter().map(|user| trial.run(Some(*user), false, false)).collect();
    layers.room = kinds.iter().zip(&tried).find(|(_, tried)| tried.is_ok()).map(|(user, _)| *user);
    if layers.room.is_none() {
        let reason = tried.into_iter().find_map(Result::err).unwrap_or_default();
        layers.missing.push(missing(ROOM, ROOM_HELP)(reason));
    }
    match trial.run(layers.room, true, false) {
        Ok(()) => layers.filter = true,
        Err(reason) => layers.missing.push(missing(FILTER, FILTER_HELP)(reason)),
    }
    match trial.run(layers.room, layers.filter, true) {
        Ok(()) => layers.network = true,
        Err(reason) => layers.missing.push(missing(NETWORK, NETWORK_HELP)(reason)),
    }
    if level == Level::Required && !layers.missing.is_empty() {
        return Err(Error::Isolation(layers.missing.remove(0)));
    }
    for missing in &layers.missing {
        tracing::warn!(
            layer = missing.layer,
            reason = missing.reason,
            help = missing.help,
            "a layer of isolation is missing"
        );
    }
    Ok(layers)
}

struct Trial<'a> {
    isolation: &'a Isolation,
    dir: &'a AttemptDir,
    gate: &'a Arc<Gate>,
}

impl Trial<'_> {
    /// Starts a cell with these layers. The reason if one of them does not work.
    fn run(&self, user: Option<User>, filter: bool, network: bool) -> Result<(), String> {
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
        };
        match self.isolation.cells.start(&plan, Stdio::null(), None, self.dir.path(), self.gate) {
            Ok(_) => Err("the root directory was run as a program".into()),
            Err(NoCell::Program(_)) => Ok(()),
            Err(NoCell::Other(reason)) => Err(reason.to_string()),
        }
    }
}
