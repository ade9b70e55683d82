//! The kernel's side: a filter that stops some system calls of a thread, and of everything that it
//! starts, until they are answered.

#![allow(unsafe_code, reason = "the kernel's interface has no safe form")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_long, c_ulong, sock_filter};

/// Where the calls of a filter arrive.
pub(crate) struct Listener(OwnedFd);

/// A call that waits for its answer.
pub(crate) struct Stopped {
    pub(crate) id: u64,
    /// The thread that makes it.
    pub(crate) thread: u32,
    pub(crate) number: c_long,
    pub(crate) arguments: [u64; 6],
}

/// What a wait has brought.
pub(crate) enum Next {
    Call(Stopped),
    /// No call in this time, or one whose caller was killed.
    Nothing,
    /// Everything with this filter has ended.
    End,
}

pub(crate) enum Answer {
    /// The kernel makes the call.
    Pass,
    Value(i64),
    Error(i32),
}

/// Stops these calls of the current thread, and of all threads and processes that it starts from
/// now on. There is no way back.
pub(crate) fn install(numbers: &[c_long]) -> io::Result<Listener> {
    let mut program = program(numbers);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the program and what it points to live until the calls have returned, and the kernel
    // copies it. The returned descriptor is new, and nothing else owns it.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let listener = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Listener(OwnedFd::from_raw_fd(listener as i32)))
    }
}

/// Loads the number of the call and compares it with each of `numbers`.
fn program(numbers: &[c_long]) -> Vec<sock_filter> {
    let plain = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let to_last = |at: usize| (numbers.len() - at) as u8;
    let compare = |(at, number): (usize, &c_long)| sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: to_last(at),
        jf: 0,
        k: *number as u32,
    };
    let mut program = vec![plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    program.extend(numbers.iter().enumerate().map(compare));
    program.push(plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(plain(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program
}

impl Listener {
    /// Waits for the next call.
    pub(crate) fn next(&self, time_max: Duration) -> io::Result<Next> {
        let mut waiting = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid structure is passed.
        let ready = unsafe { libc::poll(&raw mut waiting, 1, time_max.as_millis() as i32) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Next::Nothing),
                _ => Err(error),
            };
        }
        if ready == 0 {
            return Ok(Next::Nothing);
        }
        if waiting.revents & libc::POLLIN == 0 {
            return Ok(Next::End);
        }
        Ok(self.receive()?.map_or(Next::Nothing, Next::Call))
    }

    /// `None` if the caller was killed meanwhile.
    fn receive(&self) -> io::Result<Option<Stopped>> {
        // SAFETY: all zeros is a valid value, and what the kernel requires. The request is for this
        // structure.
        let (received, call) = unsafe {
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
            (libc::ioctl(self.0.as_raw_fd(), request, &raw mut call), call)
        };
        if received == 0 {
            let (number, arguments) = (c_long::from(call.data.nr), call.data.args);
            return Ok(Some(Stopped { id: call.id, thread: call.pid, number, arguments }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(error),
        }
    }

    /// The answer is dropped if the caller was killed meanwhile.
    pub(crate) fn answer(&self, id: u64, answer: &Answer) {
        let (val, error, flags) = match answer {
            Answer::Pass => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Value(value) => (*value, 0, 0),
            Answer::Error(error) => (0, -error, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the structure is the one that the request is for.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response)
        };
    }
}

/// Kills a process at once.
pub(crate) fn kill(process: u32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
}
