//! Connecting to the server: passwords, TLS, and unavailable servers.

use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::database::{Database, DbError, User};
use mongodb::bson::doc;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_test_servers::{MongoDb, mongodb};

use crate::tests::proxy::{server_address, start_tls};

async fn connect(config: &str, user: User) -> Result<Database, DbError> {
    let (config, _) = Config::parse(config, Path::new("config.json")).unwrap();
    Database::connect(&config, user).await
}

#[tokio::test]
async fn a_server_that_is_not_there_is_away() {
    // A bound port without a listener: no other process can use it.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = unused.local_addr().unwrap().port();
    let text = format!(r#"{{"mongohost": "mongodb://127.0.0.1:{port}", "database": "d"}}"#);
    let db = connect(&text, User::Den).await.unwrap();
    assert_eq!(db.hosts(), [("127.0.0.1".to_owned(), port)]);
    tokio::time::pause();
    let answer = db.queues().await;
    assert!(matches!(answer, Err(DbError::Away(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!(r#"{{"mongohost": "mongodb://127.0.0.1:{port}", "database": "d"}}"#);
    let db = connect(&text, User::Den).await.unwrap();
    let answer = db.server_time().await;
    assert!(matches!(answer, Err(DbError::Away(_))), "{answer:?}");
}

#[tokio::test]
async fn several_hosts_are_known() {
    let text = r#"{"mongohost": "mongodb://a.example,b.example:5/?replicaSet=r", "database": "d"}"#;
    let db = connect(text, User::Den).await.unwrap();
    assert_eq!(db.hosts(), [("a.example".to_owned(), 27017), ("b.example".to_owned(), 5)]);
}

#[tokio::test]
async fn each_user_has_a_password_in_the_database() {
    let server = tokio::task::spawn_blocking(MongoDb::start).await.unwrap();
    let url = server.url();
    let open = format!(r#"{{"mongohost": "{url}", "database": "d"}}"#);
    let create = doc! {
        "createUser": "disbatchd", "pwd": "right", "roles": [{ "role": "readWrite", "db": "d" }],
    };
    let open = connect(&open, User::Den).await.unwrap();
    open.ask(open.raw().run_command(create)).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.stop();
        server.restart_guarded();
        server
    });
    let server = server.await.unwrap();
    let with = |auth: &str| {
        format!(r#"{{"mongohost": "{}", "database": "d", "auth": {auth}}}"#, server.url())
    };
    let right = with(r#"{"disbatchd": "right"}"#);
    let db = connect(&right, User::Den).await.unwrap();
    assert_eq!(db.queues().await, Ok(Vec::new()));
    for wrong in [r#"{"disbatchd": "wrong"}"#, "{}", r#"{"plugin": "right"}"#] {
        let db = connect(&with(wrong), User::Den).await.unwrap();
        let answer = db.queues().await;
        assert!(matches!(answer, Err(DbError::Refused(_))), "{wrong}: {answer:?}");
        assert!(!format!("{answer:?}").contains("wrong"), "a password is shown");
    }
    let other = connect(&right, User::Web).await.unwrap().queues().await;
    assert!(matches!(other, Err(DbError::Refused(_))), "{other:?}");
}

#[tokio::test]
async fn over_tls_the_certificate_is_looked_at() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let port = start_tls(TlsAcceptor::from(Arc::new(config)), server_address().await).await;
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let name = mongodb().new_database();
    let with = |ssl: &str| {
        let url = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
        let attributes = format!(r#"{{"ssl": {ssl}}}"#);
        format!(r#"{{"mongohost": "{url}", "database": "{name}", "attributes": {attributes}}}"#)
    };
    let known = format!(r#"{{"SSL_ca_file": "{}"}}"#, authority.display());
    for ssl in [known.as_str(), r#"{"SSL_verify_mode": 0}"#] {
        let db = connect(&with(ssl), User::Den).await.unwrap();
        assert_eq!(db.queues().await, Ok(Vec::new()), "{ssl}");
    }
    tokio::time::pause();
    for ssl in ["1", "0"] {
        let db = connect(&with(ssl), User::Den).await.unwrap();
        let answer = db.queues().await;
        assert!(matches!(answer, Err(DbError::Away(_))), "{ssl}: {answer:?}");
    }
    let missing = r#"{"SSL_ca_file": "/nowhere/authority.pem"}"#;
    let refused = connect(&with(missing), User::Den).await.map(|_| ());
    assert!(matches!(refused, Err(DbError::Refused(_))), "{refused:?}");
}
