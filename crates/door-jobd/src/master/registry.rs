//! The registered workers, their targets, and the pokes that wait for a worker. Pure: generic over
//! the type of a worker's connection.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::wanted::{Scope, Wanted};

#[derive(Debug)]
pub(crate) struct Worker<P> {
    /// Of its connection.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) port: u16,
    /// `None` if it named no targets; it is then polled and signalled for all.
    pub(crate) targets: Option<Vec<String>>,
    pub(crate) peer: P,
}

/// A worker and the targets of the request to it.
pub(crate) type WorkerRequest<P> = (Arc<Worker<P>>, Scope);

/// A poll to send; it must be settled when it has been answered or has failed.
#[derive(Debug)]
pub(crate) struct Poll<P> {
    pub(crate) worker: Arc<Worker<P>>,
    pub(crate) scope: Scope,
    pub(crate) ticket: u64,
}

#[derive(Debug)]
pub(crate) struct Registry<P> {
    /// In the order of registration.
    workers: Vec<Arc<Worker<P>>>,
    /// Workers that have received the answer to their registration. Others may not listen yet, so
    /// polls for them are kept until they do.
    ready: HashSet<u64>,
    remembered: Wanted,
    /// Polls that may still fail, by ticket. Workers that register meanwhile get them, too: one may
    /// be the same worker, whose lost connection has not been detected yet.
    unanswered: HashMap<u64, Scope>,
    last_ticket: u64,
}

impl<P> Registry<P> {
    pub(crate) fn new() -> Self {
        Self {
            workers: Vec::new(),
            ready: HashSet::new(),
            remembered: Wanted::default(),
            unanswered: HashMap::new(),
            last_ticket: 0,
        }
    }

    pub(crate) fn workers(&self) -> &[Arc<Worker<P>>] {
        &self.workers
    }

    /// Registers a worker, or replaces its registration. True the first time.
    pub(crate) fn register(&mut self, mut worker: Worker<P>) -> bool {
        if let Some(targets) = &mut worker.targets {
            drop_repeated(targets);
        }
        let worker = Arc::new(worker);
        let known = self.workers.iter_mut().find(|known| known.id == worker.id);
        let is_new = known.is_none();
        match known {
            Some(known) => *known = worker,
            None => self.workers.push(worker),
        }
        is_new
    }

    /// The worker has received its answer. Returns the targets to poll now,
    /// which were poked while no worker served them.
    pub(crate) fn set_ready(&mut self, id: u64) -> Option<Poll<P>> {
        let worker = self.workers.iter().find(|worker| worker.id == id).cloned()?;
        self.ready.insert(id);
        let scope = self.take_remembered(&worker)?;
        Some(self.issue((worker, scope)))
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Worker<P>>> {
        self.ready.remove(&id);
        let position = self.workers.iter().position(|worker| worker.id == id)?;
        Some(self.workers.remove(position))
    }

    /// The polls to send. Targets without a worker that is known to listen are remembered.
    pub(crate) fn poke(&mut self, wanted: &Wanted) -> Vec<Poll<P>> {
        if wanted.is_everything() {
            self.remembered.add_everything();
        }
        let ready = || self.workers.iter().filter(|worker| self.ready.contains(&worker.id));
        let named: HashSet<&str> =
            ready().flat_map(|worker| worker.names()).map(String::as_str).collect();
        for name in wanted.names().filter(|name| !named.contains(name)) {
            self.remembered.add(name);
        }
        let errand = |worker: &Arc<Worker<P>>| {
            let scope = match &worker.targets {
                Some(targets) => wanted.part(targets)?,
                None => Scope::Everything,
            };
            Some((Arc::clone(worker), scope))
        };
        let errands: Vec<WorkerRequest<P>> = ready().filter_map(errand).collect();
        errands.into_iter().map(|errand| self.issue(errand)).collect()
    }

    /// Remembers a failed poll for the next worker that serves the target.
    pub(crate) fn settle(&mut self, ticket: u64, got_through: bool) {
        let scope = self.unanswered.remove(&ticket);
        if let Some(scope) = scope.filter(|_| !got_through) {
            self.remembered.add_scope(&scope);
        }
    }

    /// The workers for a request about these targets, or about all.
    pub(crate) fn share(&self, targets: Option<&[String]>) -> Vec<WorkerRequest<P>> {
        let Some(asked) = targets else {
            let all = self.workers.iter().map(|worker| (Arc::clone(worker), Scope::Everything));
            return all.collect();
        };
        let wanted: HashSet<&String> = asked.iter().collect();
        let errand = |worker: &Arc<Worker<P>>| {
            let part: Vec<String> = match &worker.targets {
                Some(targets) => {
                    targets.iter().filter(|name| wanted.contains(name)).cloned().collect()
                }
                None => asked.to_vec(),
            };
            (!part.is_empty()).then(|| (Arc::clone(worker), Scope::Only(part)))
        };
        self.workers.iter().filter_map(errand).collect()
    }

    /// All workers that may hold a job of this target.
    pub(crate) fn serving(&self, target: &str) -> Vec<Arc<Worker<P>>> {
        self.filter(|worker| worker.targets.is_none() || worker.serves(target))
    }

    /// The workers that can be asked to run a job of this target. A worker without named targets is
    /// not asked: it may not serve this one, and the client waits without a time limit.
    pub(crate) fn runners(&self, target: &str) -> Vec<Arc<Worker<P>>> {
        self.filter(|worker| worker.serves(target))
    }

    fn filter(&self, fits: impl Fn(&Worker<P>) -> bool) -> Vec<Arc<Worker<P>>> {
        self.workers.iter().filter(|worker| fits(worker)).cloned().collect()
    }

    fn issue(&mut self, (worker, scope): WorkerRequest<P>) -> Poll<P> {
        self.last_ticket += 1;
        self.unanswered.insert(self.last_ticket, scope.clone());
        Poll { worker, scope, ticket: self.last_ticket }
    }

    fn take_remembered(&mut self, worker: &Worker<P>) -> Option<Scope> {
        let mut wanted: Wanted = self.unanswered.values().collect();
        let Some(targets) = &worker.targets else {
            // The targets of such a worker are unknown, so everything stays remembered for others.
            let is_owed = !self.remembered.is_empty() || !wanted.is_empty();
            return is_owed.then_some(Scope::Everything);
        };
        if let Some(remembered) = self.remembered.part(targets) {
            // The full set has no single names to remove, so it stays for workers that register
            // later.
            targets.iter().for_each(|target| self.remembered.remove(target));
            wanted.add_scope(&remembered);
        }
        wanted.part(targets)
    }
}

impl<P> Worker<P> {
    fn names(&self) -> &[String] {
        self.targets.as_deref().unwrap_or_default()
    }

    fn serves(&self, target: &str) -> bool {
        self.names().iter().any(|name| name == target)
    }
}

/// Keeps the first of each name.
fn drop_repeated(names: &mut Vec<String>) {
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// Worker 1 serves a, worker 2 serves a and b.
    pub(crate) fn registry() -> Registry<()> {
        let mut registry = Registry::new();
        for (id, targets) in [(1, vec!["a"]), (2, vec!["a", "b"])] {
            let targets = Some(targets.into_iter().map(str::to_owned).collect());
            let (name, address) = (format!("w{id}"), "127.0.0.1".to_owned());
            registry.register(Worker { id, name, address, port: 1, targets, peer: () });
        }
        registry
    }

    /// The only worker names no targets.
    pub(crate) fn registry_without_targets() -> Registry<()> {
        let mut registry = Registry::new();
        let (name, address) = ("w".to_owned(), "127.0.0.1".to_owned());
        registry.register(Worker { id: 1, name, address, port: 1, targets: None, peer: () });
        registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn wanted(list: &[&str]) -> Wanted {
        list.iter().copied().collect()
    }

    fn worker(id: u64, targets: Option<&[&str]>) -> Worker<()> {
        Worker {
            id,
            name: format!("w{id}"),
            address: "127.0.0.1".to_owned(),
            port: 1,
            targets: targets.map(names),
            peer: (),
        }
    }

    /// Workers 1, 2, ... with these targets.
    fn registry(workers: &[Option<&[&str]>]) -> Registry<()> {
        let mut registry = Registry::new();
        for (id, targets) in (1..).zip(workers) {
            assert!(enter(&mut registry, id, *targets).is_none());
        }
        registry
    }

    /// Registers a worker and returns its first poll.
    fn enter(registry: &mut Registry<()>, id: u64, targets: Option<&[&str]>) -> Option<Scope> {
        registry.register(worker(id, targets));
        let poll = registry.set_ready(id)?;
        registry.settle(poll.ticket, true);
        Some(poll.scope)
    }

    /// Pokes and returns which workers are polled for which targets, if all answer.
    fn poke(registry: &mut Registry<()>, list: &[&str]) -> Vec<(u64, Scope)> {
        let polls = registry.poke(&wanted(list));
        polls.iter().for_each(|poll| registry.settle(poll.ticket, true));
        polls.into_iter().map(|poll| (poll.worker.id, poll.scope)).collect()
    }

    fn seen(errands: Vec<WorkerRequest<()>>) -> Vec<(u64, Scope)> {
        errands.into_iter().map(|(worker, scope)| (worker.id, scope)).collect()
    }

    fn ids(workers: &[Arc<Worker<()>>]) -> Vec<u64> {
        workers.iter().map(|worker| worker.id).collect()
    }

    fn only(list: &[&str]) -> Scope {
        Scope::Only(names(list))
    }

    #[test]
    fn a_poke_goes_to_every_worker_with_its_own_targets() {
        let mut registry = registry(&[Some(&["a", "b"]), Some(&["b", "c"]), Some(&["d"])]);
        let errands = poke(&mut registry, &["c", "b"]);
        assert_eq!(errands, [(1, only(&["b"])), (2, only(&["b", "c"]))]);
        assert!(registry.remembered.is_empty());
    }

    #[test]
    fn a_poke_that_nobody_serves_waits_for_the_worker_that_does() {
        let mut registry = registry(&[Some(&["a"])]);
        assert_eq!(poke(&mut registry, &["a", "b", "c"]), [(1, only(&["a"]))]);
        assert_eq!(enter(&mut registry, 2, Some(&["d"])), None);
        assert_eq!(enter(&mut registry, 3, Some(&["x", "b"])), Some(only(&["b"])));
        assert_eq!(enter(&mut registry, 4, Some(&["b"])), None, "it was told once");
        assert_eq!(enter(&mut registry, 5, Some(&["c"])), Some(only(&["c"])));
    }

    #[test]
    fn a_worker_is_not_polled_before_it_knows_that_it_is_registered() {
        let mut registry = registry(&[]);
        assert!(registry.register(worker(1, Some(&["a"]))));
        assert!(!registry.register(worker(1, Some(&["a"]))));
        assert!(poke(&mut registry, &["a"]).is_empty());
        let poll = registry.set_ready(1).unwrap();
        assert_eq!((poll.worker.id, poll.scope), (1, only(&["a"])));
        assert!(registry.set_ready(2).is_none());
    }

    #[test]
    fn a_second_registration_replaces_the_first_in_its_place() {
        let mut registry = registry(&[Some(&["a"]), Some(&["b"])]);
        poke(&mut registry, &["late"]);
        let scope = enter(&mut registry, 1, Some(&["a", "late", "a"]));
        assert_eq!(scope, Some(only(&["late"])));
        assert_eq!(ids(registry.workers()), [1, 2]);
        assert_eq!(registry.workers()[0].targets, Some(names(&["a", "late"])));
    }

    #[test]
    fn a_lost_worker_is_no_longer_asked() {
        let mut registry = registry(&[Some(&["a"]), Some(&["b"])]);
        assert_eq!(registry.remove(1).map(|worker| worker.id), Some(1));
        assert!(registry.remove(1).is_none());
        assert!(registry.serving("a").is_empty());
        assert!(poke(&mut registry, &["a"]).is_empty());
    }

    #[test]
    fn a_poll_that_did_not_get_through_is_told_to_the_next() {
        let mut registry = registry(&[Some(&["a"])]);
        let polls = registry.poke(&wanted(&["a"]));
        registry.settle(polls[0].ticket, false);
        assert_eq!(enter(&mut registry, 2, Some(&["b", "a"])), Some(only(&["a"])));
        assert_eq!(enter(&mut registry, 3, Some(&["a"])), None);
    }

    #[test]
    fn a_poll_that_may_still_fail_is_told_to_everybody_who_comes() {
        let mut registry = registry(&[Some(&["a"])]);
        poke(&mut registry, &["late"]);
        let polls = registry.poke(&wanted(&["a"]));
        assert_eq!(enter(&mut registry, 2, Some(&["late", "a"])), Some(only(&["late", "a"])));
        assert_eq!(enter(&mut registry, 3, Some(&["a"])), Some(only(&["a"])));
        assert_eq!(enter(&mut registry, 4, None), Some(Scope::Everything));
        assert_eq!(enter(&mut registry, 5, Some(&["b"])), None);
        registry.settle(polls[0].ticket, true);
        assert_eq!(enter(&mut registry, 6, Some(&["a"])), None);
    }

    #[test]
    fn a_worker_that_names_nothing_is_polled_for_everything_and_nothing_is_forgotten() {
        let mut registry = registry(&[None]);
        assert_eq!(poke(&mut registry, &["a"]), [(1, Scope::Everything)]);
        assert_eq!(enter(&mut registry, 2, None), Some(Scope::Everything));
        assert_eq!(enter(&mut registry, 3, Some(&["a"])), Some(only(&["a"])));
        assert_eq!(enter(&mut registry, 4, None), None);
    }

    #[test]
    fn too_many_unserved_targets_poll_every_worker_that_comes() {
        let mut registry = registry(&[]);
        let mut flood = Wanted::default();
        flood.add_everything();
        assert!(registry.poke(&flood).is_empty());
        for id in 1..3 {
            assert_eq!(enter(&mut registry, id, Some(&["a"])), Some(Scope::Everything));
        }
    }

    #[test]
    fn a_request_is_shared_with_those_whom_it_concerns() {
        let registry = registry(&[Some(&["a", "b"]), Some(&["c"]), None]);
        let all = seen(registry.share(None));
        assert_eq!(all, [1, 2, 3].map(|id| (id, Scope::Everything)));
        let some = seen(registry.share(Some(&names(&["x", "b"]))));
        assert_eq!(some, [(1, only(&["b"])), (3, only(&["x", "b"]))]);
    }

    #[test]
    fn a_job_is_run_only_by_workers_that_name_its_target() {
        let registry = registry(&[Some(&["a"]), None, Some(&["a", "b"])]);
        assert_eq!(ids(&registry.runners("a")), [1, 3]);
        assert!(registry.runners("z").is_empty());
        assert_eq!(ids(&registry.serving("z")), [2], "but it may be asked for a signal");
        assert_eq!(ids(&registry.serving("b")), [2, 3]);
        assert!(Registry::<()>::new().runners("a").is_empty());
    }
}
