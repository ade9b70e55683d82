//! A database of a test's own.

use std::path::Path;

use mongodb::Collection;
use mongodb::bson::Document;
use windlass_door_disbatch::config::Config;
use windlass_door_disbatch::database::{Database, User};
use windlass_test_servers::mongodb;

/// A new, empty database in the server that all tests share.
pub(crate) async fn fresh() -> Database {
    let server = mongodb();
    connect(&server.url(), &server.new_database()).await
}

pub(crate) async fn connect(url: &str, name: &str) -> Database {
    let text = format!(r#"{{"mongohost": "{url}", "database": "{name}"}}"#);
    let (config, _) = Config::parse(&text, Path::new("config.json")).unwrap();
    Database::connect(&config.connection, User::Den).await.unwrap()
}

pub(crate) fn collection(database: &Database, name: &str) -> Collection<Document> {
    database.raw().collection(name)
}
