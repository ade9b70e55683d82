//! Filters of system calls, as programs for the kernel.
//!
//! There are two. The first is common to a whole cell: calls that reach out to the network wait for
//! the outer process, which carries them out itself. The second is for the handler alone: calls
//! that no handler needs and that have led out of sandboxes are refused.
//!
//! A program is a list of rules that is read from the top; what no rule names is allowed. The
//! kernel remembers which calls are allowed whatever their arguments, so these cost nothing.

use libc::{c_long, sock_filter};

/// Allowed whatever the arguments.
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// Calls of a second kind, with 32-bit pointers, have numbers from here on.
const FOREIGN_CALLS: u32 = 0x4000_0000;

/// Offsets in what the kernel shows to a filter.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Flags of clone that make namespaces.
const NEW_NAMESPACE: u32 = 0x7E02_0000;
const MPTCP: u32 = 262;
/// The number of init, inside.
const FIRST: u32 = 1;
/// All processes of a user, in two kinds of calls.
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;
/// Options of sockets that a cell may not set, by level: source routes, which send packets to
/// another address than the one that was decided about; broadcast and multicast groups; a port or a
/// network interface of choice, and when a port is taken.
const OPTIONS: &[(i32, &[u32])] = &[
    (libc::IPPROTO_IP, &[4, 24, 35, 39, 42, 46, 50, 51]),
    (libc::IPPROTO_IPV6, &[5, 6, 20, 32, 42, 46, 50, 57, 76]),
    (libc::SOL_SOCKET, &[6, 25, 62]),
];
/// Requests about network interfaces.
const INTERFACES_FIRST: u32 = 0x8910;
const INTERFACES_LAST: u32 = 0x894F;
/// Events of files that show what others read and run. Changes can be watched.
const READS: u32 = libc::IN_ACCESS | libc::IN_OPEN | libc::IN_CLOSE_NOWRITE;
/// Asks for signals when a directory is read or changed, an older way than inotify.
const NOTIFY_OF_DIRECTORY: u32 = libc::F_NOTIFY as u32;
/// Calls that are newer than the C library's list: a form of `open_tree`, and changes of files.
const OPEN_TREE_ATTR: c_long = 467;
pub(super) const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

/// One rule: this call, if the test holds, gets this answer.
struct Rule(c_long, Test, u32);

#[derive(Clone, Copy)]
enum Test {
    Always,
    /// The low half of an argument is this.
    Is(u32, u32),
    /// It is not.
    IsNot(u32, u32),
    /// It has one of these bits.
    Has(u32, u32),
    /// It has both of these bits.
    HasBoth(u32, u32, u32),
    /// An argument is not zero, both halves.
    NonZero(u32),
    /// The low half of an argument is in this range.
    Between(u32, u32, u32),
    /// The low halves of two arguments are these.
    Both([(u32, u32); 2]),
}

const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// For the whole cell: what the outer process decides. `has_room` tells that it has a root of its
/// own, where it can name no file of others.
pub(super) fn watched(has_room: bool) -> Vec<sock_filter> {
    let inet = |family: i32| Rule(libc::SYS_socket, Test::Is(0, family as u32), NOTIFY);
    let no = refuse(libc::EPERM);
    let mut rules = vec![
        inet(libc::AF_INET),
        inet(libc::AF_INET6),
        Rule(libc::SYS_socket, Test::IsNot(0, libc::AF_UNIX as u32), refuse(libc::EAFNOSUPPORT)),
        Rule(libc::SYS_socketpair, Test::IsNot(0, libc::AF_UNIX as u32), refuse(libc::EOPNOTSUPP)),
        Rule(libc::SYS_connect, Test::Always, NOTIFY),
        Rule(libc::SYS_bind, Test::Always, NOTIFY),
        Rule(libc::SYS_listen, Test::Always, NOTIFY),
        Rule(libc::SYS_sendto, Test::NonZero(4), NOTIFY),
        Rule(libc::SYS_sendmsg, Test::Always, NOTIFY),
        Rule(libc::SYS_sendmmsg, Test::Always, NOTIFY),
        Rule(libc::SYS_io_uring_setup, Test::Always, refuse(libc::ENOSYS)),
    ];
    for (level, options) in OPTIONS {
        let refused = |option: &u32| {
            Rule(libc::SYS_setsockopt, Test::Both([(1, *level as u32), (2, *option)]), no)
        };
        rules.extend(options.iter().map(refused));
    }
    // What the machine's network interfaces are is not the handler's business.
    rules.push(Rule(libc::SYS_ioctl, Test::Between(1, INTERFACES_FIRST, INTERFACES_LAST), no));
    if !has_room {
        rules.extend(MODES.iter().map(|call| Rule(*call, Test::Always, NOTIFY)));
        rules.push(Rule(libc::SYS_utimensat, Test::NonZero(1), NOTIFY));
        rules.extend(OWNERS.iter().map(|call| Rule(*call, Test::Always, no)));
    }
    assemble(&rules)
}

/// For the handler: what it never needs. `has_room` tells that it has namespaces of its own, in
/// which shared memory and message queues are private; `without_shared_memory` refuses memory
/// that no process has to show.
pub(super) fn needless(has_room: bool, without_shared_memory: bool) -> Vec<sock_filter> {
    let no = refuse(libc::EPERM);
    let mut rules: Vec<Rule> = REFUSED.iter().map(|call| Rule(*call, Test::Always, no)).collect();
    // The C library then uses the older call, whose flags can be seen.
    rules.push(Rule(libc::SYS_clone3, Test::Always, refuse(libc::ENOSYS)));
    rules.push(Rule(libc::SYS_clone, Test::Has(0, NEW_NAMESPACE), no));
    rules.push(Rule(libc::SYS_socket, Test::Is(2, MPTCP), refuse(libc::EPROTONOSUPPORT)));
    rules.push(Rule(libc::SYS_ioctl, Test::Is(1, libc::TIOCSTI as u32), no));
    rules.push(Rule(libc::SYS_ioctl, Test::Is(1, libc::TIOCLINUX as u32), no));
    rules.push(Rule(libc::SYS_inotify_add_watch, Test::Has(2, READS), refuse(libc::EACCES)));
    rules.push(Rule(libc::SYS_fcntl, Test::Is(1, NOTIFY_OF_DIRECTORY), refuse(libc::EACCES)));
    // Its init has the same user.
    rules.push(Rule(libc::SYS_prlimit64, Test::NonZero(0), no));
    if has_room {
        // The first process of the cell, from which the next job starts, has the same user.
        rules.extend(OF_OTHERS.iter().map(|call| Rule(*call, Test::Is(0, FIRST), no)));
        for call in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
            rules.push(Rule(call, Test::Is(1, FIRST), no));
        }
        rules.push(Rule(libc::SYS_setpriority, Test::Is(0, PRIO_USER), no));
        rules.push(Rule(libc::SYS_ioprio_set, Test::Is(0, IOPRIO_WHO_USER), no));
    }
    if without_shared_memory {
        // Programs then use a file instead.
        let absent = |call: &c_long| Rule(*call, Test::Always, refuse(libc::ENOSYS));
        rules.extend(UNSEEN.iter().map(absent));
        let (shared, anonymous) = (libc::MAP_SHARED as u32, libc::MAP_ANONYMOUS as u32);
        rules.push(Rule(libc::SYS_mmap, Test::HasBoth(3, shared, anonymous), no));
    }
    if !has_room {
        // A handler that has a room cannot name processes outside of it.
        rules.extend(OF_OTHERS.iter().map(|call| Rule(*call, Test::NonZero(0), no)));
        rules.push(Rule(libc::SYS_setpriority, Test::NonZero(0), no));
        rules.push(Rule(libc::SYS_setpriority, Test::NonZero(1), no));
        rules.push(Rule(libc::SYS_ioprio_set, Test::NonZero(1), no));
        rules.extend(SHARED.iter().map(|call| Rule(*call, Test::Always, no)));
    }
    assemble(&rules)
}

/// Calls that change the machine, other processes or the kernel's view of this one.
const REFUSED: &[c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_vhangup,
];

/// Calls that are allowed on the caller itself (process 0), and refused on others.
const OF_OTHERS: &[c_long] = &[
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// Calls that make memory which stays when no process has it in its own.
const UNSEEN: &[c_long] = &[libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget];

/// Changes of a file that Landlock does not cover, even of one that it has let a handler open only
/// for reading.
#[cfg(target_arch = "x86_64")]
const MODES: &[c_long] = &[libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];
#[cfg(not(target_arch = "x86_64"))]
const MODES: &[c_long] = &[libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];

/// The same of a file that is named, and no handler needs them. `fchown` and `fsetxattr` are part
/// of copying a file; without capabilities, they change no owner.
const OWNERS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

/// Calls on what all processes of a machine share, unless they have a namespace.
const SHARED: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The program of these rules.
fn assemble(rules: &[Rule]) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        // A program for another kind of machine makes other calls by the same numbers.
        branch(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(refuse(libc::ENOSYS)),
        load(NUMBER),
        branch(libc::BPF_JGE, FOREIGN_CALLS, 0, 1),
        answer(refuse(libc::ENOSYS)),
    ];
    for Rule(call, test, reply) in rules {
        // Each test skips the answer if it does not hold.
        let mut body = match *test {
            Test::Always => Vec::new(),
            Test::Is(argument, value) => {
                vec![load(low(argument)), branch(libc::BPF_JEQ, value, 0, 1)]
            }
            Test::IsNot(argument, value) => {
                vec![load(low(argument)), branch(libc::BPF_JEQ, value, 1, 0)]
            }
            Test::Has(argument, bits) => {
                vec![load(low(argument)), branch(libc::BPF_JSET, bits, 0, 1)]
            }
            Test::HasBoth(argument, one, other) => vec![
                load(low(argument)),
                branch(libc::BPF_JSET, one, 0, 2),
                branch(libc::BPF_JSET, other, 0, 1),
            ],
            Test::NonZero(argument) => vec![
                load(low(argument)),
                branch(libc::BPF_JEQ, 0, 0, 2),
                load(low(argument) + 4),
                branch(libc::BPF_JEQ, 0, 1, 0),
            ],
            Test::Between(argument, least, most) => vec![
                load(low(argument)),
                branch(libc::BPF_JGE, least, 0, 2),
                branch(libc::BPF_JGT, most, 1, 0),
            ],
            Test::Both([(first, value), (second, other)]) => vec![
                load(low(first)),
                branch(libc::BPF_JEQ, value, 0, 3),
                load(low(second)),
                branch(libc::BPF_JEQ, other, 0, 1),
            ],
        };
        body.push(answer(*reply));
        // The next rule needs the number again.
        body.push(load(NUMBER));
        program.push(branch(libc::BPF_JEQ, *call as u32, 0, body.len() as u8));
        program.extend(body);
    }
    program.push(answer(ALLOW));
    program
}

/// The place of the low half of an argument; all machines that are supported store it first.
const fn low(argument: u32) -> u32 {
    ARGUMENTS + 8 * argument
}

const fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

const fn answer(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

/// Compares what was loaded; skips `then` instructions if it holds, else `otherwise`.
const fn branch(comparison: u32, value: u32, then: u8, otherwise: u8) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, value, then, otherwise)
}

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}
