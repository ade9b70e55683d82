//! Claims, leases and settlements.

use std::cmp::Reverse;

use crate::edit::MovedJobs;
use crate::id::{JobId, Sysid};
use crate::job::{Job, Lease, Priority, Progress, Token};
use crate::limit::LOG_ATTEMPTS_MAX;
use crate::log::Log;
use crate::retry::Verdict;
use crate::state::{self, Event, State as JobState};
use crate::store::{
    AttemptLog, Claim, ClaimAnswer, Claimed, Error, Hold, LeaseRef, Pick, Renew, SettleAnswer,
    Settled, Settlement,
};
use crate::time::Timestamp;

use super::edit::larger_token;
use super::{Row, State};

impl State {
    pub(super) fn job_claim(&mut self, claim: &Claim) -> Result<ClaimAnswer, Error> {
        let (owner, token) = (claim.owner, claim.token);
        let lease = match claim.hold {
            Hold::For(hold) => Lease { owner, token, expires_at: self.now + hold, on_beat: false },
            Hold::Beat(boot) => {
                Lease { owner, token, expires_at: self.beat_until(owner, boot)?, on_beat: true }
            }
        };
        let (mut claimed, mut before) = (Vec::<Claimed>::new(), Vec::new());
        let (mut bytes_left, mut rests) = (claim.payload_bytes_max, Vec::new());
        for pick in &claim.picks {
            let (ids, mut left) = self.picked(pick);
            let first = claimed.len();
            for id in ids {
                if bytes_left == 0 {
                    left += 1;
                    continue;
                }
                let row = self.jobs[&id].clone();
                if row.token_newest > Some(token) {
                    self.jobs.extend(before);
                    return Err(larger_token(id));
                }
                before.push((id, row));
                let taken = self.take(id, lease);
                bytes_left = bytes_left.saturating_sub(taken.payload.inline_len());
                claimed.push(taken);
            }
            claimed[first..].iter_mut().for_each(|claimed| claimed.left = left);
            let started = (claimed.len() - first) as u32;
            self.spend(&pick.key, started);
            rests.extend(self.rest(&pick.key, started).filter(|_| bytes_left > 0 || started > 0));
        }
        Ok(ClaimAnswer { jobs: claimed, rests })
    }

    pub(super) fn job_renew(&mut self, renew: Renew) -> Vec<LeaseRef> {
        let expires_at = renew.hold.map_or(Timestamp::NEVER, |hold| self.now + hold);
        let mut lost = Vec::new();
        for lease in renew.leases {
            match self.leased(&lease).and_then(|row| row.job.lease.as_mut()) {
                Some(held) => (held.expires_at, held.on_beat) = (expires_at, false),
                None => lost.push(lease),
            }
        }
        lost
    }

    pub(super) fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Vec<LeaseRef> {
        let mine = |job: &Job| {
            let lease = job.lease.filter(|lease| lease.owner == owner && lease.on_beat)?;
            Some(LeaseRef { tenant: job.key.tenant.clone(), id: job.id, token: lease.token })
        };
        let jobs = self.jobs.values().map(|row| &row.job);
        let behind = jobs.filter(|job| after.is_none_or(|after| job.id > after));
        behind.filter_map(mine).take(limit).collect()
    }

    pub(super) fn lease_claimed(&self, tokens: &[Token], limit: usize) -> Vec<LeaseRef> {
        let leases = self.jobs.values().filter_map(|row| LeaseRef::of(&row.job));
        leases.filter(|lease| tokens.contains(&lease.token)).take(limit).collect()
    }

    pub(super) fn job_settle(&mut self, settlements: &[Settlement]) -> SettleAnswer {
        let mut answer = SettleAnswer::default();
        for settlement in settlements {
            let settled = self.settle_one(settlement.clone(), &mut answer.moved);
            answer.settled.push(settled);
        }
        answer
    }

    fn settle_one(&mut self, settlement: Settlement, moved: &mut MovedJobs) -> Settled {
        let now = self.now;
        let Some(row) = self.leased(&settlement.lease) else { return Settled::Stale };
        let lease = row.job.lease.expect("a leased job");
        if settlement.only_if_expired && lease.expires_at > now {
            return Settled::Stale;
        }
        let well = settlement.ended_well();
        let mut adds = settlement.adds;
        if let Err((parent, unfit)) = self.begin_all(&mut adds) {
            return Settled::Unfit { parent, unfit };
        }
        adds.into_iter().for_each(|new| self.enter_split(new, moved));
        let row = self.leased(&settlement.lease).expect("a job that was just found");
        row.job.last = settlement.ended.or(row.job.last);
        row.result = settlement.data.or(row.result.take());
        row.progress = settlement.progress.or(row.progress.take());
        row.log(now, settlement.log);
        let (id, purge_at) = (row.job.id, now + settlement.keep);
        let key = row.job.key.clone();
        self.touch(&key);
        // It has not ended: the job that follows waits too.
        if well && self.waits_for_children(id) {
            return Settled::Paused;
        }
        let row = self.jobs.get_mut(&id).expect("a job that was just found");
        row.job.lease = None;
        match settlement.verdict {
            Verdict::End(ending) => {
                row.job.state = after(Event::End(ending));
                row.ended(now, purge_at);
                self.after_end(id, purge_at);
            }
            Verdict::Again { after } => row.again(Event::Again, now + after, now),
            Verdict::Repeat { run_at } => {
                row.again(Event::Again, run_at, now);
                row.job.due_at = run_at;
                row.job.attempt = 0;
            }
            Verdict::Release { after: pause } => {
                row.job.attempt -= 1;
                row.job.started_at = row.started_before;
                match pause {
                    Some(pause) => row.again(Event::Release, now + pause, now),
                    None => {
                        row.job.state = after(Event::Release);
                        row.requeue(now);
                        row.due = true;
                    }
                }
            }
        }
        if let Some(follow) = settlement.follow {
            self.enter_split(follow, moved);
        }
        Settled::Done
    }

    pub(super) fn job_progress(&mut self, lease: &LeaseRef, progress: Progress) -> Settled {
        let Some(row) = self.leased(lease) else { return Settled::Stale };
        row.progress = Some(progress);
        Settled::Done
    }

    pub(super) fn lease_expired(&self, limit: usize) -> Vec<Job> {
        let expiry = |job: &Job| job.lease.map(|lease| lease.expires_at);
        let jobs = self.jobs.values().map(|row| &row.job);
        let mut expired: Vec<Job> =
            jobs.filter(|job| expiry(job).is_some_and(|at| at <= self.now)).cloned().collect();
        expired.sort_by_key(expiry);
        expired.truncate(limit);
        expired
    }

    /// The jobs of a pick, in order, and how many are left.
    fn picked(&self, pick: &Pick) -> (Vec<JobId>, u64) {
        if self.types.get(&pick.key).is_none_or(|row| row.suspended) {
            return (Vec::new(), 0);
        }
        let ready = self.jobs.values().filter(|row| row.is_ready(self.now)).map(|row| &row.job);
        let mut due: Vec<&Job> = ready.filter(|job| job.key == pick.key).collect();
        due.sort_by_key(|job| (job.turn(), job.id));
        let under = |job: &&Job| pick.floor.is_some_and(|floor| job.priority <= floor);
        if let Some(first) = due.iter().position(under) {
            due[..=first].rotate_right(1);
        }
        let may_run = self.room(&pick.key).min(due.len() as u64);
        let may_start = u64::from(self.starts_left(&pick.key));
        let taken = may_run.min(u64::from(pick.limit)).min(may_start);
        (due.iter().map(|job| job.id).take(taken as usize).collect(), may_run - taken)
    }

    fn take(&mut self, id: JobId, lease: Lease) -> Claimed {
        let now = self.now;
        let row = self.jobs.get_mut(&id).expect("a job that was just found");
        row.token_newest = Some(lease.token);
        row.job.state =
            state::next(row.job.state, Event::Claim).expect("only queued jobs are picked");
        row.job.lease = Some(lease);
        row.job.attempt += 1;
        row.started_before = row.job.started_at.replace(now);
        row.job.extra.lent = false;
        row.progress = None;
        let (job, payload) = (row.job.clone(), row.payload.clone());
        let of_type = self.type_row(&job.key);
        of_type.claimed_at = of_type.claimed_at.max(Some(now));
        Claimed { job, payload, handler: of_type.in_force, left: 0 }
    }

    /// The running job of this lease.
    fn leased(&mut self, lease: &LeaseRef) -> Option<&mut Row> {
        self.row_mut(&lease.tenant, lease.id)
            .filter(|row| row.job.lease.is_some_and(|held| held.token == lease.token))
    }
}

fn after(event: Event) -> JobState {
    state::next(JobState::Running, event).expect("a running job may end or be queued again")
}

impl Row {
    fn again(&mut self, event: Event, run_at: Timestamp, now: Timestamp) {
        self.job.state = after(event);
        self.job.run_at = run_at;
        self.job.extra.retime();
        self.requeue(now);
    }

    /// Keeps the log of the current attempt, and of a bounded number before it.
    pub(super) fn log(&mut self, ended_at: Timestamp, log: Log) {
        if log.is_empty() {
            return;
        }
        self.logs.push(AttemptLog { attempt: self.job.attempt, ended_at, log });
        let surplus = self.logs.len().saturating_sub(LOG_ATTEMPTS_MAX as usize);
        self.logs.drain(..surplus);
    }

    pub(super) fn ended(&mut self, now: Timestamp, purge_at: Timestamp) {
        self.job.lease = None;
        self.job.extra.lent = false;
        self.job.finished_at = Some(now);
        self.purge_at = Some(purge_at);
    }
}

impl Job {
    /// Sort key: the smallest goes first.
    pub(super) fn turn(&self) -> (Reverse<Priority>, Timestamp, i64) {
        (Reverse(self.priority), self.run_at, self.extra.tie())
    }
}
