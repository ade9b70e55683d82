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
mod shared;

pub use database::Database;
pub use jobd::JOBD_TABLE;
pub use kind::Kind;
pub use mongo::MongoDb;
pub use server::Server;

use shared::Shared;
use windlass_test_kit::wait::in_time;

/// The MariaDB that the tests of this process share.
///
/// # Panics
///
/// When it could not be started or stands still, as both of the others.
pub fn mariadb() -> &'static Server {
    static SHARED: Shared<Server> = Shared::new();
    SHARED.get(|| Server::start_for_speed(Kind::MariaDb), Server::fault)
}

/// The PostgreSQL that the tests of this process share.
pub fn postgres() -> &'static Server {
    static SHARED: Shared<Server> = Shared::new();
    SHARED.get(|| Server::start_for_speed(Kind::Postgres), Server::fault)
}

/// The server with MongoDB's wire protocol that the tests of this process share. The environment
/// variable `WINDLASS_TEST_MONGODB` names a real MongoDB to use instead.
pub fn mongodb() -> &'static MongoDb {
    MONGODB.get(MongoDb::shared, MongoDb::fault)
}

static MONGODB: Shared<MongoDb> = Shared::new();

/// Waits for the answer to a question to whatever is at this port. When that is the MongoDB that
/// all share and it does not answer, the others are told.
///
/// # Panics
///
/// When there is no answer.
pub async fn mongodb_answer<T>(port: u16, asked: impl Future<Output = T>) -> T {
    match MONGODB.started().filter(|shared| shared.is_at(port)) {
        Some(shared) => shared.answer(asked).await,
        None => in_time("the database answers", asked).await,
    }
}
