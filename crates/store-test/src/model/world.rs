//! The small world in which the operations happen, and the choice of the next one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;

use windlass_core::handler::{HandlerSpec, TypeSettings};
use windlass_core::job::{Boot, Ended, Token};
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{
    Add, Claim, EndRequest, GiveUp, Hold, IdempotencyKey, IdempotencyRecord, Insert, JournalMark,
    LeaseRef, List, NamedLook, Overdue, Pick, Renew, Requeue, Settlement, SysidReserve,
};
use windlass_core::time::{Clock, ManualClock};
use windlass_core::{JobId, Json, Log, NewJob, Payload, Timestamp, TypeKey};

use super::op::{Op, Read};
use super::value::{IDS_MAX, SYSIDS_MAX, keys, tenants};
use crate::fixture::{LEASE, Subject, handler_spec, id, journal, said, sysid};

/// Handlers have consecutive ids from here on.
const HANDLER_IDS_FROM: i64 = 1000;
/// Leases that the world remembers; some are current, some stale.
const LEASES_MAX: usize = 40;
/// More than can exist, because the contract does not always define which ones a smaller limit
/// selects.
const NO_LIMIT: usize = 1000;

pub(super) struct World {
    pub(super) now: Timestamp,
    clock: Arc<ManualClock>,
    /// The newest id that was made or recorded.
    pub(super) id_newest: Option<JobId>,
    pub(super) random: Rng,
    pub(super) leases: Vec<LeaseRef>,
    handlers_made: i64,
    claims: i64,
}

impl World {
    pub(super) fn new(seed: u64, clock: Arc<ManualClock>) -> World {
        let (random, leases) = (Rng::with_seed(seed), Vec::new());
        World {
            now: clock.now(),
            clock,
            id_newest: None,
            random,
            leases,
            handlers_made: 0,
            claims: 0,
        }
    }

    /// Lets some time pass and chooses the next operation. The reference is only read, if an
    /// operation needs its state to be well defined.
    pub(super) async fn next(&mut self, reference: &Subject) -> Op {
        let pause = self.pause();
        self.clock.advance(pause);
        self.now = self.clock.now();
        match self.random.u32(0..136) {
            0..13 => self.insert(reference).await,
            13..18 => self.add(),
            18..21 => self.insert_large(reference).await,
            21..29 => Op::Claim(self.claim()),
            29..36 => Op::ClaimOnBeat { nth: self.random.usize(0..100), claim: self.claim() },
            36..54 => self.settle(),
            54..58 => Op::Renew(self.renew()),
            58..60 => Op::Progress(self.some(2, |world| (world.lease(), world.progress()))),
            60..62 => Op::LeaseExpired(NO_LIMIT),
            62..85 => self.change(),
            85..89 => self.sysid_op(),
            89 => Op::Flush,
            130..132 => Op::SetClock(self.random.i64(-4000..4000) * 1000),
            132 => Op::BootNext,
            133..136 => Op::Undo,
            90..112 => self.decide(reference).await,
            112..120 => self.take(),
            _ => self.read(),
        }
    }

    /// One of so many, counted from 0.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        self.random.usize(0..count)
    }

    /// Sets the clock by so many milliseconds.
    pub(super) fn set_clock(&mut self, by_ms: i64) {
        self.clock.set(self.clock.now().shifted(by_ms));
        self.now = self.clock.now();
    }

    pub(super) fn remember(&mut self, lease: LeaseRef) {
        if self.leases.contains(&lease) {
            return;
        }
        if self.leases.len() == LEASES_MAX {
            self.leases.remove(0);
        }
        self.leases.push(lease);
    }

    /// All reads, at the current time.
    pub(super) fn all_reads(&self) -> Vec<Op> {
        let mut reads = vec![Read::Waiting, Read::Ring, Read::Sysids, Read::Stats(None)];
        for tenant in tenants() {
            let (name, state, before, limit) = (None, None, None, 7);
            reads.push(Read::List(List { tenant: tenant.clone(), name, state, before, limit }));
            reads.extend((1..=IDS_MAX).map(|number| Read::Job(tenant.clone(), id(number))));
            reads.push(Read::Handlers(tenant));
        }
        reads.extend((1..=IDS_MAX).map(|number| Read::Piece(id(number), 0)));
        let versions = || (0..self.handlers_made).map(|n| Some(id(HANDLER_IDS_FROM + n)));
        for key in keys() {
            reads.extend(versions().map(|version| Read::Handler(key.clone(), version)));
            reads.push(Read::Settings(key));
        }
        reads.extend((1..=SYSIDS_MAX).map(|number| Read::Journal(journal(number.into()))));
        reads.extend((1..=SYSIDS_MAX).map(|number| Read::LeaseMine(sysid(number), None)));
        let tokens = self.leases.iter().map(|lease| lease.token).collect();
        reads.push(Read::LeaseClaimed(tokens));
        reads.push(Read::Unhandled(keys().collect()));
        reads.into_iter().map(Op::Read).collect()
    }

    async fn insert(&mut self, reference: &Subject) -> Op {
        let jobs: Vec<NewJob> = self.some(4, World::new_job);
        let ids = jobs.iter().map(|job| job.id).collect::<Vec<_>>();
        self.id_newest = self.id_newest.max(ids.iter().copied().max());
        let record = IdempotencyRecord {
            tenant: self.tenant(),
            key: self.text(),
            fingerprint: self.random.u64(..),
            ids: ids.clone(),
            expires_at: self.soon() + Duration::from_millis(1),
        };
        let mark = self.mark(reference, ids.iter().copied().max()).await;
        let keys = Vec::from_iter(self.random.bool().then_some(record));
        Op::Insert(Insert { jobs, keys, mark, durability: self.durability() })
    }

    /// An add that the store decides, of jobs that may have parents.
    fn add(&mut self) -> Op {
        let tenant = self.tenant();
        let new = |world: &mut World| {
            let key = TypeKey { tenant: tenant.clone(), ..world.key() };
            NewJob { key, parent: world.maybe(World::id), ..world.new_job() }
        };
        let jobs: Vec<NewJob> = self.some(3, new);
        self.id_newest = self.id_newest.max(jobs.iter().map(|job| job.id).max());
        let key = self
            .maybe(|world| IdempotencyKey { key: world.text(), fingerprint: world.random.u64(..) });
        Op::Add(Add { tenant, jobs, key })
    }

    /// A mark that ends here, and usually starts at the journal's position.
    async fn mark(&mut self, reference: &Subject, position: Option<JobId>) -> Option<JournalMark> {
        let position = position.filter(|_| self.random.bool())?;
        let journal = journal(self.sysid().get().into());
        let at = reference.journal_position(journal).await.unwrap();
        let from = if self.random.u32(0..8) == 0 { self.maybe(World::id) } else { at };
        Some(JournalMark { journal, from, position: position.max(from.unwrap_or(position)) })
    }

    /// Pieces are only put for a job that does not exist yet.
    async fn insert_large(&mut self, reference: &Subject) -> Op {
        let pieces: Vec<Bytes> = (0..2).map(|_| Bytes::from(self.text())).collect();
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let payload = Payload::Pieces { bytes };
        let new = NewJob { payload, unique: None, ..self.new_job() };
        for tenant in tenants() {
            if reference.job_get(&tenant, new.id).await.unwrap().is_some() {
                return Op::Read(Read::Piece(new.id, 0));
            }
        }
        self.id_newest = self.id_newest.max(Some(new.id));
        Op::InsertLarge(new, pieces)
    }

    pub(super) fn new_job(&mut self) -> NewJob {
        NewJob {
            id: self.id(),
            key: self.key(),
            priority: self.priority(),
            run_at: self.around(),
            created_at: self.now,
            expires_at: self.maybe(World::soon),
            timeout: self.maybe(|world| Duration::from_millis(world.random.u64(1..9999))),
            unique: self.maybe(World::unique),
            then: self.maybe(|world| world.key().name),
            parent: None,
            paused: false,
            extra: self.extra(),
            payload: Payload::Inline(Bytes::from(self.text())),
        }
    }

    /// A job that an attempt emits; some name a parent, which may be unable to have children.
    fn asked_for(&mut self) -> NewJob {
        let parent = self.maybe(World::id);
        let asked_for = NewJob { parent, ..self.new_job() };
        self.id_newest = self.id_newest.max(Some(asked_for.id));
        asked_for
    }

    fn follow(&mut self) -> NewJob {
        let follow = NewJob { unique: None, ..self.new_job() };
        self.id_newest = self.id_newest.max(Some(follow.id));
        follow
    }

    /// A token that no other claim has.
    pub(super) fn token(&mut self) -> Token {
        self.claims += 1;
        Boot(1).token(self.claims)
    }

    fn renew(&mut self) -> Renew {
        let hold = (self.random.u32(0..8) > 0).then_some(LEASE);
        Renew { leases: self.some(3, World::lease), hold }
    }

    fn claim(&mut self) -> Claim {
        let pick = |world: &mut World| Pick {
            key: world.key(),
            limit: world.random.u32(0..5),
            floor: world.maybe(World::priority),
        };
        Claim {
            picks: self.some(3, pick),
            owner: self.sysid(),
            token: self.token(),
            hold: Hold::For(LEASE),
            payload_bytes_max: if self.random.u8(0..4) == 0 { 1 } else { u64::MAX },
        }
    }

    fn settle(&mut self) -> Op {
        let settlement = |world: &mut World| {
            let (run_at, world_now) = (world.around(), world.now);
            let endings = [Ending::Finished, Ending::Failed, Ending::Cancelled];
            let verdict = match world.random.u32(0..7) {
                0..3 => Verdict::End(endings[world.random.usize(0..3)]),
                3 | 4 => Verdict::Again { after: run_at.since(world.now) },
                5 => Verdict::Repeat { run_at },
                _ => Verdict::Release { after: world.maybe(|_| run_at.since(world_now)) },
            };
            let released = matches!(verdict, Verdict::Release { .. });
            Settlement {
                lease: world.lease(),
                verdict,
                ended: (!released).then(|| Ended::from(world.status())),
                data: (!released && world.random.bool()).then(|| Json::string(&world.text())),
                progress: world.maybe(World::progress),
                log: if world.random.bool() { said(&world.text()) } else { Log::new() },
                adds: world.maybe(|world| world.some(3, World::asked_for)).unwrap_or_default(),
                follow: world.maybe(World::follow),
                keep: world.a_while(),
                only_if_expired: world.random.u32(0..4) == 0,
            }
        };
        Op::Settle(self.some(4, settlement).into(), self.durability())
    }

    fn change(&mut self) -> Op {
        let keep = self.a_while();
        match self.random.u32(0..15) {
            0..2 => Op::Cancel(EndRequest { tenant: self.tenant(), id: self.id(), keep }),
            2..5 => Op::Rerun(self.tenant(), self.id()),
            5..7 => Op::Requeue(Requeue {
                key: self.key(),
                state: self.state(),
                limit: self.random.usize(0..4),
            }),
            7 => Op::Delete(self.tenant(), self.id()),
            8 => Op::GiveUp(self.give_up()),
            9 => Op::Purge(NO_LIMIT),
            10 => {
                self.handlers_made += 1;
                let id = id(HANDLER_IDS_FROM + self.handlers_made - 1);
                let spec = HandlerSpec { body: self.text(), ..handler_spec() };
                Op::HandlerPut(id, self.key(), spec)
            }
            11 => Op::HandlerDelete(self.key()),
            // Resumes more often than it suspends, so that there is work.
            12 | 13 => Op::Suspend(self.key(), self.random.u32(0..4) == 0),
            _ => {
                let weight = Some(self.random.u32(1..9));
                let concurrency = self.maybe(|world| world.random.u32(1..4));
                let rate = self.maybe(|_| 1.0);
                let settings =
                    TypeSettings { weight, concurrency, rate, ..TypeSettings::default() };
                Op::SettingsPut(self.key(), settings)
            }
        }
    }

    fn give_up(&mut self) -> GiveUp {
        let due_for = Duration::from_millis(self.random.u64(0..20_000) * 2 + 1);
        let which = match self.random.u32(0..3) {
            0 => Overdue::Expired,
            1 => Overdue::Lost { tenant: self.tenant(), id: self.id() },
            _ => Overdue::Unhandled { key: self.key(), due_for },
        };
        let (ended, log) = (Ended::from(self.status()), said(&self.text()));
        GiveUp { which, ended, log, keep: self.a_while(), limit: NO_LIMIT }
    }

    fn sysid_op(&mut self) -> Op {
        let (lease, nth) = (LEASE, self.random.usize(0..100));
        match self.random.u32(0..4) {
            0 => Op::SysidReserve(SysidReserve { wanted: None, lease }),
            1 => Op::SysidReserve(SysidReserve { wanted: Some(self.sysid()), lease }),
            2 => {
                let id_newest = self.maybe(World::id);
                self.id_newest = self.id_newest.max(id_newest);
                Op::SysidRenew { nth, id_newest }
            }
            _ => Op::SysidRelease { nth },
        }
    }

    /// All types that match a pattern, or the types with these names.
    fn named(&mut self) -> Read {
        let globs = ["*", "a", "[ab]", "b*", "none"];
        let names = self.some(2, |world| globs[world.random.usize(0..globs.len())].to_owned());
        let after = self.maybe(|world| world.key().name);
        Read::Named(NamedLook { tenant: self.tenant(), names, after, limit: NO_LIMIT })
    }

    fn read(&mut self) -> Op {
        Op::Read(match self.random.u32(0..17) {
            0..2 => Read::Job(self.tenant(), self.id()),
            2 => Read::List(List {
                tenant: self.tenant(),
                name: self.maybe(|world| world.key().name),
                state: self.maybe(World::state),
                before: self.maybe(World::id),
                limit: self.random.usize(1..5),
            }),
            3..5 => Read::Waiting,
            5..7 => Read::Stats(self.maybe(World::tenant)),
            7 => Read::Idempotency(self.tenant(), self.text()),
            8 => Read::Sysids,
            9 => Read::LeaseMine(self.sysid(), self.maybe(World::id)),
            10 => Read::Ring,
            11..13 => self.named(),
            13 => Read::LeaseClaimed(self.some(4, |world| world.lease().token)),
            14 => Read::Unhandled(self.some(4, World::key)),
            15 => return Op::LookAtChanged,
            _ => Read::Handlers(self.tenant()),
        })
    }
}
