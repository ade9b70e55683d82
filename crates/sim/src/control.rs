//! Planted bugs. A simulation that cannot find them proves nothing.

use windlass_proof::check::Report;
use windlass_proof::history::FaultKind;
use windlass_proof::workload::{Feature, Mix};

/// How often a schedule has what its bug needs: several times as often as anything else.
const WEIGHT: u32 = 40;

/// Each must be found within the seeds of a control run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The disk confirms syncs that it does not carry out.
    NoSync,
    /// The store's position in the journal moves before the jobs are stored.
    MarkFirst,
    /// A worker's report is accepted whatever its token: the caller forgets to look.
    NoTokens,
    /// The store accepts the settlement of an owner whose job has a newer one.
    LateOwner,
    /// The store does not look who holds a unique key.
    NoUnique,
    /// The store does not count running jobs.
    NoConcurrency,
    /// The store does not count starts.
    NoRate,
    /// The job that follows another one does not enter with its end.
    NoFollowers,
    /// Another attempt comes without the pause before it.
    NoPauses,
}

impl Control {
    pub(crate) const ALL: [Control; 9] = [
        Control::NoSync,
        Control::MarkFirst,
        Control::NoTokens,
        Control::LateOwner,
        Control::NoUnique,
        Control::NoConcurrency,
        Control::NoRate,
        Control::NoFollowers,
        Control::NoPauses,
    ];

    pub(crate) fn what(self) -> &'static str {
        match self {
            Control::NoSync => "a disk that confirms syncs without doing them",
            Control::MarkFirst => "a position in the journal that moves before its jobs are stored",
            Control::NoTokens => "reports of workers that are accepted whatever their token",
            Control::LateOwner => "settlements that are accepted from an earlier owner",
            Control::NoUnique => "unique keys that are ignored",
            Control::NoConcurrency => "a limit of running jobs that is ignored",
            Control::NoRate => "a limit of starts in a time that is ignored",
            Control::NoFollowers => "an end that drops the job that follows",
            Control::NoPauses => "attempts without a pause between them",
        }
    }

    /// The rule that it breaks. Whatever else it breaks or upsets does not count as found.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Control::NoSync | Control::MarkFirst => "lost",
            Control::NoTokens => "token",
            Control::LateOwner => "fence",
            Control::NoUnique => "unique",
            Control::NoConcurrency => "concurrency",
            Control::NoRate => "rate",
            Control::NoFollowers => "follower",
            Control::NoPauses => "early",
        }
    }

    /// The only fault of its kind (of processes, or of their surroundings) in its schedules, so
    /// that few of them are enough.
    pub(crate) fn fault(self) -> Option<FaultKind> {
        match self {
            Control::NoSync => Some(FaultKind::PowerCut),
            Control::LateOwner => Some(FaultKind::Partition),
            _ => None,
        }
    }

    /// Makes frequent what its schedules must have.
    pub(crate) fn adjust(self, mix: &mut Mix) {
        let feature = match self {
            // Attempts that outlive a lease.
            Control::LateOwner => Feature::Emit,
            Control::NoUnique => Feature::Unique,
            Control::NoConcurrency => Feature::Concurrency,
            Control::NoRate => Feature::Rate,
            Control::NoFollowers => Feature::Then,
            Control::NoPauses => Feature::Failing,
            Control::NoSync | Control::MarkFirst | Control::NoTokens => return,
        };
        mix.set(feature, WEIGHT);
    }

    pub(crate) fn is_found(self, report: &Report) -> bool {
        report.totals.iter().any(|(rule, _)| *rule == self.rule())
    }
}
