//! What a request changes in the ledger, now that its answer is known.

use crate::history::{Add, Answer, Claimed, JobId, Operation, Outcome, Token};

use super::Span;
use super::account::{AddAccount, Door, End, Hold, How, Limits, Moment};
use super::fold::{Folding, Request};

/// The part of a claim that all of its jobs share.
struct Claim<'a> {
    request: &'a Request,
    answered: Moment,
    tenant: &'a str,
    types: &'a [String],
    door: Door,
    lease_ns: Option<u64>,
}

impl Folding {
    pub(super) fn answered(&mut self, request: Request, at: Option<Moment>, answer: Answer) {
        let span = request.span(at, &answer);
        match &request.what {
            Operation::Add(add) => self.added(&request, add, span, answer),
            Operation::Claim { tenant, types, lease_ns, .. } => {
                let lease_ns = Some(*lease_ns);
                let door = Door::Pull;
                self.claim(&request, tenant, types, (door, lease_ns), at, answer);
            }
            Operation::GetJob { tenant, types } | Operation::GetJobs { tenant, types, .. } => {
                self.claim(&request, tenant, types, (Door::Bedrock, None), at, answer);
            }
            Operation::Retry { job, .. } => {
                self.account(*job).reruns.extend(span);
            }
            Operation::RequeueJobs { jobs, .. } => {
                jobs.iter().for_each(|job| self.account(*job).reruns.extend(span));
            }
            Operation::Delete { job, .. } | Operation::DeleteJob { job, .. } => {
                self.account(*job).deletes.extend(span);
            }
            Operation::Renew { job, token, lease_ns, .. } => {
                let until = request.sent.at.saturating_add(*lease_ns);
                self.touched(*job, *token, span, until);
            }
            Operation::Progress { job, token, .. } => self.touched(*job, *token, span, 0),
            Operation::UpdateJob { job, .. } => self.rewritten(*job, span),
            Operation::Invalid { flaw, .. } => {
                if let Some(done) = span.and_then(|span| span.done) {
                    self.ledger.accepted_flaws.push((done, format!("{flaw:?}")));
                }
            }
            Operation::Cancel { .. }
            | Operation::Finish { .. }
            | Operation::Release { .. }
            | Operation::FinishJob { .. }
            | Operation::RetryJob { .. }
            | Operation::CancelJob { .. }
            | Operation::Look { .. }
            | Operation::FailJob { .. } => self.reported(&request, span),
            Operation::Suspend { .. }
            | Operation::Resume { .. }
            | Operation::SetHandler { .. }
            | Operation::RemoveHandler { .. }
            | Operation::SetLimits { .. } => self.type_changed(&request, span),
        }
    }

    fn added(&mut self, request: &Request, add: &Add, span: Option<Span>, answer: Answer) {
        let form = &add.form;
        let ids = match answer {
            Answer::Done(Outcome::Ids(ids)) => ids,
            _ => Vec::new(),
        };
        if let (true, Some(done)) = (ids.len() != add.count as usize, span.and_then(|s| s.done)) {
            self.odd(done, format!("an add of {} jobs was answered with {}", add.count, ids.len()));
        }
        let account = AddAccount {
            span: span.unwrap_or(Span { sent: request.sent, done: None }),
            refused: span.is_none(),
            tenant: self.name(&add.tenant),
            of: self.type_index(&add.tenant, &add.type_name),
            via: request.via,
            mark: add.mark,
            key: add.idempotency_key.as_ref().map(|key| self.name(key)),
            count: add.count,
            ids: ids.clone(),
            bedrock: add.bedrock,
            payload_bytes: form.payload_bytes,
            priority: form.priority,
            delay_ns: form.delay_ns.unwrap_or(0),
            expires_ns: form.expires_ns,
            unique: form.unique.as_ref().map(|key| self.name(key)),
            parent: form.parent,
            follows: form.then.is_some(),
            repeats: form.repeat.is_some(),
        };
        let refused = account.refused;
        let index = self.add(account);
        for (position, id) in (0..).zip(ids) {
            self.of_type(id, &add.tenant, &add.type_name);
            let account = self.account(id);
            if !account.acknowledged {
                account.add = Some((index, position));
                account.acknowledged = true;
            }
        }
        if let (Some(parent), false) = (form.parent, refused) {
            self.account(parent).is_parent = true;
        }
    }

    fn claim(
        &mut self,
        request: &Request,
        tenant: &str,
        types: &[String],
        (door, lease_ns): (Door, Option<u64>),
        at: Option<Moment>,
        answer: Answer,
    ) {
        match (answer, at) {
            (Answer::Done(Outcome::Jobs(jobs)), Some(answered)) => {
                let claim = Claim { request, answered, tenant, types, door, lease_ns };
                for job in &jobs {
                    self.claimed(&claim, job);
                }
            }
            (Answer::Unknown { .. }, at) => {
                let noticed = at.map_or(u64::MAX, |at| at.at);
                let until = noticed.saturating_add(lease_ns.unwrap_or_default());
                let tenant = self.name(tenant);
                self.ledger.lost_claims.entry(tenant).or_default().add(request.sent.at, until);
            }
            _ => {}
        }
    }

    fn claimed(&mut self, claim: &Claim<'_>, job: &Claimed) {
        self.of_type(job.job, claim.tenant, &job.type_name);
        self.note_origin(job.job, job.origin);
        let line = format!("{}: {}", claim.tenant, claim.types.join(", "));
        let lease_ns = job.lease_ns.or(claim.lease_ns);
        let sent = claim.request.sent;
        let hold = Hold {
            door: claim.door,
            by: claim.request.who,
            daemon: claim.request.via,
            line: self.name(&line),
            token: job.token,
            attempt: job.attempt,
            asked: sent,
            began: claim.answered,
            lease_until: lease_ns.map_or(u64::MAX, |lease_ns| sent.at.saturating_add(lease_ns)),
            lent: claim.door == Door::Bedrock && job.lease_ns.is_some(),
            ended: None,
            status: None,
            emitted: 0,
            data: None,
        };
        self.account(job.job).holds.push(hold);
    }

    /// A renewal or a report of progress; the lease lasts until then, if that is longer.
    fn touched(&mut self, job: JobId, token: Token, span: Option<Span>, until: u64) {
        let Some(span) = span.filter(|span| span.done.is_some()) else { return };
        let account = self.account(job);
        account.touches.push((token, span));
        let mut holds = account.holds.iter_mut().rev();
        if let Some(hold) = holds.find(|hold| hold.token == Some(token)) {
            hold.lease_until = hold.lease_until.max(until);
        }
    }

    fn reported(&mut self, request: &Request, span: Option<Span>) {
        let (job, how, token, data) = match &request.what {
            Operation::Cancel { job, .. } => (job, How::Cancel, None, None),
            Operation::Finish { job, token, status, data, .. } => {
                (job, How::Finish(*status), Some(*token), data.as_deref())
            }
            Operation::Release { job, token, .. } => (job, How::Release, Some(*token), None),
            Operation::FinishJob { job, data, .. } => {
                (job, How::BedrockFinish, None, data.as_deref())
            }
            Operation::RetryJob { job, .. } => (job, How::BedrockRetry, None, None),
            Operation::FailJob { job, .. } => (job, How::BedrockFail, None, None),
            Operation::CancelJob { job, .. } => (job, How::BedrockCancel, None, None),
            Operation::Look { job, state, .. } => (job, How::Looked(*state), None, None),
            _ => return,
        };
        // Bedrock's reports may have data that replaces that of the job.
        if how.is_of_bedrock() {
            self.rewritten(*job, span);
        }
        let account = self.account(*job);
        let data: Option<Box<str>> = data.map(Into::into);
        match (span, data) {
            (Some(span), data) => {
                let (by, via) = (request.who, request.via);
                account.ends.push(End { span, how, token, by, via, data });
            }
            (None, Some(data)) => account.refused.push((request.sent, data)),
            (None, None) => {}
        }
    }

    fn rewritten(&mut self, job: JobId, span: Option<Span>) {
        let Some(Span { sent, .. }) = span else { return };
        let account = self.account(job);
        account.rewritten_at = Some(account.rewritten_at.unwrap_or(u64::MAX).min(sent.at));
    }

    fn type_changed(&mut self, request: &Request, span: Option<Span>) {
        let (tenant, name) = match &request.what {
            Operation::Suspend { tenant, type_name }
            | Operation::Resume { tenant, type_name }
            | Operation::RemoveHandler { tenant, type_name }
            | Operation::SetHandler { tenant, type_name, .. }
            | Operation::SetLimits { tenant, type_name, .. } => (tenant, type_name),
            _ => return,
        };
        let Some(span) = span else { return };
        let of = self.type_index(tenant, name);
        let account = &mut self.ledger.types[of.0];
        account.changes.push(span);
        match &request.what {
            Operation::Suspend { .. } => account.suspends.push((span, true)),
            Operation::Resume { .. } => account.suspends.push((span, false)),
            _ => {}
        }
        match &request.what {
            Operation::Suspend { .. } => {
                account.suspended = account.suspended.max(Some(span.until()));
            }
            Operation::Resume { .. } if span.done.is_some() => {
                account.suspended = account.suspended.filter(|until| *until >= span.sent.at);
            }
            Operation::SetHandler { .. } => account.has_handler = true,
            Operation::SetLimits { concurrency, rate, .. } => {
                account.limits.push(Limits { span, concurrency: *concurrency, rate: *rate });
            }
            _ => {}
        }
    }
}
