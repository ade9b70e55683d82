//! Commands against a scripted server: what is sent, byte by byte, and what is printed.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Requests in these tests are far smaller.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// A server that answers one request and reports it: its first line, selected headers and its body.
struct Scripted {
    url: String,
    request: tokio::task::JoinHandle<String>,
}

async fn scripted(status: &str, headers: &str, body: &str) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    );
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !is_whole(&bytes) && bytes.len() < REQUEST_BYTES_MAX {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "a request broke off");
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        seen(&String::from_utf8(bytes).unwrap())
    });
    Scripted { url, request }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn seen(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    let ours = |line: &&str| {
        ["accept:", "authorization:", "content-type:"].iter().any(|h| line.starts_with(h))
    };
    let mut headers: Vec<&str> = headers.lines().filter(ours).collect();
    headers.sort_unstable();
    format!("{first}\n{}\n{body}", headers.join("\n"))
}

fn target(url: &str, login: Option<Login>) -> Target {
    Target { url: url.to_owned(), login, trust: Trust::System }
}

const OK: &str = "200 OK";

/// Checks the request for a command and the text printed for an answer.
async fn check(command: Command, sent: &str, answer: &str, printed: &str) {
    install_tls();
    let server = scripted(OK, "", answer).await;
    let shown = run(&target(&server.url, None), &command, OutputFormat::Plain).await;
    assert_eq!(server.request.await.unwrap(), sent);
    assert_eq!(shown.as_deref(), Ok(printed));
}

fn install_tls() {
    // Another test may already have installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

const JSON: &str = "accept: application/json\ncontent-type: application/json";
const FORM: &str = "accept: application/json\ncontent-type: application/x-www-form-urlencoded";
const NONE: &str = "accept: application/json";
const ID: &str = "56eade3aeb6af81e0123ed21";

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The clock is paused and advances only while nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_still_arriving_is_waited_for() {
    install_tls();
    let slow = async |pause: Duration| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while !is_whole(&bytes) {
                assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "a request broke off");
            }
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut pauses = tokio::time::interval(pause);
            for piece in [r#"["A""#, r#","B""#, r#","C""#, "]"] {
                pauses.tick().await;
                let _ = stream.write_all(piece.as_bytes()).await;
            }
        });
        let shown = run(&target(&url, None), &Command::Plugins, OutputFormat::Plain).await;
        serving.abort();
        shown.map_err(|failure| format!("{failure:?}"))
    };
    assert_eq!(slow(Duration::from_secs(40)).await.as_deref(), Ok("A\nB\nC\n"));
    let silent = slow(Duration::from_secs(3600)).await.unwrap_err();
    assert!(silent.contains("did not answer in time"), "{silent}");
}

#[tokio::test]
async fn plugins_are_listed() {
    let sent = format!("GET /plugins HTTP/1.1\n{NONE}\n");
    check(Command::Plugins, &sent, r#"["A::B","/c"]"#, "A::B\n/c\n").await;
}

#[tokio::test]
async fn queues_of_both_dialects_are_a_table() {
    let sent = format!("GET /queues HTTP/1.1\n{NONE}\n");
    let answer = format!(
        r#"[{{"id":"{ID}","plugin":"A::B","name":"demo","threads":3,
              "queued":1,"running":2,"completed":9}},
            {{"id":"1","constructor":"/c","name":"other","maxthreads":null,
              "queued":0,"running":0,"completed":0}}]"#
    );
    let printed = "\
ID                       | Plugin | Name  | Threads | Queued | Running | Completed
-------------------------+--------+-------+---------+--------+---------+----------
56eade3aeb6af81e0123ed21 | A::B   | demo  | 3       | 1      | 2       | 9
1                        | /c     | other |         | 0      | 0       | 0

2 total queues.
";
    check(Command::Queues, &sent, &answer, printed).await;
    // Orphaned tasks do not count as queued, so they are shown if there are any.
    let answer = r#"[{"id":"1","plugin":"/c","name":"q","threads":3,
        "queued":0,"running":0,"completed":0,"orphaned":4}]"#;
    let printed = "\
ID | Plugin | Name | Threads | Queued | Running | Completed | Orphaned
---+--------+------+---------+--------+---------+-----------+---------
1  | /c     | q    | 3       | 0      | 0       | 0         | 4

1 total queues.
";
    check(Command::Queues, &sent, answer, printed).await;
}

#[tokio::test]
async fn nodes_are_a_table_also_when_they_come_wrapped() {
    let nodes =
        r#"[{"node":"a","maxthreads":5,"timestamp":1461698793649,"live":true},{"node":"b"}]"#;
    let printed = "\
Node | Max threads | Live | Last seen
-----+-------------+------+---------------------
a    | 5           | yes  | 2016-04-26T19:26:33Z
b    |             |      |

2 total nodes.
";
    let sent = format!("GET /nodes HTTP/1.1\n{NONE}\n");
    check(Command::Nodes, &sent, nodes, printed).await;
    check(Command::Nodes, &sent, &format!(r#"{{"nodes":{nodes}}}"#), printed).await;
}

#[tokio::test]
async fn a_queue_is_created_by_a_form() {
    let create = || Command::CreateQueue { name: "a b&c".into(), plugin: "A::ü".into() };
    let sent = format!("POST /queues HTTP/1.1\n{FORM}\nname=a%20b%26c&plugin=A%3A%3A%C3%BC");
    let printed = format!("Created queue a b&c: {ID}\n");
    check(create(), &sent, &format!(r#"{{"id":"{ID}"}}"#), &printed).await;
    check(create(), &sent, &format!(r#"{{"id":{{"$oid":"{ID}"}}}}"#), &printed).await;
}

fn result(modified: u64) -> String {
    format!(r#"{{"MongoDB::UpdateResult":{{"matched_count":1,"modified_count":{modified}}}}}"#)
}

#[tokio::test]
async fn a_queue_is_changed_by_a_form_and_a_limit_taken_away_by_json() {
    let change = |fields: &[(&str, &str)]| Command::UpdateQueue {
        queue: "de/mo".into(),
        fields: pairs(fields),
    };
    check(
        change(&[("threads", "5"), ("name", "x=y")]),
        &format!("POST /queues/de%2Fmo HTTP/1.1\n{FORM}\nthreads=5&name=x%3Dy"),
        &result(1),
        "Updated queue de/mo: {\"name\":\"x=y\",\"threads\":\"5\"}\n",
    )
    .await;
    check(
        change(&[("threads", "null"), ("sort", "fifo")]),
        &format!("POST /queues/de%2Fmo HTTP/1.1\n{JSON}\n{{\"sort\":\"fifo\",\"threads\":null}}"),
        &result(0),
        "No change to queue de/mo: {\"sort\":\"fifo\",\"threads\":\"null\"}\n",
    )
    .await;
}

#[tokio::test]
async fn a_node_is_changed() {
    check(
        Command::UpdateNode { node: "host.example".into(), fields: pairs(&[("maxthreads", "0")]) },
        &format!("POST /nodes/host.example HTTP/1.1\n{FORM}\nmaxthreads=0"),
        &result(1),
        "Updated node host.example: {\"maxthreads\":\"0\"}\n",
    )
    .await;
}

#[tokio::test]
async fn a_queue_is_deleted_with_or_without_its_tasks() {
    let answer = r#"{"MongoDB::DeleteResult":{"deleted_count":1}}"#;
    for (tasks, query) in [
        (None, ""),
        (Some(Leftover::Keep), "?tasks=keep"),
        (Some(Leftover::Delete), "?tasks=delete"),
    ] {
        let command = Command::DeleteQueue { queue: "demo".into(), tasks };
        let sent = format!("DELETE /queues/demo{query} HTTP/1.1\n{NONE}\n");
        check(command, &sent, answer, "Deleted queue demo\n").await;
    }
}

#[tokio::test]
async fn tasks_are_created_as_they_were_typed() {
    let answer = format!(
        r#"{{"MongoDB::InsertManyResult":{{"inserted":[
            {{"_id":{{"$oid":"{ID}"}},"index":0}},{{"_id":"2","index":1}}]}}}}"#
    );
    let printed = format!("Created 2 tasks in queue demo\n{ID}\n2\n");
    // A long answer lists only some.
    let many = answer.replace("]}}", r#"],"inserted_count":100001}}"#);
    let sent = |body: &str| format!("POST /tasks HTTP/1.1\n{JSON}\n{body}");
    let queue = || "demo".to_owned();
    check(
        Command::CreateTask { queue: queue(), params: pairs(&[("user1", "a\"b"), ("n", "-5")]) },
        &sent(r#"{"params":[{"n":"-5","user1":"a\"b"}],"queue":"demo"}"#),
        &answer,
        &printed,
    )
    .await;
    check(
        Command::CreateTask { queue: queue(), params: pairs(&[("n", "1")]) },
        &sent(r#"{"params":[{"n":"1"}],"queue":"demo"}"#),
        &many,
        &printed.replace("Created 2", "Created 100001"),
    )
    .await;
    let json = r#"[{"big": 123456789012345678901234567890, "f": 1.50}]"#.to_owned();
    check(
        Command::CreateTasks { queue: queue(), collection: None, json: json.clone() },
        &sent(&format!(r#"{{"params":{json},"queue":"demo"}}"#)),
        &answer,
        &printed,
    )
    .await;
    let json = r#"{"filter":{"m":"foo"},"params":{"user":"document.username"}}"#.to_owned();
    check(
        Command::CreateTasks { queue: queue(), collection: Some("users".into()), json },
        &sent(concat!(
            r#"{"collection":"users","filter":{"m":"foo"},"#,
            r#""params":{"user":"document.username"},"queue":"demo"}"#
        )),
        &answer,
        &printed,
    )
    .await;
}

#[tokio::test]
async fn tasks_are_found_and_shown_as_a_table() {
    let which = TaskQuery { limit: 20, ..TaskQuery::default() };
    let task = format!(
        r#"{{"_id":"{ID}","queue":"9","status":-6,"node":"a",
            "ctime":"2016-04-26T17:59:33Z","mtime":1461698793}}"#
    );
    let table = "\
ID                       | Queue | Status      | Node | Created              | Changed
-------------------------+-------+-------------+------+----------------------+-----------
56eade3aeb6af81e0123ed21 | 9     | -6 orphaned | a    | 2016-04-26T17:59:33Z | 1461698793

1 tasks.
";
    let sent = format!("GET /tasks HTTP/1.1\n{JSON}\n{{\".limit\":20}}");
    check(Command::Tasks(which.clone()), &sent, &task, table).await;
    check(Command::Tasks(which.clone()), &sent, &format!("[{task}]"), table).await;
    let none = "ID | Queue | Status | Node | Created | Changed\n\
                ---+-------+--------+------+---------+--------\n\n0 tasks.\n";
    check(Command::Tasks(which), &sent, "{}", none).await;
    let all = TaskQuery {
        filter: Some(r#"{"queue":"demo","status":[1,2]}"#.into()),
        count: true,
        fields: Some(r#"["status"]"#.into()),
        limit: 5,
        skip: 7,
        terse: true,
        full: true,
        epoch: true,
        pretty: true,
    };
    let sent = format!(
        "GET /tasks HTTP/1.1\n{JSON}\n{}",
        concat!(
            r#"{".count":1,".epoch":1,".fields":["status"],".full":1,".limit":5,".pretty":1,"#,
            r#"".skip":7,".terse":1,"queue":"demo","status":[1,2]}"#
        )
    );
    check(Command::Tasks(all), &sent, r#"{"count":12}"#, "12 tasks\n").await;
}

#[tokio::test]
async fn a_task_is_shown_with_its_output() {
    let answer = r#"{"_id":"1","status":2,"params":{"a":[1]},"node":null,
        "stdout":"one\ntwo\n","stderr":"\u001b[31mred"}"#;
    let printed = "_id     1\nnode    \nparams  {\"a\":[1]}\nstatus  2 failed\n\n\
                   stdout:\none\ntwo\n\n\
                   stderr:\n\u{fffd}[31mred\n";
    let task = |full| Command::Task { id: ID.into(), full };
    check(task(false), &format!("GET /tasks/{ID} HTTP/1.1\n{NONE}\n"), answer, printed).await;
    let sent = format!("GET /tasks/{ID}?.full=1 HTTP/1.1\n{NONE}\n");
    check(task(true), &sent, answer, printed).await;
}

#[tokio::test]
async fn tasks_are_cancelled_and_retried() {
    let sent = |what| format!("POST /tasks/{ID}/{what} HTTP/1.1\n{NONE}\n");
    let cancel = || Command::Cancel { id: ID.into() };
    check(cancel(), &sent("cancel"), "{}", &format!("Cancelled task {ID}\n")).await;
    let retry = Command::Retry { id: ID.into() };
    check(retry, &sent("retry"), "{}", &format!("Queued task {ID} again\n")).await;
    let server = scripted("202 Accepted", "", "{}").await;
    let shown = run(&target(&server.url, None), &cancel(), OutputFormat::Plain).await;
    assert_eq!(shown, Ok(format!("Task {ID} is being ended\n")));
}

#[tokio::test]
async fn json_is_printed_for_everything_and_tasks_stay_as_they_came() {
    install_tls();
    let text = r#"[{"_id":"1","n":1.50}]"#;
    let which = || Command::Tasks(TaskQuery { limit: 1, ..TaskQuery::default() });
    for (command, form, printed) in [
        (
            Command::Queues,
            OutputFormat::Json,
            "[\n  {\n    \"_id\": \"1\",\n    \"n\": 1.5\n  }\n]\n".into(),
        ),
        (
            which(),
            OutputFormat::Json,
            "[\n  {\n    \"_id\": \"1\",\n    \"n\": 1.5\n  }\n]\n".into(),
        ),
        (which(), OutputFormat::Piped, format!("{text}\n")),
    ] {
        let server = scripted(OK, "", text).await;
        assert_eq!(run(&target(&server.url, None), &command, form).await, Ok(printed));
    }
}

#[tokio::test]
async fn logins_are_sent_and_never_shown() {
    install_tls();
    let basic = Login::Basic { user: "al".into(), password: Secret::new("s3cret") };
    let token = Login::Token(Secret::new("s3cret"));
    for (login, header) in [
        (basic, "accept: application/json\nauthorization: Basic YWw6czNjcmV0"),
        (token, "accept: application/json\nauthorization: Bearer s3cret"),
    ] {
        assert!(!format!("{login:?}").contains("s3cret"));
        let server = scripted("401 Unauthorized", "", "{\"error\":\"no\"}").await;
        let error =
            run(&target(&server.url, Some(login)), &Command::Plugins, OutputFormat::Plain).await;
        let said = format!("{} does not accept this login (401)", server.url);
        assert_eq!(error, Err(Failure::Failed(said)));
        assert_eq!(server.request.await.unwrap(), format!("GET /plugins HTTP/1.1\n{header}\n"));
    }
    let server = scripted("401 Unauthorized", "", "").await;
    let error = run(&target(&server.url, None), &Command::Plugins, OutputFormat::Plain).await;
    let ask = "asks for a login (401); give --username and --password, or --token";
    assert_eq!(error, Err(Failure::Failed(format!("{} {ask}", server.url))));
}

async fn refused(status: &str, headers: &str, body: &str) -> String {
    install_tls();
    let server = scripted(status, headers, body).await;
    let error = run(&target(&server.url, None), &Command::Plugins, OutputFormat::Plain).await;
    error.unwrap_err().to_string().replace(&server.url, "URL")
}

#[tokio::test]
async fn a_refusal_is_one_sentence() {
    for (body, said) in [
        (r#"{"error":"Unknown plugin","plugin":"A::B"}"#, "Unknown plugin: A::B"),
        (r#"{"error":"Unknown plugin","plugin":""}"#, "Unknown plugin"),
        (r#"{"error":"unknown param","param":"bad"}"#, "unknown param: bad"),
        (
            r#"{"error":"non-indexed params given","invalid_params":["a","b"]}"#,
            "non-indexed params given: a, b",
        ),
        (r#"{"error":"no params"}"#, "no params"),
        (
            r#"{"error":"queue not found","MongoDB::InsertManyResult":{"inserted_count":7}}"#,
            "queue not found; 7 tasks were created before that",
        ),
        (
            r#"{"error":"has tasks: tasks=keep or tasks=delete"}"#,
            "has tasks: --tasks keep or --tasks delete",
        ),
        (r#"{"error":{"matched_count":0}}"#, "there is no such entry"),
        ("<html>", "URL answered 400 Bad Request, but not like Disbatch"),
    ] {
        assert_eq!(refused("400 Bad Request", "", body).await, said);
    }
    let said = refused(OK, "", "<html>").await;
    assert_eq!(said, "URL answered 200 OK, but not like Disbatch");
    let said = refused(OK, "", "{}").await;
    assert_eq!(said, "the server answered something else: {}");
    let said = refused("301 Moved", "location: https://x/\r\n", "").await;
    assert_eq!(said, "URL points to https://x/; name that one with --url");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_a_password() {
    install_tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let target = target(&format!("http://u:s3cret@{address}/"), None);
    let error = run(&target, &Command::Queues, OutputFormat::Plain).await.unwrap_err().to_string();
    let (start, end) = (format!("cannot reach http://{address} ("), "with --url");
    assert!(error.starts_with(&start) && error.ends_with(end), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

/// A server that disconnects after the request may have carried it out.
#[tokio::test]
async fn a_change_without_an_answer_may_have_been_made() {
    install_tls();
    for (command, may_be_made) in [
        (Command::Queues, false),
        (Command::Retry { id: ID.into() }, true),
        (Command::DeleteQueue { queue: "q".into(), tasks: None }, true),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::new()).await.unwrap();
        });
        let error =
            run(&target(&url, None), &command, OutputFormat::Plain).await.unwrap_err().to_string();
        serving.await.unwrap();
        assert_eq!(error.contains("check before you retry"), may_be_made, "{error}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_wrong_usage() {
    install_tls();
    let here = "http://127.0.0.1:9";
    let which = |filter: &str| TaskQuery { filter: Some(filter.into()), ..TaskQuery::default() };
    let fields = |fields: &str| TaskQuery { fields: Some(fields.into()), ..TaskQuery::default() };
    let tasks = |collection: Option<&str>, json: &str| Command::CreateTasks {
        queue: "q".into(),
        collection: collection.map(str::to_owned),
        json: json.into(),
    };
    for (url, command) in [
        ("", Command::Plugins),
        ("localhost:8080", Command::Plugins),
        ("ftp://x", Command::Plugins),
        (here, Command::Task { id: "..".into(), full: false }),
        (here, Command::UpdateQueue { queue: String::new(), fields: Vec::new() }),
        (here, Command::Tasks(which("[]"))),
        (here, Command::Tasks(which("{"))),
        (here, Command::Tasks(fields("status"))),
        (here, Command::Tasks(fields("1"))),
        (here, tasks(None, "[")),
        (here, tasks(Some("c"), "[]")),
    ] {
        let error = run(&target(url, None), &command, OutputFormat::Plain).await;
        assert!(matches!(error, Err(Failure::Usage(_))), "{url} {command:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_certificate_authority_that_cannot_be_read_is_named() {
    install_tls();
    let home = tempfile::tempdir().unwrap();
    let empty = home.path().join("ca.pem");
    std::fs::write(&empty, "").unwrap();
    for path in [empty, home.path().join("gone.pem")] {
        let trust = Trust::CaFile(path.clone());
        let target = Target { url: "https://127.0.0.1:9".into(), login: None, trust };
        let error =
            run(&target, &Command::Plugins, OutputFormat::Plain).await.unwrap_err().to_string();
        let start = format!("the certificates in {}: ", path.display());
        assert!(error.starts_with(&start), "{error}");
    }
}
