//! A daemon under test, from its start to its end, and several of them on one data directory.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::{Deref, Index, IndexMut};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use windlass_test_kit::process::{Ended, Program, run};
use windlass_test_kit::wait::{until, until_some};

use super::api::{Client, Tenant};
use super::command::windlass;
use super::home::Home;
use super::log::{LogBook, field};
use super::store::{Store, StoreLock};

/// Short times, so that leases, retries and polls happen within a test.
const SHORT: [(&str, &str); 7] = [
    ("lease.duration", "\"2s\""),
    ("lease.reap_interval", "\"200ms\""),
    ("poll.min", "\"20ms\""),
    ("poll.max", "\"200ms\""),
    ("retry.delay", "\"300ms\""),
    ("retry.factor", "1.0"),
    ("stop_grace", "\"5s\""),
];

/// How a daemon is started: keys of its configuration file, flags, and its home.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) home: Arc<Home>,
    store: Store,
    keys: BTreeMap<String, String>,
    flags: Vec<String>,
    /// Of the daemon; that of the test if there is none.
    user: Option<u32>,
}

impl Config {
    /// On the store that the environment chooses.
    pub(crate) fn new() -> Config {
        Config::on(Store::chosen())
    }

    /// On the embedded store, for a test that is about it.
    pub(crate) fn embedded() -> Config {
        Config::on(Store::Embedded)
    }

    /// On this store, with a data directory of its own.
    pub(crate) fn on(store: Store) -> Config {
        let keys = SHORT.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let home = Arc::new(Home::new());
        let config = Config { home, store, keys: keys.collect(), flags: Vec::new(), user: None };
        let config = config.writing_files();
        match config.store.url() {
            Some(url) => config.set("store", &format!("{url:?}")),
            None => config,
        }
    }

    /// Lets handlers write to the files of the test.
    fn writing_files(self) -> Config {
        let files = format!("[{:?}]", self.home.files());
        self.set("isolation.write", &files)
    }

    /// On the same store, with a data directory of its own: as on another machine.
    pub(crate) fn beside(&self) -> Config {
        let store = match &self.store {
            Store::Embedded => Store::File(self.home.store()),
            shared => shared.clone(),
        };
        Config::on(store)
    }

    /// The same, with its data directory moved to another home. An embedded store moves with it.
    pub(crate) fn moved(&self) -> Config {
        let home = Arc::new(Home::new());
        fs::rename(self.home.data(), home.data()).expect("both are in the tests' directory");
        Config { home, ..self.clone() }.writing_files()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Sets a key; the value is TOML.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Config {
        self.keys.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Lets handlers connect to servers of the test.
    pub(crate) fn loopback(self) -> Config {
        self.set("isolation.network.allow", "[\"127.0.0.0/8\"]")
    }

    /// One batch at a time, so that the order of starts is the order of picks.
    pub(crate) fn one_slot(self) -> Config {
        self.set("scheduler.slots", "1")
            .set("scheduler.slots_reserved", "0")
            .set("scheduler.tenant_slots_min", "1")
    }

    pub(crate) fn flag(mut self, flag: &str) -> Config {
        self.flags.push(flag.to_owned());
        self
    }

    /// Run by this user, who gets the home. The test has to be root.
    #[allow(dead_code, reason = "only attacks need several users")]
    pub(crate) fn run_by(mut self, user: u32) -> Config {
        self.home.give_to(user);
        self.user = Some(user);
        self
    }

    /// The command that serves with this configuration on a free port.
    pub(crate) fn command(&self) -> Command {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("windlass-{}.toml", NUMBER.fetch_add(1, Ordering::Relaxed));
        let text: String = self.keys.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
        let file = self.home.write(&name, text);
        let mut command = windlass();
        command.args(["serve", "--log-format", "json", "--data-dir"]);
        command.arg(self.home.data()).arg("--config").arg(file);
        if !self.flags.iter().any(|flag| flag == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&self.flags);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }
}

/// Starts a daemon that is expected to refuse, and returns how it ended.
pub(crate) fn refused_start(config: &Config) -> Ended {
    let finished = run(&mut config.command(), b"");
    assert!(finished.code.is_some_and(|code| code != 0), "a refusal is not success: {finished:?}");
    finished
}

pub(crate) struct Daemon {
    /// Ended before its home is removed.
    program: Program,
    pub(crate) log: LogBook,
    client: Client,
    pub(crate) config: Config,
}

impl Daemon {
    pub(crate) fn start(config: Config) -> Daemon {
        let mut command = config.command();
        Daemon::start_command(config, &mut command)
    }

    pub(crate) fn start_command(config: Config, command: &mut Command) -> Daemon {
        Daemon::try_start_command(config, command).unwrap_or_else(|why| panic!("{why}"))
    }

    /// A daemon, or why it refused to start.
    pub(crate) fn try_start(config: Config) -> Result<Daemon, String> {
        let mut command = config.command();
        Daemon::try_start_command(config, &mut command)
    }

    pub(crate) fn try_start_command(
        config: Config,
        command: &mut Command,
    ) -> Result<Daemon, String> {
        let (program, log) = spawn(command, &config.home);
        let client = Client { address: unbound(), key: None };
        let mut daemon = Daemon { program, log, client, config };
        daemon.client.address = daemon.until_listening()?;
        daemon.client.key = daemon.admin_key();
        Ok(daemon)
    }

    pub(crate) fn home(&self) -> &Home {
        &self.config.home
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub(crate) fn tenant(&self, name: &str) -> Tenant {
        self.client.tenant(name)
    }

    /// Kills the daemon, as a crash would, and waits until it is gone.
    #[track_caller]
    pub(crate) fn kill9(&mut self) {
        self.program.kill();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Stops the process, outside of transactions: within one it would keep the embedded store from
    /// everybody.
    #[track_caller]
    pub(crate) fn pause(&self) {
        let is_server = matches!(self.config.store(), Store::Server(_));
        let lock = (!is_server).then(|| StoreLock::take(&self.config));
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        let has_stopped = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
        until("it has stopped", has_stopped);
        drop(lock);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the daemon to stop, and waits for its end.
    #[track_caller]
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.program.stop()
    }

    #[track_caller]
    pub(crate) fn until_exit(&mut self) -> ExitStatus {
        self.program.ended()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        !self.program.alive()
    }

    /// Starts the same configuration again after the daemon has ended, with a new log.
    pub(crate) fn restart(&mut self) {
        assert!(self.has_exited(), "a daemon is restarted after its end");
        (self.program, self.log) = spawn(&mut self.config.command(), &self.config.home);
        self.client.address = self.until_listening().unwrap_or_else(|why| panic!("{why}"));
        self.client.key = self.admin_key();
    }

    /// A line of `/proc/<pid>/status`, in kibibytes.
    pub(crate) fn memory_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let text = fs::read_to_string(path).expect("the daemon lives");
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().expect("digits are a number")
    }

    /// CPU time used so far, in clock ticks.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.pid());
        let text = fs::read_to_string(path).expect("the daemon lives");
        // The second field is the name in brackets; utime and stime are the 14th and 15th.
        let (_, rest) = text.rsplit_once(')').expect("the name ends with a bracket");
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| fields[index].parse::<u64>().expect("ticks are a number");
        ticks(11) + ticks(12)
    }

    /// The key that the daemon has written; none if it needs none.
    fn admin_key(&self) -> Option<&'static str> {
        let text = fs::read_to_string(self.home().data().join("admin.key")).ok()?;
        Some(text.trim().to_owned().leak())
    }

    fn until_listening(&mut self) -> Result<SocketAddr, String> {
        let (program, log) = (&mut self.program, &self.log);
        until_some("the daemon listens", || {
            let lives = program.alive();
            if let Some(address) = log.entries().iter().find_map(listen_address) {
                return Some(Ok(address));
            }
            (!lives).then(|| Err(format!("the daemon ended: {}", program.console())))
        })
    }
}

/// A daemon is used through its client.
impl Deref for Daemon {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Daemons that share one data directory.
pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) daemons: Vec<Daemon>,
}

impl Cluster {
    pub(crate) fn start(count: usize, config: Config) -> Cluster {
        let daemons = (0..count).map(|_| Daemon::start(config.clone())).collect();
        Cluster { config, daemons }
    }

    pub(crate) fn home(&self) -> &Home {
        &self.config.home
    }

    /// Starts one more daemon; returns its index.
    pub(crate) fn grow(&mut self) -> usize {
        self.daemons.push(Daemon::start(self.config.clone()));
        self.daemons.len() - 1
    }

    /// How many attempts each daemon has started, according to its log.
    pub(crate) fn starts(&self) -> Vec<usize> {
        self.daemons.iter().map(|daemon| daemon.log.events("job_started").len()).collect()
    }
}

impl Index<usize> for Cluster {
    type Output = Daemon;

    fn index(&self, index: usize) -> &Daemon {
        &self.daemons[index]
    }
}

impl IndexMut<usize> for Cluster {
    fn index_mut(&mut self, index: usize) -> &mut Daemon {
        &mut self.daemons[index]
    }
}

fn spawn(command: &mut Command, home: &Home) -> (Program, LogBook) {
    let program = Program::spawn(command.stdin(Stdio::null()), home.dir());
    let log = LogBook::of(program.console_file());
    (program, log)
}

fn listen_address(entry: &Value) -> Option<SocketAddr> {
    let message = field(entry, "message").as_str()?;
    if !message.contains("listening") {
        return None;
    }
    field(entry, "listen").as_str()?.trim_start_matches("http://").parse().ok()
}

fn unbound() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
