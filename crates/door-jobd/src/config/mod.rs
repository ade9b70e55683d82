//! The configuration files of jobd, jobd-master and jobctl, with their defaults and jobd's error
//! texts. Keys are checked in a fixed order, and the first error counts.

mod ctl;
mod keys;
mod master;
mod worker;

use std::io::ErrorKind;
use std::path::Path;

pub(crate) use ctl::CtlConfig;
pub(crate) use master::MasterConfig;
pub(crate) use worker::WorkerConfig;

/// An error in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config parsing error: {0}")]
pub(crate) struct ConfigError(String);

impl<T: Into<String>> From<T> for ConfigError {
    fn from(text: T) -> ConfigError {
        ConfigError(text.into())
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let shown = path.display();
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("file {shown} not found").into())
        }
        Err(error) => Err(format!("file {shown} cannot be read: {error}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_no_file_is_said_so() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("jobd.conf");
        let missing = format!("config parsing error: file {} not found", path.display());
        assert_eq!(WorkerConfig::read(&path).unwrap_err().to_string(), missing);
        assert_eq!(MasterConfig::read(&path).unwrap_err().to_string(), missing);
        assert_eq!(CtlConfig::read(&path).unwrap_err().to_string(), missing);
        let error = MasterConfig::read(home.path()).unwrap_err().to_string();
        let unreadable =
            format!("config parsing error: file {} cannot be read: ", home.path().display());
        assert!(error.starts_with(&unreadable), "{error}");
    }

    #[test]
    fn a_file_is_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("jobd-master.conf");
        std::fs::write(&path, b"host=0.0.0.0\nport=7081\nlog_file=\xff\n").unwrap();
        assert_eq!(MasterConfig::read(&path).unwrap().port, 7081);
    }

    #[test]
    fn the_examples_that_are_shipped_are_read() {
        let worker = include_str!("../../../../packaging/config/jobd.conf");
        let targets = WorkerConfig::parse(worker).unwrap().targets;
        assert_eq!(
            targets.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["low", "normal", "high"]
        );
        let master = include_str!("../../../../packaging/config/jobd-master.conf");
        assert_eq!(MasterConfig::parse(master).unwrap().port, 7081);
        let ctl = include_str!("../../../../packaging/config/jobctl.conf");
        assert_eq!(CtlConfig::parse(ctl), Ok(CtlConfig::default()));
    }
}
