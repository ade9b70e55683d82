//! Finds the jobs that a take hands out, by a merge of the queues of all types that match. Each
//! queue is already in order, and an index has the front of each of a tenant's queues, so the cost
//! does not depend on how many jobs wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::edit::{Names, Take, TakeCursor};
use windlass_core::glob::Pattern;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::Rest;
use windlass_core::time::Timestamp;
use windlass_core::{TypeKey, TypeName};

use crate::claim;
use crate::error::Result;
use crate::queue::QueueKey;
use crate::row;
use crate::tx::Tx;

/// Ready jobs that one take looks at, including those that it skips because they are too large or
/// have expired.
const LOOK_MAX: usize = 2 * BATCH_JOBS_MAX;
/// Fronts that do not match in a row, before the search tries types by the prefix of their names
/// instead.
const FRONTS_MAX: usize = 1000;
/// Types with that prefix; if there are more, the search continues with the fronts.
const NAMES_MAX: usize = 5000;
/// Fronts that one call reads, because it blocks other writers.
const SCAN_MAX: usize = 10_000;

/// The result of a search.
pub(crate) struct Found {
    /// Ids of jobs and of their types.
    pub(crate) wanted: Vec<(i64, i64)>,
    /// Jobs that were in the way.
    pub(crate) expired: Vec<QueueKey>,
    /// A type's limit held back some of its jobs.
    pub(crate) full: bool,
    /// Types whose rate holds back jobs.
    pub(crate) rests: Vec<Rest>,
    /// Where the next search continues, if this one reached its bound and found nothing.
    pub(crate) next: Option<TakeCursor>,
}

/// The queue of a type, or the queue of its hidden jobs.
struct Source {
    type_id: i64,
    name: Arc<str>,
    hidden: bool,
    /// The key of the last job that was read: rank, time, tie, id.
    behind: [i64; 4],
}

/// The next job of a queue, ordered as jobs are handed out: rank, time, tie, name, id. Then follows
/// the index of its source.
type Next = Reverse<(i64, i64, i64, Arc<str>, i64, usize)>;

pub(crate) struct Search<'a> {
    conn: &'a Connection,
    take: &'a Take,
    now: Timestamp,
    /// Only jobs of this rank, if set.
    rank: Option<i64>,
    sources: Vec<Source>,
    nexts: BinaryHeap<Next>,
    expired: Vec<QueueKey>,
    /// Jobs that may still be looked at.
    looks: usize,
    /// How many more jobs may be taken of types with a limit or a rate.
    room: HashMap<Arc<str>, u32>,
    /// Types with a limit whose `rate` was looked at.
    rated: HashSet<i64>,
    rests: Vec<Rest>,
    /// The `concurrency` or `rate` of a type held back some of its jobs.
    full: bool,
    /// The types to search, if they are given by a pattern.
    pattern: Option<Pattern>,
}

pub(crate) const NEXT: &str = "
    SELECT r.rank, r.run_at, r.tie, r.id, j.payload_bytes, j.expires_at
      FROM ready r CROSS JOIN job j ON j.id = r.id
     WHERE r.type_id = ?1 AND (r.rank, r.run_at, r.tie, r.id) > (?2, ?3, ?4, ?5)
     ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT 1";
pub(crate) const NEXT_HIDDEN: &str = "
    SELECT r.rank, r.run_at, r.tie, r.id, j.payload_bytes, j.expires_at
      FROM ready_hidden r CROSS JOIN job j ON j.id = r.id
     WHERE r.type_id = ?1 AND (r.rank, r.run_at, r.tie, r.id) > (?2, ?3, ?4, ?5)
     ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT 1";
macro_rules! fronts {
    () => {
        "SELECT id, name, head_rank, head_run_at, head_tie, 0 FROM type INDEXED BY type_head
          WHERE tenant = ?1 AND head_rank IS NOT NULL AND suspended = 0
            AND (head_rank, head_run_at, head_tie, name) > (?2, ?3, ?4, ?5)"
    };
}
pub(crate) const FRONTS: &str =
    concat!(fronts!(), " ORDER BY head_rank, head_run_at, head_tie, name");
/// Merges two indexes that are in this order.
pub(crate) const FRONTS_AND_HIDDEN: &str = concat!(
    fronts!(),
    " UNION ALL
      SELECT id, name, hidden_rank, hidden_run_at, hidden_tie, 1 FROM type INDEXED BY type_hidden
       WHERE tenant = ?1 AND hidden_rank IS NOT NULL AND suspended = 0
         AND (hidden_rank, hidden_run_at, hidden_tie, name) > (?2, ?3, ?4, ?5)
       ORDER BY 3, 4, 5, 2"
);
pub(crate) const NAMED_FROM: &str = "
    SELECT id, name, head_rank IS NOT NULL AND suspended = 0,
           hidden_rank IS NOT NULL AND suspended = 0
      FROM type WHERE tenant = ?1 AND name >= ?2 ORDER BY name";

impl<'a> Search<'a> {
    pub(crate) fn new<'w: 'a>(tx: &mut Tx<'w>, take: &'a Take) -> Result<Search<'a>> {
        let mut search = Search {
            conn: tx.conn,
            take,
            now: tx.now,
            rank: take.priority.map(|priority| row::rank(priority, 0)),
            sources: Vec::new(),
            nexts: BinaryHeap::new(),
            expired: Vec::new(),
            looks: LOOK_MAX,
            room: HashMap::new(),
            rated: HashSet::new(),
            rests: Vec::new(),
            full: false,
            pattern: None,
        };
        match &take.names {
            Names::AnyOf(names) => search.open_named(tx, names)?,
            Names::Glob(text) => {
                let pattern = Pattern::new(text);
                if pattern.is_literal() {
                    let name = TypeName::new(&pattern.prefix()).ok();
                    search.open_named(tx, name.as_slice())?;
                } else {
                    search.pattern = Some(pattern);
                }
            }
        }
        Ok(search)
    }

    fn open_named(&mut self, tx: &mut Tx<'_>, names: &[TypeName]) -> Result<()> {
        let mut opened = HashSet::new();
        for name in names.iter().filter(|name| opened.insert(*name)) {
            let key = TypeKey { tenant: self.take.tenant.clone(), name: name.clone() };
            let Some(type_id) = tx.types.find(self.conn, &key)? else { continue };
            self.open(type_id, name.as_str(), false)?;
            if self.take.hidden {
                self.open(type_id, name.as_str(), true)?;
            }
        }
        Ok(())
    }

    /// Adds a queue to the search; false if no job of its type may be taken now.
    fn open(&mut self, type_id: i64, name: &str, hidden: bool) -> Result<bool> {
        let name: Arc<str> = Arc::from(name);
        let Some(of_type) = claim::unless_suspended(self.conn, type_id)? else { return Ok(false) };
        let limited = of_type.room(0) != i64::MAX || of_type.rate.is_some();
        if limited && !self.room.contains_key(&name) {
            let room = u32::try_from(of_type.room(0)).unwrap_or(u32::MAX);
            self.full |= room == 0;
            self.room.insert(name.clone(), room);
        }
        if self.room.get(&name) == Some(&0) {
            return Ok(false);
        }
        let behind = [self.rank.unwrap_or(i64::MIN), i64::MIN, i64::MIN, i64::MIN];
        self.sources.push(Source { type_id, name: name.clone(), hidden, behind });
        let found = self.advance(self.sources.len() - 1)?;
        // Only now: a rest of a type that has nothing to give is of no interest.
        if found && limited && self.rated.insert(type_id) {
            let key = row::type_key::<Infallible>(Ok(self.take.tenant.as_str()), Ok(&name))?;
            self.rests.extend(of_type.rest(&key, self.now));
            let left = of_type.starts_left(self.now);
            self.room.entry(name.clone()).and_modify(|room| *room = left.min(*room));
        }
        Ok(self.room.get(&name) != Some(&0))
    }

    /// Reads the next job of a queue; false if there is none.
    fn advance(&mut self, source: usize) -> Result<bool> {
        let Source { type_id, name, hidden, behind } = &mut self.sources[source];
        if self.room.get(name) == Some(&0) {
            return Ok(false);
        }
        let mut find = self.conn.prepare_cached(if *hidden { NEXT_HIDDEN } else { NEXT })?;
        let columns = |row: &Row<'_>| {
            // A damaged row is found out when the job is read.
            let bytes = row.get::<_, i64>(4).unwrap_or(0) as u64;
            let expires_at = row.get::<_, Option<i64>>(5).unwrap_or(None).map(Timestamp);
            Ok(([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?], bytes, expires_at))
        };
        while self.looks > 0 {
            let [rank, run_at, tie, id] = *behind;
            let found = find.query_row([*type_id, rank, run_at, tie, id], columns).optional()?;
            let Some((place, bytes, expires_at)) = found else { return Ok(false) };
            let [rank, run_at, tie, id] = place;
            if self.rank.is_some_and(|only| only != rank) {
                return Ok(false);
            }
            self.looks -= 1;
            *behind = place;
            if expires_at.is_some_and(|at| at <= self.now) {
                let rank = if *hidden { rank + row::HIDDEN_RANK } else { rank };
                let (type_id, run_at) = (*type_id, Timestamp(run_at));
                self.expired.push(QueueKey { type_id, rank, run_at, tie, id });
                continue;
            }
            if bytes <= self.take.payload_bytes_max {
                self.nexts.push(Reverse((rank, run_at, tie, name.clone(), id, source)));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the jobs to hand out, in order.
    pub(crate) fn run(mut self) -> Result<Found> {
        let sql = if self.take.hidden { FRONTS_AND_HIDDEN } else { FRONTS };
        let mut fronts = self.conn.prepare_cached(sql)?;
        let mut fronts = match self.pattern.is_some() {
            true => Some(fronts.query(self.behind())?),
            false => None,
        };
        let mut front = self.next_front(&mut fronts)?;
        let (mut wanted, mut passed, mut scanned) = (Vec::new(), 0, 0);
        let mut next = None;
        while wanted.len() < self.take.limit as usize {
            while let Some(Front { type_id, name, hidden, place }) = &front {
                let before = |Reverse((rank, run_at, tie, next, ..)): &Next| {
                    (place, name) <= (&[*rank, *run_at, *tie], next)
                };
                if !self.nexts.peek().is_none_or(before) {
                    break;
                }
                scanned += 1;
                let matches = self.pattern.as_ref().is_some_and(|pattern| pattern.matches(name));
                passed =
                    if matches && self.open(*type_id, name, *hidden)? { 0 } else { passed + 1 };
                if passed == FRONTS_MAX && self.open_prefixed()? {
                    fronts = None;
                }
                let here = TakeCursor { place: *place, name: name.to_string() };
                front = self.next_front(&mut fronts)?;
                // The cursor stands behind both queues of a type, if their fronts are equal.
                if scanned >= SCAN_MAX && front.as_ref().is_some_and(|front| !front.is_at(&here)) {
                    (front, fronts, next) = (None, None, Some(here));
                }
            }
            let Some(Reverse((.., name, id, source))) = self.nexts.pop() else { break };
            // The other queue of the type may have used up the room.
            let room = self.room.get_mut(&name);
            if room.as_ref().is_some_and(|room| **room == 0) {
                continue;
            }
            room.into_iter().for_each(|room| *room -= 1);
            wanted.push((id, self.sources[source].type_id));
            if wanted.len() < self.take.limit as usize {
                self.advance(source)?;
            }
        }
        let next = next.filter(|_| wanted.is_empty());
        let full = self.full || self.room.values().any(|room| *room == 0);
        Ok(Found { wanted, expired: self.expired, full, rests: self.rests, next })
    }

    /// The parameters of `FRONTS`: where the search begins.
    fn behind(&self) -> impl rusqlite::Params {
        let from = (&[i64::MIN; 3], "");
        let after = self.take.after.as_ref();
        let (place, name) = after.map_or(from, |after| (&after.place, after.name.as_str()));
        let tenant = self.take.tenant.as_str().to_owned();
        (tenant, place[0], place[1], place[2], name.to_owned())
    }

    /// The best front that has not been read, of any name.
    fn next_front(&self, fronts: &mut Option<rusqlite::Rows<'_>>) -> Result<Option<Front>> {
        let Some(rows) = fronts.as_mut() else { return Ok(None) };
        let front = rows.next()?.map(Front::read).transpose()?;
        Ok(front.filter(|front| self.rank.is_none_or(|only| front.place[0] <= only)))
    }

    /// Opens every matching type with the pattern's prefix; false if there are too many.
    fn open_prefixed(&mut self) -> Result<bool> {
        let Some(pattern) = self.pattern.clone() else { return Ok(false) };
        let prefix = pattern.prefix();
        if prefix.is_empty() {
            return Ok(false);
        }
        let opened = self.sources.iter().map(|source| (source.type_id, source.hidden));
        let opened: HashSet<(i64, bool)> = opened.collect();
        let mut named = self.conn.prepare_cached(NAMED_FROM)?;
        let mut rows = named.query(params![self.take.tenant.as_str(), prefix])?;
        let (mut found, mut names) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let (type_id, name) = (row.get(0)?, row.get::<_, String>(1)?);
            if !name.starts_with(&prefix) {
                break;
            }
            names += 1;
            if names > NAMES_MAX {
                return Ok(false);
            }
            let has_jobs = [row.get(2)?, self.take.hidden && row.get(3)?];
            if has_jobs != [false, false] && pattern.matches(&name) {
                found.push((type_id, name, has_jobs));
            }
        }
        for (type_id, name, has_jobs) in found {
            for (hidden, has_jobs) in [false, true].into_iter().zip(has_jobs) {
                if has_jobs && !opened.contains(&(type_id, hidden)) {
                    self.open(type_id, &name, hidden)?;
                }
            }
        }
        Ok(true)
    }
}

/// The front of a type's queue.
struct Front {
    type_id: i64,
    name: Arc<str>,
    /// Whether it is the queue of its hidden jobs.
    hidden: bool,
    /// Rank, time, tie.
    place: [i64; 3],
}

impl Front {
    fn read(row: &Row<'_>) -> Result<Front> {
        let place = [row.get(2)?, row.get(3)?, row.get(4)?];
        Ok(Front { type_id: row.get(0)?, name: row.get(1)?, hidden: row.get(5)?, place })
    }

    fn is_at(&self, cursor: &TakeCursor) -> bool {
        self.place == cursor.place && *self.name == *cursor.name
    }
}
