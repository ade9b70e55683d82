//! `http` handlers run in the daemon: where they try to get to through it, and cannot.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Door, Link, Peer, Tenant};
use crate::users::as_both_users;

/// Under a daemon of each user; one attempt, so that its error is the job's.
fn as_both(attack: impl Fn(Config) + Sync) {
    as_both_users(|config| attack(config.set("retry.attempts", "1")));
}

/// Runs one job of an `http` handler for this URL, and returns the job and its log.
fn call(tenant: &Tenant, url: &str, options: Value) -> (Value, String) {
    tenant.handler("call", &json!({"lang": "http", "body": url, "options": options}));
    let id = tenant.add_one("call", "payload");
    let job = tenant.until_end(&id);
    (job, tenant.log(&id))
}

#[track_caller]
fn assert_refused(tenant: &Tenant, url: &str, options: Value, why: &str) {
    let (job, log) = call(tenant, url, options);
    assert_eq!((&job["state"], &job["exitcode"]), (&json!("failed"), &json!(500)), "{url}: {log}");
    assert!(log.contains("refused: connection to "), "{url}: {log}");
    assert!(log.contains(&format!(" ({why})")), "{url}: {log}");
}

fn peer() -> Peer {
    Peer::start(|_| (200, "text/plain", "hello".to_owned()))
}

fn address(peer: &Peer) -> SocketAddr {
    peer.url("").trim_start_matches("http://").parse().unwrap()
}

#[test]
fn an_http_handler_cannot_call_the_daemon_under_any_of_its_addresses() {
    as_both(|config| {
        let daemon = Daemon::start(config);
        let (attacker, victim) = (daemon.tenant("a"), daemon.tenant("b"));
        let port = daemon.address.port();
        for (host, why) in [
            ("127.0.0.1", "loopback"),
            ("127.1", "loopback"),
            ("2130706433", "loopback"),
            ("0x7f.0.0.1", "loopback"),
            ("localhost", "loopback"),
            ("127.8.8.8", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("[::1]", "loopback"),
            ("[::]", "unspecified"),
            ("[::ffff:127.0.0.1]", "loopback"),
            ("[::127.0.0.1]", "loopback"),
            ("[64:ff9b::127.0.0.1]", "loopback"),
            ("[2002:7f00:1::]", "loopback"),
        ] {
            let url = format!("http://{host}:{port}/v1/b/jobs/stolen");
            assert_refused(&attacker, &url, json!({}), why);
        }
        assert_eq!(victim.list(""), Vec::<Value>::new());
        // The same request from outside is an add.
        victim.add_one("stolen", "payload");
    });
}

#[test]
fn an_http_handler_cannot_reach_the_machines_neighbours_or_its_credentials() {
    as_both(|config| {
        let daemon = Daemon::start(config);
        let tenant = daemon.tenant("a");
        for (url, why) in [
            ("http://169.254.169.254/latest/meta-data/", "metadata"),
            ("http://[fd00:ec2::254]/latest/meta-data/", "metadata"),
            ("http://169.254.1.1/", "link-local"),
            ("http://10.0.0.1/", "private"),
            ("http://172.16.0.1/", "private"),
            ("http://192.168.0.1:8080/", "private"),
            ("http://100.64.0.1/", "private"),
            ("https://[fe80::1]/", "link-local"),
        ] {
            assert_refused(&tenant, url, json!({}), why);
        }
    });
}

#[test]
fn what_the_operator_allows_can_be_called_and_the_daemon_even_then_not() {
    as_both(|config| {
        let daemon = Daemon::start(config.loopback());
        let tenant = daemon.tenant("a");
        let peer = peer();
        let (job, log) = call(&tenant, &peer.url("/hook"), json!({}));
        assert_eq!(job["state"], "finished", "{log}");
        let door = format!("http://{}/v1/b/jobs/stolen", daemon.address);
        assert_refused(&tenant, &door, json!({}), "a port of the daemon");
        assert_eq!(daemon.tenant("b").list(""), Vec::<Value>::new());
    });
}

/// Its protocol has no keys.
#[test]
fn no_handler_reaches_the_bedrock_door_even_where_loopback_is_open() {
    as_both(|config| {
        let door = Door::start_with(config.loopback());
        let tenant = door.tenant("a");
        assert_refused(
            &tenant,
            &format!("http://{}/", door.address),
            json!({}),
            "a port of the daemon",
        );
        let connect = |port: u16| {
            let body = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5)");
            tenant.handler("connect", &json!({"lang": "python", "body": body}));
            let id = tenant.add_one("connect", "x");
            (tenant.until_end(&id)["state"].clone(), tenant.log(&id))
        };
        let (state, log) = connect(door.address.port());
        assert_eq!(state, "failed", "{log}");
        assert!(log.contains("(a port of the daemon)"), "{log}");
        let (state, log) = connect(address(&peer()).port());
        assert_eq!(state, "finished", "the control: {log}");
        Link::open(door.address).unwrap().call("Ping", &[]).ok();
    });
}

#[test]
fn an_entry_with_a_port_opens_that_port_only() {
    let (open, closed) = (peer(), peer());
    let allow = format!("[\"localhost:{}\"]", address(&open).port());
    as_both(|config| {
        let daemon = Daemon::start(config.set("isolation.network.allow", &allow));
        let tenant = daemon.tenant("a");
        let by_name = format!("http://localhost:{}/", address(&open).port());
        for url in [by_name, open.url("/")] {
            let (job, log) = call(&tenant, &url, json!({}));
            assert_eq!(job["state"], "finished", "{log}");
        }
        assert_refused(&tenant, &closed.url("/"), json!({}), "loopback");
        assert!(closed.received().is_empty());
    });
}

#[test]
fn a_handler_narrows_its_own_network_and_gets_no_connection_of_another_handler() {
    as_both(|config| {
        let (listed, other) = (peer(), peer());
        let daemon = Daemon::start(config.loopback());
        let tenant = daemon.tenant("a");
        // Leaves an open connection behind.
        assert_eq!(call(&tenant, &other.url("/"), json!({})).0["state"], "finished");
        let only = json!({"network": [address(&listed).to_string()]});
        assert_eq!(call(&tenant, &listed.url("/"), only.clone()).0["state"], "finished");
        assert_refused(&tenant, &other.url("/"), only, "not in options.network");
        let none = json!({"network": "none"});
        assert_refused(&tenant, &other.url("/"), none.clone(), "options.network is none");
        let by_name = format!("http://localhost:{}/", address(&other).port());
        assert_refused(&tenant, &by_name, none, "options.network is none");
        assert_eq!((listed.received().len(), other.received().len()), (1, 1));
    });
}

#[test]
fn a_handler_cannot_list_what_the_operator_does_not_allow() {
    as_both(|config| {
        let daemon = Daemon::start(config.set("isolation.network.allow", "[\"10.1.0.0/16:5432\"]"));
        let put = |lang: &str, network: Value| {
            let handler =
                json!({"lang": lang, "body": "http://x", "options": {"network": network}});
            daemon.send_json("PUT", "/v1/a/handlers/t", &handler)
        };
        for lang in ["sh", "exec", "http"] {
            for network in [json!(["127.0.0.1:7600"]), json!(["0.0.0.0/0"]), json!(["10.1.2.3:80"])]
            {
                let refused = put(lang, network.clone()).expect(400).json();
                assert_eq!(refused["error"]["field"], "options.network", "{network}: {refused}");
                let message = refused["error"]["message"].to_string();
                assert!(message.contains("isolation.network.allow"), "{refused}");
            }
            daemon.get("/v1/a/handlers/t").expect(404);
        }
        put("http", json!(["10.1.2.3:5432", "8.8.8.8"])).expect(200);
    });
}

#[test]
fn a_redirect_leads_nowhere_and_a_proxy_of_the_environment_is_not_asked() {
    let proxy = Peer::start(|_| (200, "text/plain", "from the proxy".to_owned()));
    as_both(|config| {
        let config = config.loopback();
        let mut command = config.command();
        let url = proxy.url("");
        command.env("http_proxy", &url).env("HTTP_PROXY", &url).env("ALL_PROXY", &url);
        let daemon = Daemon::start_command(config, &mut command);
        let tenant = daemon.tenant("a");
        assert_refused(&tenant, "http://10.0.0.1/", json!({}), "private");
        assert!(proxy.received().is_empty());

        let door = format!("http://{}/v1/b/jobs/stolen", daemon.address);
        // A content type with a further header behind it.
        let location: &'static str = format!("text/plain\r\nLocation: {door}").leak();
        let sly = Peer::start(move |_| (307, location, String::new()));
        let (job, log) = call(&tenant, &sly.url("/"), json!({}));
        assert_eq!(job["exitcode"], 307, "{log}");
        assert_eq!(daemon.tenant("b").list(""), Vec::<Value>::new());
    });
}
