//! The accept loop: serves a bounded number of connections; further ones wait to be accepted.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::accept::accept;
use crate::connections::{CLOSE_GRACE, Connections};

/// Serves until `stop` is cancelled. Then no more connections are accepted, and every `talk` is
/// asked to finish by its own token. Returns when all have ended; those that have not after a grace
/// period are cut off.
pub async fn serve<T: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    connections_max: usize,
    stop: CancellationToken,
    talk: impl Fn(TcpStream, CancellationToken) -> T,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let connections = Connections::default();
    let accept_all = async {
        // The semaphore is never closed.
        while let Ok(slot) = slots.clone().acquire_owned().await {
            let tell = |error| tracing::warn!(%error, "cannot accept a connection");
            let (stream, _) = accept(&listener, tell).await;
            connections.spawn(slot, talk(stream, stop.child_token()));
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
        let server = serve(listener, 1, stop.clone(), |mut stream, stop| {
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
}
