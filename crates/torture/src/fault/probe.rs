//! Probes: adds that each daemon must acknowledge while its store hangs. They are part of the
//! history like all others, so what was acknowledged must be there at the end.

use anyhow::Result;
use serde_json::Value;
use windlass_proof::history::{Add, Answer, Event, Form, JobId, Operation, Outcome};
use windlass_proof::workload::payload;

use super::Injector;
use crate::door::connect;
use crate::site::Site;

/// Nobody runs its jobs.
pub(crate) const PROBE_TENANT: &str = "probe";
const PROBE_TYPE: &str = "probe";
/// Marks of other adds are smaller.
const PROBE_MARKS: u64 = 1 << 62;

/// An add that has been written down as sent.
pub(super) struct Probe {
    op: u64,
    daemon: usize,
    add: Add,
}

/// An answer, and when it came.
pub(super) type Answered = (u64, Answer);

impl Injector<'_> {
    /// Writes down an add at this daemon.
    pub(super) fn probe(&mut self, daemon: usize) -> Result<Probe> {
        let op = self.site.next_op();
        let add = Add {
            tenant: PROBE_TENANT.into(),
            type_name: PROBE_TYPE.into(),
            count: 1,
            mark: PROBE_MARKS + op,
            idempotency_key: None,
            bedrock: false,
            form: Form { payload_bytes: 1, ..Form::default() },
        };
        let (who, via) = ("probe".into(), Some(self.site.daemon_name(daemon).to_owned()));
        let what = Operation::Add(Box::new(add.clone()));
        self.witness.record(&Event::Sent { op, who, via, what })?;
        Ok(Probe { op, daemon, add })
    }

    /// Writes down its answer. Whether it was acknowledged.
    pub(super) fn probed(&mut self, probe: &Probe, (at_ns, answer): Answered) -> Result<bool> {
        let acknowledged = matches!(answer, Answer::Done(_));
        self.witness.record_at(at_ns, &Event::Answered { op: probe.op, answer })?;
        Ok(acknowledged)
    }
}

impl Probe {
    pub(super) fn send(&self, site: &Site) -> Answered {
        let path = format!("/v1/{PROBE_TENANT}/jobs/{PROBE_TYPE}");
        let body = payload::of_add(&self.add, 0);
        let headers = [("Content-Type", "application/octet-stream")];
        let response = connect(site, self.daemon)
            .and_then(|mut open| open.call("POST", &path, &headers, &body).ok());
        let answer = match response {
            Some(response) => answer(response.status, &response.body),
            None => Answer::Unknown { why: "no answer".into() },
        };
        (site.now_ns(), answer)
    }
}

fn answer(status: u16, body: &[u8]) -> Answer {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let id = body["ids"][0].as_str().and_then(|id| id.parse().ok());
    match (id, status) {
        (Some(id), 200..=299) => Answer::Done(Outcome::Ids(vec![JobId(id)])),
        (_, 400..=499) => Answer::Refused { status },
        _ => Answer::Unknown { why: format!("{status}: {body}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_with_an_id_acknowledges_a_probe() {
        let done = Answer::Done(Outcome::Ids(vec![JobId(7)]));
        assert_eq!(answer(201, br#"{"ids":["7"]}"#), done);
        assert!(matches!(answer(201, b"{}"), Answer::Unknown { .. }));
        assert!(matches!(answer(503, br#"{"ids":["7"]}"#), Answer::Unknown { .. }));
        assert_eq!(answer(409, b""), Answer::Refused { status: 409 });
    }
}
