//! A client: makes the next operation, and learns from the answers which jobs there are.

use std::collections::{BTreeSet, VecDeque};

use fastrand::Rng;

use crate::history::{Add, Answer, Flaw, Form, JobId, Operation, Outcome};

use super::form::{Around, for_bedrock, form};
use super::known::Jobs;
use super::mix::{Feature, Mix, Served};
use super::{MARKS_PER_CLIENT, generator};

/// Adds with an idempotency key that may be sent again.
const KEYED_MAX: usize = 16;
/// Keys that all clients share; most of their adds differ and are refused.
const SHARED_KEYS: u32 = 4;
/// Adds of repeating jobs by one client: they never end by themselves.
const REPEATS_MAX: usize = 16;
/// Adds of very many jobs by one client.
const GLUTS_MAX: u32 = 2;
/// The first clients add so many jobs at once, of a type with these consumers, when it gets calm.
const CALM_GLUTS: [Served; 2] = [Served::Pull, Served::Handler];
/// And each client adds a job of a pull worker that repeats so.
const CALM_REPEAT: &str = "FINISHED, +1 SECONDS";

/// The operations of one client.
pub struct Workload {
    pub(super) mix: Mix,
    pub(super) rng: Rng,
    number: u32,
    /// It leaves types alone.
    calm: bool,
    mark: u64,
    key_prefix: String,
    pub(super) jobs: Jobs,
    keyed: VecDeque<Add>,
    repeats_sent: usize,
    gluts_sent: u32,
    repeats: Vec<(String, JobId)>,
    /// Tenant and type by index, of what this client may have left suspended, limited or without
    /// its handler.
    pub(super) suspended: BTreeSet<(usize, usize)>,
    pub(super) limited: BTreeSet<(usize, usize)>,
    pub(super) changed: BTreeSet<(usize, usize)>,
    pub(super) version: u32,
}

impl Workload {
    /// Client number `client` of the run with this seed.
    pub fn new(seed: u64, client: u32, mix: Mix) -> Workload {
        Workload {
            mix,
            rng: generator(seed, "client", u64::from(client)),
            number: client,
            calm: false,
            mark: u64::from(client) * MARKS_PER_CLIENT,
            key_prefix: format!("client-{client}"),
            jobs: Jobs::default(),
            keyed: VecDeque::new(),
            repeats_sent: 0,
            gluts_sent: 0,
            repeats: Vec::new(),
            suspended: BTreeSet::new(),
            limited: BTreeSet::new(),
            changed: BTreeSet::new(),
            version: 0,
        }
    }

    pub fn next_operation(&mut self) -> Operation {
        let calm = self.calm;
        let feature = self.mix.draw(&mut self.rng, |feature| !(calm && feature.is_of_type()));
        let place = self.place();
        match feature {
            Feature::Glut if self.gluts_sent < GLUTS_MAX => self.glut(place),
            Feature::Emit => self.add(feature, self.handled(place).unwrap_or(place)),
            feature if feature.is_of_add() => self.add(feature, place),
            Feature::BedrockChange => self.change_over_bedrock(place),
            Feature::Suspend => self.suspend_or_resume(place),
            Feature::Handler => self.change_handler(place),
            Feature::Concurrency | Feature::Rate => self.limit(feature, place),
            Feature::Invalid => {
                let flaw = Flaw::ALL[self.rng.usize(..Flaw::ALL.len())];
                let (tenant, type_name) = self.names(place);
                Operation::Invalid { tenant, type_name, flaw }
            }
            _ => self.of_job(feature).unwrap_or_else(|| self.add(Feature::Plain, place)),
        }
    }

    /// Learns from an answer.
    pub fn answered(&mut self, operation: &Operation, answer: &Answer) {
        let Answer::Done(outcome) = answer else { return };
        match (operation, outcome) {
            (Operation::Add(add), Outcome::Ids(ids)) => {
                let Some(tenant) = self.tenant_index(&add.tenant) else { return };
                ids.iter().for_each(|id| self.jobs.open.add((tenant, *id)));
                if add.form.repeat.is_some() {
                    let room = REPEATS_MAX.saturating_sub(self.repeats.len());
                    let repeats = ids.iter().take(room).map(|id| (add.tenant.clone(), *id));
                    self.repeats.extend(repeats);
                }
            }
            (Operation::Cancel { tenant, job }, _) => drop(self.ended(tenant, *job)),
            (Operation::Delete { job, .. } | Operation::DeleteJob { job, .. }, _) => {
                self.jobs.gone(*job);
            }
            _ => {}
        }
    }

    /// A worker has this job now, so it can be a parent.
    pub fn held(&mut self, tenant: &str, job: JobId) {
        if let Some(tenant) = self.tenant_index(tenant) {
            self.jobs.held.add((tenant, job));
        }
    }

    /// This job has ended, so it can be retried or deleted.
    /// Returns whether that is news.
    pub fn ended(&mut self, tenant: &str, job: JobId) -> bool {
        self.tenant_index(tenant).is_some_and(|tenant| self.jobs.ended((tenant, job)))
    }

    /// It gets calm: no type is changed until `go_on`. What puts all types back, a job that
    /// repeats, and so many jobs of one type that a consumer which does not share its time shows.
    pub fn settle_down(&mut self) -> Vec<Operation> {
        self.calm = true;
        let mut operations = self.types_back();
        if let Some(place) = self.served_place(Served::Pull) {
            let repeat = Some(CALM_REPEAT.into());
            let form = Form { payload_bytes: 1, repeat, ..Form::default() };
            operations.push(Operation::Add(Box::new(self.plain_add(place, 1, form))));
        }
        let glutted = CALM_GLUTS.get(self.number as usize);
        let place = glutted.and_then(|served| self.served_place(*served));
        operations.extend(place.map(|place| self.glut(place)));
        operations
    }

    /// The first type with these consumers, of any tenant.
    fn served_place(&mut self, served: Served) -> Option<(usize, usize)> {
        let of = self.mix.types.iter().position(|of| of.served == served)?;
        Some((self.rng.usize(..self.mix.tenants.len()), of))
    }

    pub fn go_on(&mut self) {
        self.calm = false;
    }

    /// What puts everything back at the end, so that a run can be drained: resumes types, lifts
    /// limits, sets handlers, cancels jobs that repeat.
    pub fn closing(&mut self) -> Vec<Operation> {
        let mut operations = self.types_back();
        let repeats = std::mem::take(&mut self.repeats).into_iter();
        operations.extend(repeats.map(|(tenant, job)| Operation::Cancel { tenant, job }));
        operations
    }

    fn types_back(&mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for place in std::mem::take(&mut self.suspended) {
            let (tenant, type_name) = self.names(place);
            operations.push(Operation::Resume { tenant, type_name });
        }
        for place in std::mem::take(&mut self.limited) {
            let (tenant, type_name) = self.names(place);
            let (concurrency, rate) = (None, None);
            operations.push(Operation::SetLimits { tenant, type_name, concurrency, rate });
        }
        for place in std::mem::take(&mut self.changed) {
            operations.push(self.set_handler(place));
        }
        operations
    }

    /// Jobs that it remembers, of all kinds.
    pub fn known_jobs(&self) -> usize {
        self.jobs.open.len() + self.jobs.held.len() + self.jobs.ended.len()
    }

    pub(super) fn add(&mut self, feature: Feature, place: (usize, usize)) -> Operation {
        if feature == Feature::Idempotent && self.rng.bool() && !self.keyed.is_empty() {
            let again = self.keyed[self.rng.usize(..self.keyed.len())].clone();
            return Operation::Add(Box::new(again));
        }
        let mut features = vec![feature];
        if self.rng.u8(..4) == 0 {
            features.push(self.mix.draw(&mut self.rng, Feature::is_of_add));
        }
        let around = Around {
            mix: &self.mix,
            place,
            parent: self.jobs.held.any_of(place.0, &mut self.rng),
            may_repeat: self.repeats_sent < REPEATS_MAX,
        };
        let mut form = form(&mut self.rng, &features, &around);
        let bedrock = features.contains(&Feature::Bedrock) && place.0 < self.mix.bedrock_tenants;
        if bedrock {
            for_bedrock(&mut self.rng, &mut form);
        }
        self.repeats_sent += usize::from(form.repeat.is_some());
        let several = features.contains(&Feature::Lines) && form.repeat.is_none();
        let count = if several { self.rng.u32(2..=self.mix.count_max.max(2)) } else { 1 };
        let keyed = features.contains(&Feature::Idempotent) && !bedrock;
        let idempotency_key = keyed.then(|| self.key());
        let mut add = Add { idempotency_key, bedrock, ..self.plain_add(place, count, form) };
        if several {
            // Lines cannot be empty, and many large ones are not what this is about.
            add.form.payload_bytes = add.form.payload_bytes.clamp(1, 1024);
        }
        if add.idempotency_key.is_some() {
            if self.keyed.len() == KEYED_MAX {
                self.keyed.pop_front();
            }
            self.keyed.push_back(add.clone());
        }
        Operation::Add(Box::new(add))
    }

    fn plain_add(&mut self, place: (usize, usize), count: u32, form: Form) -> Add {
        self.mark += 1;
        let (tenant, type_name) = self.names(place);
        let (mark, idempotency_key, bedrock) = (self.mark, None, false);
        Add { tenant, type_name, count, mark, idempotency_key, bedrock, form }
    }

    /// So many jobs of one type that the others have to wait if it goes by the order of adds.
    fn glut(&mut self, place: (usize, usize)) -> Operation {
        self.gluts_sent += 1;
        let form = Form { payload_bytes: 1, ..Form::default() };
        let count = self.mix.glut_count;
        Operation::Add(Box::new(self.plain_add(place, count, form)))
    }

    fn key(&mut self) -> String {
        match self.rng.u8(..8) {
            0 => format!("shared-{}", self.rng.u32(..SHARED_KEYS)),
            _ => format!("{}-{}", self.key_prefix, self.mark),
        }
    }

    /// Cancel, retry or delete, of a job that this client knows.
    fn of_job(&mut self, feature: Feature) -> Option<Operation> {
        let (open, ended) = (&self.jobs.open, &self.jobs.ended);
        // Sometimes of one in the wrong state, which is refused.
        let prefer_ended = (feature != Feature::Cancel) ^ (self.rng.u8(..8) == 0);
        let (first, second) = if prefer_ended { (ended, open) } else { (open, ended) };
        let job = first.any(&mut self.rng).or_else(|| second.any(&mut self.rng));
        let (tenant, job) = job?;
        let tenant = self.mix.tenants[tenant].clone();
        Some(match feature {
            Feature::Cancel => Operation::Cancel { tenant, job },
            Feature::Retry => Operation::Retry { tenant, job },
            _ => Operation::Delete { tenant, job },
        })
    }

    /// A tenant and a type, by index.
    fn place(&mut self) -> (usize, usize) {
        let tenant = self.rng.usize(..self.mix.tenants.len());
        let of = self.rng.usize(..self.mix.types.len());
        let served = self.mix.is_served(tenant, of);
        (if served { tenant } else { tenant % self.mix.bedrock_tenants.max(1) }, of)
    }

    pub(super) fn names(&self, (tenant, of): (usize, usize)) -> (String, String) {
        (self.mix.tenants[tenant].clone(), self.mix.types[of].name.clone())
    }

    fn tenant_index(&self, name: &str) -> Option<usize> {
        self.mix.tenants.iter().position(|tenant| tenant == name)
    }
}
