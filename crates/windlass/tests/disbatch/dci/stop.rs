//! How an interface ends: the signals, the exit code, and the log.

use std::io::Write;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Home, run, windlass};

#[test]
fn an_interface_ends_with_the_status_of_its_signal() {
    let home = Home::seed();
    let signals = [
        (Signal::HUP, 129, "SIGHUP"),
        (Signal::INT, 130, "SIGINT"),
        (Signal::QUIT, 131, "SIGQUIT"),
        (Signal::TERM, 143, "SIGTERM"),
    ];
    for (signal, status, name) in signals {
        let mut dci = home.dci();
        dci.program.signal(signal);
        assert_eq!(dci.program.ended().code(), Some(status), "{name}");
        assert!(dci.program.console().contains(name), "{}", dci.program.console());
    }
}

/// A client that has sent half a request does not keep it from ending.
#[test]
fn an_interface_ends_although_a_connection_is_open() {
    let home = Home::seed();
    let mut dci = home.dci();
    let mut half = dci.http.connect();
    half.write_all(b"POST /queues HTTP/1.1\r\nHost: 127.0.0.1\r\n").unwrap();
    assert_eq!(dci.program.stop().code(), Some(143));
}

#[test]
fn an_address_in_use_ends_the_start() {
    let home = Home::seed();
    let dci = home.dci();
    let mut config = home.config();
    config["listen"] = json!(format!("127.0.0.1:{}", dci.port));
    let told = home.dci_refused(&config);
    assert!(told.contains("another program") && told.contains(&dci.port.to_string()), "{told}");
}

#[test]
fn a_config_that_is_not_there_is_named() {
    let ended = run(windlass(&["dci", "--config", "/nonexistent/config.json"]), "");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("/nonexistent/config.json"), "{ended:?}");
}
