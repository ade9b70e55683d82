//! `windlass jobs …`.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// List jobs, newest first.
    List(JobsList),
    /// Show everything about one job.
    Show {
        /// ID of the job.
        id: String,
    },
    /// Print the output of a job, attempt by attempt.
    Log(JobsLog),
    /// Cancel jobs that have not ended; running ones are stopped.
    Cancel {
        /// IDs of the jobs.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Run ended jobs again, immediately.
    Retry {
        /// IDs of the jobs.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Remove jobs that are not running.
    Rm {
        /// IDs of the jobs.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Run ended jobs of one type again, oldest first.
    Requeue(JobsRequeue),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass jobs list --state failed
  windlass jobs list --type mail --limit 500 --json")]
pub(crate) struct JobsList {
    /// Only jobs of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) name: Option<String>,
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<StateName>,
    /// Maximum number of jobs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Continue from this cursor (printed after the previous page).
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsLog {
    /// ID of the job.
    pub(crate) id: String,
    /// Print new lines as they are written, until the job has ended.
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  windlass jobs requeue mail --state failed --limit 1000")]
pub(crate) struct JobsRequeue {
    /// The type.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// Requeue the jobs that ended in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: EndedName,
    /// Maximum number of jobs.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}

/// The states of a job, as typed on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateName {
    Queued,
    Running,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

/// The states of a job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EndedName {
    Failed,
    Finished,
    Cancelled,
}

impl StateName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            StateName::Queued => "queued",
            StateName::Running => "running",
            StateName::Paused => "paused",
            StateName::Finished => "finished",
            StateName::Failed => "failed",
            StateName::Cancelled => "cancelled",
        }
    }
}

impl EndedName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EndedName::Failed => "failed",
            EndedName::Finished => "finished",
            EndedName::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::State;

    #[test]
    fn all_states_of_a_job_can_be_typed() {
        let typed: Vec<_> = StateName::value_variants().iter().map(|name| name.as_str()).collect();
        let known: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(typed, known);
        let ended = State::ALL.iter().filter(|state| state.is_ended());
        let mut ended: Vec<_> = ended.map(|state| state.as_str()).collect();
        let mut typed: Vec<_> =
            EndedName::value_variants().iter().map(|name| name.as_str()).collect();
        ended.sort_unstable();
        typed.sort_unstable();
        assert_eq!(typed, ended);
    }
}
