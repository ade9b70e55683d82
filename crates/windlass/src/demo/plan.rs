//! The plan of the demonstration: two tenants, three types, very different numbers of jobs.

use serde_json::{Value, json};

/// A type of the demonstration and its expected outcome.
pub(super) struct Work {
    pub(super) tenant: &'static str,
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) body: &'static str,
    /// Delay before the second attempt, if there is one.
    pub(super) retry_delay: Option<&'static str>,
    /// Jobs to add; those of a chained type are added by other jobs.
    pub(super) added: usize,
    /// Jobs that must finish.
    pub(super) expected: usize,
    /// Attempts of each job.
    pub(super) attempts: u64,
}

const ACME_JOBS: usize = 240;
const GLOBEX_JOBS: usize = 12;

/// In the order of adding: the small tenant queues behind the large backlog.
pub(super) const PLAN: [Work; 3] = [
    Work {
        tenant: "acme",
        name: "shout",
        what: "prints its payload in capital letters, slowly",
        body: "tr a-z A-Z\nsleep 0.1\n",
        retry_delay: None,
        added: ACME_JOBS,
        expected: ACME_JOBS,
        attempts: 1,
    },
    Work {
        tenant: "globex",
        name: "invoice",
        what: "fails on the first attempt, succeeds on the second, and adds a receipt",
        body: "\
read -r number
if [ \"$WINDLASS_ATTEMPT\" = 1 ]; then
  echo \"no paper for invoice $number\"
  exit 75
fi
echo \"printed invoice $number\"
echo \"J: receipt|invoice $number is paid\"
",
        retry_delay: Some("1s"),
        added: GLOBEX_JOBS,
        expected: GLOBEX_JOBS,
        attempts: 2,
    },
    Work {
        tenant: "globex",
        name: "receipt",
        what: "is added by the output of the invoices",
        body: "sleep 0.05\nread -r text\necho \"sent: $text\"\n",
        retry_delay: None,
        added: 0,
        expected: GLOBEX_JOBS,
        attempts: 1,
    },
];

pub(super) fn jobs_expected() -> usize {
    PLAN.iter().map(|work| work.expected).sum()
}

impl Work {
    pub(super) fn handler(&self) -> Value {
        let mut handler = json!({ "lang": "sh", "body": self.body });
        if let Some(delay) = self.retry_delay {
            handler["options"] = json!({ "retry": { "delay": delay, "attempts": 3 } });
        }
        handler
    }

    /// One payload per line.
    pub(super) fn payloads(&self) -> String {
        (1..=self.added).map(|number| format!("{}-{number:03}\n", self.tenant)).collect()
    }
}
