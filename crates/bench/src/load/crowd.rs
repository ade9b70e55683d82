//! Workers that wait for a job: what many of them cost while idle, and how soon one of them gets a
//! new job.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::load::client::Connection;
use crate::load::{bedrock, cycle};
use crate::machine;
use crate::process::child::{Role, Server};
use crate::report::figure::{Samples, micros};

const NAME: &str = "bench/wait";
/// Longer than everything here takes.
const WAIT: Duration = Duration::from_secs(3600);
/// The server has handled all requests once it uses at most this much CPU time in this period.
const REST_LOOK: Duration = Duration::from_millis(300);
const REST_CPU_MAX: Duration = Duration::from_millis(10);
const REST_PATIENCE: Duration = Duration::from_secs(60);
const WAKE_PATIENCE: Duration = Duration::from_secs(30);
/// Files that a server and its client need for other things.
const SPARE_FILES: u64 = 200;
/// Jobs for warming up.
const WARM_UP_JOBS: usize = 20;

pub(crate) struct Crowd {
    pub(crate) workers: u64,
    /// CPU time of the server per idle second.
    pub(crate) idle_micros: f64,
    /// Memory of the server per worker.
    pub(crate) worker_bytes: f64,
    /// From the creation of a job until a worker has it.
    pub(crate) wakes: Samples,
}

/// Lets this many workers wait, or as many as the machine allows.
pub(crate) async fn measure(
    dir: &Path,
    workers: u64,
    idle: Duration,
    jobs: usize,
) -> anyhow::Result<Crowd> {
    let workers = workers.min(machine::files_max()?.saturating_sub(SPARE_FILES));
    let dir = tempfile::Builder::new().prefix("crowd-").tempdir_in(dir)?;
    let server = Server::start(Role::Windlass, dir.path())?;
    let address = server.bedrock()?;
    let mut boss = Connection::open(address).await?;
    rest(&server).await?;
    let before = server.usage()?;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let worker = Worker::start(address).await?;
        tasks.spawn(worker.work(woken.clone()));
    }
    rest(&server).await?;
    let waiting = server.usage()?;
    tokio::time::sleep(idle).await;
    let idle_cpu = server.usage()?.cpu - waiting.cpu;

    let create = bedrock::create(NAME, &cycle::data(), None);
    let mut samples = Samples::default();
    for number in 0..WARM_UP_JOBS + jobs {
        let began = Instant::now();
        boss.exchange(&create).await?;
        let woken = tokio::select! {
            woken = tokio::time::timeout(WAKE_PATIENCE, wakes.recv()) => woken,
            Some(failed) = tasks.join_next() => {
                failed??;
                continue;
            }
        };
        let at: Instant = woken.context("no worker got the job")?.context("no worker is left")?;
        if number >= WARM_UP_JOBS {
            samples.push(at - began);
        }
    }
    tasks.shutdown().await;
    let grown = waiting.resident_bytes.saturating_sub(before.resident_bytes);
    Ok(Crowd {
        workers,
        idle_micros: micros(idle_cpu) / idle.as_secs_f64(),
        worker_bytes: grown as f64 / workers as f64,
        wakes: samples,
    })
}

/// Waits until the server is idle.
async fn rest(server: &Server) -> anyhow::Result<()> {
    let deadline = Instant::now() + REST_PATIENCE;
    loop {
        let before = server.usage()?.cpu;
        tokio::time::sleep(REST_LOOK).await;
        if server.usage()?.cpu - before <= REST_CPU_MAX || Instant::now() > deadline {
            return Ok(());
        }
    }
}

struct Worker {
    connection: Connection,
    wish: Vec<u8>,
}

impl Worker {
    /// A worker that already waits.
    async fn start(address: SocketAddr) -> anyhow::Result<Worker> {
        let mut connection = Connection::open(address).await?;
        let wish = bedrock::get_waiting(NAME, WAIT);
        connection.send(&wish).await?;
        Ok(Worker { connection, wish })
    }

    /// Reports when it got a job, once that job is finished and it waits again.
    async fn work(self, woken: mpsc::UnboundedSender<Instant>) -> anyhow::Result<()> {
        let Worker { mut connection, wish } = self;
        loop {
            let job = bedrock::job_id(connection.receive().await?)?;
            let at = Instant::now();
            connection.exchange(&bedrock::finish(job)).await?;
            connection.send(&wish).await?;
            // The receiver may have stopped listening.
            let _ = woken.send(at);
        }
    }
}
