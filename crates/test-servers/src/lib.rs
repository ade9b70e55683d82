//! Private database servers for tests: real ones, on free loopback ports, with data directories of
//! their own, gone with the process that started them, however it ends.
//!
//! [`mariadb`], [`postgres`] and [`mongodb`] are shared by all tests of a process, each in a
//! database of its own. A test that kills or stops a server starts one for itself.

mod database;
mod folder;
mod guard;
mod host;
mod install;
mod jobd;
mod kind;
mod mongo;
mod server;

use std::sync::OnceLock;

pub use database::Database;
pub use jobd::JOBD_TABLE;
pub use kind::Kind;
pub use mongo::MongoDb;
pub use server::Server;

/// The MariaDB that the tests of this process share.
pub fn mariadb() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start_for_speed(Kind::MariaDb))
}

/// The PostgreSQL that the tests of this process share.
pub fn postgres() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start_for_speed(Kind::Postgres))
}

/// The server with MongoDB's wire protocol that the tests of this process share. The environment
/// variable `WINDLASS_TEST_MONGODB` names a real MongoDB to use instead.
pub fn mongodb() -> &'static MongoDb {
    static SHARED: OnceLock<MongoDb> = OnceLock::new();
    SHARED.get_or_init(MongoDb::shared)
}
