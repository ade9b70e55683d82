//! Histories as stories: each step takes two milliseconds, twice the slack of the terms. Everything
//! happens in the tenant `a`; contexts and workers are named `daemon/name`.

use std::collections::HashMap;

use crate::check::{Checker, Report, Terms};
use crate::history::{
    Add, Answer, Began, Claimed, Ended, Event, FaultKind, Form, JobId, Operation, Origin, Outcome,
    Record, Seen, State, Target, Token,
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const STEP_MS: u64 = 2;
pub(super) const LEASE_MS: u64 = 1000;
/// Of workers.
pub(super) const PULL_LEASE_MS: u64 = 500;
pub(super) const NONE: [&str; 0] = [];

pub(super) struct Story {
    pub(super) terms: Terms,
    records: Vec<Record>,
    now: u64,
    op: u64,
    fault: u64,
    /// The newest attempt of each job, as it is listed.
    attempts: HashMap<JobId, u32>,
}

pub(super) fn plain() -> Form {
    Form { payload_bytes: 10, ..Form::default() }
}

pub(super) fn done() -> Answer {
    Answer::Done(Outcome::Nothing)
}

pub(super) fn refused() -> Answer {
    Answer::Refused { status: 409 }
}

pub(super) fn unknown() -> Answer {
    Answer::Unknown { why: "connection lost".into() }
}

pub(super) fn ids(jobs: &[u64]) -> Answer {
    Answer::Done(Outcome::Ids(jobs.iter().copied().map(JobId).collect()))
}

pub(super) fn cancel(job: u64) -> Operation {
    Operation::Cancel { tenant: "a".into(), job: JobId(job) }
}

pub(super) fn retry(job: u64) -> Operation {
    Operation::Retry { tenant: "a".into(), job: JobId(job) }
}

pub(super) fn delete(job: u64) -> Operation {
    Operation::Delete { tenant: "a".into(), job: JobId(job) }
}

pub(super) fn finish(job: u64, token: u64, status: u16) -> Operation {
    let (tenant, data) = ("a".into(), Some(format!("result {token}")));
    Operation::Finish { tenant, job: JobId(job), token: Token(token), status, data }
}

pub(super) fn release(job: u64, token: u64) -> Operation {
    Operation::Release { tenant: "a".into(), job: JobId(job), token: Token(token) }
}

pub(super) fn renew(job: u64, token: u64) -> Operation {
    let lease_ns = PULL_LEASE_MS * MS;
    Operation::Renew { tenant: "a".into(), job: JobId(job), token: Token(token), lease_ns }
}

pub(super) fn limits(concurrency: Option<u32>, rate: Option<f64>) -> Operation {
    Operation::SetLimits { tenant: "a".into(), type_name: "t".into(), concurrency, rate }
}

/// An add to the type `t`. Its mark is `mark`.
pub(super) fn add(mark: u64, count: u32, key: Option<&str>, form: Form) -> Operation {
    let (tenant, type_name) = ("a".into(), "t".into());
    let idempotency_key = key.map(Into::into);
    let bedrock = false;
    Operation::Add(Box::new(Add { tenant, type_name, count, mark, idempotency_key, bedrock, form }))
}

impl Story {
    pub(super) fn new() -> Story {
        let terms = Terms {
            lease_ns: LEASE_MS * MS,
            slack_ns: MS,
            claim_ahead_ns: 100 * MS,
            attempt_timeout_ns: 60_000 * MS,
            ..Terms::default()
        };
        Story { terms, records: Vec::new(), now: 0, op: 0, fault: 0, attempts: HashMap::new() }
    }

    pub(super) fn wait(&mut self, ms: u64) -> &mut Story {
        self.now += ms * MS;
        self
    }

    pub(super) fn event(&mut self, event: Event) -> &mut Story {
        match &event {
            Event::Began(began) => drop(self.attempts.insert(began.job, began.attempt)),
            Event::Answered { answer: Answer::Done(Outcome::Jobs(jobs)), .. } => {
                self.attempts.extend(jobs.iter().map(|claimed| (claimed.job, claimed.attempt)));
            }
            _ => {}
        }
        let line = self.records.len() as u32 + 1;
        self.records.push(Record { at: self.now, source: 0, line, event });
        self.wait(STEP_MS)
    }

    /// Sends a request to daemon `d1` and leaves it open; returns its number.
    pub(super) fn send(&mut self, who: &str, what: Operation) -> u64 {
        self.op += 1;
        let (op, via) = (self.op, Some("d1".into()));
        self.event(Event::Sent { op, who: who.into(), via, what });
        op
    }

    pub(super) fn answer(&mut self, op: u64, answer: Answer) -> &mut Story {
        self.event(Event::Answered { op, answer })
    }

    pub(super) fn request(&mut self, what: Operation, answer: Answer) -> &mut Story {
        let op = self.send("client", what);
        self.answer(op, answer)
    }

    /// A plain job of the type `t`, whose mark is its id.
    pub(super) fn add(&mut self, job: u64) -> &mut Story {
        self.add_as(job, plain())
    }

    pub(super) fn add_as(&mut self, job: u64, form: Form) -> &mut Story {
        self.request(add(job, 1, None, form), ids(&[job]))
    }

    pub(super) fn claim(&mut self, worker: &str, job: u64, token: u64) -> &mut Story {
        self.claim_attempt(worker, job, token, 1)
    }

    pub(super) fn claim_attempt(
        &mut self,
        worker: &str,
        job: u64,
        token: u64,
        attempt: u32,
    ) -> &mut Story {
        let op = self.send(worker, claim_of(&["t"]));
        let claimed = Claimed { attempt, ..claimed(job, "t", token) };
        self.answer(op, Answer::Done(Outcome::Jobs(vec![claimed])))
    }

    pub(super) fn finish(&mut self, job: u64, token: u64, status: u16) -> &mut Story {
        self.request(finish(job, token, status), done())
    }

    pub(super) fn began(&mut self, context: &str, job: u64, attempt: u32) -> &mut Story {
        self.event(Event::Began(Began { attempt, ..began(context, job) }))
    }

    pub(super) fn ended(&mut self, context: &str, job: u64, status: u16) -> &mut Story {
        self.ended_with(context, job, status, 0)
    }

    pub(super) fn ended_with(
        &mut self,
        context: &str,
        job: u64,
        status: u16,
        emitted: u32,
    ) -> &mut Story {
        self.ended_as(Ended { emitted, ..ended(context, job, status) })
    }

    pub(super) fn ended_as(&mut self, ended: Ended) -> &mut Story {
        self.event(Event::Ended(ended))
    }

    pub(super) fn run(&mut self, context: &str, job: u64, attempt: u32, status: u16) -> &mut Story {
        self.began(context, job, attempt).ended(context, job, status)
    }

    /// A fault of the daemon, for some time.
    pub(super) fn fault(&mut self, kind: FaultKind, daemon: &str, ms: u64) -> &mut Story {
        self.fault_on(kind, Target::Daemon(daemon.into()), ms)
    }

    pub(super) fn fault_on(&mut self, kind: FaultKind, target: Target, ms: u64) -> &mut Story {
        self.fault += 1;
        let fault = self.fault;
        self.event(Event::FaultBegan { fault, kind, target }).wait(ms);
        self.event(Event::FaultEnded { fault })
    }

    /// What happens while a fault is under way.
    pub(super) fn during(
        &mut self,
        kind: FaultKind,
        target: Target,
        what: impl FnOnce(&mut Story),
    ) -> &mut Story {
        self.fault += 1;
        let fault = self.fault;
        what(self.event(Event::FaultBegan { fault, kind, target }));
        self.event(Event::FaultEnded { fault })
    }

    pub(super) fn seen(&mut self, job: u64, state: State) -> &mut Story {
        let attempts = self.attempts.get(&JobId(job)).copied().unwrap_or(0);
        self.seen_as(Seen { state, attempts, ..seen(job) })
    }

    pub(super) fn seen_from(&mut self, job: u64, state: State, origin: Origin) -> &mut Story {
        self.seen_as(Seen { state, origin: Some(origin), ..seen(job) })
    }

    pub(super) fn seen_as(&mut self, seen: Seen) -> &mut Story {
        self.event(Event::Seen(seen))
    }

    pub(super) fn counted(&mut self, state: State, count: u64) -> &mut Story {
        let (tenant, type_name) = ("a".into(), "t".into());
        self.event(Event::Counted { tenant, type_name, state, count })
    }

    /// The verdict, after all of tenant `a` has been listed.
    pub(super) fn report(&mut self) -> Report {
        self.event(Event::Listed { tenant: "a".into() });
        self.report_unlisted()
    }

    pub(super) fn report_unlisted(&mut self) -> Report {
        let mut checker = Checker::new(self.terms.clone());
        self.records.drain(..).for_each(|record| checker.record(record));
        checker.finish()
    }

    /// The names of the rules that are broken.
    pub(super) fn broken(&mut self) -> Vec<&'static str> {
        let report = self.report();
        println!("{report}");
        report.totals.into_iter().map(|(rule, _)| rule).collect()
    }
}

pub(super) fn began(context: &str, job: u64) -> Began {
    Began {
        job: JobId(job),
        tenant: "a".into(),
        type_name: "t".into(),
        attempt: 1,
        daemon: context.split('/').next().unwrap().to_owned(),
        context: context.into(),
        token: None,
        origin: None,
    }
}

pub(super) fn ended(context: &str, job: u64, status: u16) -> Ended {
    let context = context.into();
    Ended { job: JobId(job), context, status, emitted: 0, children: 0, data: None }
}

pub(super) fn claim_of(types: &[&str]) -> Operation {
    let types = types.iter().map(ToString::to_string).collect();
    Operation::Claim { tenant: "a".into(), types, limit: 10, lease_ns: PULL_LEASE_MS * MS }
}

pub(super) fn claimed(job: u64, type_name: &str, token: u64) -> Claimed {
    Claimed {
        job: JobId(job),
        type_name: type_name.into(),
        attempt: 1,
        token: Some(Token(token)),
        lease_ns: None,
        resumed: false,
        origin: None,
    }
}

pub(super) fn seen(job: u64) -> Seen {
    Seen {
        job: JobId(job),
        tenant: "a".into(),
        type_name: "t".into(),
        state: State::Finished,
        attempts: 1,
        status: None,
        parent: None,
        result: None,
        origin: None,
    }
}
