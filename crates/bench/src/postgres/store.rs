//! Windlass's store, as the engine uses it: adds with the journal's mark, synced; claims on the
//! daemon's beat and ends relaxed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Mutex;

use windlass_core::job::{Boot, Ended, TOKENS_PER_BOOT, Token};
use windlass_core::log::Log;
use windlass_core::outcome::Status;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    Claim, Durability, Hold, Insert, JournalId, JournalMark, LeaseRef, Pick, Settlement,
    SysidGrant, SysidReserve,
};
use windlass_core::time::SystemClock;
use windlass_core::{Clock, JobId, NewJob, Payload, TypeKey};
use windlass_store_postgres::{Options, PostgresStore};

use crate::postgres::cycle::{Client, Queue};

/// Longer than any measurement: nothing renews it.
const BEAT: Duration = Duration::from_secs(24 * 60 * 60);
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct StoreQueue {
    store: PostgresStore,
    grant: SysidGrant,
    key: TypeKey,
    payload: Bytes,
    ids: AtomicI64,
    /// As the engine counts them.
    tokens: Mutex<(Boot, i64)>,
}

impl StoreQueue {
    /// Payloads of this many bytes.
    pub(crate) async fn open(
        url: &str,
        clients: usize,
        bytes: usize,
    ) -> anyhow::Result<Arc<StoreQueue>> {
        let options = Options { connections: 2 * clients, ..Options::new(url) };
        let store = PostgresStore::open(options).await?;
        let grant = store.sysid_reserve(SysidReserve { wanted: None, lease: BEAT }).await?;
        Ok(Arc::new(StoreQueue {
            store,
            grant,
            key: TypeKey::new("acme", "bench")?,
            payload: Bytes::from("x".repeat(bytes)),
            ids: AtomicI64::new(1),
            tokens: Mutex::new((grant.boot, 0)),
        }))
    }

    pub(crate) async fn close(&self) {
        self.store.close().await;
    }

    async fn token(&self) -> anyhow::Result<Token> {
        let mut next = self.tokens.lock().await;
        if next.1 == TOKENS_PER_BOOT {
            *next = (self.store.boot_next().await?, 0);
        }
        next.1 += 1;
        Ok(next.0.token(next.1 - 1))
    }
}

/// A client's own journal.
struct StoreClient {
    queue: Arc<StoreQueue>,
    journal: JournalId,
    position: Option<JobId>,
}

#[async_trait]
impl Queue for Arc<StoreQueue> {
    async fn client(&self, number: usize) -> anyhow::Result<Box<dyn Client>> {
        let journal = JournalId::new(number as u64, self.grant.sysid);
        let position = self.store.journal_position(journal).await?;
        Ok(Box::new(StoreClient { queue: Arc::clone(self), journal, position }))
    }
}

#[async_trait]
impl Client for StoreClient {
    async fn add(&mut self, jobs: usize) -> anyhow::Result<()> {
        let queue = &self.queue;
        let first = queue.ids.fetch_add(i64::try_from(jobs)?, Ordering::Relaxed);
        let now = SystemClock.now();
        let new = |id: i64| {
            let id = JobId::new(id).context("ids are positive")?;
            Ok(NewJob::new(id, queue.key.clone(), Payload::Inline(queue.payload.clone()), now))
        };
        let jobs = (first..).take(jobs).map(new).collect::<anyhow::Result<Vec<_>>>()?;
        let position = jobs.last().context("there are jobs")?.id;
        let mark = Some(JournalMark { journal: self.journal, from: self.position, position });
        let (keys, durability) = (Vec::new(), Durability::Synced);
        queue.store.job_insert(Insert { jobs, keys, mark, durability }).await?.done()?;
        self.position = Some(position);
        Ok(())
    }

    async fn run(&mut self, jobs: usize) -> anyhow::Result<usize> {
        let queue = &self.queue;
        let pick = Pick { key: queue.key.clone(), limit: jobs.try_into()?, floor: None };
        let claim = Claim {
            picks: vec![pick],
            owner: queue.grant.sysid,
            token: queue.token().await?,
            hold: Hold::Beat(queue.grant.boot),
            payload_bytes_max: u64::MAX,
        };
        let claimed = queue.store.job_claim(claim).await?.jobs;
        let settlements = claimed.iter().map(|claimed| {
            Ok(Settlement {
                lease: LeaseRef::of(&claimed.job).context("a claimed job has a lease")?,
                verdict: Verdict::End(Ending::Finished),
                ended: Some(Ended::from(Status::OK)),
                data: None,
                progress: None,
                log: Log::new(),
                adds: Vec::new(),
                follow: None,
                keep: KEEP,
                only_if_expired: false,
            })
        });
        let settlements = settlements.collect::<anyhow::Result<Arc<[Settlement]>>>()?;
        if !settlements.is_empty() {
            queue.store.job_settle(settlements, Durability::Relaxed).await?;
        }
        Ok(claimed.len())
    }
}
