//! What a first job costs while very many types of very many tenants wait. SQLite's own steps are
//! counted, so the figures are the same on every machine and in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::edit::{Names, Put, Take, TakeDecision};
use windlass_core::handler::{HandlerSpec, Lang};
use windlass_core::job::Token;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{
    ChangedLook, Claim, Durability, Hold, Insert, NamedLook, Pick, Revision,
};
use windlass_core::time::SystemClock;
use windlass_core::{Job, JobId, NewJob, Payload, State, Sysid, Timestamp, TypeKey};

use crate::open::{self, Options};
use crate::tx::Tx;
use crate::type_row::TypeCache;
use crate::{claim, handler, insert, take, waiting};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// A cost may differ by this part of it: how an index is split into pages decides some steps.
const TOLERANCE: u64 = 10;
/// Behind the names of all other types, so that whatever passes them meets all of them.
const LAST: &str = "z";
const FEW: Size = Size { tenants: 2, types: 5 };
const MANY: Size = Size { tenants: 2_000, types: 10 };

#[derive(Clone, Copy)]
struct Size {
    tenants: i64,
    /// Of each tenant.
    types: i64,
}

/// A file in which each of these types has a ready job, half of them a handler.
struct Queue {
    conn: Connection,
    ids: i64,
    steps: Arc<AtomicU64>,
    _directory: TempDir,
}

impl Queue {
    fn of(size: Size) -> Queue {
        let directory = TempDir::new().unwrap();
        let conn = open::writer(&Options::new(directory.path().join("jobs.db"))).unwrap();
        let mut queue = Queue { conn, ids: 0, steps: Arc::default(), _directory: directory };
        let tenants = (0..size.tenants).map(|tenant| format!("tenant{tenant:05}"));
        let keys = tenants.flat_map(|tenant| {
            (0..size.types).map(move |of| TypeKey::new(&tenant, &format!("t{of}")).unwrap())
        });
        let keys: Vec<TypeKey> = keys.collect();
        for keys in keys.chunks(BATCH_JOBS_MAX) {
            queue.add(keys);
        }
        queue.write(|tx, id| {
            for (number, key) in (1..).zip(keys.iter().step_by(2)) {
                let spec = HandlerSpec::new(Lang::Sh, "true");
                handler::put(tx, JobId::new(id + number).unwrap(), key, &spec).unwrap();
            }
        });
        queue.ids += keys.len() as i64;
        let steps = queue.steps.clone();
        let count = move || {
            steps.fetch_add(1, Ordering::Relaxed);
            false
        };
        queue.conn.progress_handler(1, Some(count)).unwrap();
        queue
    }

    /// Runs a transaction, which gets the largest id so far.
    fn write<T>(&mut self, run: impl FnOnce(&mut Tx<'_>, i64) -> T) -> T {
        self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut types = TypeCache::default();
        let mut tx = Tx::begin(&self.conn, &mut types, &SystemClock).unwrap();
        let done = run(&mut tx, self.ids);
        tx.apply_counts().unwrap();
        self.conn.execute_batch("COMMIT").unwrap();
        done
    }

    /// Adds a job of each of these types.
    fn add(&mut self, keys: &[TypeKey]) {
        self.write(|tx, last| {
            let new = |(id, key): (i64, &TypeKey)| {
                let payload = Payload::Inline("x".into());
                NewJob::new(JobId::new(id).unwrap(), key.clone(), payload, NOW)
            };
            let jobs = (last + 1..).zip(keys).map(new).collect();
            let (keys, durability) = (Vec::new(), Durability::Relaxed);
            insert::job_insert(tx, &Insert { jobs, keys, mark: None, durability }).unwrap();
        });
        self.ids += keys.len() as i64;
    }

    /// The steps of SQLite that this takes.
    fn steps<T>(&mut self, run: impl FnOnce(&mut Queue) -> T) -> (T, u64) {
        let before = self.steps.load(Ordering::Relaxed);
        let done = run(self);
        (done, self.steps.load(Ordering::Relaxed) - before)
    }

    fn newest(&self) -> Revision {
        let look = ChangedLook { since: None, handled: true, each: 1, limit: 1 };
        waiting::changed(&self.conn, &look).unwrap().newest
    }

    /// What the first job of a new type costs: its add, a look that finds it, with and without a
    /// handler, looks of a worker by name and by pattern, a claim, and a take by name. (One by
    /// pattern passes the queues of its tenant that are before it, within a bound.)
    fn first_job(&mut self, tenant: &str) -> [(&'static str, u64); 7] {
        let key = TypeKey::new(tenant, LAST).unwrap();
        let since = Some(self.newest());
        let ((), add) = self.steps(|queue| queue.add(&[key.clone(), key.clone()]));
        let look = |queue: &mut Queue, handled| {
            let look = ChangedLook { since, handled, each: 256, limit: 1000 };
            waiting::changed(&queue.conn, &look).unwrap().types.len()
        };
        let (found, unhandled) = self.steps(|queue| look(queue, false));
        assert_eq!(found, 1, "only the type that opened");
        let version = JobId::new(self.ids + 1).unwrap();
        self.ids += 1;
        let spec = HandlerSpec::new(Lang::Sh, "true");
        self.write(|tx, _| handler::put(tx, version, &key, &spec).unwrap());
        let (found, handled) = self.steps(|queue| look(queue, true));
        assert_eq!(found, 1, "only the type that got a handler");

        let named = |queue: &mut Queue, name: &str| {
            let (tenant, names) = (key.tenant.clone(), vec![name.to_owned()]);
            let look = NamedLook { tenant, names, after: None, limit: 64 };
            waiting::named(&queue.conn, &look).unwrap().types.len()
        };
        let (found, by_name) = self.steps(|queue| named(queue, LAST));
        assert_eq!(found, 1);
        let (found, by_pattern) = self.steps(|queue| named(queue, "z*"));
        assert_eq!(found, 1);

        let hold = Hold::For(Duration::from_secs(60));
        let picks = vec![Pick { key: key.clone(), limit: 1, floor: None }];
        let (owner, token) = (Sysid::FIRST, Token(self.ids));
        let claim = Claim { picks, owner, token, hold, payload_bytes_max: u64::MAX };
        let (claimed, claim) = self.steps(|queue| {
            queue.write(|tx, _| claim::job_claim(tx, &claim).unwrap().unwrap().jobs.len())
        });
        assert_eq!(claimed, 1);
        let decide = |full: &windlass_core::edit::FullJob, _: _, _: _| {
            let job = Job { state: State::Cancelled, ..full.job.clone() };
            TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
        };
        let names = Names::Glob(LAST.into());
        let take = Take::new(key.tenant.clone(), names, 1, Arc::new(decide));
        let (taken, take) = self.steps(|queue| {
            queue.write(|tx, _| take::job_take(tx, &take).unwrap().unwrap().given.len())
        });
        assert_eq!(taken, 1);
        [
            ("add", add),
            ("a look without handlers", unhandled),
            ("a look", handled),
            ("a look by name", by_name),
            ("a look by pattern", by_pattern),
            ("a claim", claim),
            ("a take", take),
        ]
    }
}

#[test]
fn a_first_job_among_very_many_types_and_tenants_costs_what_it_costs_among_few() {
    let (mut few, mut many) = (Queue::of(FEW), Queue::of(MANY));
    // Of a tenant that has other types, and of a new one.
    for tenant in ["tenant00001", "another"] {
        let costs = few.first_job(tenant).into_iter().zip(many.first_job(tenant));
        for ((what, among_few), (_, among_many)) in costs {
            let most = among_few + among_few / TOLERANCE;
            assert!(among_many <= most, "{what} of {tenant}: {among_few}, {among_many}");
        }
    }
}
