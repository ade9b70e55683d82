//! Answer: work that takes something for a caller, who may go away at any moment. It is carried
//! to its end all the same, and what nobody hears of any more is handed back.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Does the work, which is told when the caller goes away; then `back` gets what it took.
pub(crate) async fn or_back<T, W, B>(
    work: impl FnOnce(CancellationToken) -> W,
    back: impl Fn(T) -> B + Clone + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    W: Future<Output = Result<T, Error>> + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let gone = CancellationToken::new();
    let (answer, answered) = oneshot::channel();
    let working = work(gone.clone());
    tokio::spawn({
        let back = back.clone();
        async move {
            if let Err(Ok(unheard)) = answer.send(working.await) {
                back(unheard).await;
            }
        }
    });
    let unheard = move |taken| drop(tokio::spawn(back(taken)));
    let mut asking = Asking { gone, answered, unheard };
    let closed = |_| Err(Error::Unavailable("the daemon stops".into()));
    (&mut asking.answered).await.unwrap_or_else(closed)
}

/// A caller's question, until it is answered or the caller hangs up.
struct Asking<T, F: Fn(T)> {
    gone: CancellationToken,
    answered: oneshot::Receiver<Result<T, Error>>,
    unheard: F,
}

impl<T, F: Fn(T)> Drop for Asking<T, F> {
    fn drop(&mut self) {
        self.gone.cancel();
        self.answered.close();
        if let Ok(Ok(taken)) = self.answered.try_recv() {
            (self.unheard)(taken);
        }
    }
}
