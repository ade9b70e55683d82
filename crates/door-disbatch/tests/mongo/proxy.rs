//! Stands between the driver and the server, and loses answers when it is told to.

use std::sync::{Arc, Mutex};

use mongodb::bson::Document;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What is to happen to the answer to the next command of that name.
#[derive(Clone)]
pub(crate) enum Loss {
    /// The server has done it, then the connection breaks.
    Answer(&'static str),
    /// The command never arrives, and nothing breaks.
    Silence(&'static str),
}

/// A host and a port.
pub(crate) type Address = (String, u16);

/// Where the server that the tests share is.
pub(crate) async fn server_address() -> Address {
    crate::base::fresh().await.hosts().swap_remove(0)
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub port: u16,
    loss: Arc<Mutex<Option<Loss>>>,
}

impl Proxy {
    /// One in front of that server.
    pub(crate) async fn start(server: Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, loss: Arc::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (proxy, server) = (serving.clone(), server.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    proxy.pass(client, server).await;
                });
            }
        });
        proxy
    }

    pub(crate) fn lose(&self, loss: Loss) {
        *self.loss.lock().unwrap() = Some(loss);
    }

    fn url(&self) -> String {
        // The driver must not ask again by itself.
        format!("mongodb://127.0.0.1:{}/?directConnection=true&retryWrites=false", self.port)
    }

    /// A database of the server, reached over this.
    pub(crate) async fn database(&self, name: &str) -> windlass_door_disbatch::database::Database {
        crate::base::connect(&self.url(), name).await
    }

    async fn pass(&self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        loop {
            tokio::select! {
                command = message(&mut from_client) => {
                    let Some(command) = command else { return };
                    match self.loss_of(&command) {
                        None => if to_server.write_all(&command).await.is_err() { return },
                        Some(Loss::Answer(_)) => {
                            to_server.write_all(&command).await.unwrap();
                            message(&mut from_server).await;
                            return;
                        }
                        Some(Loss::Silence(_)) => std::future::pending().await,
                    }
                }
                answer = message(&mut from_server) => {
                    let Some(answer) = answer else { return };
                    if to_client.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn loss_of(&self, command: &[u8]) -> Option<Loss> {
        let mut loss = self.loss.lock().unwrap();
        let (Loss::Answer(name) | Loss::Silence(name)) = loss.as_ref()?;
        (command_name(command).as_deref() == Some(name)).then(|| loss.take()).flatten()
    }
}

/// One message of the wire protocol: its length comes first.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = from.read_u32_le().await.ok()?;
    let mut message = vec![0; usize::try_from(length).unwrap()];
    message[..4].copy_from_slice(&length.to_le_bytes());
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// The first key of the body, behind a header of 16 bytes, flags of 4 and the kind of section.
fn command_name(message: &[u8]) -> Option<String> {
    let body = message.get(21..)?;
    let length = u32::from_le_bytes(body.get(..4)?.try_into().ok()?);
    let body = body.get(..usize::try_from(length).ok()?)?;
    let body = Document::from_reader(body).ok()?;
    body.keys().next().cloned()
}

/// Speaks TLS with clients and passes on to the server what they say.
pub(crate) async fn start_tls(acceptor: TlsAcceptor, server: Address) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            tokio::spawn(async move {
                let Ok(client) = acceptor.accept(client).await else { return };
                join(client, TcpStream::connect(server).await.unwrap()).await;
            });
        }
    });
    port
}

async fn join(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    mut other: impl AsyncRead + AsyncWrite + Unpin,
) {
    // It ends when one of them does.
    let _ = copy_bidirectional(&mut one, &mut other).await;
}
