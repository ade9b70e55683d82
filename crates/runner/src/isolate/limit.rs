//! The kernel's limits for each process. Memory is `RLIMIT_DATA`, which counts what a process can
//! write to: V8 reserves far more address space than it uses.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit};
use windlass_core::Limits;

use crate::proc;

/// Maximum number of open descriptors, and how far a process may raise it.
const DESCRIPTORS: u64 = 1024;
const DESCRIPTORS_MAX: u64 = 4096;
/// Seconds from the signal that can be caught to the one that cannot.
const CPU_GRACE_S: u64 = 1;
/// A last resort: the kernel counts the threads of all processes of the user, including foreign
/// ones, and exempts root. `count` enforces the configured number.
const USER_TASKS_MAX: u64 = 32_768;

/// One limit, as the kernel takes it.
pub(super) type Limit = (Resource, Rlimit);

/// The limits of a new process. A context lives for many jobs, so its CPU time is not counted from
/// its start.
pub(super) fn resources(limits: &Limits, in_context: bool) -> Vec<Limit> {
    let mut list = vec![
        lowered(Resource::Core, 0, 0),
        lowered(Resource::Nofile, DESCRIPTORS, DESCRIPTORS_MAX),
    ];
    let same = |resource, amount: Option<u64>| amount.map(|max| lowered(resource, max, max));
    list.extend(same(Resource::Data, limits.memory));
    list.extend(same(Resource::Fsize, limits.file_size));
    if let Some(cpu) = limits.cpu.filter(|_| !in_context) {
        let seconds = whole_seconds(cpu);
        list.push(lowered(Resource::Cpu, seconds, seconds.saturating_add(CPU_GRACE_S)));
    }
    list.extend(same(Resource::Nproc, limits.processes.map(|_| USER_TASKS_MAX)));
    list
}

/// Gives a running process this much CPU time from now on; `None` lifts the limit. When it is used
/// up, the process gets SIGXCPU.
pub(crate) fn set_cpu_budget(pid: Pid, budget: Option<Duration>) {
    let used = proc::cpu_seconds(pid).unwrap_or_default();
    let current = budget.map(|budget| whole_seconds(budget).saturating_add(used));
    let now = rustix::process::getrlimit(Resource::Cpu);
    let limit = Rlimit { current: current.or(now.maximum), maximum: now.maximum };
    // A process that is gone needs no limit.
    let _ = rustix::process::prlimit(Some(pid), Resource::Cpu, limit);
}

/// Explains a signal that the kernel sends at a limit, to append to how the process ended.
pub(crate) fn limit_reached(status: ExitStatus) -> &'static str {
    match status.signal() {
        Some(libc::SIGXCPU) => ": its CPU time is used up (options.cpu)",
        Some(libc::SIGXFSZ) => ": a file would exceed its size limit (options.file_size)",
        _ => "",
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// A limit that is never above our own: raising it would need a privilege.
fn lowered(resource: Resource, current: u64, maximum: u64) -> Limit {
    let ours = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = |wanted: u64| (wanted.min(ours) != u64::MAX).then(|| wanted.min(ours));
    (resource, Rlimit { current: limit(current), maximum: limit(maximum) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_rounded_up_to_the_seconds_of_the_kernel() {
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
        assert_eq!(whole_seconds(Duration::from_millis(2001)), 3);
    }

    #[test]
    fn what_is_not_said_is_not_limited() {
        let limits = Limits::default();
        let limited: Vec<_> = resources(&limits, false).into_iter().map(|(what, _)| what).collect();
        assert_eq!(limited, [Resource::Core, Resource::Nofile]);
        let limits = Limits { cpu: Some(Duration::from_secs(1)), ..limits };
        assert_eq!(resources(&limits, false).len(), 3);
        assert_eq!(resources(&limits, true).len(), 2);
    }
}
