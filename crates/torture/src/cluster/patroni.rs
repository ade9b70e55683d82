//! Three machines with PostgreSQL under Patroni, and etcd on some or all of them. A commit that is
//! synced is on the primary and on one standby (`synchronous_mode: quorum`).

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::machine::Machine;
use super::postgres::{self, PORT, SUPERUSER};

const MEMBERS: u8 = 3;
const REST_PORT: u16 = 8008;
const ETCD_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// The shortest time to live that Patroni allows for the primary's key.
pub(crate) const TTL: Duration = Duration::from_secs(20);
/// For a cluster to start, and for a member to be a standby again after a fault.
const HEALTHY_TIME_MAX: Duration = Duration::from_secs(180);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// What Patroni is: a script of Python.
const PATRONI: &str = "python3";
const SERVER: &str = "postgres";
const ETCD: &str = "etcd";
/// Installed here, below the user's cache directory.
pub(crate) const ENVIRONMENT: &str = "windlass/patroni-4.1.5";

pub(crate) struct Patroni {
    machines: Vec<Machine>,
    etcds: usize,
    /// Patroni's programs, where the database's user can reach them.
    programs: PathBuf,
}

impl Patroni {
    /// With one or three members of etcd.
    pub(crate) fn new(dir: &Path, etcds: usize) -> Result<Patroni> {
        let programs = programs(dir)?;
        let user = postgres::user()?;
        let machine = |number: u8| Machine::new(number, &dir.join(format!("pg{number}")), user);
        let machines = (1..=MEMBERS).map(machine).collect::<Result<Vec<_>>>()?;
        let patroni = Patroni { machines, etcds, programs };
        for machine in &patroni.machines[..etcds] {
            patroni.start_etcd(machine)?;
        }
        for machine in &patroni.machines {
            patroni.configure(machine)?;
            patroni.start_member(machine)?;
        }
        let primary = patroni.until_healthy()?;
        postgres::create_database(patroni.machines[primary].address())?;
        Ok(patroni)
    }

    pub(crate) fn url(&self) -> String {
        let servers: Vec<Ipv4Addr> = self.machines.iter().map(Machine::address).collect();
        postgres::url(&servers)
    }

    fn start_etcd(&self, machine: &Machine) -> Result<()> {
        let url = |machine: &Machine, port| format!("http://{}:{port}", machine.address());
        let (client, peer) = (url(machine, ETCD_PORT), url(machine, PEER_PORT));
        let all = &self.machines[..self.etcds];
        let all = all.iter().map(|it| format!("{}={}", it.name(), url(it, PEER_PORT)));
        let all = all.collect::<Vec<_>>().join(",");
        let mut command = machine.command(Path::new("etcd"));
        command.args(["--name", &machine.name(), "--initial-cluster", &all]);
        command.arg("--data-dir").arg(machine.dir().join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        // Not shorter, on a busy machine.
        command.args(["--heartbeat-interval", "200", "--election-timeout", "2000"]);
        machine.start(&mut command, "etcd.log")
    }

    fn configure(&self, machine: &Machine) -> Result<()> {
        let at = machine.address();
        let hosts = self.machines[..self.etcds].iter();
        let hosts: Vec<String> = hosts.map(|it| format!("{}:{ETCD_PORT}", it.address())).collect();
        let account = json!({"username": SUPERUSER, "password": SUPERUSER});
        let configuration = json!({
            "scope": "windlass",
            "name": machine.name(),
            "restapi": {
                "listen": format!("{at}:{REST_PORT}"),
                "connect_address": format!("{at}:{REST_PORT}"),
            },
            "etcd3": {"hosts": hosts},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL.as_secs(),
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    "synchronous_mode": "quorum",
                    "synchronous_mode_strict": true,
                    "synchronous_node_count": 1,
                    "postgresql": {
                        "use_pg_rewind": true,
                        "use_slots": true,
                        "parameters": {"wal_log_hints": "on", "max_connections": 100},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}],
            },
            "postgresql": {
                "listen": format!("{at}:{PORT}"),
                "connect_address": format!("{at}:{PORT}"),
                "data_dir": machine.dir().join("data"),
                "bin_dir": postgres::programs()?,
                "pgpass": machine.dir().join("pgpass"),
                "authentication":
                    {"superuser": account, "replication": account, "rewind": account},
                "parameters": {"unix_socket_directories": machine.dir()},
                "pg_hba": [
                    "local all all trust",
                    "host all all 10.77.0.0/24 trust",
                    "host replication all 10.77.0.0/24 trust",
                ],
            },
        });
        // JSON is YAML.
        fs::write(machine.dir().join("patroni.yml"), configuration.to_string())?;
        Ok(())
    }

    fn start_member(&self, machine: &Machine) -> Result<()> {
        let mut command = machine.command(&self.programs.join(PATRONI));
        command.arg(self.programs.join("patroni")).arg(machine.dir().join("patroni.yml"));
        machine.start(&mut command, "patroni.log")
    }

    /// Waits until there is a primary with all standbys. Returns its position.
    pub(crate) fn until_healthy(&self) -> Result<usize> {
        let until = Instant::now() + HEALTHY_TIME_MAX;
        loop {
            if let Some(primary) = self.healthy() {
                return Ok(primary);
            }
            if Instant::now() > until {
                bail!("the cluster does not get healthy: {}", self.state().unwrap_or_default());
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn healthy(&self) -> Option<usize> {
        let state = self.state()?;
        let members = state["members"].as_array()?;
        let standbys = members
            .iter()
            .filter(|member| member["role"] == "quorum_standby" && member["state"] == "streaming");
        let primary = members.iter().find(|member| member["role"] == "leader")?;
        let complete = standbys.count() + 1 == usize::from(MEMBERS);
        let primary = self.machines.iter().position(|it| primary["name"] == it.name())?;
        complete.then_some(primary)
    }

    /// What the first member that answers says of all.
    fn state(&self) -> Option<Value> {
        self.machines.iter().find_map(|machine| {
            let at = SocketAddr::from((machine.address(), REST_PORT));
            ask(at, "GET", "/cluster", "").ok()
        })
    }

    /// The position of a standby, chosen by the draw.
    pub(crate) fn standby(&self, draw: u64) -> Result<usize> {
        let others = usize::from(MEMBERS) - 1;
        Ok((self.until_healthy()? + 1 + draw as usize % others) % usize::from(MEMBERS))
    }

    /// The position of etcd's leader.
    pub(crate) fn etcd_leader(&self) -> Result<usize> {
        let leads = |machine: &Machine| {
            let at = SocketAddr::from((machine.address(), ETCD_PORT));
            let status = ask(at, "POST", "/v3/maintenance/status", "{}").ok()?;
            Some(status["leader"] == status["header"]["member_id"])
        };
        let leader = self.machines[..self.etcds].iter().position(|it| leads(it) == Some(true));
        leader.context("etcd has no leader")
    }

    /// Kills the server and its Patroni.
    pub(crate) fn kill_member(&self, member: usize) -> Result<()> {
        self.machines[member].kill(&[PATRONI, SERVER])
    }

    pub(crate) fn start_again(&self, member: usize) -> Result<()> {
        self.start_member(&self.machines[member])
    }

    pub(crate) fn kill_etcd(&self, member: usize) -> Result<()> {
        self.machines[member].kill(&[ETCD])
    }

    pub(crate) fn start_etcd_again(&self, member: usize) -> Result<()> {
        self.start_etcd(&self.machines[member])
    }

    /// The server and its Patroni stand still.
    pub(crate) fn freeze(&self, member: usize) -> Result<()> {
        self.machines[member].signal(&[PATRONI, SERVER], Signal::STOP)
    }

    pub(crate) fn thaw(&self, member: usize) -> Result<()> {
        self.machines[member].signal(&[SERVER, PATRONI], Signal::CONT)
    }

    /// The whole machine is cut off, and lives on.
    pub(crate) fn cut_off(&self, member: usize) -> Result<()> {
        self.machines[member].cut_off()
    }

    pub(crate) fn reconnect(&self, member: usize) -> Result<()> {
        self.machines[member].reconnect()
    }

    /// The machine is cut off from the other members; daemons reach all of them.
    pub(crate) fn isolate(&self, member: usize) -> Result<()> {
        let own = &self.machines[member];
        self.others(member).try_for_each(|other| own.cut_from(other))
    }

    pub(crate) fn join(&self, member: usize) -> Result<()> {
        let own = &self.machines[member];
        self.others(member).try_for_each(|other| own.reconnect_to(other))
    }

    fn others(&self, member: usize) -> impl Iterator<Item = &Machine> {
        let all = self.machines.iter().enumerate();
        all.filter(move |(at, _)| *at != member).map(|(_, machine)| machine)
    }
}

/// Makes Patroni's programs reachable for the database's user, who may not enter the cache
/// directory. The mount is seen by the run alone, and ends with it.
fn programs(dir: &Path) -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|path| path.is_absolute());
    let home = || Some(std::env::home_dir()?.join(".cache"));
    let installed = cache.or_else(home).context("no home directory")?.join(ENVIRONMENT);
    ensure!(
        installed.join("bin/patroni").is_file(),
        "Patroni is missing in {}; run `cargo xtask cluster`",
        installed.display()
    );
    let place = dir.join("patroni");
    fs::create_dir_all(&place)?;
    let output = Command::new("mount").arg("--bind").arg(&installed).arg(&place).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mount --bind: {}", told.trim());
    Ok(place.join("bin"))
}

/// Asks in HTTP/1.0, so that the answer ends with the connection.
fn ask(at: SocketAddr, method: &str, path: &str, body: &str) -> Result<Value> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("not an answer")?;
    Ok(serde_json::from_str(body)?)
}
