//! What a test's own thread logs, and the threads of runtimes that pass its dispatcher on.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tracing::subscriber::DefaultGuard;

/// Collects lines until it is dropped, on the thread that has made it.
pub struct Logged {
    bytes: Buffer,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// From now on, everything from `INFO` up.
    #[must_use]
    pub fn start() -> Logged {
        // With a single subscriber, `tracing` switches a line off for all threads if a thread
        // without one comes to it first. This one is on all threads, and drops what it gets.
        static NOWHERE: Once = Once::new();
        NOWHERE.call_once(|| {
            let nowhere = tracing_subscriber::registry();
            let _ = tracing::subscriber::set_global_default(nowhere);
        });
        let bytes = Buffer::default();
        let writer = bytes.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        Logged { bytes, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines so far with these words, each as `LEVEL module: message field=value`.
    pub fn lines(&self, words: &str) -> Vec<String> {
        let bytes = self.bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
