//! Servers start, keep acknowledged writes when killed, and end with their process.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use windlass_test_kit::folder::{Folder, whole_lines};
use windlass_test_kit::process::Program;
use windlass_test_kit::wait::until_seen;
use windlass_test_servers::{Kind, MongoDb, Server, mariadb, mongodb, postgres};

#[test]
fn databases_are_new_and_shared_servers_are_one() {
    for server in [mariadb(), postgres()] {
        let (one, two) = (server.new_database(), server.new_database());
        server.sql(&one, "CREATE TABLE t (a int)");
        server.sql(&two, "CREATE TABLE t (a int)");
        server.sql(&one, "INSERT INTO t VALUES (1), (2)");
        assert_eq!(server.sql(&one, "SELECT a, a FROM t ORDER BY a"), "1\t1\n2\t2\n");
        assert_eq!(server.sql(&two, "SELECT a FROM t"), "");
    }
    assert!(std::ptr::eq(mariadb(), mariadb()) && std::ptr::eq(postgres(), postgres()));
}

#[test]
fn a_killed_server_keeps_what_it_acknowledged() {
    for kind in [Kind::MariaDb, Kind::Postgres] {
        let server = Server::start(kind);
        let database = server.new_database();
        server.sql(&database, "CREATE TABLE t (a int)");
        server.sql(&database, "INSERT INTO t VALUES (7)");
        server.kill();
        assert!(server.try_sql(&database, "SELECT a FROM t").is_err());
        server.restart();
        assert_eq!(server.sql(&database, "SELECT a FROM t"), "7\n");
        server.stop();
        server.restart();
        assert_eq!(server.sql(&database, "SELECT a FROM t"), "7\n");
    }
}

/// What a driver does with it is tested where one is used: in the Disbatch door.
#[test]
fn a_mongodb_is_one_for_all_or_ones_own() {
    assert!(std::ptr::eq(mongodb(), mongodb()));
    assert_ne!(mongodb().new_database(), mongodb().new_database());
    assert!(mongodb().url().starts_with("mongodb://"), "{}", mongodb().url());
    let own = MongoDb::start();
    let (url, process) = (own.url(), own.process_id());
    assert_ne!(url, mongodb().url());
    own.freeze();
    own.kill();
    assert!(TcpStream::connect(("127.0.0.1", own.port())).is_err());
    own.restart();
    assert_eq!(own.url(), url);
    assert_ne!(own.process_id(), process);
    own.stop();
    assert_eq!(own.process_id(), None);
}

/// Whether this process is the one that is killed.
const VICTIM: &str = "WINDLASS_TEST_VICTIM";

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    if std::env::var_os(VICTIM).is_some() {
        let servers = [Kind::MariaDb, Kind::Postgres].map(Server::start);
        let mongodb = MongoDb::start();
        println!("\nports {} {} {}", servers[0].port(), servers[1].port(), mongodb.port());
        loop {
            std::thread::park();
        }
    }
    let folder = std::env::temp_dir().join(format!("windlass-victim-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim
        .args(["--exact", "a_process_that_is_killed_leaves_nothing", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", &folder)
        .stdin(Stdio::null());
    let console = Folder::new();
    let mut victim = Program::spawn(&mut victim, console.dir());
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = victim.console_file().to_owned();
    let told = victim.until_some("its servers run", || {
        whole_lines(&said).into_iter().find(|line| line.starts_with("ports "))
    });
    let ports: Vec<u16> = told.split(' ').skip(1).map(|port| port.parse().unwrap()).collect();
    let answers = |port: &&u16| TcpStream::connect(("127.0.0.1", **port)).is_ok();
    assert_eq!(ports.iter().filter(answers).count(), 3);
    victim.kill();
    // Folders go last. Nothing tells when, so it is looked at again and again.
    let left = || std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
    until_seen("the folders go", || left().collect::<Vec<_>>(), Vec::is_empty);
    assert_eq!(ports.iter().filter(answers).count(), 0);
    std::fs::remove_dir(&folder).unwrap();
}
