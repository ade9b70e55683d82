//! The servers, each in its own process: Windlass, and the two that it is compared with. Those two
//! accept connections and speak HTTP exactly like Windlass's door.

use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use windlass_core::Tenant;
use windlass_engine::Engine;

use crate::engine::daemon;
use crate::engine::noop::NoopRunner;
use crate::limits::append::Appender;
use crate::process::child::Role;
use crate::report;

/// The tenant of the added jobs.
pub(crate) const TENANT: &str = "acme";
/// The path of single adds, and their route.
pub(crate) const PATH: &str = "/v1/acme/jobs/line";
const ROUTE: &str = "/v1/{tenant}/jobs/{type}";
/// As long as Windlass's answer to an add of one job.
const ANSWER: &str = r#"{"ids":["0000000000000000000"]}"#;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves until the standard input of this process ends.
pub(crate) fn run(role: Role, dir: &Path) -> anyhow::Result<()> {
    let runtime = daemon::runtime()?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut addresses = vec![listener.local_addr()?];
        let serving = match role {
            Role::Empty => tokio::spawn(serve(listener, empty())),
            Role::Append => tokio::spawn(serve(listener, appending(dir)?)),
            Role::Windlass => {
                let engine = daemon::start(dir, Arc::new(NoopRunner)).await?;
                let second = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                addresses.push(second.local_addr()?);
                tokio::spawn(serve_both(listener, second, engine))
            }
        };
        report::announce(&addresses)?;
        tokio::select! {
            ended = serving => ended?,
            () = input_ended() => Ok(()),
        }
    });
    runtime.shutdown_background();
    served
}

/// Windlass's own doors, with their default settings but without keys (see row `key-check`).
async fn serve_both(http: TcpListener, bedrock: TcpListener, engine: Engine) -> anyhow::Result<()> {
    let never = CancellationToken::new();
    let options = windlass_door_bedrock::Options::new(Tenant::new(TENANT)?);
    let door = windlass_door_bedrock::Door::new(engine.clone(), options);
    let second = door.serve(bedrock, never.clone());
    let options = windlass_door_http::Options {
        access: windlass_door_http::Access::Everybody,
        ..windlass_door_http::Options::default()
    };
    let first = windlass_door_http::serve(http, engine, options, never);
    tokio::try_join!(first, second).context("a door failed")?;
    Ok(())
}

/// Returns when the standard input of this process ends, and with it the parent.
pub(crate) async fn input_ended() {
    // In its own thread, since no runtime thread should wait for a pipe.
    let reading = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    // However reading ended, the parent is gone.
    let _ = reading.await;
}

fn empty() -> Router {
    Router::new().route(ROUTE, post(async || answer(StatusCode::OK)))
}

fn appending(dir: &Path) -> anyhow::Result<Router> {
    async fn append(State(appender): State<Appender>, body: Bytes) -> impl IntoResponse {
        let synced = appender.append(body).await;
        answer(if synced { StatusCode::CREATED } else { StatusCode::SERVICE_UNAVAILABLE })
    }
    let router = Router::new().route(ROUTE, post(append)).layer(DefaultBodyLimit::disable());
    Ok(router.with_state(Appender::start(dir)?))
}

fn answer(status: StatusCode) -> impl IntoResponse {
    (status, [(header::CONTENT_TYPE, "application/json")], ANSWER)
}

async fn serve(listener: TcpListener, router: Router) -> anyhow::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .pipeline_flush(true);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // A client that disconnects does not concern the server.
        tokio::spawn(async move { drop(connection.await) });
    }
}
