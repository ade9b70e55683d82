//! The configuration of a master.

use std::path::Path;
use std::time::Duration;

use super::ConfigError;
use super::keys::Keys;
use crate::log::LogConfig;
use crate::net::Access;

const PING_SECONDS: u32 = 30;
const POKE_THROTTLE_SECONDS: f64 = 0.5;
/// The longest interval, about a year: longer ones do not fit into timers.
const SECONDS_MAX: f64 = 3.0e7;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MasterConfig {
    pub host: String,
    pub port: u16,
    pub access: Access,
    pub ping_interval: Duration,
    /// Zero if pokes are not throttled.
    pub poke_throttle_interval: Duration,
    pub log: LogConfig,
}

impl MasterConfig {
    pub(crate) fn read(path: &Path) -> Result<MasterConfig, ConfigError> {
        MasterConfig::parse(&super::read(path)?)
    }

    pub(crate) fn parse(text: &str) -> Result<MasterConfig, ConfigError> {
        let keys = Keys::parse(text);
        Ok(MasterConfig {
            host: keys.required_text("host")?,
            port: keys.required_port("port")?,
            access: keys.access(),
            ping_interval: keys.seconds("ping_interval", PING_SECONDS)?,
            poke_throttle_interval: poke_throttle_interval(&keys)?,
            log: keys.log()?,
        })
    }
}

fn poke_throttle_interval(keys: &Keys) -> Result<Duration, ConfigError> {
    let key = "poke_throttle_interval";
    let seconds = keys.float(key)?.unwrap_or(POKE_THROTTLE_SECONDS);
    if seconds < 0.0 {
        return Err(format!("'{key}' must not be negative").into());
    }
    Ok(Duration::from_secs_f64(seconds.min(SECONDS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::Password;

    const LEAST: &str = "host = 0.0.0.0\nport = 7081\n";

    fn refused(text: &str, error: &str) {
        let expected = format!("config parsing error: {error}");
        assert_eq!(MasterConfig::parse(text).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn every_key_but_two_has_a_default() {
        let expected = MasterConfig {
            host: "0.0.0.0".to_owned(),
            port: 7081,
            access: Access::default(),
            ping_interval: Duration::from_secs(30),
            poke_throttle_interval: Duration::from_millis(500),
            log: LogConfig {
                file: None,
                level_file: "warn".to_owned(),
                level_console: "warn".to_owned(),
            },
        };
        assert_eq!(MasterConfig::parse(LEAST), Ok(expected.clone()));
        let empty = "log_file =\npassword=\nping_interval=0\nlog_level_file=null";
        assert_eq!(MasterConfig::parse(&format!("{LEAST}{empty}")), Ok(expected));
    }

    #[test]
    fn every_key_is_used() {
        let text = format!(
            "{LEAST}password=pw\nalways_allow_localhost=1\nping_interval=5.9\n\
             poke_throttle_interval=1.5\nlog_file=/l\nlog_level_file=info\nlog_level_console=debug"
        );
        let config = MasterConfig::parse(&text).unwrap();
        let access = Access { password: Some(Password::new("pw")), always_allow_localhost: true };
        assert_eq!(config.access, access);
        assert_eq!(config.ping_interval, Duration::from_secs(5));
        assert_eq!(config.poke_throttle_interval, Duration::from_millis(1500));
        let log = LogConfig {
            file: Some("/l".into()),
            level_file: "info".to_owned(),
            level_console: "debug".to_owned(),
        };
        assert_eq!(config.log, log);
        let unthrottled = format!("{LEAST}poke_throttle_interval=0");
        let config = MasterConfig::parse(&unthrottled).unwrap();
        assert_eq!(config.poke_throttle_interval, Duration::ZERO);
    }

    #[test]
    fn the_first_mistake_is_told() {
        refused("", "'host' is not defined");
        refused("host=\nport=x", "'host' is not defined");
        refused("[host]\n", "'host' must be a string");
        refused("host=h", "'port' is not defined");
        refused("host=h\nport=\nping_interval=x", "'port' is not defined");
        refused("host=h\nport=x", "'port' must be an integer");
        refused("host=h\nport", "'port' must be an integer");
        refused("host=h\nport=70000", "'port' must be a port number");
        refused("host=h\nport=-1", "'port' must be a port number");
        refused(&format!("{LEAST}ping_interval=x"), "'ping_interval' must be an integer");
        refused(&format!("{LEAST}ping_interval="), "'ping_interval' must be an integer");
        refused(&format!("{LEAST}ping_interval=-1"), "'ping_interval' must not be negative");
        let throttle = "'poke_throttle_interval' must be a float";
        refused(&format!("{LEAST}poke_throttle_interval=x"), throttle);
        refused(&format!("{LEAST}poke_throttle_interval=true"), throttle);
        let negative = "'poke_throttle_interval' must not be negative";
        refused(&format!("{LEAST}poke_throttle_interval=-0.5"), negative);
    }
}
