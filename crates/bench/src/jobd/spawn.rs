//! Commands that the runner starts, several at a time: no table, no protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use windlass_core::launch::{Input, LaunchSpec, Launcher};
use windlass_runner::CommandLauncher;

use crate::engine::daemon;
use crate::report::figure::micros;
use crate::{machine, report};

/// As jobd's worker sets it.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) program: String,
    pub(crate) warm_up: u64,
    pub(crate) commands: u64,
    pub(crate) at_once: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct SpawnResults {
    /// Commands per second.
    pub(crate) rate: f64,
    /// CPU time per command: the runner's, and the command's own.
    pub(crate) own_micros: f64,
    pub(crate) command_micros: f64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let runtime = daemon::runtime()?;
    let ran = runtime.block_on(measure(plan));
    runtime.shutdown_background();
    report::hand_over(&ran?)
}

async fn measure(plan: &Plan) -> anyhow::Result<SpawnResults> {
    let launcher = Arc::new(CommandLauncher::new()?);
    spawn_all(&launcher, plan, plan.warm_up).await?;
    let (own, children) = (machine::cpu("self")?, machine::family("self")?.cpu);
    let began = Instant::now();
    spawn_all(&launcher, plan, plan.commands).await?;
    let took = began.elapsed();
    let commands = plan.commands as f64;
    Ok(SpawnResults {
        rate: commands / took.as_secs_f64(),
        own_micros: micros(machine::cpu("self")? - own) / commands,
        command_micros: micros(machine::family("self")?.cpu - children) / commands,
    })
}

async fn spawn_all(
    launcher: &Arc<CommandLauncher>,
    plan: &Plan,
    commands: u64,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    for _ in 0..plan.at_once {
        let (launcher, next) = (Arc::clone(launcher), Arc::clone(&next));
        let program = plan.program.clone();
        lanes.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= commands {
                    return Ok(());
                }
                let spec = spec(&program, vec![number.to_string()]);
                let launched = launcher.launch(spec).wait().await;
                ensure!(launched.code == Some(0), "a command failed: {launched:?}");
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    Ok(())
}

pub(crate) fn spec(program: &str, args: Vec<String>) -> LaunchSpec {
    LaunchSpec {
        program: program.to_owned(),
        args,
        cwd: None,
        env: Vec::new(),
        input: Input::Open,
        output_bytes_max: OUTPUT_BYTES_MAX,
        time_limit: None,
    }
}
