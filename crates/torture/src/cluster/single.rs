//! One PostgreSQL server on a machine and a disk of its own.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::machine::{Machine, User};
use super::postgres::{self, DATABASE, SUPERUSER};
use crate::volume::Volume;

/// A server is up again after this, or something is wrong: it may have much to recover.
const START_TIME_MAX: Duration = Duration::from_secs(90);
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// More log files than the server keeps for later.
const LOG_FILES_MAX: u32 = 50;
const SERVER: [&str; 1] = ["postgres"];

pub(crate) struct Single {
    // Before the disk, which it keeps in use.
    machine: Machine,
    /// A transaction that stays open, with the client that holds it.
    holder: Option<Child>,
    disk: Volume,
    data: PathBuf,
}

impl Single {
    pub(crate) fn new(dir: &Path) -> Result<Single> {
        let user @ User { user: uid, group } = postgres::user()?;
        let place = dir.join("disk");
        let disk = Volume::create(&dir.join("disk.xfs"), &place)?;
        std::os::unix::fs::chown(&place, Some(uid), Some(group))?;
        let machine = Machine::new(1, &dir.join("pg1"), user)?;
        let single = Single { machine, holder: None, disk, data: place.join("data") };
        single.install()?;
        single.start()?;
        postgres::create_database(single.address())?;
        Ok(single)
    }

    fn install(&self) -> Result<()> {
        let mut command = self.machine.command(&postgres::program("initdb")?);
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", SUPERUSER]);
        self.machine.run(command.arg("--pgdata").arg(&self.data))?;
        let access = self.data.join("pg_hba.conf");
        let text = fs::read_to_string(&access)?;
        fs::write(access, format!("{text}host all all 10.77.0.0/24 trust\n"))?;
        Ok(())
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.machine.address()
    }

    pub(crate) fn url(&self) -> String {
        postgres::url(&[self.address()])
    }

    fn start(&self) -> Result<()> {
        let until = Instant::now() + START_TIME_MAX;
        loop {
            if !self.machine.has(SERVER[0])? {
                let mut command = self.machine.command(&postgres::program("postgres")?);
                command.arg("-D").arg(&self.data);
                for setting in ["listen_addresses=*", "unix_socket_directories=", "fsync=on"] {
                    command.args(["-c", setting]);
                }
                // Less than the disk has, and room for three daemons with their probes.
                command.args(["-c", "max_wal_size=96MB", "-c", "max_connections=100"]);
                self.machine.start(&mut command, "postgres.log")?;
            }
            if self.sql("SELECT 1").is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the server does not start; see postgres.log");
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn sql(&self, text: &str) -> Result<String> {
        postgres::sql(self.address(), SUPERUSER, text)
    }

    /// Kills one connection's process of a daemon, at which the server restarts itself and forgets
    /// what was not flushed.
    pub(crate) fn kill_backend(&self, draw: u64) -> Result<()> {
        let list = format!("SELECT pid FROM pg_stat_activity WHERE datname = '{DATABASE}'");
        let pids = self.sql(&list)?;
        let pids: Vec<&str> = pids.lines().collect();
        ensure!(!pids.is_empty(), "no daemon is connected");
        let pid = pids[draw as usize % pids.len()];
        // The numbers are the same on all machines.
        self.machine.run(Command::new("kill").args(["-9", pid]))
    }

    /// Kills the whole server, and starts it again.
    pub(crate) fn kill(&self) -> Result<()> {
        self.machine.kill(&SERVER)?;
        self.start()
    }

    /// Stops it as an administrator does who does not wait for clients, and starts it again.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut command = self.machine.command(&postgres::program("pg_ctl")?);
        command.args(["stop", "--wait", "--mode=fast", "-D"]).arg(&self.data);
        self.machine.run(&mut command)?;
        self.start()
    }

    /// All its processes stand still.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.machine.signal(&SERVER, Signal::STOP)
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        self.machine.signal(&SERVER, Signal::CONT)
    }

    /// The daemons' database is read-only, also for those that are connected.
    pub(crate) fn forbid_writes(&self) -> Result<()> {
        self.sql(&format!("ALTER DATABASE {DATABASE} SET default_transaction_read_only = on"))?;
        self.disconnect()
    }

    pub(crate) fn allow_writes(&self) -> Result<()> {
        self.sql(&format!("ALTER DATABASE {DATABASE} RESET default_transaction_read_only"))?;
        Ok(())
    }

    /// Daemons get no connection: the server answers as if all were in use.
    pub(crate) fn refuse_connections(&self) -> Result<()> {
        self.sql(&format!("ALTER ROLE {DATABASE} CONNECTION LIMIT 0"))?;
        self.disconnect()
    }

    pub(crate) fn admit_connections(&self) -> Result<()> {
        self.sql(&format!("ALTER ROLE {DATABASE} CONNECTION LIMIT -1"))?;
        Ok(())
    }

    fn disconnect(&self) -> Result<()> {
        let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity";
        self.sql(&format!("{all} WHERE usename = '{DATABASE}'"))?;
        Ok(())
    }

    /// No room is left, not even in the log files that the server has made in advance.
    pub(crate) fn fill_disk(&self) -> Result<()> {
        self.disk.fill()?;
        let use_one = "SELECT pg_logical_emit_message(true, '', ''); SELECT pg_switch_wal()";
        // The server gives up while it looks for room for the next one.
        let noticed = (0..LOG_FILES_MAX).any(|_| self.sql(use_one).is_err());
        ensure!(noticed, "the server has room for {LOG_FILES_MAX} log files on a full disk");
        Ok(())
    }

    /// There is room again; an administrator starts a server that gave up.
    pub(crate) fn free_disk(&self) -> Result<()> {
        self.disk.free()?;
        self.start()
    }

    /// A transaction that sees the database as it is now, for the rest of the run.
    pub(crate) fn open_transaction(&mut self) -> Result<()> {
        if self.holder.is_some() {
            return Ok(());
        }
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", "86400"]);
        postgres::client(&mut command, self.address(), DATABASE);
        let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM windlass.job; \
                    SELECT pg_sleep(86400)";
        command.args(["--command", hold]).stdout(Stdio::null()).stderr(Stdio::null());
        self.holder = Some(command.spawn().context("cannot start psql")?);
        let until = Instant::now() + START_TIME_MAX;
        let seen = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = '{SUPERUSER}' \
             AND datname = '{DATABASE}' AND backend_xmin IS NOT NULL AND query LIKE 'BEGIN%sleep%'"
        );
        while self.sql(&seen)? != "1" {
            if Instant::now() > until {
                bail!("the transaction was not opened");
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            let _ = holder.wait();
        }
        let _ = self.machine.kill(&SERVER);
    }
}
