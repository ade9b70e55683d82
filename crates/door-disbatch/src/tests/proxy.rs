//! A proxy between the driver and the server that parses just enough of the wire protocol to know a
//! command's name and collection, and disturbs it as a test wants.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::database::Database;
use mongodb::bson::{Document, doc};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use windlass_test_kit::wait::{in_time, pause};

/// A server error that is caused by the command itself.
const BAD_VALUE: i32 = 2;

/// The delay of a slow command, in pauses.
const SLOW_PAUSES: usize = 4;

/// What happens to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Counted only.
    Pass,
    /// The server executes it, then the connection breaks.
    LoseAnswer,
    /// The server executes it twice, as a repetition that it does not recognise. The second answer
    /// counts.
    Twice,
    /// It never arrives, and the connection breaks.
    Lose,
    /// It never arrives, and the connection stays open.
    Silence,
    /// It waits until it is released, and the connection stays open.
    Hold,
    /// It is slow, as on a busy server.
    Slow,
    /// The connection breaks at once; the server receives it when it is released.
    Late,
    /// Answered with a refusal.
    Refuse,
    /// Answered with this error code.
    RefuseWith(i32),
}

/// A command on its way to the server.
pub(crate) struct Command {
    body: Document,
    bytes: Vec<u8>,
}

impl Command {
    /// Compares its name in the protocol, such as `findAndModify`.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.body.keys().next().is_some_and(|first| first == name)
    }

    pub(crate) fn is_on(&self, name: &str, collection: &str) -> bool {
        self.is(name) && self.body.get_str(name).is_ok_and(|it| it == collection)
    }

    /// Whether it contains this key, text or id.
    pub(crate) fn mentions(&self, what: impl AsRef<[u8]>) -> bool {
        let what = what.as_ref();
        self.bytes.windows(what.len()).any(|part| part == what)
    }
}

type CommandFilter = Box<dyn Fn(&Command) -> bool + Send + Sync>;

struct Rule {
    which: CommandFilter,
    fate: Fate,
    /// Remaining number of matching commands.
    left: AtomicUsize,
    met: watch::Sender<usize>,
    delivered: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

/// A test's handle for a rule, which applies as long as the proxy exists, unless it is released.
pub(crate) struct Handle(Arc<Rule>);

impl Handle {
    /// How many commands it has matched.
    pub(crate) fn count(&self) -> usize {
        *self.0.met.borrow()
    }

    /// Waits until it has matched this many more commands.
    pub(crate) async fn more(&self, count: usize) {
        let goal = self.count() + count;
        reach(&self.0.met, goal, "a command").await;
    }

    /// Waits until it has matched a command.
    pub(crate) async fn met(&self) {
        reach(&self.0.met, 1, "a command").await;
    }

    /// Releases waiting commands and disables the rule.
    pub(crate) fn release(&self) {
        self.0.left.store(0, Ordering::SeqCst);
        self.0.released.send_replace(true);
    }

    /// Waits until the server has executed the released command.
    pub(crate) async fn delivered(&self) {
        reach(&self.0.delivered, self.count(), "a late command").await;
    }
}

async fn reach(counter: &watch::Sender<usize>, goal: usize, what: &str) {
    let mut counter = counter.subscribe();
    let _ = in_time(what, counter.wait_for(|count| *count >= goal)).await;
}

/// A host and a port.
pub(crate) type Address = (String, u16);

/// The address of the shared server.
pub(crate) async fn server_address() -> Address {
    crate::tests::base::fresh().await.hosts().swap_remove(0)
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub port: u16,
    rules: Arc<Mutex<Vec<Arc<Rule>>>>,
    answered: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy for that server.
    pub(crate) async fn start(server: Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, rules: Arc::default(), answered: Arc::default() };
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

    /// Adds a rule for the next matching command.
    pub(crate) fn next(
        &self,
        fate: Fate,
        which: impl Fn(&Command) -> bool + Send + Sync + 'static,
    ) -> Handle {
        self.rule(fate, 1, Box::new(which))
    }

    /// Adds a rule for every matching command.
    pub(crate) fn each(
        &self,
        fate: Fate,
        which: impl Fn(&Command) -> bool + Send + Sync + 'static,
    ) -> Handle {
        self.rule(fate, usize::MAX, Box::new(which))
    }

    fn rule(&self, fate: Fate, left: usize, which: CommandFilter) -> Handle {
        let (left, met) = (AtomicUsize::new(left), watch::Sender::new(0));
        let (delivered, released) = (watch::Sender::new(0), watch::Sender::new(false));
        let rule = Arc::new(Rule { which, fate, left, met, delivered, released });
        self.rules.lock().unwrap().push(rule.clone());
        Handle(rule)
    }

    /// Total bytes of all answers so far.
    pub(crate) fn answered_bytes(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// The URL for the configuration.
    pub(crate) fn url(&self) -> String {
        // The driver must not retry by itself.
        format!("mongodb://127.0.0.1:{}/?directConnection=true&retryWrites=false", self.port)
    }

    /// A database of the server, accessed through the proxy.
    pub(crate) async fn database(&self, name: &str) -> Database {
        crate::tests::base::connect(&self.url(), name).await
    }

    async fn pass(&self, client: TcpStream, server: TcpStream) {
        let (mut from_client, to_client) = client.into_split();
        let (from_server, mut to_server) = server.into_split();
        let back = Arc::new(AnswerPath::new(to_client, self.answered.clone()));
        tokio::spawn(back.clone().run(from_server));
        while let Some(bytes) = message(&mut from_client).await {
            let command = Command { body: body(&bytes).unwrap_or_default(), bytes };
            let rule = self.rule_of(&command);
            match rule.as_deref().map_or(Fate::Pass, |rule| rule.fate) {
                Fate::Pass => {}
                Fate::LoseAnswer => back.lose.store(true, Ordering::SeqCst),
                Fate::Twice => {
                    back.dropped.store(1, Ordering::SeqCst);
                    if to_server.write_all(&command.bytes).await.is_err() {
                        break;
                    }
                }
                Fate::Lose => break,
                Fate::Silence => std::future::pending().await,
                Fate::Hold => released(rule.as_deref()).await,
                Fate::Slow => {
                    for _ in 0..SLOW_PAUSES {
                        pause().await;
                    }
                }
                Fate::Late => {
                    back.close().await;
                    released(rule.as_deref()).await;
                }
                Fate::Refuse => {
                    back.refuse(&command.bytes, BAD_VALUE).await;
                    continue;
                }
                Fate::RefuseWith(code) => {
                    back.refuse(&command.bytes, code).await;
                    continue;
                }
            }
            let before = *back.answers.borrow();
            if to_server.write_all(&command.bytes).await.is_err() {
                break;
            }
            if let Some(rule) = rule.filter(|rule| rule.fate == Fate::Late) {
                reach(&back.answers, before + 1, "the server").await;
                rule.delivered.send_modify(|count| *count += 1);
                return;
            }
        }
        back.close().await;
    }

    fn rule_of(&self, command: &Command) -> Option<Arc<Rule>> {
        let rules = self.rules.lock().unwrap();
        let rule = rules.iter().rev().find(|rule| {
            let one_less = |left: usize| left.checked_sub(1);
            (rule.which)(command)
                && rule.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        })?;
        rule.met.send_modify(|count| *count += 1);
        Some(rule.clone())
    }
}

async fn released(rule: Option<&Rule>) {
    if let Some(rule) = rule {
        // The rule lives as long as this.
        let _ = rule.released.subscribe().wait_for(|released| *released).await;
    }
}

/// The server-to-client direction of a connection.
struct AnswerPath {
    to_client: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
    lose: AtomicBool,
    /// How many of the next answers do not reach the client.
    dropped: AtomicUsize,
    answers: watch::Sender<usize>,
    bytes: Arc<AtomicUsize>,
}

impl AnswerPath {
    fn new(to_client: OwnedWriteHalf, bytes: Arc<AtomicUsize>) -> Self {
        let to_client = tokio::sync::Mutex::new(Some(to_client));
        let (lose, dropped) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { to_client, lose, dropped, answers: watch::Sender::new(0), bytes }
    }

    async fn run(self: Arc<Self>, mut from_server: OwnedReadHalf) {
        while let Some(answer) = message(&mut from_server).await {
            self.bytes.fetch_add(answer.len(), Ordering::SeqCst);
            if self.lose.load(Ordering::SeqCst) {
                self.close().await;
            }
            let one_less = |left: usize| left.checked_sub(1);
            if self.dropped.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
                self.write(&answer).await;
            }
            self.answers.send_modify(|count| *count += 1);
        }
        self.close().await;
    }

    async fn write(&self, answer: &[u8]) {
        if let Some(to_client) = &mut *self.to_client.lock().await {
            // The client may be gone.
            let _ = to_client.write_all(answer).await;
        }
    }

    async fn close(&self) {
        self.to_client.lock().await.take();
    }

    async fn refuse(&self, command: &[u8], code: i32) {
        let error = doc! { "ok": 0.0, "code": code, "errmsg": "refused by the test" };
        let error = error.to_vec().unwrap();
        let length = u32::try_from(21 + error.len()).unwrap();
        let mut answer = Vec::new();
        for number in [length, 0] {
            answer.extend(number.to_le_bytes());
        }
        // The request number and the message type, copied from the command.
        answer.extend(&command[4..8]);
        answer.extend(&command[12..16]);
        // No flags, and one section of the first kind.
        answer.extend([0; 5]);
        answer.extend(error);
        self.write(&answer).await;
    }
}

/// Reads one message of the wire protocol, which begins with its length.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = from.read_u32_le().await.ok()?;
    let mut message = vec![0; usize::try_from(length).unwrap()];
    message[..4].copy_from_slice(&length.to_le_bytes());
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// After a 16-byte header, 4 bytes of flags and the section kind.
fn body(message: &[u8]) -> Option<Document> {
    let body = message.get(21..)?;
    let length = u32::from_le_bytes(body.get(..4)?.try_into().ok()?);
    let body = body.get(..usize::try_from(length).ok()?)?;
    Document::from_reader(body).ok()
}

/// Accepts TLS connections and forwards them to the server in plain text.
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
    // It ends when either side closes.
    let _ = copy_bidirectional(&mut one, &mut other).await;
}
