//! What a rule found, for people: which rule, which jobs, and the events that prove it.

use std::fmt;

use crate::history::JobId;
use crate::ledger::{Account, Door, End, Hold, How, Ledger, Moment};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the rule.
    pub rule: &'static str,
    /// One sentence.
    pub what: String,
    pub jobs: Vec<JobId>,
    /// In the order of time.
    pub evidence: Vec<Evidence>,
}

/// One event of the proof.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// The file, as an index of the history's sources, and the line in it.
    pub source: u32,
    pub line: u32,
    /// The file's name; empty if the history did not come from files.
    pub file: String,
    pub text: String,
}

impl Evidence {
    pub(crate) fn new(moment: Moment, text: impl Into<String>) -> Evidence {
        let Moment { at, source, line } = moment;
        Evidence { at, source, line, file: String::new(), text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)?;
        for Evidence { at, line, file, text, .. } in &self.evidence {
            let (seconds, ns) = (at / 1_000_000_000, at % 1_000_000_000);
            write!(f, "\n    {seconds}.{ns:09} s  {text}  ({file}:{line})")?;
        }
        Ok(())
    }
}

/// What one rule has found so far; keeps the first ones and counts all. Counts also the cases in
/// which it would have found a breach.
pub(crate) struct Findings {
    pub(super) rule: &'static str,
    pub(super) most: usize,
    pub(super) kept: Vec<Violation>,
    pub(super) total: u64,
    pub(super) judged: u64,
}

impl Findings {
    /// Counts a case that the rule has decided, whether or not it is a breach.
    pub(crate) fn judge(&mut self) {
        self.judged += 1;
    }

    pub(crate) fn add(
        &mut self,
        jobs: impl IntoIterator<Item = JobId>,
        what: impl Into<String>,
        evidence: impl IntoIterator<Item = Evidence>,
    ) {
        self.total += 1;
        if self.kept.len() >= self.most {
            return;
        }
        let mut evidence: Vec<Evidence> = evidence.into_iter().collect();
        evidence.sort();
        let (what, jobs) = (what.into(), jobs.into_iter().collect());
        self.kept.push(Violation { rule: self.rule, what, jobs, evidence });
    }
}

/// Texts for evidence.
impl Ledger {
    pub(crate) fn hold_evidence(&self, account: &Account, hold: &Hold) -> Evidence {
        let by = self.names.text(hold.by);
        let verb = match hold.door {
            Door::Handler => "began",
            Door::Pull => "claimed",
            Door::Bedrock => "got",
        };
        let mut text = format!("{by} {verb} job {}, attempt {}", account.id, hold.attempt);
        if let Some(token) = hold.token {
            text.push_str(&format!(", token {token}"));
        }
        if let Some(ended) = hold.ended {
            let (at, status) = (ended.at, hold.status.unwrap_or_default());
            text.push_str(&format!(", ended with status {status} at {at} ns"));
        }
        Evidence::new(hold.began, text)
    }

    pub(crate) fn end_evidence(&self, account: &Account, end: &End) -> Evidence {
        let by = self.names.text(end.by);
        let what = match end.how {
            How::Finish(status) => format!("finish with status {status}"),
            How::Release => "release".into(),
            How::Cancel => "cancel".into(),
            How::BedrockFinish => "FinishJob".into(),
            How::BedrockRetry => "RetryJob".into(),
            How::BedrockFail => "FailJob".into(),
            How::BedrockCancel => "CancelJob".into(),
            How::Looked(state) => format!("a look ({state:?})"),
        };
        let token = end.token.map_or(String::new(), |token| format!(", token {token}"));
        let answer = if end.span.done.is_some() { "was acknowledged" } else { "is unknown" };
        let text = format!("{what} of job {} by {by}{token} {answer}", account.id);
        Evidence::new(end.span.done.unwrap_or(end.span.sent), text)
    }

    /// How the job was added, if that is known.
    pub(crate) fn add_evidence(&self, account: &Account) -> Option<Evidence> {
        let add = self.add_of(account)?;
        let of = &self.types[add.of.0];
        let (tenant, name) = (self.names.text(of.tenant), self.names.text(of.name));
        let answer = if add.span.done.is_some() { "was acknowledged" } else { "is unknown" };
        let text = format!("add of job {} to {tenant}/{name} {answer}", account.id);
        Some(Evidence::new(add.span.done.unwrap_or(add.span.sent), text))
    }

    /// How the job was listed at the end.
    pub(crate) fn seen_evidence(&self, account: &Account) -> Option<Evidence> {
        let (moment, seen) = account.seen.as_deref()?;
        let status = seen.status.map_or(String::new(), |status| format!(", status {status}"));
        let text = format!("job {} is listed as {:?}{status}", account.id, seen.state);
        Some(Evidence::new(*moment, text))
    }
}
