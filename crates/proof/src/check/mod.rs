//! The checker: rules over a history.
//!
//! A rule accuses only if every reading of the history breaks the promise. Requests take effect at
//! some moment between their sending and their answer; an unknown one at any later moment, or
//! never. Each rule's module says what it cannot see.
//!
//! The cost is that of sorting: every rule looks at each job, attempt and request a constant number
//! of times.
//!
//! | module | owns |
//! |---|---|
//! | `terms` | what the rules have to know about the run |
//! | `violation` | what they found, and its proof |
//! | `report` | the verdict, and how much it rests on |
//! | `rule` | the table of rules, one module each |

mod report;
mod rule;
mod terms;
mod violation;

#[cfg(test)]
mod tests;

use crate::history::{Merge, ReadError, Record};
use crate::ledger::Folding;

pub use report::{Coverage, Report};
pub use rule::{RULES, Rule};
pub use terms::Terms;
pub(crate) use violation::Findings;
pub use violation::{Evidence, Violation};

/// Reads a whole history and checks it.
pub fn check(history: &mut Merge<'_>, terms: &Terms) -> Result<Report, ReadError> {
    let mut checker = Checker::new(terms.clone());
    while let Some(record) = history.next_record()? {
        checker.record(record);
    }
    let mut report = checker.finish();
    report.coverage.torn_files = history.torn() as u64;
    report.name_files(&history.names());
    Ok(report)
}

/// Takes the records of a history in the order of time. For drivers that have no files; otherwise
/// see [`check`].
pub struct Checker {
    terms: Terms,
    folding: Folding,
}

impl Checker {
    pub fn new(terms: Terms) -> Checker {
        Checker { terms, folding: Folding::new() }
    }

    pub fn record(&mut self, record: Record) {
        self.folding.record(record);
    }

    pub fn finish(self) -> Report {
        let ledger = self.folding.finish(&self.terms);
        let mut report = Report::new(Coverage::of(&ledger));
        for rule in &RULES {
            let mut found = Findings {
                rule: rule.name,
                most: self.terms.violations_max,
                kept: Vec::new(),
                total: 0,
                judged: 0,
            };
            (rule.check)(&ledger, &self.terms, &mut found);
            report.take(found);
        }
        report
    }
}
