//! What an operator is told when the store cannot be opened, and what is left unchanged then.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use windlass_core::Store;
use windlass_core::TypeKey;
use windlass_core::store::prelude::*;
use windlass_core::store::{Error, SysidRenew, SysidReserve};
use windlass_store_postgres::{Options, PostgresStore};
use windlass_test_kit::log::Logged;
use windlass_test_kit::port::free_port;
use windlass_test_kit::wait::{in_time, until};
use windlass_test_servers::{Database, Kind, Server, postgres};

async fn refusal(options: Options) -> Error {
    match PostgresStore::open(options).await {
        Ok(_) => panic!("it was opened"),
        Err(refusal) => refusal,
    }
}

async fn unavailable(url: &str) -> String {
    match refusal(Options::new(url)).await {
        Error::Unavailable(told) => told.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn conflict(options: Options) -> String {
    match refusal(options).await {
        Error::Conflict(told) => told,
        other => panic!("{other:?}"),
    }
}

fn database() -> Database {
    Database::in_shared(postgres())
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let told = unavailable(&format!("postgres://me:secret@127.0.0.1:{}/jobs", free_port())).await;
    assert!(told.starts_with("PostgreSQL at 127.0.0.1:"), "{told}");
    assert!(told.contains("database jobs") && told.contains("refused"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_missing_database_is_to_be_created() {
    let told = unavailable(&postgres().url("nowhere")).await;
    assert!(told.contains("there is no such database; create it first"), "{told}");
}

#[tokio::test]
async fn a_url_of_another_kind_is_not_tried() {
    let told = conflict(Options::new("mysql://me:secret@127.0.0.1/jobs")).await;
    assert!(told.contains("does not begin with postgres://") && !told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_user_that_is_not_admitted_is_told_so() {
    let url = format!("postgres://stranger@127.0.0.1:{}/postgres", postgres().port());
    let told = unavailable(&url).await;
    assert!(told.contains("the server does not admit this user"), "{told}");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which_one_is_missing() {
    let database = database();
    let user = format!("reader_{}", database.name());
    database.sql(&format!("CREATE USER {user}"));
    let url = format!("postgres://{user}@127.0.0.1:{}/{}", postgres().port(), database.name());
    let told = unavailable(&url).await;
    assert!(told.contains("the user lacks a right"), "{told}");
    assert!(told.contains("permission denied for database"), "{told}");

    // The right to use a schema that an administrator has made is enough.
    database.sql(&format!("CREATE SCHEMA windlass AUTHORIZATION {user}"));
    let store = PostgresStore::open(Options::new(url)).await.unwrap();
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let name = format!("latin_{:016x}", fastrand::u64(..));
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0");
    postgres().sql("postgres", &create);
    let told = conflict(Options::new(postgres().url(&name))).await;
    assert!(
        told.ends_with("the encoding of the database is LATIN1; Windlass needs UTF8"),
        "{told}"
    );
}

#[tokio::test]
async fn a_read_only_server_is_told_from_one_that_is_away() {
    let database = database();
    let name = database.name();
    database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let told = unavailable(&database.url()).await;
    assert!(told.ends_with("the server is read-only"), "{told}");
}

#[tokio::test]
async fn the_schema_of_another_program_is_left_unchanged() {
    let database = database();
    database.sql("CREATE SCHEMA windlass; CREATE TABLE windlass.sail (area int)");
    let told = conflict(Options::new(database.url())).await;
    assert!(told.contains("the schema windlass belongs to another program"), "{told}");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'windlass'";
    assert_eq!(database.sql(tables), "1\n");
}

#[tokio::test]
async fn the_schema_of_a_newer_windlass_is_left_unchanged() {
    let database = database();
    drop(PostgresStore::open(Options::new(database.url())).await.unwrap());
    database.sql("UPDATE windlass.layout SET version = 99");
    let told = conflict(Options::new(database.url())).await;
    assert!(told.contains("has layout version 99 of a newer Windlass"), "{told}");
    assert_eq!(database.sql("SELECT version FROM windlass.layout"), "99\n");
}

#[tokio::test]
async fn a_name_that_is_not_fit_for_a_schema_is_refused() {
    let options = Options { schema: "pg_jobs".into(), ..Options::new(postgres().url("postgres")) };
    assert!(conflict(options).await.contains("is not a valid name of a schema"));
}

#[tokio::test]
async fn daemons_that_start_together_create_the_schema_once() {
    let database = database();
    let schema = "Two \"daemons\"".to_owned();
    let options = Options { schema: schema.clone(), ..Options::new(database.url()) };
    let open = || PostgresStore::open(options.clone());
    let (one, other, third) = tokio::join!(open(), open(), open());
    for store in [one, other, third] {
        store.unwrap().flush().await.unwrap();
    }
    let found = "SELECT count(*) FROM pg_namespace WHERE nspname = 'Two \"daemons\"'";
    assert_eq!(database.sql(found), "1\n");
}

#[tokio::test]
async fn a_server_without_a_connection_to_spare_is_unavailable_and_comes_back() {
    let server = Server::start(Kind::Postgres);
    let store = PostgresStore::open(Options::new(server.url("postgres"))).await.unwrap();
    server
        .sql("postgres", "ALTER USER windlass CONNECTION LIMIT 0; ALTER USER windlass NOSUPERUSER");
    let told = unavailable(&server.url("postgres")).await;
    assert!(told.contains("the server has no connection to spare"), "{told}");
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_stopped_is_unavailable_until_it_is_back() {
    let server = Server::start(Kind::Postgres);
    let store = PostgresStore::open(Options::new(server.url("postgres"))).await.unwrap();
    store.flush().await.unwrap();
    server.stop();
    for _ in 0..2 {
        let told = store.flush().await.unwrap_err();
        assert!(matches!(told, Error::Unavailable(_)), "{told:?}");
    }
    server.restart();
    store.flush().await.unwrap();
    store.close().await;
    assert!(matches!(store.flush().await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_host_that_stands_still_does_not_hide_the_next_one() {
    // The kernel accepts connections for it, and nobody ever answers.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let standby = Server::start(Kind::Postgres);
    standby.sql("postgres", "ALTER DATABASE postgres SET default_transaction_read_only = on");
    let database = database();
    let ports = [hung.local_addr().unwrap().port(), standby.port(), postgres().port()];
    let hosts = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("postgres://windlass:loopback@{hosts}/postgres");
    let options = Options { schema: database.name().to_owned(), ..Options::new(url) };
    let store = PostgresStore::open(options).await.unwrap();
    store.flush().await.unwrap();
}

/// From now on, no synced commit is confirmed.
fn require_a_missing_standby(server: &Server) {
    let require = "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (nobody)'";
    server.sql("postgres", require);
    server.sql("postgres", "SELECT pg_reload_conf()");
}

/// The server commits locally when such a wait is cancelled, and reports success with a warning,
/// also to a user who wants none.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_standby_confirmed_is_not_acknowledged() {
    let server = Server::start(Kind::Postgres);
    server.sql("postgres", "ALTER USER windlass SET client_min_messages = error");
    let store = PostgresStore::open(Options::new(server.url("postgres"))).await.unwrap();
    require_a_missing_standby(&server);
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                  WHERE wait_event = 'SyncRep' AND application_name = 'windlass'";
    let flushed = tokio::spawn(async move { store.flush().await });
    until("a commit waits", || server.sql("postgres", cancel).trim() == "1");
    let told = flushed.await.unwrap();
    assert!(matches!(told, Err(Error::Unavailable(_))), "{told:?}");
}

/// How many commits wait for a standby.
fn commits_waiting(server: &Server) -> usize {
    let count = "SELECT count(*) FROM pg_stat_activity
                  WHERE wait_event = 'SyncRep' AND application_name = 'windlass'";
    server.sql("postgres", count).trim().parse().unwrap()
}

/// The server does not notice that the callers have gone.
#[tokio::test(flavor = "multi_thread")]
async fn abandoned_commits_take_no_more_connections_and_leave_some_to_others() {
    const CALLS: usize = 12;
    let server = Server::start(Kind::Postgres);
    let (connections, patience) = (4, Duration::from_millis(300));
    let options = Options { connections, patience, ..Options::new(server.url("postgres")) };
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    let lease = Duration::from_secs(600);
    let grant = store.sysid_reserve(SysidReserve { wanted: None, lease }).await.unwrap();
    require_a_missing_standby(&server);
    for call in 1..=CALLS {
        let flushing = tokio::spawn({
            let store = store.clone();
            let key = TypeKey::new("acme", &format!("t{call}")).unwrap();
            async move { store.type_suspend(&key, true).await }
        });
        until("it waits for a standby or is refused", || {
            flushing.is_finished() || commits_waiting(&server) == call
        });
        flushing.abort();
    }
    assert_eq!(commits_waiting(&server), 2, "the other two places are for calls that are answered");
    assert!(matches!(store.flush().await, Err(Error::Unavailable(_))));
    store.ping().await.unwrap();
    let renew = SysidRenew { grant, lease, id_newest: None, report: None };
    store.sysid_renew(renew).await.unwrap();
    in_time("it does not wait for abandoned calls", store.close()).await;
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_warned_of() {
    let (database, logged) = (database(), Logged::start());
    drop(PostgresStore::open(Options::new(database.url())).await.unwrap());
    let setting = database.sql("SHOW fsync");
    assert_eq!(logged.lines("fsync is off").len(), usize::from(setting.trim() == "off"));
}

/// Its connections stay open: nothing else shows that it is gone.
#[tokio::test]
async fn a_server_that_stands_still_is_left_when_another_one_has_its_place() {
    let (old, new) = (Server::start(Kind::Postgres), Server::start(Kind::Postgres));
    let be = |server: &Server, read_only: &str| {
        let set = "ALTER DATABASE postgres SET default_transaction_read_only";
        server.sql("template1", &format!("{set} = {read_only}"));
    };
    let hosts = [&old, &new].map(|server| format!("127.0.0.1:{}", server.port())).join(",");
    let url = format!("postgres://windlass:loopback@{hosts}/postgres");
    // Both have the schema, as a primary and its standby do.
    drop(PostgresStore::open(Options::new(new.url("postgres"))).await.unwrap());
    be(&new, "on");
    let store = PostgresStore::open(Options::new(url)).await.unwrap();
    store.flush().await.unwrap();
    let connections = "SELECT pid FROM pg_stat_activity WHERE application_name = 'windlass'";
    for pid in old.sql("postgres", connections).lines() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
    }
    old.freeze();
    be(&new, "off");
    let told = store.flush().await.unwrap_err();
    assert!(matches!(told, Error::Unavailable(_)), "{told:?}");
    store.flush().await.unwrap();
}
