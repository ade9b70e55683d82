//! TLS, and which addresses an interface may have without it.

use std::fs;
use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::harness::{Certificate, Home, block_on, free_port, until};

/// A client that trusts exactly this certificate.
fn trusting(certificate: Option<&Certificate>) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy();
    let client = match certificate {
        Some(one) => {
            let pem = fs::read(&one.cert).unwrap();
            client.tls_certs_only([reqwest::Certificate::from_pem(&pem).unwrap()])
        }
        None => client,
    };
    client.build().unwrap()
}

#[test]
fn an_interface_with_a_certificate_speaks_tls() {
    let home = Home::released();
    home.queue("q");
    let certificate = Certificate::new(home.folder());
    let dci = home.dci_with(json!({"tls": certificate.config()}));
    let url = format!("https://localhost:{}/queues", dci.port);
    let answer = block_on(async {
        let answer = trusting(Some(&certificate)).get(&url).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    });
    assert_eq!(answer.0, 200);
    assert_eq!(answer.1[0]["name"], json!("q"));
    let distrusted = block_on(async { trusting(None).get(&url).send().await });
    assert!(distrusted.is_err(), "a stranger's certificate is not trusted");
}

#[test]
fn a_request_without_tls_is_not_answered_by_a_tls_interface() {
    let home = Home::released();
    let certificate = Certificate::new(home.folder());
    let dci = home.dci_with(json!({"tls": certificate.config()}));
    let mut stream = dci.http.connect();
    stream.write_all(b"GET /queues HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 200 ") && !answer.contains("[]"), "{answer}");
    let url = format!("https://localhost:{}/info", dci.port);
    let after = block_on(async { trusting(Some(&certificate)).get(&url).send().await.unwrap() });
    assert_eq!(after.status().as_u16(), 200, "and it goes on");
}

#[test]
fn a_renewed_certificate_is_taken_without_a_restart() {
    let home = Home::released();
    let dci = home.dci_with(json!({"tls": Certificate::new(home.folder()).config()}));
    let renewed = Certificate::new(home.folder());
    let url = format!("https://localhost:{}/info", dci.port);
    let answers = || block_on(async { trusting(Some(&renewed)).get(&url).send().await.is_ok() });
    until("the renewed certificate is in use", answers);
}

#[test]
fn with_tls_every_address_may_be_bound() {
    let home = Home::released();
    let certificate = Certificate::new(home.folder());
    let port = free_port();
    let dci = home.dci_with(json!({
        "tls": certificate.config(), "listen": format!("0.0.0.0:{port}"),
    }));
    let url = format!("https://localhost:{}/info", dci.port);
    let answer = block_on(async { trusting(Some(&certificate)).get(&url).send().await.unwrap() });
    assert_eq!(answer.status().as_u16(), 200);
}

#[test]
fn without_tls_only_the_loopback_may_be_bound() {
    let home = Home::released();
    for (address, users) in [
        ("0.0.0.0", json!(null)),
        ("[::]", json!(null)),
        ("0.0.0.0", json!({"ann": "password"})),
        ("192.0.2.1", json!(null)),
    ] {
        let mut config = home.config();
        config["listen"] = json!(format!("{address}:{}", free_port()));
        if !users.is_null() {
            config["users"] = users;
        }
        let told = home.dci_refused(&config);
        assert!(told.contains("tls"), "{address}: {told}");
    }
}

#[test]
fn every_loopback_address_may_be_bound_without_tls() {
    let home = Home::released();
    for address in ["127.0.0.1", "localhost"] {
        let dci = home.dci_with(json!({"listen": format!("{address}:{}", free_port())}));
        dci.http.get("/info").ok();
    }
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let home = Home::released();
    let good = Certificate::new(home.folder());
    let other = Certificate::new(&{
        let folder = home.path("other");
        fs::create_dir(&folder).unwrap();
        folder
    });
    let rubbish = home.path("rubbish.pem");
    fs::write(&rubbish, "no certificate").unwrap();
    for (tls, word) in [
        (json!({"cert": "/nonexistent/cert.pem", "key": good.key}), "/nonexistent/cert.pem"),
        (json!({"cert": good.cert, "key": "/nonexistent/key.pem"}), "/nonexistent/key.pem"),
        (json!({"cert": rubbish, "key": good.key}), "rubbish.pem"),
        (json!({"cert": good.cert, "key": rubbish}), "rubbish.pem"),
        (json!({"cert": good.cert, "key": other.key}), "key"),
        (json!({"cert": good.cert}), "key"),
        (json!({"key": good.key}), "cert"),
        (json!({"cert": 5, "key": good.key}), "cert"),
        (json!("yes"), "tls"),
        (json!(true), "tls"),
    ] {
        let mut config = home.config();
        config["tls"] = tls.clone();
        let told = home.dci_refused(&config);
        assert!(told.contains(word), "{tls}: {told}");
    }
}
