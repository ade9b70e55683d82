//! The daemons `jobd` and `jobd-master`: from a parsed configuration and an open log to a running
//! daemon.

use std::path::Path;
use std::sync::Arc;

use windlass_core::Clock;
use windlass_core::launch::Launcher;
use windlass_program::Stop;

use crate::config::{MasterConfig, WorkerConfig};
use crate::log::{LineFormat, Log};
use crate::table::{self, Owner};
use crate::worker::Parts;
use crate::{master, worker};

pub struct Daemon {
    log: Log,
    kind: Kind,
}

enum Kind {
    Worker(Box<WorkerConfig>, Parts),
    Master(MasterConfig),
}

impl Daemon {
    /// A worker that starts its jobs with this launcher. An error has jobd's text.
    pub fn worker(
        config: &Path,
        launcher: Arc<dyn Launcher>,
        clock: Arc<dyn Clock>,
    ) -> Result<Daemon, String> {
        let config = WorkerConfig::read(config).map_err(|error| error.to_string())?;
        let log = Log::open(&config.log, LineFormat::Timed, "jobd")?;
        let owner = Owner { name: config.name.clone(), boot: fastrand::u64(..) };
        let table = table::open(&config.storage, owner);
        let parts = Parts { table, launcher, clock, log: log.clone() };
        Ok(Daemon { log, kind: Kind::Worker(Box::new(config), parts) })
    }

    /// A master. An error has jobd's text.
    pub fn master(config: &Path) -> Result<Daemon, String> {
        let config = MasterConfig::read(config).map_err(|error| error.to_string())?;
        let log = Log::open(&config.log, LineFormat::Timed, "jobd-master")?;
        Ok(Daemon { log, kind: Kind::Master(config) })
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Runs until it is asked to stop. An error says why it cannot start.
    pub async fn run(self, stop: Stop) -> Result<(), String> {
        match self.kind {
            Kind::Worker(config, parts) => worker::run(*config, parts, stop).await,
            Kind::Master(config) => master::run(config, self.log, stop.asked).await,
        }
    }
}
