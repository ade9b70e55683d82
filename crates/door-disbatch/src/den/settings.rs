//! The current settings: those of the file, and in the seed's dialect those of the `config`
//! collection on top. In that dialect both are read again when they change.

use std::fs;
use std::time::SystemTime;

use mongodb::bson::{Document, doc};

use super::log_once::LogOnce;
use crate::config::{Config, overlay};
use crate::database::{Database, DbError};

pub(super) struct Settings {
    file: Config,
    stamp: Option<(SystemTime, u64)>,
    active: Option<Document>,
    /// The current settings.
    pub(super) config: Config,
    logged: LogOnce,
}

impl Settings {
    pub(super) fn new(file: Config) -> Settings {
        let (stamp, config) = (stamp(&file), file.clone());
        Settings { file, stamp, active: None, config, logged: LogOnce::default() }
    }

    /// Reloads what has changed.
    pub(super) async fn reload(&mut self, database: &Database) -> Result<(), DbError> {
        let collection = database.collection("config");
        let active = database.one(collection.find_one(doc! { "active": true })).await?;
        let changed = self.read_file();
        if active == self.active && !changed {
            return Ok(());
        }
        let (config, warnings) = match &active {
            Some(active) => overlay(&self.file, active),
            None => (self.file.clone(), Vec::new()),
        };
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!("new settings are in effect");
        (self.config, self.active) = (config, active);
        Ok(())
    }

    /// Whether the file has changed and is valid.
    fn read_file(&mut self) -> bool {
        let stamp = stamp(&self.file);
        if stamp == self.stamp {
            return false;
        }
        match Config::read(&self.file.path) {
            Ok((read, warnings)) => {
                self.stamp = stamp;
                self.logged.is_over("file");
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                let taken = taken_over(&self.file, read);
                std::mem::replace(&mut self.file, taken) != self.file
            }
            Err(error) => {
                let text = error.to_string();
                if self.logged.is_news("file", &text) {
                    tracing::warn!("keeping the previous settings: {text}");
                }
                false
            }
        }
    }
}

/// Applies the settings that a running node can change. Its name, the database, its silence limit,
/// its files and its log level stay.
fn taken_over(old: &Config, mut new: Config) -> Config {
    let fixed = |config: &Config| {
        let times = (config.heartbeat, config.orphan_after, config.orphan_foreign);
        let files = (config.temp_dir.clone(), config.temp_dir_mode, config.log_level);
        (config.connection.clone(), config.node.clone(), config.dialect, times, files)
    };
    if fixed(old) != fixed(&new) {
        tracing::warn!(
            "changes of the database, `node`, `dialect`, `heartbeat`, `orphan_after`, \
             `orphan_foreign`, `temp_dir`, `temp_dir_mode` and the log level need a restart"
        );
    }
    new.connection.clone_from(&old.connection);
    new.node.clone_from(&old.node);
    new.dialect = old.dialect;
    new.heartbeat = old.heartbeat;
    new.orphan_after = old.orphan_after;
    new.orphan_foreign = old.orphan_foreign;
    new.temp_dir.clone_from(&old.temp_dir);
    (new.temp_dir_mode, new.log_level) = (old.temp_dir_mode, old.log_level);
    new
}

fn stamp(config: &Config) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(&config.path).ok()?;
    Some((found.modified().ok()?, found.len()))
}
