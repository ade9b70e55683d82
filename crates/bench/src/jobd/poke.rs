//! From a poke to the start of the command: through the master, the worker and the table. The
//! command is this program itself, which first of all reports that it has started.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::net::UdpSocket;

use windlass_core::launch::Launcher;
use windlass_runner::CommandLauncher;

use crate::jobd::database::Database;
use crate::jobd::{self, Daemon, Program, spawn};
use crate::process::child::Part;
use crate::report::figure::Samples;

const WARM_UP_JOBS: usize = 20;
/// A command that has not reported by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// The work of the command.
pub(crate) fn report_start(address: &str) -> anyhow::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.send_to(&[], address)?;
    Ok(())
}

pub(crate) struct Starts {
    /// From the poke to the start of its job.
    pub(crate) poked: Samples,
    /// The same command, started by the runner alone.
    pub(crate) alone: Samples,
}

pub(crate) async fn measure(
    dir: &Path,
    database: &Database,
    jobs: usize,
) -> anyhow::Result<Starts> {
    let listener = StartListener::open().await?;
    let command = listener.command()?;
    let mut table = database.table("pokes").await?;
    let [master_dir, worker_dir] = ["master", "worker"].map(|name| dir.join(name));
    std::fs::create_dir(&master_dir)?;
    std::fs::create_dir(&worker_dir)?;
    // Otherwise only two pokes a second are forwarded at once.
    let unthrottled = "poke_throttle_interval=0\n";
    let master = Daemon::start(Program::Master, &master_dir, unthrottled).await?;
    let launcher = format!("{} {{id}}", command.join(" "));
    let config = database.config(&table);
    let config = jobd::worker_config(&launcher, &config, Some(master.server.address));
    let _worker = Daemon::start(Program::Worker, &worker_dir, &config).await?;

    let mut poked = Samples::default();
    for number in 0..WARM_UP_JOBS + jobs {
        table.add(1).await?;
        let began = Instant::now();
        let (answered, started) = tokio::join!(master.announce_jobs("poke"), listener.next_start());
        answered?;
        if number >= WARM_UP_JOBS {
            poked.push(started? - began);
        }
        table.done(PATIENCE).await?;
    }
    Ok(Starts { poked, alone: alone(&listener, &command, jobs).await? })
}

async fn alone(
    listener: &StartListener,
    command: &[String],
    commands: usize,
) -> anyhow::Result<Samples> {
    let launcher = CommandLauncher::new()?;
    let (program, args) = command.split_first().context("a command has a program")?;
    let mut samples = Samples::default();
    for number in 0..WARM_UP_JOBS + commands {
        let began = Instant::now();
        let running = launcher.launch(spawn::spec(program, args.to_vec()));
        let started = listener.next_start().await?;
        if number >= WARM_UP_JOBS {
            samples.push(started - began);
        }
        running.wait().await;
    }
    Ok(samples)
}

/// Receives the reports of commands that start.
struct StartListener {
    socket: UdpSocket,
    address: SocketAddr,
}

impl StartListener {
    async fn open() -> anyhow::Result<StartListener> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        Ok(StartListener { socket, address })
    }

    /// A command that reports to this listener.
    fn command(&self) -> anyhow::Result<[String; 4]> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let program = program.to_str().context("this program's path is not UTF-8")?.to_owned();
        ensure!(!program.contains(' '), "a launcher cannot have a space in its path: {program}");
        Ok([program, Part::ReportStart.name().into(), ".".into(), self.address.to_string()])
    }

    async fn next_start(&self) -> anyhow::Result<Instant> {
        let received = tokio::time::timeout(PATIENCE, self.socket.recv(&mut [0])).await;
        received.context("the command did not start")??;
        Ok(Instant::now())
    }
}
