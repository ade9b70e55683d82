//! Filters of system calls, as programs for the kernel.
//!
//! There are two. The first is common to a whole cell: calls that reach out to the network wait for
//! the outer process, which carries them out itself. The second is for the handler alone: calls
//! that no handler needs and that have led out of sandboxes are refused.
//!
//! A program is a list of rules that is read from the top; what no rule names is allowed. The
//! kernel remembers which calls are allowed whatever their arguments, so these cost nothing.

mod program;

use libc::{c_long, sock_filter};

use self::program::{ALLOW, NOTIFY, Rule, Test, assemble, refuse};

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
/// Requests of `fcntl` that no handler needs: for signals when a directory is read or changed, an
/// older way than inotify; and for a lease, which keeps others waiting who open the file.
const OF_OPEN_FILES: &[u32] = &[libc::F_NOTIFY as u32, libc::F_SETLEASE as u32];
/// The kind of an `ioctl`, and those that file systems have: all of them, Btrfs, bcachefs and F2FS.
/// Many change a file that is open for reading alone: its flags, its version, whether it can ever
/// be changed again.
const KIND_OF_REQUEST: u32 = 0xFF00;
const OF_FILE_SYSTEMS: [u8; 6] = [b'f', b'v', b'X', 0x94, 0xBC, 0xF5];
/// Those that copy a file. They need a descriptor that was opened for writing.
const COPIES: [u32; 2] = [libc::FICLONE as u32, libc::FICLONERANGE as u32];
/// Calls that are newer than the C library's list: a form of `open_tree`, and changes of files.
const OPEN_TREE_ATTR: c_long = 467;
pub(super) const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

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
        rules.extend(CARRIED_OUT.iter().map(|call| Rule(*call, Test::Always, NOTIFY)));
        rules.extend(NAMED.iter().map(|call| Rule(*call, Test::Always, no)));
        rules.extend(COPIES.map(|request| Rule(libc::SYS_ioctl, Test::Is(1, request), ALLOW)));
        let of_kind = |kind| Test::Masked(1, KIND_OF_REQUEST, u32::from(kind) << 8);
        let absent = refuse(libc::ENOTTY);
        rules.extend(OF_FILE_SYSTEMS.map(|kind| Rule(libc::SYS_ioctl, of_kind(kind), absent)));
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
    let of_open =
        |request: &u32| Rule(libc::SYS_fcntl, Test::Is(1, *request), refuse(libc::EACCES));
    rules.extend(OF_OPEN_FILES.iter().map(of_open));
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
    // Landlock refuses them anyway, because no rule can name the kernel's own mount of them.
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
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
/// for reading, and watching them. They are carried out on the cell's own files.
const CARRIED_OUT: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_utimensat,
    libc::SYS_fchown,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    libc::SYS_inotify_add_watch,
];

/// Changes of a file that is named, which no handler needs.
const NAMED: &[c_long] = &[
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
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
];
