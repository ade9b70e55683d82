//! The command interface on a loopback port, for tests that change the database meanwhile: tasks
//! that end while they are cancelled, queues in use, a dialect that becomes known later.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Config;
use crate::database::{Database, User};
use crate::dci;
use crate::dialect::Dialect;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use windlass_test_kit::wait::{PATIENCE, in_time};
use windlass_test_servers::mongodb;

use crate::tests::base::{self, Background};
use crate::tests::harness::{BOTH, happens, insert, queue, status, task};
use crate::tests::proxy::{Command, Fate, Proxy, server_address};

/// Fails when there is no answer in time.
fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

struct Dci {
    db: Database,
    address: String,
    stop: CancellationToken,
    serving: Background<Result<(), String>>,
}

impl Dci {
    async fn start(dialect: Option<Dialect>) -> Dci {
        Dci::at(&mongodb().url(), dialect).await
    }

    /// Uses the server at this address.
    async fn at(url: &str, dialect: Option<Dialect>) -> Dci {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = json!({
            "mongohost": url, "database": mongodb().new_database(),
            "plugins": {"Demo": {"program": "/bin/true"}},
        });
        if let Some(dialect) = dialect {
            config["dialect"] = json!(dialect.name());
        }
        let (config, _) = Config::parse(&config.to_string(), Path::new("config.json")).unwrap();
        let db = Database::connect(&config, User::Web).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let serving = Background::spawn(dci::serve(listener, config, db.clone(), stop.clone()));
        Dci { db, address, stop, serving }
    }

    async fn ask(&self, method: Method, path: &str) -> (u16, Value) {
        self.send(method, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(Method::POST, path, Some(body)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let client = client();
        let mut request = client.request(method, format!("http://{}{path}", self.address));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Acts as the node: ends the task with this status once it is cancelled.
    async fn end_when_asked(&self, id: ObjectId, ends: i32) {
        let tasks = base::collection(&self.db, "tasks");
        let asked = doc! { "_id": id, "windlass.cancel": true };
        let end = doc! { "$set": { "status": ends }, "$unset": { "windlass.boot": "" } };
        let ended =
            async || tasks.update_one(asked.clone(), end.clone()).await.unwrap().matched_count > 0;
        happens("the cancel is asked", ended).await;
    }

    async fn count(&self, collection: &str) -> u64 {
        let collection = base::collection(&self.db, collection);
        collection.count_documents(doc! {}).await.unwrap()
    }
}

fn ours() -> mongodb::bson::Document {
    doc! { "status": 0, "node": "n", "windlass": { "boot": "b", "node": "n", "run": "r" } }
}

#[tokio::test]
async fn a_running_task_is_cancelled_by_its_node() {
    let dci = Dci::start(Some(Dialect::Released)).await;
    let queue = queue(&dci.db, Dialect::Released, 1).await;
    let id = task(&dci.db, queue.id, ours()).await;
    let path = format!("/tasks/{id}/cancel");
    let (answer, ()) = tokio::join!(dci.ask(Method::POST, &path), dci.end_when_asked(id, -5));
    assert_eq!(answer, (200, json!({ "id": id.to_hex(), "status": -5 })));
    let (code, again) = dci.ask(Method::POST, &path).await;
    assert_eq!(code, 409, "{again}");
    assert!(again["error"].as_str().unwrap().contains("cancelled already"), "{again}");
}

#[tokio::test]
async fn a_task_that_ends_by_itself_meanwhile_was_not_cancelled() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 1).await;
    let id = task(&dci.db, queue.id, ours()).await;
    let path = format!("/tasks/{id}/cancel");
    let (answer, ()) = tokio::join!(dci.ask(Method::POST, &path), dci.end_when_asked(id, 1));
    assert_eq!((answer.0, &answer.1["status"]), (409, &json!(1)), "{}", answer.1);
}

#[tokio::test]
async fn a_task_that_goes_back_meanwhile_is_cancelled_where_it_is() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 1).await;
    let id = task(&dci.db, queue.id, ours()).await;
    let path = format!("/tasks/{id}/cancel");
    let (answer, ()) = tokio::join!(dci.ask(Method::POST, &path), dci.end_when_asked(id, -2));
    assert_eq!(answer.0, 200, "{}", answer.1);
    assert_eq!(status(&dci.db, id).await, -5);
}

#[tokio::test]
async fn a_task_whose_queue_is_gone_is_not_queued_again() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let id = task(&dci.db, ObjectId::new(), doc! { "status": 2 }).await;
    let (code, answer) = dci.ask(Method::POST, &format!("/tasks/{id}/retry")).await;
    assert_eq!(code, 409, "{answer}");
    assert_eq!(status(&dci.db, id).await, 2);
}

#[tokio::test]
async fn a_queue_is_deleted_with_what_runs_in_it_once_that_has_ended() {
    for dialect in BOTH {
        let dci = Dci::start(Some(dialect)).await;
        let queue = queue(&dci.db, dialect, 5).await;
        let running = task(&dci.db, queue.id, ours()).await;
        for was in [-6, -4, -2, 1] {
            task(&dci.db, queue.id, doc! { "status": was }).await;
        }
        let path = format!("/queues/{}?tasks=delete", queue.name);
        let (answer, ()) =
            tokio::join!(dci.ask(Method::DELETE, &path), dci.end_when_asked(running, -5));
        assert_eq!(answer.0, 200, "{}", answer.1);
        assert_eq!((dci.count("queues").await, dci.count("tasks").await), (0, 0));
    }
}

#[tokio::test]
async fn a_queue_that_a_foreign_node_works_on_keeps_its_entry() {
    for dialect in BOTH {
        let dci = Dci::start(Some(dialect)).await;
        let queue = queue(&dci.db, dialect, 5).await;
        task(&dci.db, queue.id, doc! { "status": 0, "node": "foreign" }).await;
        let path = format!("/queues/{}?tasks=delete", queue.id.to_hex());
        let (code, answer) = dci.ask(Method::DELETE, &path).await;
        assert_eq!(code, 409, "{answer}");
        assert_eq!(answer["MongoDB::DeleteResult"]["deleted_count"], json!(0));
        assert_eq!((dci.count("queues").await, dci.count("tasks").await), (1, 1));
    }
}

/// The queue's entry is gone when the answer is lost. It is restored, to be deleted again.
#[tokio::test]
async fn a_queue_that_could_not_be_emptied_keeps_its_entry() {
    let proxy = Proxy::start(server_address().await).await;
    let dci = Dci::at(&proxy.url(), Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 5).await;
    task(&dci.db, queue.id, doc! {}).await;
    // Running tasks are checked once before the entry is removed and once after it.
    let looks = AtomicUsize::new(0);
    let second = move |command: &Command| {
        command.is_on("update", "tasks") && looks.fetch_add(1, Ordering::SeqCst) == 1
    };
    let lost = proxy.next(Fate::LoseAnswer, second);
    let path = format!("/queues/{}?tasks=delete", queue.name);
    let (code, answer) = dci.ask(Method::DELETE, &path).await;
    assert_eq!((code, lost.count()), (503, 1), "{answer}");
    assert_eq!(answer["MongoDB::DeleteResult"]["deleted_count"], json!(0), "{answer}");
    assert_eq!(dci.count("queues").await, 1);
    let (code, answer) = dci.ask(Method::DELETE, &path).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!((dci.count("queues").await, dci.count("tasks").await), (0, 0));
}

/// Pages need only the names, however long a count would take.
#[tokio::test]
async fn queues_are_shown_without_numbers_when_asked() {
    let dci = Dci::start(Some(Dialect::Released)).await;
    let queue = queue(&dci.db, Dialect::Released, 5).await;
    let shown = json!({
        "id": queue.id.to_hex(), "name": queue.name, "plugin": "Demo", "threads": 5,
    });
    assert_eq!(dci.ask(Method::GET, "/queues?.terse=1").await, (200, json!([shown])));
    let one = format!("/queues/{}?.terse=1", queue.name);
    assert_eq!(dci.ask(Method::GET, &one).await, (200, shown));
}

#[tokio::test]
async fn many_tasks_are_deleted_in_batches() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 5).await;
    let tasks = (0..450).map(|_| doc! { "queue": queue.id, "status": -2 });
    let collection = base::collection(&dci.db, "tasks");
    collection.insert_many(tasks).await.unwrap();
    let (code, answer) =
        dci.ask(Method::DELETE, &format!("/queues/{}?tasks=delete", queue.name)).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!((dci.count("queues").await, dci.count("tasks").await), (0, 0));
}

/// Other programs may use any ids for their tasks.
#[tokio::test]
async fn tasks_with_ids_of_another_type_are_deleted_too() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 5).await;
    let task = |number| doc! { "_id": format!("t{number}"), "queue": queue.id, "status": -2 };
    let collection = base::collection(&dci.db, "tasks");
    dci.db.ask(collection.insert_many((0..401).map(task))).await.unwrap();
    let (code, answer) =
        dci.ask(Method::DELETE, &format!("/queues/{}?tasks=delete", queue.name)).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!((dci.count("queues").await, dci.count("tasks").await), (0, 0));
}

/// A refusal needs no exact number, which would require reading all tasks.
#[tokio::test]
async fn the_tasks_of_a_queue_that_is_not_deleted_are_counted_up_to_a_bound() {
    let proxy = Proxy::start(server_address().await).await;
    let dci = Dci::at(&proxy.url(), Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 5).await;
    let tasks = base::collection(&dci.db, "tasks");
    let task = |_| doc! { "queue": queue.id, "status": -2 };
    let counted = proxy.each(Fate::Refuse, |command| command.is_on("aggregate", "tasks"));
    for (more, told) in [(1_000, "has 1000 tasks:"), (1, "has more than 1000 tasks:")] {
        dci.db.ask(tasks.insert_many((0..more).map(task))).await.unwrap();
        let (code, answer) = dci.ask(Method::DELETE, &format!("/queues/{}", queue.name)).await;
        assert_eq!(code, 400, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(told), "{answer}");
    }
    assert_eq!(counted.count(), 0);
}

/// A refusal should say where to look.
#[tokio::test]
async fn foreign_nodes_that_run_tasks_of_a_queue_are_named() {
    let dci = Dci::start(Some(Dialect::Released)).await;
    let queue = queue(&dci.db, Dialect::Released, 5).await;
    for node in ["bert", "anna", "bert"] {
        task(&dci.db, queue.id, doc! { "status": 0, "node": node }).await;
    }
    let path = format!("/queues/{}?tasks=delete", queue.name);
    let (code, answer) = dci.ask(Method::DELETE, &path).await;
    assert_eq!(code, 409, "{answer}");
    let told = answer["error"].as_str().unwrap();
    assert!(told.contains("3 tasks") && told.contains("anna, bert"), "{told}");
}

/// No node and no page would see more of them.
#[tokio::test]
async fn no_more_queues_are_made_than_are_looked_at() {
    const QUEUES_MAX: usize = 10_000;
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queues = base::collection(&dci.db, "queues");
    let queue = |number: usize| doc! { "name": format!("q{number}"), "constructor": "Demo" };
    dci.db.ask(queues.insert_many((1..QUEUES_MAX).map(queue))).await.unwrap();
    let (code, answer) = dci.post("/queues", json!({ "name": "last", "plugin": "Demo" })).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = dci.post("/queues", json!({ "name": "more", "plugin": "Demo" })).await;
    assert_eq!(code, 400, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("10000 queues"), "{answer}");
    assert_eq!(dci.count("queues").await, QUEUES_MAX as u64);
}

#[tokio::test]
async fn a_queue_with_an_id_of_another_type_can_be_deleted() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    insert(&dci.db, "queues", doc! { "_id": "odd", "name": "q", "constructor": "Demo" }).await;
    let (code, shown) = dci.ask(Method::GET, "/queues/q").await;
    assert_eq!((code, &shown["id"]), (200, &json!("odd")), "{shown}");
    assert_eq!(dci.ask(Method::DELETE, "/queues/q").await.0, 200);
    assert_eq!(dci.count("queues").await, 0);
}

/// An empty database counts as the seed's until another program shows otherwise.
#[tokio::test]
async fn the_first_documents_decide_on_the_dialect() {
    let dci = Dci::start(None).await;
    assert_eq!(dci.ask(Method::GET, "/queues").await, (200, json!([])));
    insert(&dci.db, "queues", doc! { "name": "theirs", "plugin": "Demo", "threads": 3 }).await;
    let (code, answer) = dci.post("/queues", json!({ "name": "a", "plugin": "Demo" })).await;
    assert_eq!(code, 200, "{answer}");
    let made = dci.db.queue("a").await.unwrap().unwrap();
    assert_eq!(made.get_str("plugin").unwrap(), "Demo");
    assert_eq!(made.get("threads"), Some(&Bson::Null));

    let dci = Dci::start(None).await;
    let (code, answer) = dci.post("/queues", json!({ "name": "a", "plugin": "Demo" })).await;
    assert_eq!(code, 200, "{answer}");
    let made = dci.db.queue("a").await.unwrap().unwrap();
    assert_eq!(made.get_str("constructor").unwrap(), "Demo");
}

#[tokio::test]
async fn the_released_dialect_does_not_take_the_names_of_the_seed() {
    let dci = Dci::start(Some(Dialect::Released)).await;
    let body = json!({ "name": "a", "plugin": "Demo", "maxthreads": 3 });
    let (code, answer) = dci.post("/queues", body).await;
    assert_eq!((code, answer), (400, json!({ "error": "Invalid param", "param": "maxthreads" })));
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let both = json!({ "name": "a", "plugin": "Demo", "maxthreads": 3, "threads": 4 });
    let (code, answer) = dci.post("/queues", both).await;
    assert_eq!((code, &answer["error"]), (400, &json!("Invalid param")), "{answer}");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_in_json() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let (code, answer) = dci.ask(Method::GET, "/nothing").await;
    assert_eq!((code, answer), (404, json!({ "error": "there is no /nothing" })));
    for (method, path) in [
        (Method::GET, "/tasks/%ff"),
        (Method::POST, "/tasks/%ff"),
        (Method::POST, "/tasks/q/%ff"),
        (Method::POST, "/tasks/%ff/cancel"),
        (Method::GET, "/queues/%ff"),
    ] {
        let (code, answer) = dci.ask(method, path).await;
        assert_eq!(code, 400, "{path}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("UTF-8"), "{path}: {answer}");
    }
    let (code, answer) = dci.ask(Method::PUT, "/queues").await;
    assert_eq!((code, answer), (405, json!({ "error": "/queues does not take PUT" })));
    let url = format!("http://{}/queues", dci.address);
    let client = client();
    let answer = client.put(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    let allowed = answer.headers()["allow"].to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    assert_eq!(answer.headers()["cache-control"], "no-store");
}

/// Requests in progress at shutdown are answered; new ones are refused.
#[tokio::test]
async fn a_request_under_way_is_answered_before_the_end() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 1).await;
    let id = task(&dci.db, queue.id, ours()).await;
    let mut idle = TcpStream::connect(&dci.address).await.unwrap();
    let path = format!("/tasks/{id}/cancel");
    let ending = async {
        let tasks = base::collection(&dci.db, "tasks");
        let asked = doc! { "_id": id, "windlass.cancel": true };
        let is_asked = async || tasks.count_documents(asked.clone()).await.unwrap() > 0;
        happens("the cancel is asked", is_asked).await;
        dci.stop.cancel();
        dci.end_when_asked(id, -5).await;
    };
    let (answer, ()) = tokio::join!(dci.ask(Method::POST, &path), ending);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let end = in_time("an idle connection is ended", idle.read(&mut [0])).await;
    assert_eq!(end.unwrap(), 0);
    dci.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(&dci.address).await.is_err());
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_and_the_next_connection_served() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let mut stream = TcpStream::connect(&dci.address).await.unwrap();
    let long = format!("GET /info HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = String::new();
    in_time("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(dci.ask(Method::GET, "/info").await.0, 200);
}

/// The task may already have new files when the old ones are removed, and an id may refer to
/// anything.
#[tokio::test]
async fn a_retry_removes_the_files_that_the_task_had_and_no_others() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    let queue = queue(&dci.db, Dialect::Seed, 1).await;
    let (old, new, foreign) = (ObjectId::new(), ObjectId::new(), ObjectId::new());
    let id = task(&dci.db, queue.id, doc! { "status": 1, "stdout": old, "stderr": foreign }).await;
    for (file, of) in [(old, id), (new, id), (foreign, ObjectId::new())] {
        let metadata = doc! { "task_id": of };
        insert(
            &dci.db,
            "tasks.files",
            doc! { "_id": file, "filename": "stdout", "metadata": metadata },
        )
        .await;
        insert(&dci.db, "tasks.chunks", doc! { "files_id": file, "n": 0, "data": "x" }).await;
    }
    let (code, answer) = dci.ask(Method::POST, &format!("/tasks/{id}/retry")).await;
    assert_eq!((code, answer), (200, json!({ "id": id.to_hex(), "status": -2 })));
    let files = base::collection(&dci.db, "tasks.files");
    for (file, left) in [(old, 0), (new, 1), (foreign, 1)] {
        assert_eq!(files.count_documents(doc! { "_id": file }).await.unwrap(), left);
    }
    assert_eq!(dci.count("tasks.chunks").await, 2);
}

/// A page's own host name may resolve to this host; its requests are then same-site.
#[tokio::test]
async fn without_a_login_it_answers_only_to_addresses_and_localhost() {
    let dci = Dci::start(Some(Dialect::Seed)).await;
    for (host, status) in
        [("evil.example", 403), ("localhost.evil.example:80", 403), ("localhost", 200)]
    {
        let mut stream = TcpStream::connect(&dci.address).await.unwrap();
        let asked = format!(
            "GET /queues HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: same-origin\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time("an answer", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
}
