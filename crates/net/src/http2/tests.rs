//! A client of the same library, over a pipe, with a clock that does not wait.

use super::*;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::{self as client, SendRequest};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const IDLE_MAX: Duration = Duration::from_secs(10);
const READ_WAIT_MAX: Duration = Duration::from_secs(60);
const PIPE_BYTES: usize = 64 * 1024;
/// What the client takes of an answer before it is read.
const WINDOW_BYTES: u32 = 64 * 1024;
/// More than fits into all buffers.
const LARGE_BYTES: usize = 1024 * 1024;

fn protocol(requests_max: usize) -> Protocol {
    let limits = Limits { idle_time_max: IDLE_MAX, read_wait_max: READ_WAIT_MAX, requests_max };
    Protocol::new(limits)
}

/// `/host` tells the host, `/large` is long, `/wait` is not answered; the number of those that
/// wait is in `waiting`.
async fn answer(request: Request<Incoming>, waiting: Arc<AtomicUsize>) -> Response<Full<Bytes>> {
    struct Waiting(Arc<AtomicUsize>);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let body = match request.uri().path() {
        "/host" => Bytes::copy_from_slice(request.headers()[HOST].as_bytes()),
        "/large" => Bytes::from(vec![b'x'; LARGE_BYTES]),
        "/wait" => {
            waiting.fetch_add(1, SeqCst);
            let _waiting = Waiting(waiting);
            std::future::pending().await
        }
        _ => Bytes::new(),
    };
    Response::new(Full::new(body))
}

struct Server {
    serving: tokio::task::JoinHandle<()>,
    closing: CancellationToken,
    waiting: Arc<AtomicUsize>,
}

impl Server {
    fn start(protocol: &Protocol) -> (Server, DuplexStream) {
        let (ours, theirs) = duplex(PIPE_BYTES);
        let (closing, waiting) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let (protocol, stop, count) = (protocol.clone(), closing.clone(), waiting.clone());
        let serving = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(request, count.clone());
                async move { Ok::<_, Infallible>(answer.await) }
            });
            converse(&protocol, ours, service, stop).await;
        });
        (Server { serving, closing, waiting }, theirs)
    }

    async fn until_waiting(&self, count: usize) {
        while self.waiting.load(SeqCst) != count {
            tokio::task::yield_now().await;
        }
    }
}

type Sender = SendRequest<Empty<Bytes>>;

async fn connect(stream: DuplexStream) -> Sender {
    let mut builder = client::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW_BYTES);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://jobs.example:7600{path}")).body(Empty::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_name_their_host_as_in_http1() {
    let (_server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let mut request = get("/host");
    request.headers_mut().insert(HOST, HeaderValue::from_static("other.example"));
    let answer = sender.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "jobs.example:7600");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_a_waiting_one_does_not() {
    let begun = Instant::now();
    let (server, stream) = Server::start(&protocol(10));
    let _sender = connect(stream).await;
    server.serving.await.unwrap();
    assert!(begun.elapsed() >= IDLE_MAX && begun.elapsed() < 2 * IDLE_MAX);

    let (server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let waiting = tokio::spawn(sender.send_request(get("/wait")));
    server.until_waiting(1).await;
    tokio::time::advance(IDLE_MAX * 10).await;
    assert!(!server.serving.is_finished());
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    waiting.abort();
    server.until_waiting(0).await;
    server.serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_speaks_is_disconnected() {
    let begun = Instant::now();
    let (server, _silent) = Server::start(&protocol(10));
    server.serving.await.unwrap();
    assert!(begun.elapsed() < 2 * IDLE_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_withdraws_ends() {
    let (server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let withdrawn = tokio::spawn(sender.send_request(get("/wait")));
    let _kept = tokio::spawn(sender.send_request(get("/wait")));
    server.until_waiting(2).await;
    withdrawn.abort();
    server.until_waiting(1).await;
}

#[tokio::test(start_paused = true)]
async fn requests_end_with_their_connection() {
    let (server, stream) = Server::start(&protocol(10));
    let (mut ours, mut theirs) = (stream, duplex(PIPE_BYTES));
    let pipe = tokio::spawn(async move {
        let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs.1).await;
    });
    let mut sender = connect(theirs.0).await;
    let _waiting = tokio::spawn(sender.send_request(get("/wait")));
    server.until_waiting(1).await;
    pipe.abort();
    server.until_waiting(0).await;
    server.serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_one_answer_is_disconnected() {
    let (server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let begun = Instant::now();
    // Its body is never read, so the window of this request stays closed; others go on.
    let _unread = sender.send_request(get("/large")).await.unwrap();
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    server.serving.await.unwrap();
    let took = begun.elapsed();
    assert!(took >= READ_WAIT_MAX && took < READ_WAIT_MAX * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_all_of_its_answer() {
    let (_server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let mut body = sender.send_request(get("/large")).await.unwrap().into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.unwrap().into_data().unwrap().len();
        tokio::time::advance(READ_WAIT_MAX / 10).await;
    }
    assert_eq!(bytes, LARGE_BYTES);
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_bound_are_refused_and_can_be_sent_again() {
    let protocol = protocol(2);
    let (first, stream) = Server::start(&protocol);
    let mut sender = connect(stream).await;
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(sender.send_request(get("/wait")))).collect();
    first.until_waiting(2).await;
    // The bound holds for all connections together.
    let (_second, stream) = Server::start(&protocol);
    let mut other = connect(stream).await;
    let refused = other.send_request(get("/")).await.unwrap_err();
    let mut cause: &dyn Error = &refused;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    assert!(cause.to_string().contains("refused"), "{cause}");
    waiting.iter().for_each(|waiting| waiting.abort());
    first.until_waiting(0).await;
    assert_eq!(other.send_request(get("/")).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn when_the_door_closes_requests_are_answered_and_idle_clients_are_not_waited_for() {
    let (server, stream) = Server::start(&protocol(10));
    let mut sender = connect(stream).await;
    let large = sender.send_request(get("/large")).await.unwrap();
    server.closing.cancel();
    let body = large.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), LARGE_BYTES);
    server.serving.await.unwrap();

    // This one confirms nothing.
    let (server, mut stream) = Server::start(&protocol(10));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream.read_exact(&mut [0; 9]).await.unwrap();
    let begun = Instant::now();
    server.closing.cancel();
    server.serving.await.unwrap();
    assert!(begun.elapsed() <= 2 * LEAVE_TIME_MAX);
}
