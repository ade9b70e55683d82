//! TLS to the server, with `sslmode` and `sslrootcert` as libpq means them.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use windlass_core::store::Error;
use windlass_store_postgres::{Options, PostgresStore};
use windlass_test_kit::wait::{eventually, until};
use windlass_test_servers::{Kind, Server};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server that demands TLS from everyone but its own client, and files of authorities.
struct Subject {
    server: Server,
    directory: TempDir,
}

impl Subject {
    /// Its certificate is for this name.
    fn new(signed_by: &Authority, name: &str) -> Subject {
        let server = Server::start(Kind::Postgres);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, signed_by).unwrap().pem();
        write(&server, "server.crt", &certificate);
        write(&server, "server.key", &key.serialize_pem());
        server.sql("postgres", "ALTER SYSTEM SET ssl = on");
        server.sql("postgres", "SELECT pg_reload_conf()");
        until("TLS is on", || server.sql("postgres", "SHOW ssl").trim() == "on");
        Subject { server, directory: TempDir::new().unwrap() }
    }

    fn file_of(&self, authority: &Authority) -> PathBuf {
        let file = self.directory.path().join(format!("{:016x}.pem", fastrand::u64(..)));
        std::fs::write(&file, authority.pem()).unwrap();
        file
    }

    /// Whether the connection was encrypted, or why it did not come about.
    async fn open(&self, host: &str, query: &str) -> Result<bool, Error> {
        let url = self.server.url("postgres").replace("127.0.0.1", host);
        let store = PostgresStore::open(Options::new(format!("{url}?{query}"))).await?;
        let encrypted = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a
                          USING (pid) WHERE a.application_name = 'windlass'";
        let encrypted = self.server.sql("postgres", encrypted).trim() == "t";
        drop(store);
        eventually("its connections have ended", || {
            let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";
            (self.server.sql("postgres", left).trim() == "0").then_some(())
        })
        .await;
        Ok(encrypted)
    }
}

/// Writes a file into the data directory, which belongs to the user of the server.
fn write(server: &Server, file: &str, text: &str) {
    let base64 = format!("replace(encode('{text}', 'base64'), E'\\n', '')");
    let program = format!("umask 077 && base64 -d > {file}");
    server.sql("postgres", &format!("COPY (SELECT {base64}) TO PROGRAM '{program}'"));
}

fn refused(opened: Result<bool, Error>) -> String {
    match opened {
        Err(Error::Unavailable(told)) => told.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_mode_encrypts_and_checks_as_much_as_it_says() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let subject = Subject::new(&ours, "127.0.0.1");
    let (known, unknown) = (subject.file_of(&ours), subject.file_of(&theirs));
    let (known, unknown) = (known.display(), unknown.display());
    for (query, encrypted) in [
        ("sslmode=disable".to_owned(), false),
        (String::new(), true),
        ("sslmode=require".to_owned(), true),
        (format!("sslmode=require&sslrootcert={known}"), true),
        (format!("sslmode=verify-ca&sslrootcert={known}"), true),
        (format!("sslmode=verify-full&sslrootcert={known}"), true),
    ] {
        assert_eq!(subject.open("127.0.0.1", &query).await, Ok(encrypted), "{query}");
    }
    for query in [
        format!("sslmode=require&sslrootcert={unknown}"),
        format!("sslmode=verify-ca&sslrootcert={unknown}"),
        format!("sslmode=verify-full&sslrootcert={unknown}"),
        "sslmode=verify-full".to_owned(),
    ] {
        let told = refused(subject.open("127.0.0.1", &query).await);
        assert!(told.contains("TLS handshake") && told.contains("certificate"), "{query}: {told}");
    }
}

#[tokio::test]
async fn only_verify_full_minds_the_name_of_the_host() {
    let ours = authority("ours");
    let subject = Subject::new(&ours, "elsewhere.example");
    let known = subject.file_of(&ours);
    let known = known.display();
    let ca = format!("sslmode=verify-ca&sslrootcert={known}");
    assert_eq!(subject.open("127.0.0.1", &ca).await, Ok(true));
    let full = format!("sslmode=verify-full&sslrootcert={known}");
    let told = refused(subject.open("127.0.0.1", &full).await);
    assert!(told.contains("not valid for name"), "{told}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_unless_it_is_only_preferred() {
    let server = Server::start(Kind::Postgres);
    let url = |query: &str| format!("{}?{query}", server.url("postgres"));
    PostgresStore::open(Options::new(url("sslmode=prefer"))).await.map(drop).unwrap();
    let opened = PostgresStore::open(Options::new(url("sslmode=require"))).await.map(|_| true);
    let told = refused(opened);
    assert!(told.contains("server does not support TLS"), "{told}");
}

#[tokio::test]
async fn a_file_without_authorities_is_named() {
    let query = "sslmode=verify-ca&sslrootcert=/nowhere/ca.pem";
    let options = Options::new(format!("postgres://127.0.0.1/jobs?{query}"));
    match PostgresStore::open(options).await.map(drop) {
        Err(Error::Conflict(told)) => assert!(told.contains("/nowhere/ca.pem"), "{told}"),
        other => panic!("{other:?}"),
    }
}
