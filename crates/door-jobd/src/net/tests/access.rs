//! Access control: passwords in every position.

use super::*;
use crate::log::{LineFormat, LogConfig};
use crate::password::Password;

const INVALID: &str = r#"[1,{"no":7,"error":"invalid password"}]"#;
const OK: &str = r#"[1,{"no":7,"data":{}}]"#;

fn guarded() -> Access {
    Access { password: Some(Password::new("pw")), always_allow_localhost: false }
}

/// A request with this addition.
fn request(more: &str) -> String {
    format!(r#"[0,{{"no":7,"type":"echo"{more}}}]"#)
}

#[tokio::test]
async fn the_first_request_must_carry_the_password() {
    let served = Served::start(guarded()).await;
    for wrong in ["", r#","password":"""#, r#","password":"PW""#, r#","password":"pw ""#] {
        let mut client = served.client().await;
        client.check(&request(wrong), INVALID).await;
        client.is_at_end().await;
        served.fake.closed(1).await;
    }
    assert_eq!(served.fake.handled(), 0);
    let mut client = served.client().await;
    client.check(&request(r#","password":"pw""#), OK).await;
    // From now on passwords are not compared.
    for any in ["", r#","password":"wrong""#, r#","password":"pw""#] {
        client.check(&request(any), OK).await;
    }
}

#[tokio::test]
async fn after_a_wrong_password_the_rest_is_dropped() {
    let served = Served::start(guarded()).await;
    let mut client = served.client().await;
    let right = request(r#","password":"pw""#);
    let wrong = request(r#","password":"no""#);
    client.send_bytes(format!("[2]\x04{wrong}\x04{right}\x04[2]\x04").as_bytes()).await;
    assert_eq!(client.receive().await, "[3]");
    assert_eq!(client.receive().await, INVALID);
    client.is_at_end().await;
    assert_eq!(served.fake.handled(), 0);
}

#[tokio::test]
async fn pings_and_bad_messages_need_no_password() {
    let served = Served::start(guarded()).await;
    let mut client = served.client().await;
    client.check("[2]", "[3]").await;
    client.check("5", r#"[1,{"no":0,"error":"JSON array expected, got: 5"}]"#).await;
    let error = "malformed REQUEST message: 'password' must be string";
    let answer = format!(r#"[1,{{"no":0,"error":"{error}"}}]"#);
    for bad in ["null", "true", "5"] {
        client.check(&request(&format!(r#","password":{bad}"#)), &answer).await;
    }
    client.check(&request(r#","password":"pw""#), OK).await;
}

#[tokio::test]
async fn without_a_password_everything_is_allowed() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    for any in [r#","password":"what""#, "", r#","password":"""#] {
        client.check(&request(any), OK).await;
    }
}

#[tokio::test]
async fn a_password_that_is_no_text_lets_nobody_in() {
    let access = Access { password: Some(Password::NoText), ..guarded() };
    let served = Served::start(access).await;
    for any in ["", r#","password":"true""#, r#","password":"""#] {
        let mut client = served.client().await;
        client.check(&request(any), INVALID).await;
        client.is_at_end().await;
    }
}

#[tokio::test]
async fn localhost_may_be_allowed_without_a_password() {
    let served = Served::start(Access { always_allow_localhost: true, ..guarded() }).await;
    let mut client = served.client().await;
    client.check(&request(""), OK).await;
}

#[test]
fn localhost_is_one_address_only() {
    let access = Access { always_allow_localhost: true, ..guarded() };
    assert_eq!(access.password_for("127.0.0.1".parse().unwrap()), None);
    for other in ["127.0.0.2", "::1", "::ffff:127.0.0.1", "10.0.0.1"] {
        assert!(access.password_for(other.parse().unwrap()).is_some(), "{other}");
    }
    assert!(guarded().password_for("127.0.0.1".parse().unwrap()).is_some());
}

#[tokio::test]
async fn passwords_never_reach_the_log() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("log");
    let config = LogConfig {
        file: Some(path.clone()),
        level_file: "trace".to_owned(),
        level_console: "error".to_owned(),
    };
    let log = Log::open(&config, LineFormat::Timed, "test").unwrap();
    let access = Access { password: Some(Password::new("hush1")), ..guarded() };
    let served = Served::start_with(access, &log, LONG, 10).await;
    let mut client = served.client().await;
    client.check(&request(r#","password":"hush2""#), INVALID).await;
    client.is_at_end().await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":7,"type":"echo","password":"hush3""#).await;
    client.send(r#"[0,{"no":"x","type":"echo","password":"hush4"}]"#).await;
    client.receive().await;
    client.check(&request(r#","password":"hush1""#), OK).await;
    client.check(&request(r#","password":"hush5""#), OK).await;

    // Neither do our own requests.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret = Some(Password::new("hush6"));
    let peer = connect("127.0.0.1", port, secret, Fake::new(), &log).await.unwrap();
    let mut other = Client::accept(&listener).await;
    let _answer = peer.ask("register-worker", None);
    assert!(other.receive().await.contains("hush6"));

    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("[WARN]") && text.contains("register-worker"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}
