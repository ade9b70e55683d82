//! The command line against a scripted server on a real socket.

use super::*;
use async_trait::async_trait;

use crate::net::{Access, Handler, Server};
use tokio_util::sync::CancellationToken;

/// Echoes every request, or fails.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, peer: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        match kind {
            "pause" => Err("targets are empty".to_owned()),
            "continue" => {
                peer.close();
                std::future::pending().await
            }
            _ => Ok(Json::from([("type", kind.into()), ("data", data)])),
        }
    }
}

/// Runs a command against a server with this password.
async fn check(password: Option<&str>, given: Option<&str>, line: &str) -> Result<String, String> {
    let access = Access { password: password.map(Password::new), ..Access::default() };
    let server = Server::bind("127.0.0.1", 0, access, &Log::quiet()).await.unwrap();
    let port = server.addr().unwrap().port().to_string();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.serve(Arc::new(Echo), stop.clone(), Duration::ZERO));
    let target = Target {
        mode: Mode::Worker,
        host: "127.0.0.1".to_owned(),
        port,
        password: given.map(Password::new),
        log_level: "warn".to_owned(),
        timeout: None,
    };
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let answer = execute(&target, &words[0], &words[1..], &Log::quiet()).await;
    stop.cancel();
    serving.await.unwrap();
    answer.map(|(_, data)| data.to_string())
}

#[tokio::test]
async fn a_command_is_asked_and_answered() {
    let answer = check(None, None, "poll a b").await;
    assert_eq!(answer.unwrap(), r#"{"type":"poll","data":{"targets":["a","b"]}}"#);
    let answer = check(Some("pw"), Some("pw"), "list-targets").await;
    assert_eq!(answer.unwrap(), r#"{"type":"status","data":{}}"#);
}

#[tokio::test]
async fn failures_have_their_texts() {
    for (password, line, error) in [
        (None, "bogus", "Unsupported command: 'bogus'"),
        (None, "poke a", "Unsupported command: 'poke'"),
        (None, "poll", "No targets specified."),
        (None, "pause a", "Worker error: targets are empty"),
        (None, "continue a", "Socket is closed"),
        (Some("other"), "poll a", "Worker error: invalid password"),
    ] {
        assert_eq!(check(password, Some("pw"), line).await.unwrap_err(), error, "{line}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_until_the_time_out() {
    // Connections to it wait forever.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port().to_string();
    let words = ["--port", &port, "--timeout", "0.05", "poll", "a"].map(str::to_owned);
    let args = Args::parse(&words).unwrap();
    let target = Target::read(&args, None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(execute(&target, "poll", &args.words[1..], &Log::quiet()));
    let error = format!("No answer from 127.0.0.1:{port} within 0.05 seconds (see --timeout).");
    assert_eq!(answer.unwrap_err(), error);
}

/// Masters of the original never answer these two.
#[tokio::test(start_paused = true)]
async fn a_master_that_does_not_answer_is_waited_for_until_the_default_time_out() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port().to_string();
    for command in ["pause", "continue"] {
        let words = ["--master", "--port", &port, command, "a"].map(str::to_owned);
        let args = Args::parse(&words).unwrap();
        let target = Target::read(&args, None).unwrap();
        let began = tokio::time::Instant::now();
        let answer = execute(&target, command, &args.words[1..], &Log::quiet()).await;
        let error = format!("No answer from 127.0.0.1:{port} within 30 seconds (see --timeout).");
        assert_eq!(answer.unwrap_err(), error);
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_connection_failure() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (port, start) in [
        (free.port().to_string(), format!("Connection failure: {free}: ")),
        ("no".to_owned(), "Connection failure: 'no' is not a port number".to_owned()),
    ] {
        let args = Args { port: Some(port), ..Args::default() };
        let target = Target::read(&args, None).unwrap();
        let words = ["a".to_owned()];
        let error = execute(&target, "poll", &words, &Log::quiet()).await.unwrap_err();
        assert!(error.starts_with(&start), "{error}");
    }
}

#[test]
fn options_win_over_the_file_and_a_missing_file_is_fine() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(CONFIG_FILE);
    let read = |args: &Args| {
        let target = Target::read(args, Some(&path))?;
        Ok::<_, String>((target.mode, target.host, target.port, target.log_level))
    };
    let expected = |mode, host: &str, port: &str, level: &str| {
        Ok((mode, host.to_owned(), port.to_owned(), level.to_owned()))
    };
    let none = Args::default();
    assert_eq!(read(&none), expected(Mode::Worker, "127.0.0.1", "7080", "warn"));
    let master = Args { master: true, ..Args::default() };
    assert_eq!(read(&master), expected(Mode::Master, "127.0.0.1", "7081", "warn"));
    std::fs::write(&path, "master = 1\nhost = h\nlog_level = info").unwrap();
    assert_eq!(read(&none), expected(Mode::Master, "h", "7081", "info"));
    let options = Args {
        host: Some("o".to_owned()),
        port: Some("5".to_owned()),
        log_level: Some("error".to_owned()),
        ..Args::default()
    };
    assert_eq!(read(&options), expected(Mode::Master, "o", "5", "error"));
    std::fs::write(&path, "port = x").unwrap();
    let error = "config parsing error: 'port' must be an integer";
    assert_eq!(read(&none).unwrap_err(), error);
}

#[test]
fn a_password_is_prompted_for_and_read_as_one_line() {
    let mut output = Vec::new();
    let password = ask_password(&mut "s e cret \r\nmore".as_bytes(), &mut output).unwrap();
    assert!(password.matches("s e cret "));
    assert_eq!(output, b"Enter password: ");
}

#[test]
fn exit_codes_tell_whether_it_happened() {
    let ended = |result: &str| {
        let end = Json::from([("1", Json::from([("result", result.into())]))]);
        (Command::RunManual(Mode::Worker), Json::from([("jobs", end)]))
    };
    let log = Log::quiet();
    let refused = || Err("Worker error: no".to_owned());
    for (result, code) in [("ok", DONE), ("fail", FAILED)] {
        assert_eq!(text_of(Ok(ended(result)), &log).1, code);
        let json = format!(r#"{{"jobs":{{"1":{{"result":"{result}"}}}}}}"#);
        assert_eq!(json_of(Ok(ended(result))), (Some(json), code));
    }
    assert_eq!(text_of(refused(), &log), (None, FAILED));
    let json = r#"{"error":"Worker error: no"}"#.to_owned();
    assert_eq!(json_of(refused()), (Some(json), FAILED));
}

#[test]
fn bad_options_and_bad_levels_fail() {
    for line in ["--bogus", "--log-level loud poll a", "--port"] {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(run(&args, None), FAILED, "{line}");
    }
}
