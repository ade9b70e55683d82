//! The clocks of the server and of daemons' machines differ.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::NoTls;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    Backlog, DaemonReport, JournalId, SysidGrant, SysidRenew, SysidReserve,
};
use windlass_core::time::{ManualClock, Timestamp};
use windlass_store_postgres::{Options, PostgresStore};

use crate::common::Lent;

const START: Timestamp = Timestamp(1_800_000_000_000);
const LEASE: Duration = Duration::from_secs(10);

async fn beat(store: &PostgresStore, grant: SysidGrant) {
    let report = DaemonReport {
        journal: JournalId(1),
        host: "alpha".into(),
        version: "1".into(),
        listen: String::new(),
        started_at: START,
        picking: true,
        running: 0,
        backlog: Backlog::default(),
        layers_missing: Vec::new(),
    };
    let renew = SysidRenew { grant, lease: LEASE, id_newest: None, report: Some(report) };
    store.sysid_renew(renew).await.unwrap();
}

/// Its steady clock stands still with it, so that the server's clock seems to have been set.
#[tokio::test]
async fn a_machine_that_stood_still_shifts_nothing_while_another_daemon_beats() {
    let (server, watch) = (Lent::new(), Arc::new(ManualClock::at(START)));
    let schema = server.new_schema();
    let open = async |machine: &Arc<ManualClock>| {
        let options = Options {
            schema: schema.clone(),
            clock: machine.clone(),
            server_clock: Some(watch.clone()),
            ..Options::new(server.url())
        };
        PostgresStore::open(options).await.unwrap()
    };
    let paused = open(&Arc::new(ManualClock::at(START))).await;
    let awake = open(&watch).await;
    let reserve = SysidReserve { wanted: None, lease: LEASE };
    let grant = awake.sysid_reserve(reserve).await.unwrap();
    beat(&awake, grant).await;
    watch.advance_to(START + Duration::from_secs(5));
    beat(&awake, grant).await;
    watch.advance_to(START + Duration::from_secs(8));
    paused.ping().await.unwrap();

    let (watcher, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let find = format!("SELECT expires_at FROM {schema}.sysid");
    let expires_at: i64 = watcher.query_one(&find, &[]).await.unwrap().get(0);
    assert_eq!(expires_at, (START + Duration::from_secs(15)).ms());
}
