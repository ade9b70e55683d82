//! The kernel's limits for each process. Memory is `RLIMIT_DATA`, which counts what a process can
//! write to: V8 reserves far more address space than it uses.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit};
use windlass_core::Limits;

use crate::cell::{OVER_MEMORY, User};
use crate::proc;
use crate::tree::Main;

/// Maximum number of open descriptors, and how far a process may raise it.
const DESCRIPTORS: u64 = 1024;
const DESCRIPTORS_MAX: u64 = 4096;
/// Seconds from the signal that can be caught to the one that cannot.
const CPU_GRACE_S: u64 = 1;
/// Threads of all processes of a user, including foreign ones: a last resort. `count` enforces the
/// configured number of processes.
const USER_TASKS_MAX: u64 = 32_768;
/// Threads of one cell, whatever it asks for, and of one tenant where it has a user of its own: an
/// eighth of the numbers that a small machine has for all its processes.
const ROOM_TASKS_MAX: u64 = 4_096;
/// Threads for each process that a handler may have, together, and how many it has at least.
const THREADS_PER_PROCESS: u64 = 16;
const TASKS_MIN: u64 = 64;
/// The outer process and init, with all their threads.
pub(super) const HELPER_TASKS: u64 = 128;

/// One limit, as the kernel takes it.
pub(super) type Limit = (Resource, Rlimit);

/// The limits of a new process. A context lives for many jobs, so its CPU time is not counted from
/// its start.
pub(super) fn resources(limits: &Limits, in_context: bool, room: Option<User>) -> Vec<Limit> {
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
    let user_tasks = |processes| match room {
        None => USER_TASKS_MAX,
        Some(User::Number(_)) => ROOM_TASKS_MAX,
        // The kernel counts those of one cell.
        Some(User::Nobody) => tasks_max(processes) + HELPER_TASKS,
    };
    list.extend(same(Resource::Nproc, limits.processes.map(user_tasks)));
    list
}

/// How many threads all processes of a handler may have together, if it may have so many processes.
pub(super) fn tasks_max(processes: u32) -> u64 {
    (u64::from(processes) * THREADS_PER_PROCESS).clamp(TASKS_MIN, ROOM_TASKS_MAX)
}

/// The same as the kernel's numbers.
pub(super) fn numbers(limits: &[Limit]) -> Vec<(u32, u64, u64)> {
    let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    let of = |(resource, limit): &Limit| {
        (*resource as u32, number(limit.current), number(limit.maximum))
    };
    limits.iter().map(of).collect()
}

/// Gives a running process this much CPU time from now on. When it is used up, the process gets
/// SIGXCPU. In a cell, where it may be another user's, the outer process sets the limit. Returns
/// the process, and what it may have used in all.
pub(crate) fn set_cpu_budget(main: &Main, budget: Duration) -> (Pid, u64) {
    let process = main.inner.unwrap_or(main.pid());
    let used = proc::cpu_seconds(process).unwrap_or_default();
    let seconds = whole_seconds(budget).saturating_add(used);
    match &main.control {
        // One that is gone needs no limit.
        Some(control) => drop(rustix::io::write(control, &seconds.to_le_bytes())),
        None => limit_cpu(process, seconds),
    }
    (process, seconds)
}

/// Lets a process use this much CPU time in all.
pub(crate) fn limit_cpu(process: Pid, seconds: u64) {
    let now = rustix::process::getrlimit(Resource::Cpu);
    let limit = Rlimit { current: Some(seconds), maximum: now.maximum };
    // A process that is gone needs no limit.
    let _ = rustix::process::prlimit(Some(process), Resource::Cpu, limit);
}

/// How a process was ended, and by which limit.
pub(crate) fn describe_end(status: ExitStatus) -> String {
    let limit = match status.signal() {
        Some(OVER_MEMORY) => {
            return "killed: all its processes together used up their memory (options.memory)"
                .into();
        }
        Some(libc::SIGXCPU) => ": its CPU time is used up (options.cpu)",
        Some(libc::SIGXFSZ) => ": a file would exceed its size limit (options.file_size)",
        _ => "",
    };
    format!("ended by {status}{limit}")
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
        let limited: Vec<_> =
            resources(&limits, false, None).into_iter().map(|(what, _)| what).collect();
        assert_eq!(limited, [Resource::Core, Resource::Nofile]);
        let limits = Limits { cpu: Some(Duration::from_secs(1)), ..limits };
        assert_eq!(resources(&limits, false, Some(User::Nobody)).len(), 3);
        assert_eq!(resources(&limits, true, None).len(), 2);
    }
}
