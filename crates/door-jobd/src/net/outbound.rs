//! The bounded write queue of a connection.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;

use windlass_core::sync::lock;
use windlass_net::tcp;

/// Bytes that may wait after the message being written, which may have any length.
pub(super) const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Minimum size at which a waiting message counts.
const MESSAGE_BYTES_MIN: usize = 64;
/// Longest time without progress while messages wait.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Outbound {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// Of all messages except the first.
    waiting_bytes: usize,
    /// The first one has been taken and is not written yet.
    writing: bool,
    finished: bool,
    /// Requests held until the peer listens; `None` once it does.
    held: Option<HeldRequests>,
}

#[derive(Debug, Default)]
struct HeldRequests {
    requests: Vec<Vec<u8>>,
    bytes: usize,
}

/// The peer does not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

impl Outbound {
    /// Messages after the end are dropped.
    pub(super) fn push(&self, message: Vec<u8>) -> Result<(), QueueFull> {
        self.lock().push(message)?;
        self.changed.notify_one();
        Ok(())
    }

    /// As `push`, unless requests are held.
    pub(super) fn push_request(&self, message: Vec<u8>) -> Result<(), QueueFull> {
        let mut queue = self.lock();
        let Some(held) = &mut queue.held else {
            drop(queue);
            return self.push(message);
        };
        if held.bytes > WAITING_BYTES_MAX {
            return Err(QueueFull);
        }
        held.bytes += cost(&message);
        held.requests.push(message);
        Ok(())
    }

    /// Requests wait until `release`.
    pub(super) fn hold(&self) {
        self.lock().held.get_or_insert_default();
    }

    pub(super) fn release(&self) -> Result<(), QueueFull> {
        let mut queue = self.lock();
        for request in queue.held.take().unwrap_or_default().requests {
            queue.push(request)?;
        }
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// Accepts no more messages.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        let queue = self.lock();
        queue.messages.is_empty() && !queue.writing
    }

    /// Writes everything until `finish`.
    pub(super) async fn write_all(&self, stream: &TcpStream) -> io::Result<()> {
        loop {
            match self.take() {
                Some(message) => tcp::write(stream, &message, SILENCE_MAX).await?,
                None if self.lock().finished => return Ok(()),
                None => self.changed.notified().await,
            }
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        let message = queue.messages.pop_front();
        // The first of a queue is not counted, and neither is the one being written.
        if let (true, Some(message)) = (queue.writing, &message) {
            queue.waiting_bytes -= cost(message);
        }
        queue.writing = message.is_some();
        message
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Queue {
    fn push(&mut self, message: Vec<u8>) -> Result<(), QueueFull> {
        if self.finished {
            return Ok(());
        }
        if self.writing || !self.messages.is_empty() {
            if self.waiting_bytes > WAITING_BYTES_MAX {
                return Err(QueueFull);
            }
            self.waiting_bytes += cost(&message);
        }
        self.messages.push_back(message);
        Ok(())
    }
}

fn cost(message: &[u8]) -> usize {
    message.len() + MESSAGE_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_may_have_any_length_and_few_may_wait_behind_it() {
        let outbound = Outbound::default();
        assert_eq!(outbound.push(vec![0; WAITING_BYTES_MAX + 10]), Ok(()));
        assert_eq!(outbound.push(vec![1; 4]), Ok(()));
        assert_eq!(outbound.push(vec![2; WAITING_BYTES_MAX]), Ok(()));
        assert_eq!(outbound.push(vec![3; 4]), Err(QueueFull));
        // The first one is being written: still not more.
        assert_eq!(outbound.take().map(|message| message[0]), Some(0));
        assert_eq!(outbound.push(vec![3; 4]), Err(QueueFull));
        assert_eq!(outbound.take().map(|message| message[0]), Some(1));
        assert_eq!(outbound.take().map(|message| message[0]), Some(2));
        assert_eq!(outbound.push(vec![3; 4]), Ok(()));
        assert_eq!(outbound.take().map(|message| message[0]), Some(3));
        assert_eq!(outbound.take(), None);
        assert_eq!(outbound.lock().waiting_bytes, 0);
    }

    #[test]
    fn short_messages_are_not_free() {
        let outbound = Outbound::default();
        let pushed = (0..WAITING_BYTES_MAX).take_while(|_| outbound.push(vec![0]).is_ok()).count();
        assert!(pushed <= WAITING_BYTES_MAX / MESSAGE_BYTES_MIN, "{pushed}");
    }

    #[test]
    fn held_requests_follow_what_is_sent_meanwhile_in_their_order() {
        let outbound = Outbound::default();
        outbound.hold();
        for message in [1, 2] {
            assert_eq!(outbound.push_request(vec![message]), Ok(()));
        }
        assert_eq!(outbound.push(vec![0]), Ok(()));
        assert_eq!(outbound.take(), Some(vec![0]));
        assert_eq!(outbound.take(), None);
        assert_eq!(outbound.release(), Ok(()));
        assert_eq!(outbound.push_request(vec![3]), Ok(()));
        for message in [1, 2, 3] {
            assert_eq!(outbound.take(), Some(vec![message]));
        }
        assert_eq!(outbound.take(), None);
        assert_eq!(outbound.lock().waiting_bytes, 0);
    }

    #[test]
    fn held_requests_are_bounded() {
        let outbound = Outbound::default();
        outbound.hold();
        assert_eq!(outbound.push_request(vec![0; WAITING_BYTES_MAX]), Ok(()));
        assert_eq!(outbound.push_request(vec![1]), Err(QueueFull));
    }

    #[test]
    fn nothing_is_kept_after_the_end() {
        let outbound = Outbound::default();
        outbound.finish();
        assert_eq!(outbound.push(vec![1]), Ok(()));
        assert_eq!(outbound.take(), None);
    }
}
