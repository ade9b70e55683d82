//! TLS of the HTTP door: certificates, HTTP/2, mutual TLS, and how commands use it.

mod bound;
mod certificate;
mod command;
mod http2;
mod mutual;
mod refuse;
mod reload;
mod session;
mod speak;

use certificate::{Authority, Issued};
use session::{Session, Speaks, Trust};

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::{Config, Daemon};

/// The files of a daemon that speaks TLS, beside those that its handlers may write.
struct Stage {
    authority: Authority,
    config: Config,
}

impl Stage {
    fn new() -> Stage {
        let config = Config::new();
        fs::create_dir(config.home.dir().join("tls")).unwrap();
        let stage = Stage { authority: Authority::new("one"), config };
        stage.write("ca.pem", &stage.authority.pem());
        stage.install(&stage.authority.issue());
        let path = |name: &str| format!("{:?}", stage.path(name));
        let config = stage.config.clone();
        let config =
            config.set("tls.cert", &path("server.pem")).set("tls.key", &path("server.key"));
        Stage { config, ..stage }
    }

    fn set(self, key: &str, value: &str) -> Stage {
        Stage { config: self.config.set(key, value), ..self }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.config.home.dir().join("tls").join(name)
    }

    /// Writes a file whole, for its owner alone.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, beside) = (self.path(name), self.path("beside"));
        fs::write(&beside, text).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(beside, &path).unwrap();
        path
    }

    /// Makes this the daemon's certificate.
    fn install(&self, issued: &Issued) {
        self.write("server.key", &issued.key);
        self.write("server.pem", &issued.cert);
    }

    fn start(&self) -> Daemon {
        Daemon::start(self.config.clone())
    }

    fn trust(&self) -> Trust {
        Trust::of(&self.authority)
    }

    /// A connection to a daemon that is trusted, with its admin key.
    #[track_caller]
    fn connect(&self, daemon: &Daemon, speaks: Speaks) -> Session {
        Session::open(daemon, &self.trust(), speaks).unwrap()
    }
}
