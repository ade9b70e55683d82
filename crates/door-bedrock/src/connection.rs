//! One client's connection: executes requests one at a time and answers them in order; later
//! requests wait.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::Clock;
use windlass_net::{Connections, LINGER_BYTES_MAX, Memory, tcp};

use crate::background::{self, Background};
use crate::execute::{Call, Commands, HOLD_INTERVAL, HandedOut, Reply, run_safely, waits};
use crate::inbound::{Inbound, Next, Patience};
use crate::outbound;
use crate::run_options::{RunOptions, When};
use crate::wire::{Limits, Request, Response};

/// A waiting command ends its wait itself; it counts as stuck only after this long.
const WAIT_GRACE: Duration = Duration::from_secs(10);

/// What all connections of a door share.
pub(crate) struct DoorState<C> {
    pub commands: Arc<C>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub patience: Patience,
    pub memory: Memory,
    pub background: Background,
    pub connections: Connections,
    /// Finish the request in progress, read no more.
    pub closing: CancellationToken,
}

/// Serves a client until either side closes.
pub(crate) async fn serve_client<C: Commands>(
    door: Arc<DoorState<C>>,
    stream: TcpStream,
    peer: IpAddr,
) {
    let inbound = Inbound::new(door.limits.clone(), door.patience.clone(), &door.memory);
    let closing = door.closing.child_token();
    let mut connection = Connection { door, stream, inbound, peer, closing };
    let end = loop {
        if let ControlFlow::Break(end) = connection.take_one().await {
            break end;
        }
    };
    if end == End::Reply && !connection.inbound.ended() {
        tcp::close(&mut connection.stream, LINGER_BYTES_MAX).await;
    }
}

struct Connection<C> {
    door: Arc<DoorState<C>>,
    stream: TcpStream,
    inbound: Inbound,
    peer: IpAddr,
    closing: CancellationToken,
}

/// How a connection ends.
#[derive(PartialEq, Eq)]
enum End {
    /// With a reply that the client has to see.
    Reply,
    /// Without a further reply.
    Silence,
}

type Flow = ControlFlow<End>;

impl<C: Commands> Connection<C> {
    async fn take_one(&mut self) -> Flow {
        let request = match self.inbound.next(&self.stream, &self.closing).await {
            Next::Request(request) => request,
            Next::Refused(response) => {
                self.write(response).await;
                return Flow::Break(End::Reply);
            }
            Next::End => return Flow::Break(End::Silence),
        };
        let options = RunOptions::of(&request, self.door.clock.now());
        match options.when {
            When::Now => self.answer(request, options).await,
            When::Queued { delay } => {
                // A command with a time limit of zero has timed out before it starts.
                let queued = options.timeout.is_zero()
                    || background::queue(&self.door, request, self.peer, delay);
                let response = if queued {
                    Response::error(202, "Successfully queued")
                } else {
                    Response::error(503, "Too many queued commands")
                };
                self.write(response.with_header("Connection", "close")).await;
                Flow::Break(End::Reply)
            }
        }
    }

    async fn answer(&mut self, request: Request, options: RunOptions) -> Flow {
        let written = if options.timeout.is_zero() {
            self.write(finish(timed_out(), &options)).await
        } else {
            self.run(&Arc::new(request), &options).await
        };
        if !written {
            Flow::Break(End::Silence)
        } else if options.closes || self.closing.is_cancelled() {
            Flow::Break(End::Reply)
        } else {
            Flow::Continue(())
        }
    }

    /// Executes a command. False if its reply could not be written.
    async fn run(&mut self, request: &Arc<Request>, options: &RunOptions) -> bool {
        let until = Instant::now() + options.timeout;
        let gone = self.closing.child_token();
        let call = Call { peer: self.peer, until, gone: gone.clone() };
        let late_at = if waits(request) { until + WAIT_GRACE } else { until };

        let door = self.door.clone();
        let mut running = pin!(run_safely(&*door.commands, request, call));
        let mut late = pin!(tokio::time::sleep_until(late_at));
        let in_time = loop {
            if self.inbound.ended() {
                gone.cancel();
            }
            tokio::select! {
                biased;
                reply = &mut running => break Some(reply),
                () = &mut late => break None,
                () = self.inbound.watch(&self.stream), if !self.inbound.ended() => {}
            }
        };
        match in_time {
            Some(Reply { response, handed_out }) => {
                let written = self.deliver(finish(response, options), &handed_out).await;
                self.note_delivery(handed_out, written).await;
                written
            }
            None => {
                // It continues without a reader; the next request has to wait for it. It must not
                // stop while this reply is written, because it may have what others wait for.
                gone.cancel();
                let late = self.write(finish(timed_out(), options));
                let (written, reply) = tokio::join!(late, running);
                self.note_delivery(reply.handed_out, false).await;
                written
            }
        }
    }

    /// Writes a reply. As long as that takes, its jobs are held for the client, which gets the
    /// reply even if the store hangs meanwhile. A hold that is under way at the end is waited for:
    /// after `delivered`, it would give an end to leases that have none.
    async fn deliver(&self, response: Response, handed_out: &[HandedOut]) -> bool {
        if handed_out.is_empty() {
            return self.write(response).await;
        }
        let ended = CancellationToken::new();
        let writing = async {
            let _ended = ended.clone().drop_guard();
            self.write(response).await
        };
        let holding = async {
            while tokio::time::timeout(HOLD_INTERVAL, ended.cancelled()).await.is_err() {
                self.door.commands.hold(handed_out).await;
            }
        };
        tokio::join!(writing, holding).0
    }

    /// Reports whether the reply with these jobs was delivered.
    async fn note_delivery(&mut self, handed_out: Vec<HandedOut>, written: bool) {
        if handed_out.is_empty() {
            return;
        }
        // Reads what has arrived, so that `ended` says whether the client has disconnected.
        let _ = self.inbound.watch(&self.stream).now_or_never();
        let ended = self.inbound.ended();
        if written && !outbound::was_refused(&self.stream, ended).await {
            self.door.commands.delivered(handed_out).await;
        } else {
            self.door.commands.undelivered(handed_out).await;
        }
    }

    async fn write(&self, response: Response) -> bool {
        let bytes = response.compose();
        let silence_max = self.door.patience.silence_max;
        let written = tcp::write(&self.stream, &bytes, silence_max).await;
        if let Err(error) = &written {
            tracing::debug!(%error, "a reply could not be written");
        }
        written.is_ok()
    }
}

fn timed_out() -> Response {
    Response::error(555, "Timeout")
}

fn finish(response: Response, options: &RunOptions) -> Response {
    if options.says_close { response.with_header("Connection", "close") } else { response }
}
