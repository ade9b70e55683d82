//! Planted bugs. A simulation that cannot find them proves nothing.

use windlass_proof::check::Report;

/// Each must be found within the seeds of a control run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The disk confirms syncs that it does not carry out.
    NoSync,
    /// A report is accepted whatever its token.
    NoTokens,
    /// The store's position in the journal moves before the jobs are stored.
    MarkFirst,
    /// The job that follows another one does not enter with its end.
    NoFollowers,
    /// Another attempt comes without the pause before it.
    NoPauses,
}

impl Control {
    pub(crate) const ALL: [Control; 5] = [
        Control::NoSync,
        Control::NoTokens,
        Control::MarkFirst,
        Control::NoFollowers,
        Control::NoPauses,
    ];

    pub(crate) fn what(self) -> &'static str {
        match self {
            Control::NoSync => "a disk that confirms syncs without doing them",
            Control::NoTokens => "reports that are accepted whatever their token",
            Control::MarkFirst => "a position in the journal that moves before its jobs are stored",
            Control::NoFollowers => "an end that drops the job that follows",
            Control::NoPauses => "attempts without a pause between them",
        }
    }

    /// The rule that it breaks. Whatever else it breaks or upsets does not count as found.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Control::NoSync | Control::MarkFirst => "lost",
            Control::NoTokens => "token",
            Control::NoFollowers => "follower",
            Control::NoPauses => "early",
        }
    }

    pub(crate) fn is_found(self, report: &Report) -> bool {
        report.totals.iter().any(|(rule, _)| *rule == self.rule())
    }
}
