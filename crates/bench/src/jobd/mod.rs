//! jobd's worker and master as they are served, each in its own process, and a client of both.

pub(crate) mod database;
pub(crate) mod poke;
pub(crate) mod spawn;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use windlass_core::time::SystemClock;
use windlass_door_jobd as jobd;
use windlass_program::Stop;
use windlass_runner::CommandLauncher;

use crate::engine::daemon;
use crate::jobd::database::TARGET;
use crate::load::client;
use crate::process::child::{Part, Server};
use crate::process::server;
use crate::report;

/// Jobs that a worker runs at the same time.
pub(crate) const CONCURRENCY: usize = 20;
/// The configuration in the directory of a daemon.
const CONFIG_FILE: &str = "jobd.conf";
/// How long a daemon may take to listen, and how often to try.
const START_PATIENCE: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Worker,
    Master,
}

/// Serves until the standard input of this process ends.
pub(crate) fn run(program: Program, dir: &Path) -> anyhow::Result<()> {
    let file = dir.join(CONFIG_FILE);
    let runtime = daemon::runtime()?;
    let served = runtime.block_on(async {
        tokio::select! {
            ended = serve(program, &file) => ended,
            () = server::input_ended() => Ok(()),
        }
    });
    runtime.shutdown_background();
    served
}

async fn serve(program: Program, file: &Path) -> anyhow::Result<()> {
    let daemon = match program {
        Program::Worker => {
            let launcher = Arc::new(CommandLauncher::new()?);
            jobd::Daemon::worker(file, launcher, Arc::new(SystemClock))
        }
        Program::Master => jobd::Daemon::master(file),
    };
    announce(port_of(file)?)?;
    let ended = daemon.map_err(|said| anyhow!(said))?.run(Stop::default()).await;
    ended.map_err(|said| anyhow!(said))
}

/// As written by `Daemon::start`.
fn port_of(file: &Path) -> anyhow::Result<u16> {
    let config = std::fs::read_to_string(file)?;
    let port = config.lines().find_map(|line| line.strip_prefix("port="));
    Ok(port.context("the configuration has no port")?.parse()?)
}

fn announce(port: u16) -> anyhow::Result<()> {
    report::announce(&[SocketAddr::from((Ipv4Addr::LOCALHOST, port))])
}

/// A running daemon, and a connection to it; ends with this value.
pub(crate) struct Daemon {
    pub(crate) server: Server,
    client: jobd::Client,
}

impl Daemon {
    /// `config` is the whole configuration except where to listen.
    pub(crate) async fn start(
        program: Program,
        dir: &Path,
        config: &str,
    ) -> anyhow::Result<Daemon> {
        // The port is free again at once; it is unlikely that another process takes it meanwhile.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let config = format!("host=127.0.0.1\nport={port}\n{config}");
        std::fs::write(dir.join(CONFIG_FILE), config)?;
        let server = Server::begin(Part::Jobd(program), dir)?;
        let began = Instant::now();
        loop {
            match jobd::Client::connect("127.0.0.1", port).await {
                Ok(client) => return Ok(Daemon { server, client }),
                Err(error) if began.elapsed() > START_PATIENCE => {
                    bail!("a daemon of jobd does not listen: {error}")
                }
                Err(_) => tokio::time::sleep(START_PAUSE).await,
            }
        }
    }

    /// Announces jobs: `poll` to a worker, `poke` to a master.
    pub(crate) async fn announce_jobs(&self, kind: &str) -> anyhow::Result<()> {
        let targets = serde_json::json!({ "targets": [TARGET] });
        self.ask(kind, Some(&targets.to_string())).await.map(drop)
    }

    /// The answer as JSON.
    pub(crate) async fn ask(&self, kind: &str, data: Option<&str>) -> anyhow::Result<String> {
        let answer = self.client.ask(kind, data, client::ANSWER_PATIENCE).await;
        answer.map_err(|said| anyhow!("{kind} is not answered: {said}"))
    }
}

/// The configuration of a worker, except where to listen and where its table is.
pub(crate) fn worker_config(launcher: &str, table: &str, master: Option<SocketAddr>) -> String {
    let master = master.map_or_else(String::new, |master| {
        format!("master_host={}\nmaster_port={}\n", master.ip(), master.port())
    });
    format!("name=bench\nlauncher={launcher}\n{table}{master}[targets]\n{TARGET}={CONCURRENCY}\n")
}
