//! Private database servers for tests: real ones, on free loopback ports, with their own data
//! directories. They end with the process that started them, in any way.
//!
//! [`mariadb`], [`postgres`] and [`mongodb`] are shared by all tests of a process, each of which
//! has its own database. A test that kills or stops a server starts its own.

mod database;
mod folder;
mod guard;
mod host;
mod install;
mod jobd;
mod kind;
mod mongo;
mod server;
mod shared;

pub use database::Database;
pub use jobd::JOBD_TABLE;
pub use kind::Kind;
pub use mongo::MongoDb;
pub use server::Server;

use shared::SharedServer;
use windlass_test_kit::wait::in_time;

/// The MariaDB that the tests of this process share.
///
/// # Panics
///
/// If it could not be started or hangs; the same goes for the other two.
pub fn mariadb() -> &'static Server {
    static SHARED: SharedServer<Server> = SharedServer::new();
    SHARED.get(|| Server::start_for_speed(Kind::MariaDb), Server::fault)
}

/// The PostgreSQL that the tests of this process share.
pub fn postgres() -> &'static Server {
    static SHARED: SharedServer<Server> = SharedServer::new();
    SHARED.get(|| Server::start_for_speed(Kind::Postgres), Server::fault)
}

/// The server with MongoDB's wire protocol that the tests of this process share. The environment
/// variable `WINDLASS_TEST_MONGODB` names a real MongoDB to use instead.
pub fn mongodb() -> &'static MongoDb {
    MONGODB.get(MongoDb::shared, MongoDb::fault)
}

static MONGODB: SharedServer<MongoDb> = SharedServer::new();

/// Waits for an answer from the server at this port. If that is the shared MongoDB and it does not
/// answer, later users fail at once.
///
/// # Panics
///
/// If there is no answer.
pub async fn mongodb_answer<T>(port: u16, asked: impl Future<Output = T>) -> T {
    match MONGODB.started().filter(|shared| shared.is_at(port)) {
        Some(shared) => shared.answer(asked).await,
        None => in_time("the database answers", asked).await,
    }
}
