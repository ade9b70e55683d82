//! The unread records: chunks in the order of their ids, and the tickets that reserve some of them
//! for a while. A chunk is either waiting or reserved by one ticket, never both, and always has a
//! record above the floor.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use windlass_core::{JobId, Timestamp};

use crate::chunk::{Chunk, Size};

/// Maximum size of the chunks kept in memory.
const CACHE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Overhead of a chunk in memory.
const CACHE_OVERHEAD_BYTES: usize = 256;

/// The right to read some records and to commit them, for a limited time if one was set.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    first: JobId,
    last: JobId,
    records: u64,
}

impl Ticket {
    /// Oldest id in it.
    pub fn first(&self) -> JobId {
        self.first
    }

    /// Newest id in it.
    pub fn last(&self) -> JobId {
        self.last
    }

    pub fn records(&self) -> u64 {
        self.records
    }
}

#[derive(Default)]
pub(crate) struct Unread {
    waiting: VecDeque<Chunk>,
    held: BTreeMap<u64, Held>,
    tickets: u64,
    cached_bytes: usize,
    records: u64,
    bytes: u64,
    /// The store has everything up to this; for readers it is no longer in the journal.
    pub(crate) floor: Option<JobId>,
    /// Nothing is handed out while the files are read again.
    paused: bool,
}

/// Chunks that a ticket reserves.
struct Held {
    chunks: Vec<Chunk>,
    expires_at: Option<Timestamp>,
}

/// Remaining memory for chunks.
pub(crate) struct CacheRoom(usize);

impl CacheRoom {
    /// Takes the memory for a chunk of this size, if there is enough.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes + CACHE_OVERHEAD_BYTES);
        left.map(|left| self.0 = left).is_some()
    }
}

impl Unread {
    /// Records that are not committed.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest record that is not committed.
    pub(crate) fn oldest(&self) -> Option<JobId> {
        let held = self.held.values().filter_map(|held| held.chunks.first());
        self.waiting.front().into_iter().chain(held).map(|chunk| chunk.first).min()
    }

    /// The newest record that is not committed.
    pub(crate) fn newest_id(&self) -> Option<JobId> {
        let held = self.held.values().filter_map(|held| held.chunks.last());
        self.waiting.back().into_iter().chain(held).map(|chunk| chunk.last).max()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.paused && !self.waiting.is_empty()
    }

    /// The remaining memory for chunks; a chunk counts when it is pushed.
    pub(crate) fn cache_room(&self) -> CacheRoom {
        CacheRoom(CACHE_BYTES_MAX.saturating_sub(self.cached_bytes))
    }

    /// Adds a chunk that is newer than all others.
    pub(crate) fn push(&mut self, chunk: Chunk, bytes: &[u8]) {
        self.records += u64::from(chunk.records);
        self.bytes += chunk.bytes as u64;
        self.cached_bytes += cache_cost(&chunk);
        // While paused, no chunk may mix records that are read again with newer ones.
        let joined = !self.paused
            && self.waiting.back_mut().is_some_and(|newest| newest.join(&chunk, bytes));
        if !joined {
            self.waiting.push_back(chunk);
        }
    }

    /// Takes the oldest waiting chunks that fit, at least one record. `load` reads the bytes of a
    /// chunk that must be split; one that cannot be read is handed out whole, so that its reader
    /// gets the error.
    pub(crate) fn reserve(
        &mut self,
        bounds: Size,
        expires_at: Option<Timestamp>,
        load: impl Fn(&Chunk) -> Option<Bytes>,
    ) -> Option<Ticket> {
        if self.paused {
            return None;
        }
        let mut chunks = Vec::new();
        let mut taken = Size::default();
        while let Some(chunk) = self.waiting.pop_front() {
            let together = taken.with(chunk.size());
            if together.is_within(bounds) {
                taken = together;
                chunks.push(chunk);
                continue;
            }
            if !chunks.is_empty() {
                self.waiting.push_front(chunk);
            } else if let Some((head, tail)) = load(&chunk).and_then(|bytes| {
                chunk.split(&bytes, |size, _| size.records == 1 || size.is_within(bounds))
            }) {
                self.cached_bytes -= cache_cost(&chunk);
                self.cached_bytes += cache_cost(&head) + cache_cost(&tail);
                self.waiting.push_front(tail);
                chunks.push(head);
            } else {
                chunks.push(chunk);
            }
            break;
        }
        self.hold(chunks, expires_at)
    }

    fn hold(&mut self, chunks: Vec<Chunk>, expires_at: Option<Timestamp>) -> Option<Ticket> {
        let (first, last) = (chunks.first()?.first, chunks.last()?.last);
        let records = chunks.iter().map(|chunk| u64::from(chunk.records)).sum();
        self.tickets += 1;
        self.held.insert(self.tickets, Held { chunks, expires_at });
        Some(Ticket { number: self.tickets, first, last, records })
    }

    /// The chunks of a ticket that is not void.
    pub(crate) fn chunks(&self, ticket: &Ticket) -> Option<Vec<Chunk>> {
        self.held.get(&ticket.number).map(|held| held.chunks.clone())
    }

    /// Forgets the records of a ticket; false if it is void.
    pub(crate) fn commit(&mut self, ticket: &Ticket) -> bool {
        let Some(held) = self.held.remove(&ticket.number) else { return false };
        for chunk in &held.chunks {
            self.forget(chunk);
        }
        true
    }

    /// Makes the records of a ticket wait again; false if they already do.
    pub(crate) fn give_back(&mut self, ticket: &Ticket) -> bool {
        let held = self.held.remove(&ticket.number);
        held.map(|held| self.wait_again(held.chunks)).is_some()
    }

    /// Makes the records of outdated tickets wait again.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let is_over = |held: &Held| held.expires_at.is_some_and(|at| at <= now);
        let outdated = self.held.extract_if(.., |_, held| is_over(held));
        let outdated: Vec<Held> = outdated.map(|(_, held)| held).collect();
        for held in outdated {
            self.wait_again(held.chunks);
        }
    }

    /// When the first of the current tickets expires.
    pub(crate) fn expires_next_at(&self) -> Option<Timestamp> {
        self.held.values().filter_map(|held| held.expires_at).min()
    }

    /// Raises the floor: forgets every record up to `position`, waiting or reserved. A ticket that
    /// contains nothing else is void. `load` is as for `reserve`.
    pub(crate) fn commit_until(&mut self, position: JobId, load: impl Fn(&Chunk) -> Option<Bytes>) {
        self.floor = self.floor.max(Some(position));
        while let Some(chunk) = self.waiting.pop_front_if(|chunk| chunk.first <= position) {
            if let Some(rest) = self.rest_behind(position, chunk, &load) {
                self.waiting.push_front(rest);
                break;
            }
        }
        for (number, held) in std::mem::take(&mut self.held) {
            let rest = |chunk| self.rest_behind(position, chunk, &load);
            let chunks: Vec<Chunk> = held.chunks.into_iter().filter_map(rest).collect();
            if !chunks.is_empty() {
                self.held.insert(number, Held { chunks, ..held });
            }
        }
    }

    /// The rest of a chunk after `position`. One that cannot be loaded stays whole; reading it
    /// returns nothing below the floor.
    fn rest_behind(
        &mut self,
        position: JobId,
        chunk: Chunk,
        load: impl Fn(&Chunk) -> Option<Bytes>,
    ) -> Option<Chunk> {
        if chunk.first > position {
            return Some(chunk);
        }
        if chunk.last <= position {
            self.forget(&chunk);
            return None;
        }
        let split = load(&chunk).and_then(|bytes| chunk.split(&bytes, |_, id| id <= position));
        let Some((head, tail)) = split else { return Some(chunk) };
        self.cached_bytes -= cache_cost(&chunk);
        self.cached_bytes += cache_cost(&head) + cache_cost(&tail);
        self.forget(&head);
        Some(tail)
    }

    /// Voids all tickets and allows no new ones until `resume`.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
        for (_, held) in std::mem::take(&mut self.held) {
            self.wait_again(held.chunks);
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn resume(&mut self) {
        self.paused = false;
    }

    /// Replaces every chunk with records up to `newest` by `found`.
    pub(crate) fn replace_until(&mut self, newest: Option<JobId>, found: Unread) {
        let newer = self.waiting.partition_point(|chunk| Some(chunk.first) <= newest);
        let newer = self.waiting.split_off(newer);
        for chunk in std::mem::replace(&mut self.waiting, found.waiting) {
            self.forget(&chunk);
        }
        self.waiting.extend(newer);
        self.records += found.records;
        self.bytes += found.bytes;
        self.cached_bytes += found.cached_bytes;
    }

    /// The chunk that may have this record, waiting or reserved.
    pub(crate) fn find(&self, id: JobId) -> Option<&Chunk> {
        let has = |chunk: &&Chunk| chunk.first <= id && id <= chunk.last;
        let at = self.waiting.partition_point(|chunk| chunk.last < id);
        let held = || self.held.values().flat_map(|held| &held.chunks).find(has);
        self.waiting.get(at).filter(has).or_else(held)
    }

    /// Chunks with records below `before`, waiting or reserved, newest first, at most `chunks_max`.
    pub(crate) fn newest(&self, before: Option<JobId>, chunks_max: usize) -> Vec<Chunk> {
        let below = |chunk: &&Chunk| before.is_none_or(|before| chunk.first < before);
        let waiting = self.waiting.iter().rev().filter(below).take(chunks_max);
        let held = self.held.values().flat_map(|held| &held.chunks).filter(below);
        let mut newest: Vec<Chunk> = waiting.chain(held).cloned().collect();
        newest.sort_by_key(|chunk| std::cmp::Reverse(chunk.first));
        newest.truncate(chunks_max);
        newest
    }

    fn wait_again(&mut self, chunks: Vec<Chunk>) {
        for chunk in chunks.into_iter().rev() {
            let at = self.waiting.partition_point(|waiting| waiting.first < chunk.first);
            self.waiting.insert(at, chunk);
        }
    }

    fn forget(&mut self, chunk: &Chunk) {
        self.records -= u64::from(chunk.records);
        self.bytes -= chunk.bytes as u64;
        self.cached_bytes -= cache_cost(chunk);
    }
}

fn cache_cost(chunk: &Chunk) -> usize {
    chunk.in_memory().map_or(0, |bytes| bytes.len() + CACHE_OVERHEAD_BYTES)
}
