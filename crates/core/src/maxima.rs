//! The operator's maxima: the most that a handler, a type, a job or a worker may ask for. A request
//! for more is refused; what was stored before a maximum was lowered runs with the maximum.

use std::time::Duration;

use crate::handler::{HandlerOptions, Limits, TypeSettings};
use crate::limit::{BATCH, CONTEXTS};
use crate::name::Invalid;
use crate::range::Measure;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A value above its maximum: valid, if the operator allowed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Above(pub Invalid);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maxima {
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// How long an ended job is kept.
    pub retention: Duration,
    /// Lease of a pull worker.
    pub lease: Duration,
    /// Jobs of one batch.
    pub batch: u32,
    /// Contexts of one handler.
    pub contexts: u32,
    /// How long an idle context is kept.
    pub idle: Duration,
    /// Limits of a handler's processes; absent ones have no maximum.
    pub limits: Limits,
}

impl Default for Maxima {
    fn default() -> Maxima {
        Maxima {
            timeout: DAY,
            retention: DAY * 365,
            lease: DAY,
            batch: BATCH.max,
            contexts: CONTEXTS.max,
            idle: DAY,
            limits: Limits {
                memory: Some(4 << 30),
                cpu: None,
                processes: Some(4096),
                file_size: Some(16 << 30),
                scratch: Some(4 << 30),
            },
        }
    }
}

impl Maxima {
    pub fn check_options(&self, options: &HandlerOptions) -> Result<(), Above> {
        let HandlerOptions { timeout, batch, contexts, idle, limits, .. } = options;
        check("options.timeout", *timeout, Some(self.timeout), "job.timeout_max")?;
        check("options.batch", *batch, Some(self.batch), "job.batch_max")?;
        check("options.contexts", *contexts, Some(self.contexts), "contexts.handler_max")?;
        check("options.idle", *idle, Some(self.idle), "contexts.idle_max")?;
        let max = &self.limits;
        check("options.memory", limits.memory, max.memory, "isolation.memory_max")?;
        check("options.cpu", limits.cpu, max.cpu, "isolation.cpu_max")?;
        let key = "isolation.processes_max";
        check("options.processes", limits.processes, max.processes, key)?;
        let key = "isolation.file_size_max";
        check("options.file_size", limits.file_size, max.file_size, key)?;
        check("options.scratch", limits.scratch, max.scratch, "isolation.scratch_max")
    }

    pub fn check_settings(&self, settings: &TypeSettings) -> Result<(), Above> {
        self.check_timeout(settings.timeout)?;
        check("retention", settings.retention, Some(self.retention), "job.retention_max")
    }

    /// Of a job or a type.
    pub fn check_timeout(&self, timeout: Option<Duration>) -> Result<(), Above> {
        check("timeout", timeout, Some(self.timeout), "job.timeout_max")
    }

    pub fn check_lease(&self, lease: Duration) -> Result<(), Above> {
        check("lease", Some(lease), Some(self.lease), "lease.worker_max")
    }

    /// The options as they are in force. What is absent has its default, which is below.
    pub fn lower(&self, options: &mut HandlerOptions) {
        lower(&mut options.timeout, Some(self.timeout));
        lower(&mut options.batch, Some(self.batch));
        lower(&mut options.contexts, Some(self.contexts));
        lower(&mut options.idle, Some(self.idle));
        self.lower_limits(&mut options.limits);
    }

    pub fn lower_limits(&self, limits: &mut Limits) {
        let Limits { memory, cpu, processes, file_size, scratch } = &self.limits;
        lower(&mut limits.memory, *memory);
        lower(&mut limits.cpu, *cpu);
        lower(&mut limits.processes, *processes);
        lower(&mut limits.file_size, *file_size);
        lower(&mut limits.scratch, *scratch);
    }
}

/// `key` is the maximum's name in the configuration.
fn check<T: Measure>(
    field: &str,
    asked: Option<T>,
    max: Option<T>,
    key: &str,
) -> Result<(), Above> {
    match (asked, max) {
        (Some(asked), Some(max)) if asked > max => {
            let (asked, max) = (asked.text(), max.text());
            let reason = format!("'{field}' is at most {max} here ({key}), not {asked}");
            Err(Above(Invalid::new(field, reason)))
        }
        _ => Ok(()),
    }
}

fn lower<T: PartialOrd + Copy>(given: &mut Option<T>, max: Option<T>) {
    if let (Some(number), Some(max)) = (&mut *given, max)
        && *number > max
    {
        *given = Some(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A handler with the largest options that are accepted anywhere, and every field above its
    /// maximum.
    fn greedy() -> HandlerOptions {
        let maxima = maxima();
        HandlerOptions {
            timeout: Some(maxima.timeout + HOUR),
            batch: Some(maxima.batch + 1),
            contexts: Some(maxima.contexts + 1),
            idle: Some(maxima.idle + HOUR),
            limits: Limits {
                memory: Some((4 << 30) + 1),
                cpu: Some(HOUR * 2),
                processes: Some(4097),
                file_size: Some((16 << 30) + 1),
                scratch: Some((4 << 30) + 1),
            },
            ..HandlerOptions::default()
        }
    }

    fn maxima() -> Maxima {
        let mut maxima = Maxima { batch: 100, contexts: 8, ..Maxima::default() };
        maxima.limits.cpu = Some(HOUR);
        maxima
    }

    #[test]
    fn each_option_above_its_maximum_is_refused_and_the_maximum_named() {
        let maxima = maxima();
        let mut options = greedy();
        let mut fields = Vec::new();
        while let Err(Above(invalid)) = maxima.check_options(&options) {
            match invalid.field.as_str() {
                "options.timeout" => options.timeout = Some(maxima.timeout),
                "options.batch" => options.batch = Some(maxima.batch),
                "options.contexts" => options.contexts = Some(maxima.contexts),
                "options.idle" => options.idle = Some(maxima.idle),
                "options.memory" => options.limits.memory = maxima.limits.memory,
                "options.cpu" => options.limits.cpu = maxima.limits.cpu,
                "options.processes" => options.limits.processes = maxima.limits.processes,
                "options.file_size" => options.limits.file_size = maxima.limits.file_size,
                "options.scratch" => options.limits.scratch = maxima.limits.scratch,
                other => panic!("{other} is not a field with a maximum"),
            }
            assert!(!fields.contains(&invalid.field), "{invalid}: its maximum is accepted");
            fields.push(invalid.field);
        }
        assert_eq!(fields.len(), 9);
        let memory = Limits { memory: Some(1 << 40), ..Limits::default() };
        let refused =
            maxima.check_options(&HandlerOptions { limits: memory, ..Default::default() });
        let reason = "'options.memory' is at most 4GB here (isolation.memory_max), not 1TB";
        assert_eq!(refused, Err(Above(Invalid::new("options.memory", reason))));
    }

    #[test]
    fn stored_options_above_their_maxima_are_lowered_and_absent_ones_stay_absent() {
        let mut options = greedy();
        maxima().lower(&mut options);
        assert_eq!(maxima().check_options(&options), Ok(()));
        assert_eq!((options.batch, options.limits.memory), (Some(100), Some(4 << 30)));
        let mut plain = HandlerOptions::default();
        maxima().lower(&mut plain);
        assert_eq!(plain, HandlerOptions::default());
    }

    #[test]
    fn unless_configured_an_attempt_may_take_a_day_and_its_job_be_kept_for_a_year() {
        let Maxima { timeout, retention, lease, idle, .. } = Maxima::default();
        assert_eq!([timeout, lease, idle], [HOUR * 24; 3]);
        assert_eq!(retention, HOUR * 24 * 365);
    }

    #[test]
    fn without_a_maximum_every_limit_is_accepted() {
        let cpu = Limits { cpu: Some(DAY * 3000), ..Limits::default() };
        let options = HandlerOptions { limits: cpu, ..HandlerOptions::default() };
        assert_eq!(Maxima::default().check_options(&options), Ok(()));
    }

    #[test]
    fn types_jobs_and_workers_have_maxima_too() {
        let maxima = maxima();
        let above = Some(maxima.timeout + HOUR);
        let refused = |result: Result<(), Above>| result.unwrap_err().0.field;
        assert_eq!(refused(maxima.check_timeout(above)), "timeout");
        let settings = TypeSettings { timeout: above, ..TypeSettings::default() };
        assert_eq!(refused(maxima.check_settings(&settings)), "timeout");
        let retention = Some(maxima.retention + HOUR);
        let settings = TypeSettings { retention, ..TypeSettings::default() };
        assert_eq!(refused(maxima.check_settings(&settings)), "retention");
        assert_eq!(refused(maxima.check_lease(maxima.lease + HOUR)), "lease");
        assert_eq!(maxima.check_lease(maxima.lease), Ok(()));
    }
}
