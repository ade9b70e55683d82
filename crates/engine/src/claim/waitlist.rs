//! Waitlist: workers that wait for jobs by name. When n jobs of a type become ready, the first n
//! workers that want the type are woken, and no others. How many wait does not matter; each type
//! that is announced is compared with the different patterns of its tenant, so these are bounded.
//!
//! Workers that want only one priority, small payloads, or hidden jobs too, wait in separate lines.
//! An announcement does not say what kind of job became ready, so the first of each line are woken.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use windlass_core::sync::lock;
use windlass_core::{Priority, Tenant, TypeKey, TypeName, glob};

use crate::claim::interest::{Interest, Pattern};
use crate::error::Error;

/// Different patterns that the workers of one tenant may wait for.
const GLOBS_MAX: usize = 1000;

/// Order of arrival: grows with every waiter.
type Ticket = u64;

/// The one priority that a worker wants, if it wants only one, the largest payload, and whether it
/// wants hidden jobs.
type Line = (Option<Priority>, u64, bool);

/// The waiters for one name, by line.
type Lines = BTreeMap<Line, BTreeSet<Ticket>>;

#[derive(Default)]
pub(crate) struct Waitlist(Mutex<Table>);

#[derive(Default)]
struct Table {
    tickets: Ticket,
    waiters: BTreeMap<Ticket, Waiter>,
    /// Waiters that can be woken. One that was woken and has not noticed it yet is not here.
    names: HashMap<TypeKey, Lines>,
    globs: HashMap<Tenant, HashMap<String, Glob>>,
    hidden: BTreeSet<Ticket>,
}

/// The waiters for one pattern.
struct Glob {
    pattern: glob::Pattern,
    lines: Lines,
}

struct Waiter {
    interest: Arc<Interest>,
    wake: Arc<Notify>,
    call: Option<Call>,
}

/// Why a waiter is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Ready(TypeKey),
    /// All waiters that may be concerned are woken.
    All,
}

impl Waitlist {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().waiters.is_empty()
    }

    /// Enters the end of the line, until the entry is dropped. A worker that enters before it looks
    /// misses no jobs: those that arrive meanwhile wake it.
    pub(crate) fn enter(&self, interest: Interest) -> Result<Entry<'_>, Error> {
        let mut table = self.table();
        if !table.has_room(&interest) {
            return Err(Error::Unavailable(format!(
                "the workers of this tenant may wait for {GLOBS_MAX} different patterns at once, \
                 and already do; use fewer, or names without wildcards"
            )));
        }
        table.tickets += 1;
        let (ticket, wake) = (table.tickets, Arc::new(Notify::new()));
        let interest = Arc::new(interest);
        let waiter = Waiter { interest: interest.clone(), wake: wake.clone(), call: None };
        table.waiters.insert(ticket, waiter);
        table.stand(ticket, &interest);
        Ok(Entry { waitlist: self, ticket, wake, pending: None })
    }

    /// This many jobs of these types became ready.
    pub(crate) fn wake<'a>(&self, ready: impl IntoIterator<Item = (&'a TypeKey, u64)>) {
        let mut table = self.table();
        for (key, jobs) in ready {
            if table.waiters.is_empty() {
                return;
            }
            table.wake(key, jobs);
        }
    }

    /// A hidden job may have come due, which a look at the store does not show: wakes all workers
    /// that want hidden jobs. They are few, because hidden jobs are for tests.
    pub(crate) fn wake_hidden(&self) {
        let mut table = self.table();
        let standing = table.hidden.clone();
        standing.into_iter().for_each(|ticket| table.call(ticket, Call::All));
    }

    /// Unspecified types of this tenant became ready: wakes all workers that wait for any of its
    /// types.
    pub(crate) fn wake_all_of(&self, tenant: &Tenant) {
        let mut table = self.table();
        let of_tenant = table.waiters.iter().filter(|(_, it)| it.interest.tenant == *tenant);
        let tickets: Vec<Ticket> = of_tenant.map(|(ticket, _)| *ticket).collect();
        tickets.into_iter().for_each(|ticket| table.call(ticket, Call::All));
    }
}

impl Table {
    fn wake(&mut self, key: &TypeKey, jobs: u64) {
        let globs = self.globs_of(key);
        let by_name = self.names.get(key).into_iter().flat_map(BTreeMap::keys);
        let by_glob = self.lines_of(key, &globs).flat_map(BTreeMap::keys);
        let lines: BTreeSet<Line> = by_name.chain(by_glob).copied().collect();
        lines.into_iter().for_each(|line| self.wake_line(key, line, jobs, &globs));
    }

    fn wake_line(&mut self, key: &TypeKey, line: Line, jobs: u64, globs: &[String]) {
        for _ in 0..jobs {
            let by_name = self.names.get(key).into_iter();
            let standing = by_name.chain(self.lines_of(key, globs));
            let standing = standing.filter_map(|lines| lines.get(&line)?.first());
            let Some(oldest) = standing.min().copied() else { return };
            self.call(oldest, Call::Ready(key.clone()));
        }
    }

    /// The wake-up of a waiter with this interest was not used: the next in line gets it.
    fn pass_on(&mut self, call: Option<Call>, interest: &Interest) {
        if let Some(Call::Ready(key)) = call {
            let globs = self.globs_of(&key);
            self.wake_line(&key, interest.line(), 1, &globs);
        }
    }

    /// The waiters for these patterns.
    fn lines_of(&self, key: &TypeKey, globs: &[String]) -> impl Iterator<Item = &Lines> {
        let of_tenant = self.globs.get(&key.tenant);
        globs.iter().filter_map(move |text| of_tenant?.get(text).map(|glob| &glob.lines))
    }

    /// The patterns that match this type.
    fn globs_of(&self, key: &TypeKey) -> Vec<String> {
        let of_tenant = self.globs.get(&key.tenant).into_iter().flatten();
        let matching = of_tenant.filter(|(_, glob)| glob.pattern.matches(key.name.as_str()));
        matching.map(|(text, _)| text.clone()).collect()
    }

    /// Whether the patterns of its tenant stay within their bound with this waiter.
    fn has_room(&self, interest: &Interest) -> bool {
        let of_tenant = self.globs.get(&interest.tenant);
        let is_new = |pattern: &&Pattern| match pattern {
            Pattern::Name(_) => false,
            Pattern::Glob(text) => of_tenant.is_none_or(|globs| !globs.contains_key(text)),
        };
        let new = interest.names.iter().filter(is_new).count();
        new == 0 || of_tenant.map_or(0, HashMap::len) + new <= GLOBS_MAX
    }

    fn call(&mut self, ticket: Ticket, call: Call) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        waiter.call = Some(call);
        waiter.wake.notify_one();
        let interest = waiter.interest.clone();
        self.leave(ticket, &interest);
    }

    fn stand(&mut self, ticket: Ticket, interest: &Interest) {
        for pattern in &interest.names {
            let lines = match pattern {
                Pattern::Name(name) => self.names.entry(interest.key(name)).or_default(),
                Pattern::Glob(text) => {
                    let of_tenant = self.globs.entry(interest.tenant.clone()).or_default();
                    let glob = of_tenant.entry(text.clone()).or_insert_with(|| Glob::new(text));
                    &mut glob.lines
                }
            };
            lines.entry(interest.line()).or_default().insert(ticket);
        }
        if interest.hidden {
            self.hidden.insert(ticket);
        }
    }

    fn leave(&mut self, ticket: Ticket, interest: &Interest) {
        for pattern in &interest.names {
            match pattern {
                Pattern::Name(name) => {
                    let key = interest.key(name);
                    if self.names.get_mut(&key).is_some_and(|lines| interest.leave(ticket, lines)) {
                        self.names.remove(&key);
                    }
                }
                Pattern::Glob(text) => {
                    let Some(of_tenant) = self.globs.get_mut(&interest.tenant) else { continue };
                    let glob = of_tenant.get_mut(text);
                    if glob.is_some_and(|glob| interest.leave(ticket, &mut glob.lines)) {
                        of_tenant.remove(text);
                    }
                    if of_tenant.is_empty() {
                        self.globs.remove(&interest.tenant);
                    }
                }
            }
        }
        self.hidden.remove(&ticket);
    }
}

impl Glob {
    fn new(text: &str) -> Glob {
        Glob { pattern: glob::Pattern::new(text), lines: Lines::new() }
    }
}

impl Interest {
    fn key(&self, name: &TypeName) -> TypeKey {
        TypeKey { tenant: self.tenant.clone(), name: name.clone() }
    }

    fn line(&self) -> Line {
        (self.priority, self.payload_bytes_max, self.hidden)
    }

    /// True when no waiters are left.
    fn leave(&self, ticket: Ticket, lines: &mut Lines) -> bool {
        if let Some(line) = lines.get_mut(&self.line()) {
            line.remove(&ticket);
            if line.is_empty() {
                lines.remove(&self.line());
            }
        }
        lines.is_empty()
    }
}

/// A worker's entry in the waitlist.
pub(crate) struct Entry<'a> {
    waitlist: &'a Waitlist,
    ticket: Ticket,
    wake: Arc<Notify>,
    /// Why it was woken, until a look has shown that there is nothing, or a job of that type.
    pending: Option<Call>,
}

impl Entry<'_> {
    /// Completes when jobs may be ready. The worker is back at its old place at once, so that jobs
    /// that arrive while it looks wake it again.
    pub(crate) async fn woken(&mut self) {
        while !self.answer() {
            self.wake.notified().await;
        }
    }

    fn answer(&mut self) -> bool {
        let mut table = self.waitlist.table();
        let Some(waiter) = table.waiters.get_mut(&self.ticket) else { return false };
        let Some(call) = waiter.call.take() else { return false };
        let interest = waiter.interest.clone();
        let before = self.pending.replace(call);
        // Before it stands in line again: it looks in any case.
        table.pass_on(before, &interest);
        table.stand(self.ticket, &interest);
        true
    }

    /// The worker has looked. Its wake-up is used up if it found nothing at all, or jobs of that
    /// type; otherwise another worker may want those jobs.
    pub(crate) fn checked(&mut self, done: impl FnOnce(&TypeKey) -> bool) {
        if !matches!(&self.pending, Some(Call::Ready(key)) if !done(key)) {
            self.pending = None;
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut table = self.waitlist.table();
        let Some(waiter) = table.waiters.remove(&self.ticket) else { return };
        table.leave(self.ticket, &waiter.interest);
        for call in [self.pending.take(), waiter.call] {
            table.pass_on(call, &waiter.interest);
        }
    }
}

#[cfg(test)]
mod tests;
