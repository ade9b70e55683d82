//! The configuration of jobctl.

use std::path::Path;
use std::time::Duration;

use super::ConfigError;
use super::keys::Keys;
use crate::password::Password;

const HOST: &str = "127.0.0.1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CtlConfig {
    /// Whether it talks to a master.
    pub master: bool,
    pub password: Option<Password>,
    pub log_level: String,
    pub host: String,
    /// `None` for the default port of a worker or a master.
    pub port: Option<u16>,
    /// How long to wait for an answer; `None` for the default.
    pub timeout: Option<Duration>,
}

impl CtlConfig {
    pub(crate) fn read(path: &Path) -> Result<CtlConfig, ConfigError> {
        CtlConfig::parse(&super::read(path)?)
    }

    pub(crate) fn parse(text: &str) -> Result<CtlConfig, ConfigError> {
        let keys = Keys::parse(text);
        Ok(CtlConfig {
            master: keys.switch("master"),
            password: keys.password(),
            log_level: keys.level("log_level")?,
            host: keys.text("host")?.unwrap_or_else(|| HOST.to_owned()),
            port: keys.port("port")?.filter(|port| *port != 0),
            timeout: keys.seconds_from_zero("timeout")?.filter(|time| !time.is_zero()),
        })
    }
}

impl Default for CtlConfig {
    /// The configuration of an empty file.
    fn default() -> CtlConfig {
        CtlConfig {
            master: false,
            password: None,
            log_level: "warn".to_owned(),
            host: HOST.to_owned(),
            port: None,
            timeout: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_default_and_is_used() {
        assert_eq!(CtlConfig::parse(""), Ok(CtlConfig::default()));
        let text =
            "master=1\nhost=h\nport=5\npassword=pw\nlog_level=trace\ntimeout=7\nhostname=other";
        let expected = CtlConfig {
            master: true,
            password: Some(Password::new("pw")),
            log_level: "trace".to_owned(),
            host: "h".to_owned(),
            port: Some(5),
            timeout: Some(Duration::from_secs(7)),
        };
        assert_eq!(CtlConfig::parse(text), Ok(expected));
    }

    #[test]
    fn mistakes_are_told() {
        let error = CtlConfig::parse("port=x").unwrap_err().to_string();
        assert_eq!(error, "config parsing error: 'port' must be an integer");
    }
}
