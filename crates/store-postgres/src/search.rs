//! Finds the jobs that a take hands out. First the types that match, at most `TYPES_MAX` in one
//! call; then the front of each of their queues, in one statement.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::edit::{Names, Take, TakeCursor};
use windlass_core::glob::Pattern;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::Rest;
use windlass_core::time::Timestamp;
use windlass_core::{TypeKey, TypeName};

use crate::claim::{self, Claimable};
use crate::error::Result;
use crate::queue::QueueKey;
use crate::row::{self, HIDDEN_RANK};
use crate::tx::Tx;

/// Types whose names one call looks at.
const TYPES_MAX: usize = 10_000;
/// Ready jobs of a type that one take looks at, including those that it skips because they are too
/// large.
const LOOK_MAX: i64 = 2 * BATCH_JOBS_MAX as i64;
/// Jobs beyond the limit of a take, in place of those that others have locked.
const SPARE: usize = 64;
/// Expired jobs that one take moves out of its way.
const EXPIRED_MAX: i64 = 10_000;

/// The result of a search.
pub(crate) struct Found {
    /// The jobs to hand out, in order; a few more than are asked for.
    pub(crate) wanted: Vec<QueueKey>,
    /// Expired jobs were in the way, and are withheld now.
    pub(crate) any_expired: bool,
    /// The `concurrency` or `rate` of a type held back some of its jobs.
    pub(crate) full: bool,
    /// The types that were found, and those whose rate holds back jobs.
    pub(crate) types: HashMap<i32, Claimable>,
    pub(crate) rests: Vec<Rest>,
    /// Where the next search continues, if this one reached its bound and found nothing.
    pub(crate) next: Option<TakeCursor>,
}

/// The names of the types that are searched, by their ids.
type Sources = HashMap<i32, TypeName>;

pub(crate) async fn search(tx: &mut Tx<'_>, take: &Take) -> Result<Found> {
    let (mut sources, next) = sources(tx, take).await?;
    let ids: Vec<Option<i32>> = sources.keys().map(|id| Some(*id)).collect();
    let types = claim::claimable(tx, &ids).await?;
    sources.retain(|id, _| types.get(id).is_some_and(|of_type| !of_type.suspended));
    let mut full = sources.keys().any(|id| types[id].room == 0);
    sources.retain(|id, _| types[id].room > 0);
    let any_expired = withhold_expired(tx, &sources).await?;
    let fronts = fronts(tx, take, &sources, &types).await?;
    let mut wanted = Vec::new();
    let mut room = Rooms::new(&types, tx.now);
    for key in fronts.into_iter().take(take.limit as usize + SPARE) {
        match room.take(key.type_id) {
            true => wanted.push(key),
            false => full = true,
        }
    }
    full |= room.is_any_used_up();
    let rest = |id: &i32| {
        let key = TypeKey { tenant: take.tenant.clone(), name: sources[id].clone() };
        types[id].rest(&key, 0, tx.now)
    };
    let rests = room.left.keys().filter_map(rest).collect();
    let next = next.filter(|_| wanted.is_empty());
    Ok(Found { wanted, any_expired, full, types, rests, next })
}

const NAMED: &str = "
    SELECT t.id, t.name FROM type t WHERE t.tenant = $1 AND t.name = ANY ($2)";
/// Open types.
const OPEN: &str = "
    SELECT t.id, t.name, true FROM type t
     WHERE (t.handler_id IS NOT NULL) IN (true, false) AND t.open
       AND t.tenant = $1 AND t.name >= $2 AND t.name > $3
     ORDER BY t.name LIMIT $4";
/// Open types, and those with hidden jobs. No index has these by name, so the limit counts all
/// types of the tenant; the last column says which ones to search.
const OPEN_OR_HIDDEN: &str = "
    SELECT t.id, t.name,
           t.open OR EXISTS (SELECT FROM job j
                              WHERE j.type_id = t.id AND j.state = 0 AND j.parts & 64 <> 0)
      FROM type t WHERE t.tenant = $1 AND t.name >= $2 AND t.name > $3
     ORDER BY t.name LIMIT $4";

/// The types to search, and where the next call continues if there may be others.
async fn sources(tx: &Tx<'_>, take: &Take) -> Result<(Sources, Option<TakeCursor>)> {
    let tenant = take.tenant.as_str();
    let pattern = match &take.names {
        Names::AnyOf(names) => {
            let names: Vec<&str> = names.iter().map(TypeName::as_str).collect();
            return Ok((decoded(&tx.query(NAMED, &[&tenant, &names]).await?, |_| true)?, None));
        }
        Names::Glob(text) => Pattern::new(text),
    };
    let prefix = pattern.prefix();
    if pattern.is_literal() {
        let rows = tx.query(NAMED, &[&tenant, &vec![prefix]]).await?;
        return Ok((decoded(&rows, |_| true)?, None));
    }
    let after = take.after.as_ref().map_or("", |after| after.name.as_str());
    let limit = TYPES_MAX as i64;
    let sql = if take.hidden { OPEN_OR_HIDDEN } else { OPEN };
    let rows = tx.query(sql, &[&tenant, &prefix, &after, &limit]).await?;
    let last: Option<&str> = rows.last().map(|row| row.try_get(1)).transpose()?;
    let may_match = |name: &&str| rows.len() == TYPES_MAX && name.starts_with(&prefix);
    let next = last.filter(may_match).map(|name| TakeCursor { place: [0; 3], name: name.into() });
    let mut wanted = Vec::with_capacity(rows.len());
    for row in &rows {
        if row.try_get(2)? {
            wanted.push(row);
        }
    }
    Ok((decoded(wanted, |name| pattern.matches(name))?, next))
}

fn decoded<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    matches: impl Fn(&str) -> bool,
) -> Result<Sources> {
    let mut sources = Sources::new();
    for row in rows {
        let name: &str = row.try_get(1)?;
        if !matches(name) {
            continue;
        }
        let Some(name) = row::type_name(Some(name))? else { continue };
        sources.insert(row.try_get(0)?, name);
    }
    Ok(sources)
}

const WITHHOLD_EXPIRED: &str = include_str!("../sql/withhold_expired.sql");

/// Moves expired jobs out of the queues, so that they are not in the way.
async fn withhold_expired(tx: &Tx<'_>, sources: &Sources) -> Result<bool> {
    let types: Vec<i32> = sources.keys().copied().collect();
    Ok(tx.execute(WITHHOLD_EXPIRED, &[&tx.now.ms(), &types, &EXPIRED_MAX]).await? > 0)
}

const FRONTS: &str = include_str!("../sql/take_fronts.sql");

/// The fronts of the queues of these types, in the order in which jobs are handed out: rank, time,
/// tie, name, id.
async fn fronts(
    tx: &Tx<'_>,
    take: &Take,
    sources: &Sources,
    types: &HashMap<i32, Claimable>,
) -> Result<Vec<QueueKey>> {
    let is_limited = |id: &i32| types[id].room != u64::MAX || types[id].rate.is_some();
    let (limited, free): (Vec<i32>, Vec<i32>) = sources.keys().copied().partition(is_limited);
    let rank = take.priority.map(|priority| row::rank(priority, 0));
    let (lowest, highest) = (rank.unwrap_or(0), rank.unwrap_or(HIDDEN_RANK - 1));
    let bytes_max = i64::try_from(take.payload_bytes_max).unwrap_or(i64::MAX);
    let (each, now) = (i64::from(take.limit) + SPARE as i64, tx.now.ms());
    let mut fronts = Vec::new();
    // Of types without a limit, the first jobs of all together are enough.
    for (types, all) in [(free, Some(each)), (limited, None)] {
        if types.is_empty() {
            continue;
        }
        let values: [&(dyn ToSql + Sync); 9] =
            [&types, &lowest, &highest, &take.hidden, &bytes_max, &now, &LOOK_MAX, &each, &all];
        for row in tx.query(FRONTS, &values).await? {
            fronts.push(QueueKey {
                type_id: row.try_get(0)?,
                rank: row.try_get(1)?,
                run_at: Timestamp(row.try_get(2)?),
                tie: row.try_get(3)?,
                id: row.try_get(4)?,
            });
        }
    }
    let place = |key: &QueueKey| {
        (key.rank % HIDDEN_RANK, key.run_at, key.tie, &sources[&key.type_id], key.id)
    };
    fronts.sort_by(|one, other| place(one).cmp(&place(other)));
    Ok(fronts)
}

/// How many more jobs may be taken of each type that has jobs.
struct Rooms<'a> {
    types: &'a HashMap<i32, Claimable>,
    now: Timestamp,
    left: HashMap<i32, u64>,
}

impl<'a> Rooms<'a> {
    fn new(types: &'a HashMap<i32, Claimable>, now: Timestamp) -> Self {
        Rooms { types, now, left: HashMap::new() }
    }

    /// Whether another job of this type may be taken.
    fn take(&mut self, type_id: i32) -> bool {
        let of_type = &self.types[&type_id];
        let room = || match of_type.rate {
            Some(_) => of_type.room.min(of_type.starts_left(self.now).into()),
            None => of_type.room,
        };
        let left = self.left.entry(type_id).or_insert_with(room);
        let has_room = *left > 0;
        *left = left.saturating_sub(u64::from(*left != u64::MAX));
        has_room
    }

    fn is_any_used_up(&self) -> bool {
        self.left.values().any(|left| *left == 0)
    }
}
