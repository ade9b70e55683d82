//! Daemons on a PostgreSQL server: one queue for several data directories, which survives the loss
//! of a daemon and of the server.

use windlass_test_kit::process::run;
use windlass_test_servers::{Database, Kind, postgres};

use crate::harness::{Config, Daemon, Store, refused_start, until, windlass};

/// On this database, with a data directory of its own, as on a machine of its own.
fn on(database: &Database) -> Config {
    Config::on(Store::Server(database.clone()))
}

fn on_url(url: &str) -> Config {
    Config::embedded().set("store", &format!("{url:?}"))
}

#[test]
fn daemons_with_their_own_directories_share_one_queue() {
    let database = Database::in_shared(postgres());
    let first = Daemon::start(on(&database));
    let second = Daemon::start(on(&database));
    assert_ne!(first.sysid(), second.sysid());
    let (here, there) = (first.tenant("a"), second.tenant("a"));
    first.stop_picking();
    here.sh("t", "echo done");
    let id = here.add_one("t", "x");
    here.until_state(&id, "finished");
    assert!(there.log(&id).contains("done"));
    assert!(here.log(&id).contains("done"), "it ran on the other one, and is known here");
    second.stop_picking();
    let pulled = here.add_one("mail", "y");
    let job = there.until_claimed("mail", "60s");
    assert_eq!(job["id"], pulled.as_str());
    here.finish(&job, 200).expect(200);
    assert_eq!(there.job(&pulled)["state"], "finished");
}

#[test]
fn jobs_of_a_daemon_that_is_killed_run_on_another_one() {
    let database = Database::in_shared(postgres());
    let mut first = Daemon::start(on(&database));
    let second = Daemon::start(on(&database));
    second.stop_picking();
    let tenant = first.tenant("a");
    tenant.sh("t", &first.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    until("it runs", || first.home().lines("seen").len(), |n| *n == 1);
    first.kill9();
    let tenant = second.tenant("a");
    tenant.sh("t", "true");
    second.start_picking();
    assert_eq!(tenant.until_state(&id, "finished")["attempt"], 2);
}

#[test]
fn while_the_server_is_away_adds_go_on_and_nothing_is_lost() {
    const JOBS: usize = 50;
    let database = Database::in_own(Kind::Postgres);
    let daemon = Daemon::start(on(&database));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let before = tenant.add_one("t", "before");
    tenant.until_state(&before, "finished");
    database.server().kill();
    let ids: Vec<String> = (0..JOBS).map(|n| tenant.add_one("t", &n.to_string())).collect();
    database.server().restart();
    tenant.until_all(&ids, "finished");
    // The server may have forgotten its end, and then it runs again.
    tenant.until_state(&before, "finished");
    let seen = daemon.home().lines("seen");
    for id in &ids {
        assert!(seen.iter().any(|line| line.starts_with(id)), "{id} ran");
    }
}

#[test]
fn everything_is_there_after_a_restart_of_the_daemon() {
    let database = Database::in_shared(postgres());
    let mut daemon = Daemon::start(on(&database));
    let tenant = daemon.tenant("a");
    tenant.sh("t", "echo done");
    let ended = tenant.add_one("t", "x");
    tenant.until_state(&ended, "finished");
    let waiting = tenant.add_one("unhandled", "y");
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.restart();
    let tenant = daemon.tenant("a");
    assert_eq!(tenant.job(&ended)["state"], "finished");
    assert!(tenant.log(&ended).contains("done"));
    assert_eq!(tenant.until_claimed("unhandled", "60s")["id"], waiting.as_str());
}

#[test]
fn a_start_that_cannot_use_the_server_says_why_in_one_sentence() {
    let database = Database::in_shared(postgres());
    let url = database.url();
    let password = database.server().password();
    let unreachable = url.replace(&format!(":{}/", database.server().port()), ":1/");
    let user = database.server().user();
    let no_user = url.replace(&format!("//{user}:"), "//stranger:");
    let no_database = url.replace(database.name(), "nowhere");
    for (url, why) in [
        (unreachable, "127.0.0.1"),
        (no_user, "stranger"),
        (no_database, "nowhere"),
        (format!("{url}?sslmode=maybe"), "sslmode"),
    ] {
        let refused = refused_start(&on_url(&url));
        let told = refused.stderr.trim_end();
        assert!(told.contains(why) && !told.contains(password), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_backup_of_a_server_is_refused_with_words() {
    let database = Database::in_shared(postgres());
    let config = on(&database);
    let mut command = windlass();
    command.args(["backup", "--store", &database.url(), "--data-dir"]);
    command.arg(config.home.data()).arg(config.home.path("backup"));
    let refused = run(&mut command, b"");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("pg_dump"), "{}", refused.stderr);
}
