//! Fake commands, and a door that uses them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use windlass_core::{Job, JobId, NewJob, Payload, Tenant, Timestamp, TypeKey};
use windlass_engine::Taken;

use super::client::Client;
use crate::execute::{Call, Commands, HandedOut, Reply, waits};
use crate::wire::{Request, Response};
use crate::{Options, server};

/// - `Echo`: returns the header `text` as the body.
/// - `Hold`: the same, once the test releases it.
/// - `GetJob`: hands out a job; with `hold`, once the test releases it; waiting ones get none.
/// - `Large`: hands out a job in a reply that fits into no socket's buffer.
/// - `Panic`: panics.
struct Fake {
    events: mpsc::UnboundedSender<Event>,
    gate: Arc<Semaphore>,
    holds_hang: watch::Receiver<bool>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A command has begun.
    Began(String),
    /// A command has noticed that its client is gone.
    Gone,
    /// A connection was closed because of its address.
    Refused,
    Held,
    Delivered,
    Undelivered,
}

pub(super) const LARGE_BYTES: usize = 64 * 1024 * 1024;

impl Fake {
    fn tell(&self, event: Event) {
        // The test may have stopped listening.
        let _ = self.events.send(event);
    }

    async fn pass_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Commands for Fake {
    async fn run(&self, request: Arc<Request>, call: Call) -> Reply {
        let text = request.header("text").unwrap_or_default().to_owned();
        self.tell(Event::Began(format!("{} {text}", request.verb()).trim_end().to_owned()));
        if waits(&request) {
            tokio::select! {
                () = tokio::time::sleep_until(call.until) => {}
                () = call.gone.cancelled() => self.tell(Event::Gone),
            }
            return Response::error(404, "No job found").into();
        }
        match request.verb() {
            "Echo" => Response::text(text).into(),
            "Hold" => {
                self.pass_gate().await;
                Response::text(text).into()
            }
            "GetJob" => {
                if request.header("hold").is_some() {
                    self.pass_gate().await;
                }
                Reply { response: Response::text("{}".to_owned()), handed_out: vec![handed_out()] }
            }
            "Large" => {
                let response = Response::text("x".repeat(LARGE_BYTES));
                Reply { response, handed_out: vec![handed_out()] }
            }
            "Panic" => panic!("on purpose"),
            _ => Response::error(430, "Unrecognized command").into(),
        }
    }

    fn refused(&self, _peer: IpAddr) {
        self.tell(Event::Refused);
    }

    async fn hold(&self, _handed_out: &[HandedOut]) {
        self.tell(Event::Held);
        // The test may have ended.
        let _ = self.holds_hang.clone().wait_for(|hang| !hang).await;
    }

    async fn delivered(&self, _handed_out: Vec<HandedOut>) {
        self.tell(Event::Delivered);
    }

    async fn undelivered(&self, _handed_out: Vec<HandedOut>) {
        self.tell(Event::Undelivered);
    }
}

fn handed_out() -> HandedOut {
    let key = TypeKey::new("default", "t").unwrap();
    let payload = Payload::Inline(Bytes::new());
    let new = NewJob::new(JobId::new(1).unwrap(), key, payload, Timestamp(1));
    let (before, after) = (Job::queued(new.clone()), Job::running(new, 1, Timestamp(1)));
    HandedOut { taken: Taken { before, after }, counted: false }
}

/// A door with fake commands.
pub(super) struct FakeDoor {
    address: SocketAddr,
    events: mpsc::UnboundedReceiver<Event>,
    gate: Arc<Semaphore>,
    holds_hang: watch::Sender<bool>,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl FakeDoor {
    pub(super) async fn open() -> FakeDoor {
        FakeDoor::open_with(options()).await
    }

    pub(super) async fn open_with(options: Options) -> FakeDoor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let holds_hang = watch::Sender::new(false);
        let fake = Fake { events: sender, gate: gate.clone(), holds_hang: holds_hang.subscribe() };
        let shutdown = CancellationToken::new();
        let until = shutdown.clone();
        let serving =
            tokio::spawn(async move { server::serve(listener, fake, &options, until).await });
        FakeDoor { address, events, gate, holds_hang, shutdown, serving }
    }

    pub(super) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Releases one held command.
    pub(super) fn let_one_pass(&self) {
        self.gate.add_permits(1);
    }

    /// Whether holds hang, as they do with a store that does not answer.
    pub(super) fn set_holds_hang(&self, hang: bool) {
        self.holds_hang.send_replace(hang);
    }

    pub(super) async fn event(&mut self) -> Event {
        self.events.recv().await.expect("the door is open")
    }

    #[track_caller]
    pub(super) fn expect(&mut self, event: Event) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move { assert_eq!(self.event().await, event, "at {caller}") }
    }

    pub(super) fn no_event(&mut self) {
        assert!(self.events.try_recv().is_err());
    }

    pub(super) fn close(&self) {
        self.shutdown.cancel();
    }

    pub(super) async fn closed(self) {
        self.serving.await.unwrap().unwrap();
    }
}

pub(super) fn options() -> Options {
    Options::new(Tenant::new("default").unwrap())
}

pub(super) fn began(command: &str) -> Event {
    Event::Began(command.to_owned())
}
