//! Orders to a cell that runs one process after another, and its answers.
//!
//! ```text
//! daemon ── variables, streams ──► outer ── the same ──► init ── fork ──► main
//!        ◄── status, usable ──           ◄── status ──        everything is ended
//! ```
//! Between two processes, init ends all that the first one left, and makes everything new that it
//! could have changed: its scratch space, shared memory and message queues. The rest of the cell is
//! the same for all processes of one handler, and none of them can change it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use super::start::{NoCell, read_report};
use super::sys::socket;

/// Longest order.
const ORDER_BYTES_MAX: usize = 64 * 1024;
/// An answer: the status of the process, and whether the cell can run another one.
const ANSWER_BYTES: usize = 5;

/// Environment variables.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// What the next process gets besides what the plan says.
pub(super) struct Order {
    pub(super) env: Variables,
    /// Standard streams, and where to tell that it does not start.
    pub(super) descriptors: [OwnedFd; 4],
}

/// Our ends of the streams of a process.
pub(crate) struct Streams {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// The two ends of a line for orders and answers; that of the daemon never blocks.
pub(super) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socket::message_pair()?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Starts a process in a waiting cell, and waits until it runs.
pub(super) fn give(line: &OwnedFd, env: &Variables) -> Result<Streams, NoCell> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| NoCell::Other(errno.into()));
    let (their_in, stdin) = pipe()?;
    let (stdout, their_out) = pipe()?;
    let (stderr, their_err) = pipe()?;
    let (report, theirs) = pipe()?;
    let descriptors = [their_in, their_out, their_err, theirs];
    send(line, &encode(env), &descriptors).map_err(NoCell::Other)?;
    drop(descriptors);
    read_report(report)?;
    Ok(Streams { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() })
}

/// The answer that has arrived: the status of the process, and whether the cell can run another.
pub(crate) fn answer(line: &impl AsFd) -> io::Result<Option<(i32, bool)>> {
    let mut bytes = [0; ANSWER_BYTES];
    let read = rustix::io::read(line, &mut bytes)?;
    let [status @ .., usable] = bytes;
    Ok((read == ANSWER_BYTES).then(|| (i32::from_le_bytes(status), usable == 1)))
}

/// Answers the daemon.
pub(super) fn tell_answer(line: &OwnedFd, status: i32, is_usable: bool) -> io::Result<()> {
    let mut bytes = status.to_le_bytes().to_vec();
    bytes.push(u8::from(is_usable));
    send(line, &bytes, &[])
}

/// The next order; `None` if no more will come.
pub(super) fn next(line: &OwnedFd) -> io::Result<Option<Order>> {
    let (bytes, descriptors) = socket::receive(line.as_fd(), ORDER_BYTES_MAX)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let descriptors = descriptors.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(Order { env: decode(&bytes), descriptors }))
}

/// Passes an order on.
pub(super) fn pass(line: &OwnedFd, order: &Order) -> io::Result<()> {
    send(line, &encode(&order.env), &order.descriptors)
}

fn send(line: &OwnedFd, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
    if bytes.len() > ORDER_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket::send(line.as_fd(), bytes, None, descriptors, 0).map(drop)
}

/// Never empty, because that means the end: it begins with a zero.
fn encode(env: &Variables) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in env {
        bytes.extend([&b"\0"[..], name.as_bytes(), b"=", value.as_bytes()].concat());
    }
    bytes.push(0);
    bytes
}

fn decode(bytes: &[u8]) -> Variables {
    let entry = |text: &[u8]| {
        let at = text.iter().position(|byte| *byte == b'=')?;
        let part = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Some((part(&text[..at]), part(&text[at + 1..])))
    };
    bytes.split(|byte| *byte == 0).filter_map(entry).collect()
}

/// Everything that a report says.
pub(super) fn read_to_end(report: OwnedFd) -> io::Result<Vec<u8>> {
    let mut told = Vec::new();
    File::from(report).read_to_end(&mut told)?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_arrive_as_they_were_sent() {
        let env: Variables = vec![("A".into(), "b=c".into()), ("EMPTY".into(), "".into())];
        assert_eq!(decode(&encode(&env)), env);
        assert!(decode(&encode(&Vec::new())).is_empty() && !encode(&Vec::new()).is_empty());
    }

    #[test]
    fn an_order_arrives_with_its_descriptors_and_the_end_is_seen() {
        let (ours, theirs) = line().unwrap();
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let env: Variables = vec![("A".into(), "b".into())];
        send(&ours, &encode(&env), &[null(), null(), null(), null()]).unwrap();
        let order = next(&theirs).unwrap().unwrap();
        assert_eq!(order.env, env);
        assert!(answer(&ours).is_err(), "nothing was answered yet");
        tell_answer(&theirs, 256, true).unwrap();
        assert_eq!(answer(&ours).unwrap(), Some((256, true)));
        send(&ours, b"\0", &[]).unwrap();
        assert!(next(&theirs).is_err(), "an order without streams");
        drop(ours);
        assert!(next(&theirs).unwrap().is_none());
    }
}
