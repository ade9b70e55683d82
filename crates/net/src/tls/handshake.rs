//! Handshakes within bounds: a client that is slow, or many of them, must not keep others out.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Tls, TlsStream};

/// One of this many connections, and at least one, is kept for clients after their handshake.
const DONE_PART: usize = 4;
/// The first byte of a client that speaks TLS.
const HANDSHAKE: u8 = 0x16;

/// The handshakes under way at one door.
pub struct Handshakes {
    time_max: Duration,
    /// When there would be more, the oldest is cut off: honest ones take less than a second, so
    /// it is most likely none of those.
    max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    /// By age.
    cuts: BTreeMap<u64, CancellationToken>,
}

/// How a connection begins.
pub enum Accepted {
    Tls(Box<TlsStream>),
    /// The client speaks something else, most likely plain HTTP.
    Plain(TcpStream),
    /// It has ended, was too slow, or has no valid certificate.
    Ended,
}

impl Handshakes {
    /// `time_max` is how long one may take.
    pub fn new(connections_max: usize, time_max: Duration) -> Handshakes {
        let max = (connections_max - connections_max.div_ceil(DONE_PART)).max(1);
        Handshakes { time_max, max, under_way: Mutex::default() }
    }

    /// Ends early when `closing` is cancelled.
    pub async fn accept(
        &self,
        tls: &Tls,
        stream: TcpStream,
        closing: &CancellationToken,
    ) -> Accepted {
        let place = self.begin();
        let shaking = tokio::time::timeout(self.time_max, shake(tls, stream));
        tokio::select! {
            biased;
            done = shaking => done.unwrap_or_else(|_| {
                tracing::debug!("a TLS handshake took too long");
                Accepted::Ended
            }),
            () = place.cut.cancelled() => {
                tracing::debug!("a TLS handshake was cut off to make room for others");
                Accepted::Ended
            }
            () = closing.cancelled() => Accepted::Ended,
        }
    }

    /// Makes room if there is none.
    fn begin(&self) -> Place<'_> {
        let mut under_way = self.lock();
        if under_way.cuts.len() >= self.max
            && let Some((_, oldest)) = under_way.cuts.pop_first()
        {
            oldest.cancel();
        }
        let (number, cut) = (under_way.next, CancellationToken::new());
        under_way.next += 1;
        under_way.cuts.insert(number, cut.clone());
        drop(under_way);
        Place { of: self, number, cut }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        // Nothing in between can panic.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handshake that counts as under way until this is dropped.
struct Place<'a> {
    of: &'a Handshakes,
    number: u64,
    cut: CancellationToken,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.of.lock().cuts.remove(&self.number);
    }
}

async fn shake(tls: &Tls, stream: TcpStream) -> Accepted {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] != HANDSHAKE => return Accepted::Plain(stream),
        Ok(1) => {}
        _ => return Accepted::Ended,
    }
    match TlsAcceptor::from(tls.config()).accept(stream).await {
        Ok(stream) => Accepted::Tls(Box::new(stream)),
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            Accepted::Ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_for_the_newest() {
        for (connections, max) in [(1, 1), (2, 1), (4, 3), (10_000, 7500)] {
            assert_eq!(Handshakes::new(connections, Duration::ZERO).max, max);
        }
        let handshakes = Handshakes::new(4, Duration::from_secs(1));
        let places: Vec<_> = (0..5).map(|_| handshakes.begin()).collect();
        let cut: Vec<_> = places.iter().map(|place| place.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, true, false, false, false]);
        drop(places);
        let places: Vec<_> = (0..3).map(|_| handshakes.begin()).collect();
        assert!(places.iter().all(|place| !place.cut.is_cancelled()), "their places are free");
    }
}
