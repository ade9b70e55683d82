//! All daemons of the queue, as the store knows them.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::Timestamp;
use windlass_core::key::Right;
use windlass_core::store::{DaemonRecord, JournalId};

use crate::answer;
use crate::door::Door;
use crate::error::Failure;
use crate::query::{Parameter, Query};
use crate::route::Route;
use crate::time::WireTime;

const PAGE_DAEMONS_MAX: i64 = 1000;
const PAGE_DAEMONS_DEFAULT: i64 = 100;

const LIST: &[Parameter] = &[
    Parameter { name: "limit", what: "Maximum number of daemons, 1 to 1000; default 100." },
    Parameter { name: "after", what: "The `next` value of the previous page." },
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/daemons", Right::Operate, list)
            .about("operating", "daemon_list", "List all daemons of the queue, by number.")
            .query(LIST)
            .answers::<WireDaemons>("200", "One page."),
    ]
}

#[derive(Serialize, ToSchema)]
#[schema(as = DaemonPage)]
struct WireDaemons {
    daemons: Vec<WireDaemon>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

/// As the daemon said with its last beat.
#[derive(Serialize, ToSchema)]
#[schema(as = Daemon)]
struct WireDaemon {
    sysid: u16,
    /// alive, or gone: it has given its number back or sent no beat for one lease.
    state: &'static str,
    /// The name of its machine.
    host: String,
    version: String,
    /// The address where it serves clients.
    listen: String,
    started_at: WireTime,
    last_beat_at: WireTime,
    /// Whether it picks jobs.
    picking: bool,
    /// Jobs that run in it.
    running: u64,
    journal: WireBacklog,
    /// Layers of isolation that its handlers lack, with reasons and what would help.
    layers_missing: Vec<String>,
}

/// Jobs of its journal that are not in the store. If the daemon is gone, they wait for its data
/// directory, and what it accepted after its last beat is not counted.
#[derive(Serialize, ToSchema)]
#[schema(as = DaemonJournal)]
struct WireBacklog {
    /// At most so many.
    waiting: u64,
    bytes: u64,
    /// How long the oldest of them has waited.
    oldest_seconds: u64,
}

fn from_daemon(daemon: DaemonRecord, now: Timestamp) -> WireDaemon {
    let left = daemon.left();
    let backlog = &daemon.report.backlog;
    let oldest = backlog.oldest.filter(|_| left > 0);
    let journal = WireBacklog {
        waiting: left,
        bytes: if left > 0 { backlog.bytes } else { 0 },
        oldest_seconds: oldest.map_or(0, |id| now.since(id.made_at()).as_secs()),
    };
    let report = daemon.report;
    WireDaemon {
        sysid: daemon.grant.sysid.get(),
        state: if daemon.alive { "alive" } else { "gone" },
        host: report.host,
        version: report.version,
        listen: report.listen,
        started_at: WireTime(report.started_at),
        last_beat_at: WireTime(daemon.beat_at),
        picking: daemon.alive && report.picking,
        running: if daemon.alive { report.running } else { 0 },
        journal,
        layers_missing: report.layers_missing,
    }
}

async fn list(State(door): State<Door>, uri: Uri) -> Result<Response, Failure> {
    let query = Query::read(&uri, LIST)?;
    let limit =
        query.number("limit", 1, PAGE_DAEMONS_MAX)?.unwrap_or(PAGE_DAEMONS_DEFAULT) as usize;
    let after = query.number("after", 0, i64::MAX)?.map(JournalId);
    let page = door.engine.daemons(after, limit).await?;
    let now = page.now;
    let wire = WireDaemons {
        daemons: page.daemons.into_iter().map(|daemon| from_daemon(daemon, now)).collect(),
        next: page.next.map(|journal| journal.0.to_string()),
    };
    Ok(answer::json(StatusCode::OK, &wire))
}
