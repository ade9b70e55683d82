//! Servers come up, keep what they acknowledged when killed, and are gone with their process.

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
