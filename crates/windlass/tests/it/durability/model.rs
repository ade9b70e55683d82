//! Random requests with a fixed seed, compared with the simplest model of what jobs must look like.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Random, Tenant, text};

const SEEDS: [u64; 3] = [1, 2, 3];
const STEPS: usize = 250;
const ATTEMPTS: u64 = 3;
const TYPES: [&str; 2] = ["t", "u"];

/// What the contract says about one job.
#[derive(Debug, Clone, PartialEq)]
struct Expected {
    kind: &'static str,
    state: &'static str,
    attempt: u64,
    /// Waits for a retry that is an hour away.
    deferred: bool,
    token: Option<Value>,
    payload: String,
}

struct Model {
    daemon: Daemon,
    random: Random,
    jobs: BTreeMap<String, Expected>,
    /// Tokens that are no longer valid, with their jobs.
    stale: Vec<(String, Value)>,
    suspended: [bool; 2],
}

#[test]
fn random_requests_and_restarts_keep_every_job_as_the_contract_says() {
    for seed in SEEDS {
        let config = Config::new()
            .set("retry.delay", "\"1h\"")
            .set("retry.attempts", &ATTEMPTS.to_string())
            .set("lease.duration", "\"1s\"");
        let mut model = Model {
            daemon: Daemon::start(config),
            random: Random::new(seed),
            jobs: BTreeMap::new(),
            stale: Vec::new(),
            suspended: [false; 2],
        };
        for step in 0..STEPS {
            model.step();
            if step % 10 == 0 {
                model.compare(seed, step);
            }
        }
        model.compare(seed, STEPS);
    }
}

impl Model {
    fn tenant(&self) -> Tenant {
        self.daemon.tenant("a")
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.add(),
            25..45 => self.claim(),
            45..65 => self.finish(),
            65..70 => self.use_stale(),
            70..75 => self.release(),
            75..80 => self.cancel(),
            80..85 => self.retry(),
            85..90 => self.delete(),
            90..96 => self.suspend(),
            96..98 => self.crash(),
            _ => self.stop(),
        }
    }

    fn add(&mut self) {
        let kind = TYPES[self.random.below(2) as usize];
        let count = 1 + self.random.below(3);
        let payloads: Vec<String> =
            (0..count).map(|_| format!("payload {}", self.random.next())).collect();
        for (id, payload) in self.tenant().add(kind, &payloads).into_iter().zip(payloads) {
            let job = Expected {
                kind,
                state: "queued",
                attempt: 0,
                deferred: false,
                token: None,
                payload,
            };
            assert!(self.jobs.insert(id, job).is_none(), "an id came twice");
        }
    }

    /// Whatever is handed out must be due, in order, and not suspended. That everything is handed
    /// out eventually is tested elsewhere: ingest may be in progress.
    fn claim(&mut self) {
        let kind = TYPES[self.random.below(2) as usize];
        let limit = 1 + self.random.below(3) as usize;
        let claimed = self.tenant().claim(kind, limit, "600s");
        assert!(claimed.len() <= limit);
        let mut last = (String::new(), String::new());
        for job in claimed {
            let id = text(&job["id"]);
            let expected = self.jobs.get_mut(&id).unwrap_or_else(|| panic!("{id} is unknown"));
            let due = expected.state == "queued" && !expected.deferred && expected.kind == kind;
            assert!(due, "{id} was claimed but is {expected:?}");
            let index = TYPES.iter().position(|name| *name == kind).expect("a known type");
            assert!(!self.suspended[index], "{id} was claimed but {kind} is suspended");
            let place = (text(&job["run_at"]), id.clone());
            assert!(last < place, "what is due the longest comes first, then the oldest");
            expected.state = "running";
            expected.attempt += 1;
            expected.token = Some(job["token"].clone());
            assert_eq!(job["payload"], expected.payload.as_str());
            assert_eq!(job["attempt"], expected.attempt);
            last = place;
        }
    }

    fn finish(&mut self) {
        let Some(id) = self.pick(|job| job.state == "running") else { return };
        let status = [200, 200, 299, 400, 100, 500][self.random.below(6) as usize];
        let job = self.jobs.get_mut(&id).expect("a picked job is known");
        let token = job.token.take().expect("a running job has a token");
        let body = json!({"token": token, "status": status});
        self.stale.push((id.clone(), token));
        (job.state, job.deferred) = match status / 100 {
            2 => ("finished", false),
            4 => ("failed", false),
            _ if job.attempt >= ATTEMPTS => ("failed", false),
            _ => ("queued", true),
        };
        self.tenant().post_json(&format!("jobs/{id}/finish"), &body).expect(200);
    }

    /// Prefers the old token of a job that runs again to one of an idle job.
    fn use_stale(&mut self) {
        let runs = |id: &String| self.jobs.get(id).is_some_and(|job| job.state == "running");
        let mut old: Vec<&(String, Value)> = self.stale.iter().filter(|(id, _)| runs(id)).collect();
        if old.is_empty() {
            old = self.stale.iter().collect();
        }
        if old.is_empty() {
            return;
        }
        let (id, token) = old[self.random.below(old.len() as u64) as usize].clone();
        let status = if self.jobs.contains_key(&id) { 409 } else { 404 };
        let (verb, body) = match self.random.below(3) {
            0 => ("finish", json!({"token": token, "status": 200})),
            1 => ("release", json!({"token": token})),
            _ => ("renew", json!({"token": token, "lease": "60s"})),
        };
        self.tenant().post_json(&format!("jobs/{id}/{verb}"), &body).expect(status);
    }

    fn release(&mut self) {
        let Some(id) = self.pick(|job| job.state == "running") else { return };
        let job = self.jobs.get_mut(&id).expect("a picked job is known");
        let token = job.token.take().expect("a running job has a token");
        (job.state, job.attempt) = ("queued", job.attempt - 1);
        self.stale.push((id.clone(), token.clone()));
        let body = json!({"token": token});
        self.tenant().post_json(&format!("jobs/{id}/release"), &body).expect(200);
    }

    fn cancel(&mut self) {
        let Some(id) = self.pick(|_| true) else { return };
        let job = self.jobs.get_mut(&id).expect("a picked job is known");
        let open = matches!(job.state, "queued" | "running");
        if open {
            (job.state, job.deferred) = ("cancelled", false);
            self.stale.extend(job.token.take().map(|token| (id.clone(), token)));
        }
        let status = if open { 200 } else { 409 };
        self.tenant().post(&format!("jobs/{id}/cancel")).expect(status);
    }

    fn retry(&mut self) {
        let Some(id) = self.pick(|_| true) else { return };
        let job = self.jobs.get_mut(&id).expect("a picked job is known");
        let ended = matches!(job.state, "finished" | "failed" | "cancelled");
        if ended {
            (job.state, job.attempt, job.deferred) = ("queued", 0, false);
        }
        let status = if ended { 200 } else { 409 };
        self.tenant().post(&format!("jobs/{id}/retry")).expect(status);
    }

    fn delete(&mut self) {
        let Some(id) = self.pick(|_| true) else { return };
        let running = self.jobs[&id].state == "running";
        let answer = self.daemon.delete(&self.tenant().path(&format!("jobs/{id}")));
        if running {
            answer.expect(409);
        } else {
            assert_eq!(answer.status / 100, 2, "{}", answer.text());
            self.jobs.remove(&id);
        }
    }

    fn suspend(&mut self) {
        let index = self.random.below(2) as usize;
        self.suspended[index] = !self.suspended[index];
        let verb = if self.suspended[index] { "suspend" } else { "resume" };
        let answer = self.tenant().post(&format!("types/{}/{verb}", TYPES[index]));
        assert_eq!(answer.status / 100, 2, "{}", answer.text());
    }

    fn crash(&mut self) {
        self.daemon.kill9();
        self.daemon.restart();
    }

    fn stop(&mut self) {
        assert!(self.daemon.terminate().success());
        self.daemon.restart();
    }

    /// Everything that the daemon shows agrees with the model.
    fn compare(&self, seed: u64, step: usize) {
        let tenant = self.tenant();
        let listed = tenant.list("");
        let mut shown: BTreeMap<String, (String, String, u64)> = BTreeMap::new();
        for job in &listed {
            let attempt = job["attempt"].as_u64().expect("an attempt is a number");
            shown.insert(text(&job["id"]), (text(&job["type"]), text(&job["state"]), attempt));
        }
        let wanted: BTreeMap<String, (String, String, u64)> = self
            .jobs
            .iter()
            .map(|(id, job)| (id.clone(), (job.kind.into(), job.state.into(), job.attempt)))
            .collect();
        assert_eq!(listed.len(), shown.len(), "no job is listed twice");
        assert_eq!(shown, wanted, "seed {seed}, step {step}");
        for (id, (_, state, _)) in &shown {
            assert_eq!(&text(&tenant.job(id)["state"]), state, "{id}: seed {seed}, step {step}");
        }
    }

    fn pick(&mut self, wanted: impl Fn(&Expected) -> bool) -> Option<String> {
        let ids: Vec<&String> =
            self.jobs.iter().filter(|(_, job)| wanted(job)).map(|(id, _)| id).collect();
        if ids.is_empty() {
            return None;
        }
        let index = self.random.below(ids.len() as u64) as usize;
        Some(ids[index].clone())
    }
}
