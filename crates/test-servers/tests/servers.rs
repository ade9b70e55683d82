//! Servers come up, keep what they acknowledged when killed, and are gone with their process.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use windlass_test_servers::{Kind, Server, mariadb, postgres};

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

/// Whether this process is the one that is killed.
const VICTIM: &str = "WINDLASS_TEST_VICTIM";

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    if std::env::var_os(VICTIM).is_some() {
        let servers = [Kind::MariaDb, Kind::Postgres].map(Server::start);
        println!("\nports {} {}", servers[0].port(), servers[1].port());
        loop {
            std::thread::park();
        }
    }
    let folder = std::env::temp_dir().join(format!("windlass-victim-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_killed_leaves_nothing", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.into_iter().find(|line| line.starts_with("ports ")).unwrap();
    let ports: Vec<u16> = told.split(' ').skip(1).map(|port| port.parse().unwrap()).collect();
    let answers = |port: &&u16| TcpStream::connect(("127.0.0.1", **port)).is_ok();
    assert_eq!(ports.iter().filter(answers).count(), 2);
    victim.kill().unwrap();
    victim.wait().unwrap();
    // Folders go last. Nothing tells when, so it is looked at again and again.
    let began = Instant::now();
    while std::fs::read_dir(&folder).unwrap().next().is_some() {
        assert!(began.elapsed() < Duration::from_secs(60), "the folders are still there");
        std::thread::yield_now();
    }
    assert_eq!(ports.iter().filter(answers).count(), 0);
    std::fs::remove_dir(&folder).unwrap();
}
