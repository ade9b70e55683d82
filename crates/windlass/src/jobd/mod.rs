//! `jobd`, `jobd-master` and `jobctl`: their command lines and their wiring. Usage errors have the
//! texts of the original programs.

mod args;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::time::SystemClock;
use windlass_door_jobd::{Daemon, ctl};
use windlass_program::Stop;
use windlass_runner::CommandLauncher;

pub(crate) use self::args::{Program, program_of};
use crate::signal::{Signals, StopSignal};
use crate::{FAILED, output, serve};

/// The version of the originals; clients ask for it to check compatibility.
const VERSION: &str = "1.12.0";
/// How long a daemon may take to exit when its work is done.
const END_TIME_MAX: Duration = Duration::from_secs(2);

const WORKER_CONFIG: &str = "/etc/jobd.conf";
const WORKER_USAGE: &str = "\
Usage: jobd OPTIONS

Runs jobs from a database table when a client asks it to poll.

Options:
    --config PATH   Default: /etc/jobd.conf
    --help          Print this.
    --version       Print the version.
";
const MASTER_CONFIG: &str = "/etc/jobd-master.conf";
const MASTER_USAGE: &str = "\
Usage: jobd-master OPTIONS

Forwards client requests to many jobd workers.

Options:
    --config PATH   Default: /etc/jobd-master.conf
    --help          Print this.
    --version       Print the version.
";

/// Runs one of the programs with the arguments after its name.
pub(crate) fn run(program: Program, words: &[String]) -> ExitCode {
    let ended = match program {
        Program::Ctl => return ExitCode::from(ctl(words, std::env::home_dir())),
        Program::Worker => daemon(words, WORKER_CONFIG, WORKER_USAGE, run_worker),
        Program::Master => daemon(words, MASTER_CONFIG, MASTER_USAGE, run_master),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(said) => {
            said.into_iter().for_each(|sentence| output::note(&format!("{sentence}\n")));
            ExitCode::from(FAILED)
        }
    }
}

/// A failure, with the message for standard error unless it has been logged.
type Failed = Option<String>;

fn daemon(
    words: &[String],
    default_config: &str,
    usage: &str,
    run: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let print = |text: &str| output::print(text).map_err(|error| Some(error.to_string()));
    match args::Invocation::read(words, default_config).map_err(Some)? {
        args::Invocation::Usage => print(usage),
        args::Invocation::Version => print(&format!("{VERSION}\n")),
        args::Invocation::Run(config) => run(&config),
    }
}

fn run_worker(path: &Path) -> Result<(), Failed> {
    let launcher = CommandLauncher::new().map_err(|error| Some(error.to_string()))?;
    live(Daemon::worker(path, Arc::new(launcher), Arc::new(SystemClock)).map_err(Some)?)
}

fn run_master(path: &Path) -> Result<(), Failed> {
    live(Daemon::master(path).map_err(Some)?)
}

/// Runs a daemon until it ends. The first signal asks it to stop, the second stops it at once.
fn live(daemon: Daemon) -> Result<(), Failed> {
    let log = daemon.log().clone();
    let panics = log.clone();
    std::panic::set_hook(Box::new(move |panic| {
        panics.error(format_args!("a part of the daemon panicked: {panic}"));
    }));
    let failed = |reason: String| {
        log.error(reason);
        None
    };
    let runtime = serve::runtime(serve::cores()).map_err(|error| failed(format!("{error:#}")))?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen().map_err(|error| error.to_string())?;
        let tell = |signal: StopSignal| log.info(format_args!("{} received", signal.as_str()));
        let stop = Stop::default();
        signals.until_end(&stop, daemon.run(stop.clone()), tell).await.0
    });
    runtime.shutdown_timeout(END_TIME_MAX);
    ended.map_err(failed)
}
