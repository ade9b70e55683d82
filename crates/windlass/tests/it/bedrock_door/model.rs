//! Random commands over Bedrock against a small model of the contract: every reply and every state
//! agree, and no parent waits without a living child.

use std::collections::BTreeMap;

use crate::harness::{Door, JobId, Random};

const SEEDS: [u64; 3] = [11, 22, 33];
const STEPS: usize = 250;
const PENDING: [&str; 4] = ["QUEUED", "RUNQUEUED", "RUNNING", "PAUSED"];
const ENDED: [&str; 2] = ["FINISHED", "CANCELLED"];
const TAKEN: [&str; 2] = ["RUNNING", "RUNQUEUED"];
const OK: &str = "200 OK";
const NO_JOB: &str = "404 No job found";

#[derive(Debug, Clone)]
struct Job {
    state: &'static str,
    parent: Option<JobId>,
    repeats: bool,
    lent: bool,
    count: u32,
}

/// What the contract says about all jobs; each reply is the expected first line.
#[derive(Debug, Clone, Default)]
struct Model {
    jobs: BTreeMap<JobId, Job>,
}

impl Model {
    fn children(&self, parent: JobId) -> impl Iterator<Item = (JobId, &Job)> {
        let own = move |(_, job): &(&JobId, &Job)| job.parent == Some(parent);
        self.jobs.iter().filter(own).map(|(id, job)| (*id, job))
    }

    fn set(&mut self, id: JobId, state: &'static str) {
        self.jobs.get_mut(&id).unwrap().state = state;
    }

    fn child_line(&self, parent: JobId) -> &'static str {
        let parent = &self.jobs[&parent];
        if !["RUNNING", "RUNQUEUED", "PAUSED"].contains(&parent.state) {
            return "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED";
        }
        if parent.parent.is_some() { "405 Cannot create grandchildren" } else { OK }
    }

    fn create(&mut self, id: JobId, parent: Option<JobId>, repeats: bool, lent: bool) {
        let waits = parent.is_some_and(|parent| TAKEN.contains(&self.jobs[&parent].state));
        let state = if waits { "PAUSED" } else { "QUEUED" };
        self.jobs.insert(id, Job { state, parent, repeats, lent, count: 0 });
    }

    /// The first line, and whether the job is handed out.
    fn get(&mut self, id: JobId) -> (&'static str, bool) {
        let job = self.jobs.get_mut(&id).unwrap();
        // A lent job waits for an hour; a repeat here is in the past.
        let due = job.state == "QUEUED" || (job.state == "RUNQUEUED" && job.repeats);
        if !due {
            return (NO_JOB, false);
        }
        if job.lent && job.count >= 10 {
            job.state = "FAILED";
            return (OK, false);
        }
        job.state = if job.lent { "RUNQUEUED" } else { "RUNNING" };
        job.count += u32::from(job.lent);
        (OK, true)
    }

    fn end(&mut self, id: JobId, finish: bool) -> &'static str {
        let job = self.jobs[&id].clone();
        if !TAKEN.contains(&job.state) {
            return "405 Can only retry/finish RUNNING and RUNQUEUED jobs";
        }
        let parent = job.parent.filter(|parent| self.jobs.contains_key(parent));
        if parent.is_some_and(|parent| self.jobs[&parent].state != "PAUSED") {
            return "405 Can only retry/finish child job when parent is PAUSED";
        }
        let before = self.clone();
        self.jobs.retain(|_, child| child.parent != Some(id) || !ENDED.contains(&child.state));
        self.jobs.get_mut(&id).unwrap().count = 0;
        if finish && self.children(id).any(|(_, child)| PENDING.contains(&child.state)) {
            self.set(id, "PAUSED");
            for child in self.jobs.values_mut() {
                if child.parent == Some(id) && child.state == "PAUSED" {
                    child.state = "QUEUED";
                }
            }
            return OK;
        }
        if !finish || job.repeats {
            self.set(id, "QUEUED");
            return OK;
        }
        if let Some(parent) = parent {
            self.set(id, "FINISHED");
            if !self.children(parent).any(|(_, child)| PENDING.contains(&child.state)) {
                self.set(parent, "QUEUED");
            }
            return OK;
        }
        if self.children(id).next().is_some() {
            *self = before;
            return "405 Failed to delete a job with outstanding children";
        }
        self.jobs.remove(&id);
        OK
    }

    fn fail(&mut self, id: JobId) -> &'static str {
        if !TAKEN.contains(&self.jobs[&id].state) {
            return "405 Can only fail RUNNING or RUNQUEUED jobs";
        }
        self.set(id, "FAILED");
        OK
    }

    fn cancel(&mut self, id: JobId) -> &'static str {
        if self.children(id).next().is_some() {
            return "404 Invalid jobID - Cannot cancel a job with children";
        }
        let Some(parent) = self.jobs[&id].parent else {
            return "404 Invalid jobID - Cannot cancel a job without a parent";
        };
        if ["RUNNING", "FINISHED", "PAUSED"].contains(&self.jobs[&id].state) {
            return OK;
        }
        self.set(id, "CANCELLED");
        let active = |(_, child): (JobId, &Job)| PENDING[..3].contains(&child.state);
        if self.jobs[&parent].state == "PAUSED" && !self.children(parent).any(active) {
            self.set(parent, "QUEUED");
        }
        OK
    }

    fn delete(&mut self, id: JobId) -> &'static str {
        match self.jobs[&id].state {
            "RUNNING" => return "405 Can't delete a RUNNING job",
            "PAUSED" => return "405 Can't delete a parent jobs with children running",
            _ => {}
        }
        let parent = self.jobs.remove(&id).unwrap().parent;
        let waits = |id: &JobId| self.jobs.get(id).is_some_and(|job| job.state == "PAUSED");
        let alone = |id: &JobId| self.children(*id).all(|(_, job)| ENDED.contains(&job.state));
        if let Some(parent) = parent.filter(waits).filter(alone) {
            self.set(parent, "QUEUED");
        }
        OK
    }

    #[track_caller]
    fn assert_no_parent_waits_in_vain(&self) {
        for (id, job) in &self.jobs {
            let vain = self.children(*id).all(|(_, child)| ENDED.contains(&child.state));
            assert!(job.parent.is_some() || job.state != "PAUSED" || !vain, "{id} in {self:?}");
        }
    }
}

fn states(door: &Door) -> BTreeMap<JobId, String> {
    let rows = door.sql("SELECT jobID, state FROM jobs;");
    let pair = |row: &serde_json::Value| {
        (row["jobID"].as_i64().unwrap(), row["state"].as_str().unwrap().to_owned())
    };
    rows.iter().map(pair).collect()
}

/// One random command to the door and to the model; returns the command and both first lines.
fn step(door: &Door, model: &mut Model, random: &mut Random) -> (String, String, &'static str) {
    let ids: Vec<JobId> = model.jobs.keys().copied().collect();
    if ids.is_empty() || (ids.len() < 12 && random.below(4) == 0) {
        return create(door, model, random, &ids);
    }
    let id = ids[random.below(ids.len() as u64) as usize];
    let name = name_of(door, id);
    let (verb, wanted) = match random.below(12) {
        0..=3 => {
            let (wanted, given) = model.get(id);
            let reply = door.call("GetJob", &[("name", &name)]);
            assert_eq!(reply.text().contains("jobID"), given, "{}", reply.text());
            return (format!("GetJob {id}"), reply.line, wanted);
        }
        4..=6 => ("FinishJob", model.end(id, true)),
        7 => ("RetryJob", model.end(id, false)),
        8 => ("FailJob", model.fail(id)),
        9 => ("CancelJob", cancel_or_orphan(model, id)),
        10 => ("DeleteJob", model.delete(id)),
        _ => {
            model.set(id, "QUEUED");
            let reply = door.call("RequeueJobs", &[("jobIDs", &id.to_string())]);
            return (format!("RequeueJobs {id}"), reply.line, OK);
        }
    };
    if wanted.is_empty() {
        return (format!("nothing for {id}"), String::new(), "");
    }
    (format!("{verb} {id}"), door.about(verb, id).line, wanted)
}

/// The contract does not define cancelling a child whose parent is gone.
fn cancel_or_orphan(model: &mut Model, id: JobId) -> &'static str {
    let parent = model.jobs[&id].parent;
    if parent.is_some_and(|parent| !model.jobs.contains_key(&parent)) {
        return "";
    }
    model.cancel(id)
}

fn create(
    door: &Door,
    model: &mut Model,
    random: &mut Random,
    ids: &[JobId],
) -> (String, String, &'static str) {
    let child = !ids.is_empty() && random.below(3) > 0;
    let parent = child.then(|| ids[random.below(ids.len() as u64) as usize]);
    let (repeats, lent) = (random.below(4) == 0, random.below(3) == 0);
    let wanted = parent.map_or(OK, |parent| model.child_line(parent));
    let name = format!("j{}", random.next());
    let parent_id = parent.unwrap_or(0).to_string();
    let mut headers =
        vec![("name", name.as_str()), ("firstRun", "2024-01-01"), ("parentJobID", &parent_id)];
    if repeats {
        headers.push(("repeat", "FINISHED, -1 DAY"));
    }
    if lent {
        headers.push(("retryAfter", "+1 HOUR"));
    }
    let reply = door.call("CreateJob", &headers);
    if reply.line == OK && wanted == OK {
        let id = reply.json()["jobID"].as_i64().unwrap();
        model.create(id, parent, repeats, lent);
    }
    (format!("CreateJob {headers:?}"), reply.line, wanted)
}

fn name_of(door: &Door, id: JobId) -> String {
    door.row(id)["name"].as_str().unwrap().to_owned()
}

#[test]
fn random_commands_do_what_the_contract_says_and_no_parent_waits_in_vain() {
    for seed in SEEDS {
        let door = Door::embedded();
        let (mut model, mut random) = (Model::default(), Random::new(seed));
        let mut story = Vec::new();
        for _ in 0..STEPS {
            let (what, line, wanted) = step(&door, &mut model, &mut random);
            story.push(format!("{what}: {line}"));
            assert_eq!(line, wanted, "seed {seed}: {story:#?}");
            let expected: BTreeMap<JobId, String> =
                model.jobs.iter().map(|(id, job)| (*id, job.state.to_owned())).collect();
            assert_eq!(states(&door), expected, "seed {seed}: {story:#?}");
            model.assert_no_parent_waits_in_vain();
        }
    }
}
