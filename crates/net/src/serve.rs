//! The accept loop: serves a bounded number of connections. Further ones wait, unless one whose
//! client is not admitted yet can make room.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::accept::accept;
use crate::connections::{CLOSE_GRACE, Connections};
use crate::guest::{Guest, Guests};

/// Serves until `stop` is cancelled. Then no more connections are accepted, and every `talk` is
/// asked to finish by its own token. Returns when all have ended; those that have not after a grace
/// period are cut off.
pub async fn serve<T: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    connections_max: usize,
    stop: CancellationToken,
    talk: impl Fn(TcpStream, Arc<Guest>, CancellationToken) -> T,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let connections = Connections::default();
    let guests = Guests::default();
    let accept_all = async {
        loop {
            let tell = |error| tracing::warn!(%error, "cannot accept a connection");
            let (stream, _) = accept(&listener, tell).await;
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned();
            let mut slot = std::pin::pin!(slot);
            let slot = tokio::select! {
                biased;
                slot = slot.as_mut() => slot,
                () = guests.make_room() => slot.await,
            };
            let Ok(slot) = slot else { return };
            let guest = Arc::new(guests.enter());
            let cut = guest.cut();
            let talk = talk(stream, guest, stop.child_token());
            connections.spawn(slot, async move {
                tokio::select! {
                    biased;
                    () = talk => {}
                    () = cut.cancelled() => {}
                }
            });
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept_all => {}
    }
    drop(listener);
    let tell = |left| tracing::warn!(connections = left, "cutting off connections that do not end");
    connections.end(CLOSE_GRACE, tell).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn only_so_many_are_served_at_once_and_the_others_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, open_max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = CancellationToken::new();
        // Sends a greeting, and ends when it is asked to stop or the client is done.
        let server = serve(listener, 1, stop.clone(), |mut stream, guest, stop| {
            guest.admit();
            let (open, open_max) = (open.clone(), open_max.clone());
            async move {
                open_max.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
                stream.write_all(b"a").await.unwrap();
                tokio::select! {
                    _ = stream.read_u8() => {}
                    () = stop.cancelled() => stream.write_all(b"z").await.unwrap(),
                }
                open.fetch_sub(1, SeqCst);
            }
        });
        let clients = async {
            let mut first = TcpStream::connect(address).await.unwrap();
            let mut second = TcpStream::connect(address).await.unwrap();
            assert_eq!(first.read_u8().await.unwrap(), b'a');
            drop(first);
            assert_eq!(second.read_u8().await.unwrap(), b'a');
            stop.cancel();
            let mut rest = String::new();
            second.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "z");
        };
        tokio::join!(server, clients);
        assert_eq!((open.load(SeqCst), open_max.load(SeqCst)), (0, 1));
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    }

    /// Admits clients that ask for it.
    async fn greet(mut stream: TcpStream, guest: Arc<Guest>) {
        stream.write_all(b"a").await.unwrap();
        while let Ok(b'?') = stream.read_u8().await {
            guest.admit();
            stream.write_all(b"!").await.unwrap();
        }
    }

    #[tokio::test]
    async fn clients_that_are_not_admitted_make_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = serve(listener, 2, stop.clone(), |stream, guest, _| greet(stream, guest));
        let clients = async {
            let connect = async || {
                let mut stream = TcpStream::connect(address).await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'a');
                stream
            };
            let mut known = connect().await;
            known.write_all(b"?").await.unwrap();
            assert_eq!(known.read_u8().await.unwrap(), b'!');
            for _ in 0..2 {
                let mut stranger = connect().await;
                let next = connect().await;
                assert_eq!(stranger.read(&mut [0]).await.unwrap(), 0, "the older one is cut off");
                drop(next);
            }
            known.write_all(b"?").await.unwrap();
            assert_eq!(known.read_u8().await.unwrap(), b'!');
            drop(known);
            stop.cancel();
        };
        tokio::join!(server, clients);
    }
}
