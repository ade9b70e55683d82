//! The usual names of signals and of errors at the start of a process.

use rustix::io::Errno;
use windlass_core::launch::SignalTo;

/// Linux signal numbers that have a name.
const SIGNALS: [(&str, i32); 31] = [
    ("SIGHUP", libc::SIGHUP),
    ("SIGINT", libc::SIGINT),
    ("SIGQUIT", libc::SIGQUIT),
    ("SIGILL", libc::SIGILL),
    ("SIGTRAP", libc::SIGTRAP),
    ("SIGABRT", libc::SIGABRT),
    ("SIGBUS", libc::SIGBUS),
    ("SIGFPE", libc::SIGFPE),
    ("SIGKILL", libc::SIGKILL),
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGSEGV", libc::SIGSEGV),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGPIPE", libc::SIGPIPE),
    ("SIGALRM", libc::SIGALRM),
    ("SIGTERM", libc::SIGTERM),
    ("SIGSTKFLT", libc::SIGSTKFLT),
    ("SIGCHLD", libc::SIGCHLD),
    ("SIGCONT", libc::SIGCONT),
    ("SIGSTOP", libc::SIGSTOP),
    ("SIGTSTP", libc::SIGTSTP),
    ("SIGTTIN", libc::SIGTTIN),
    ("SIGTTOU", libc::SIGTTOU),
    ("SIGURG", libc::SIGURG),
    ("SIGXCPU", libc::SIGXCPU),
    ("SIGXFSZ", libc::SIGXFSZ),
    ("SIGVTALRM", libc::SIGVTALRM),
    ("SIGPROF", libc::SIGPROF),
    ("SIGWINCH", libc::SIGWINCH),
    ("SIGIO", libc::SIGIO),
    ("SIGPWR", libc::SIGPWR),
    ("SIGSYS", libc::SIGSYS),
];
/// Other names of some of them.
const ALIASES: [(&str, i32); 2] = [("SIGIOT", libc::SIGIOT), ("SIGPOLL", libc::SIGPOLL)];

const START_ERRORS: [(&str, Errno); 17] = [
    ("ENOENT", Errno::NOENT),
    ("EACCES", Errno::ACCESS),
    ("EPERM", Errno::PERM),
    ("ENOTDIR", Errno::NOTDIR),
    ("EISDIR", Errno::ISDIR),
    ("ENOEXEC", Errno::NOEXEC),
    ("E2BIG", Errno::TOOBIG),
    ("ELOOP", Errno::LOOP),
    ("ENAMETOOLONG", Errno::NAMETOOLONG),
    ("ETXTBSY", Errno::TXTBSY),
    ("EINVAL", Errno::INVAL),
    ("EIO", Errno::IO),
    ("EAGAIN", Errno::AGAIN),
    ("ENOMEM", Errno::NOMEM),
    ("EMFILE", Errno::MFILE),
    ("ENFILE", Errno::NFILE),
    ("ENOSPC", Errno::NOSPC),
];

/// The number of a signal that can be sent; 0 sends none.
pub(super) fn number_of(signal: &SignalTo) -> Option<i32> {
    match signal {
        SignalTo::Number(0) => Some(0),
        SignalTo::Number(number) => {
            SIGNALS.iter().map(|(_, known)| *known).find(|known| i64::from(*known) == *number)
        }
        SignalTo::Name(name) => {
            let known = SIGNALS.iter().chain(&ALIASES).find(|(known, _)| known == name);
            known.map(|(_, number)| *number)
        }
    }
}

pub(super) fn of_signal(number: i32) -> String {
    match SIGNALS.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("SIG{number}"),
    }
}

pub(super) fn of_errno(errno: i32) -> String {
    match START_ERRORS.iter().find(|(_, known)| known.raw_os_error() == errno) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("errno {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_number_and_by_name() {
        for (signal, number) in [
            (SignalTo::Number(0), Some(0)),
            (SignalTo::Number(15), Some(15)),
            (SignalTo::Number(-1), None),
            (SignalTo::Number(32), None),
            (SignalTo::Number(1 << 32 | 9), None),
            (SignalTo::Name("SIGTERM".into()), Some(15)),
            (SignalTo::Name("SIGIOT".into()), Some(6)),
            (SignalTo::Name("TERM".into()), None),
            (SignalTo::Name("sigterm".into()), None),
            (SignalTo::Name(String::new()), None),
        ] {
            assert_eq!(number_of(&signal), number, "{signal:?}");
        }
        assert_eq!(of_signal(9), "SIGKILL");
        assert_eq!(of_signal(40), "SIG40");
    }

    #[test]
    fn errors_of_a_start_have_their_short_names() {
        assert_eq!(of_errno(2), "ENOENT");
        assert_eq!(of_errno(13), "EACCES");
        assert_eq!(of_errno(9999), "errno 9999");
    }
}
