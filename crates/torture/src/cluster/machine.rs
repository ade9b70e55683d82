//! A machine of the cluster: a network namespace with an address of its own, and the programs in
//! it. All are joined by a bridge in the namespace of the run.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The address of the run itself, where daemons, clients and workers are.
const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const BRIDGE: &str = "cluster";
/// Its own processes end at once when they are killed; a daemon may hold them up for a moment.
const LOOKS_MAX: u32 = 2000;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Machine {
    pub(crate) number: u8,
    /// Keeps the namespace.
    holder: Child,
    dir: PathBuf,
    user: User,
}

/// The system user of the database; its servers refuse to run as root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Joins the machines; the namespace of the run is new and has nothing yet.
pub(crate) fn lay_network() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    ip(&["addr", "add", &format!("{HUB}/24"), "dev", BRIDGE])?;
    ip(&["link", "set", BRIDGE, "up"])
}

impl Machine {
    /// Number 1 to 9, with its files in this folder.
    pub(crate) fn new(number: u8, dir: &Path, user: User) -> Result<Machine> {
        fs::create_dir_all(dir)?;
        std::os::unix::fs::chown(dir, Some(user.user), Some(user.group))?;
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let holder = command.spawn().context("cannot start unshare")?;
        let machine = Machine { number, holder, dir: dir.to_owned(), user };
        machine.plug_in()?;
        Ok(machine)
    }

    fn plug_in(&self) -> Result<()> {
        let (holder, near) = (self.holder.id().to_string(), self.cable());
        let own = fs::read_link("/proc/self/ns/net")?;
        // The namespace is there as soon as it differs from ours.
        for _ in 0..LOOKS_MAX {
            if fs::read_link(format!("/proc/{holder}/ns/net")).is_ok_and(|it| it != own) {
                break;
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        let far = ["type", "veth", "peer", "name", "eth0", "netns", &holder];
        ip(&[&["link", "add", near.as_str()][..], &far].concat())?;
        ip(&["link", "set", &near, "master", BRIDGE, "up"])?;
        self.ip(&["addr", "add", &format!("{}/24", self.address()), "dev", "eth0"])?;
        self.ip(&["link", "set", "eth0", "up"])?;
        self.ip(&["link", "set", "lo", "up"])
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + self.number)
    }

    pub(crate) fn name(&self) -> String {
        format!("pg{}", self.number)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program on this machine, by the database's user.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        let User { user, group } = self.user;
        command.args(["--net", "--target", &self.holder.id().to_string()]);
        command.args([format!("--setuid={user}"), format!("--setgid={group}"), "--".into()]);
        command.arg(program).env("LC_ALL", "C").env("HOME", &self.dir).current_dir(&self.dir);
        command.stdin(Stdio::null());
        command
    }

    /// Runs one to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {}", told.trim());
        Ok(())
    }

    /// Starts one with its output in a file. It and what it starts are found by the namespace.
    pub(crate) fn start(&self, command: &mut Command, log: &str) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join(log))?;
        command.stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// Sends a signal to all programs with one of these names.
    pub(crate) fn signal(&self, names: &[&str], signal: Signal) -> Result<()> {
        for pid in self.processes(names)? {
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    /// Kills all programs with one of these names, and waits until they are gone.
    pub(crate) fn kill(&self, names: &[&str]) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            if self.processes(names)?.is_empty() {
                return Ok(());
            }
            self.signal(names, Signal::KILL)?;
            std::thread::sleep(LOOK_PAUSE);
        }
        bail!("{}: {names:?} cannot be killed", self.name())
    }

    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        Ok(!self.processes(&[name])?.is_empty())
    }

    fn processes(&self, names: &[&str]) -> Result<Vec<Pid>> {
        let own = fs::read_link(format!("/proc/{}/ns/net", self.holder.id()))?;
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A zombie has no namespace any more.
            if !fs::read_link(entry.path().join("ns/net")).is_ok_and(|it| it == own) {
                continue;
            }
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if names.contains(&name.trim_end()) {
                found.extend(Pid::from_raw(pid));
            }
        }
        Ok(found)
    }

    /// Nothing reaches it, and it reaches nothing.
    pub(crate) fn cut_off(&self) -> Result<()> {
        ip(&["link", "set", &self.cable(), "down"])
    }

    pub(crate) fn reconnect(&self) -> Result<()> {
        ip(&["link", "set", &self.cable(), "up"])
    }

    /// It and that machine do not reach each other; both reach everything else.
    pub(crate) fn cut_from(&self, other: &Machine) -> Result<()> {
        self.ip(&["route", "add", "blackhole", &other.address().to_string()])?;
        other.ip(&["route", "add", "blackhole", &self.address().to_string()])
    }

    pub(crate) fn reconnect_to(&self, other: &Machine) -> Result<()> {
        self.ip(&["route", "del", "blackhole", &other.address().to_string()])?;
        other.ip(&["route", "del", "blackhole", &self.address().to_string()])
    }

    fn cable(&self) -> String {
        format!("cable{}", self.number)
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.holder.id().to_string(), "--", "ip"]);
        self.run(command.args(arguments))
    }
}

/// Everything on it ends with it.
impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.kill(&["patroni", "postgres", "etcd"]);
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ip");
    let output = command.args(arguments).output().context("ip is missing; install iproute2")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {} failed: {}", arguments.join(" "), told.trim());
    Ok(())
}
