//! jobd's worker and master as they are served, each in a process of its own, and a client of both.

pub(crate) mod database;
pub(crate) mod poke;
pub(crate) mod spawn;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use windlass_core::time::SystemClock;
use windlass_door_jobd::config::{MasterConfig, WorkerConfig};
use windlass_door_jobd::log::{Form, Log};
use windlass_door_jobd::master;
use windlass_door_jobd::net::{self, Handler, Peer};
use windlass_door_jobd::table::{self, Owner};
use windlass_door_jobd::wire::Json;
use windlass_door_jobd::worker::{self, Parts};
use windlass_program::Stop;
use windlass_runner::CommandLauncher;

use crate::engine::daemon;
use crate::jobd::database::TARGET;
use crate::load::client;
use crate::process::child::{Part, Server};
use crate::process::server;
use crate::report;

/// Jobs that a worker runs at once.
pub(crate) const CONCURRENCY: usize = 20;
/// The configuration in the directory of a daemon.
const CONFIG_FILE: &str = "jobd.conf";
/// How long a daemon may take to listen, and how often that is tried.
const START_PATIENCE: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Worker,
    Master,
}

/// Serves until the input of this process ends.
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
    let ended = match program {
        Program::Worker => {
            let config = WorkerConfig::read(file)?;
            announce(config.port)?;
            let owner = Owner { name: config.name.clone(), boot: std::process::id().into() };
            let log = Log::open(&config.log, Form::Timed, "jobd").map_err(|said| anyhow!(said))?;
            let parts = Parts {
                table: table::open(&config.storage, owner),
                launcher: Arc::new(CommandLauncher::new()?),
                clock: Arc::new(SystemClock),
                log,
            };
            worker::run(config, parts, Stop::default()).await
        }
        Program::Master => {
            let config = MasterConfig::read(file)?;
            announce(config.port)?;
            let log = Log::open(&config.log, Form::Timed, "jobd-master");
            let log = log.map_err(|said| anyhow!(said))?;
            master::run(config, log, CancellationToken::new()).await
        }
    };
    ended.map_err(|said| anyhow!(said))
}

fn announce(port: u16) -> anyhow::Result<()> {
    report::announce(&[SocketAddr::from((Ipv4Addr::LOCALHOST, port))])
}

/// A daemon at work, and a connection to it; ends with this value.
pub(crate) struct Daemon {
    pub(crate) server: Server,
    peer: Peer,
}

impl Daemon {
    /// `config` is all of it but where to listen.
    pub(crate) async fn start(
        program: Program,
        dir: &Path,
        config: &str,
    ) -> anyhow::Result<Daemon> {
        // The port is free again at once; nobody else is likely to take it in between.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let config = format!("host=127.0.0.1\nport={port}\n{config}");
        std::fs::write(dir.join(CONFIG_FILE), config)?;
        let server = Server::begin(Part::Jobd(program), dir)?;
        let began = Instant::now();
        loop {
            match net::connect("127.0.0.1", port, None, Arc::new(Deaf), &Log::quiet()).await {
                Ok(peer) => return Ok(Daemon { server, peer }),
                Err(error) if began.elapsed() > START_PATIENCE => {
                    bail!("a daemon of jobd does not listen: {error}")
                }
                Err(_) => tokio::time::sleep(START_PAUSE).await,
            }
        }
    }

    pub(crate) async fn ask(&self, kind: &str, data: Option<Json>) -> anyhow::Result<Json> {
        let answer = self.peer.ask(kind, data).within(client::ANSWER_PATIENCE).await;
        answer.with_context(|| format!("{kind} is not answered"))
    }

    /// Jobs are there: `poll` tells a worker, `poke` a master.
    pub(crate) async fn tell_of_jobs(&self, kind: &str) -> anyhow::Result<()> {
        let targets = vec![TARGET.to_owned()];
        self.ask(kind, Some(Json::from([("targets", targets.into())]))).await?;
        Ok(())
    }
}

/// What a worker is told beside where to listen and where its table is.
pub(crate) fn worker_config(launcher: &str, table: &str, master: Option<SocketAddr>) -> String {
    let master = master.map_or_else(String::new, |master| {
        format!("master_host={}\nmaster_port={}\n", master.ip(), master.port())
    });
    format!("name=bench\nlauncher={launcher}\n{table}{master}[targets]\n{TARGET}={CONCURRENCY}\n")
}

/// Nobody asks the bench anything.
struct Deaf;

#[async_trait]
impl Handler for Deaf {
    async fn handle(&self, _: &Peer, kind: &str, _: Json) -> Result<Json, String> {
        Err(format!("unknown request type: '{kind}'"))
    }
}
