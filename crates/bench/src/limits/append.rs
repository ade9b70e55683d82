//! The least that a durable server can do: append bodies to a file, with one write and one sync for
//! all that are waiting.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Bodies that may wait, and that one write takes.
const WAITING_MAX: usize = 1024;

#[derive(Clone)]
pub(crate) struct Appender(mpsc::Sender<Append>);

struct Append {
    body: Bytes,
    synced: oneshot::Sender<bool>,
}

impl Appender {
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Appender> {
        let file = File::create(dir.join("appended"))?;
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new()
            .name("append".into())
            .spawn(move || write_groups(file, queue))
            .context("the writer cannot be started")?;
        Ok(Appender(sender))
    }

    /// True once the body is on disk.
    pub(crate) async fn append(&self, body: Bytes) -> bool {
        let (synced, answer) = oneshot::channel();
        self.0.send(Append { body, synced }).await.is_ok() && answer.await.unwrap_or(false)
    }
}

/// Operations per second from this many callers, each of which starts the next one after the last;
/// one operation is this many consecutive appends. Measures only the disk and the way to its
/// thread.
pub(crate) async fn rate(
    dir: &Path,
    callers: usize,
    appends: usize,
    line: Bytes,
    time: Duration,
) -> anyhow::Result<f64> {
    let appender = Appender::start(dir)?;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (appender, line) = (appender.clone(), line.clone());
        tasks.spawn(async move {
            let mut operations = 0u64;
            while began.elapsed() < time {
                for _ in 0..appends {
                    ensure!(appender.append(line.clone()).await, "an append failed");
                }
                operations += 1;
            }
            Ok(operations)
        });
    }
    let total: u64 = tasks.join_all().await.into_iter().sum::<anyhow::Result<u64>>()?;
    Ok(total as f64 / began.elapsed().as_secs_f64())
}

fn write_groups(mut file: File, mut queue: mpsc::Receiver<Append>) {
    let mut group = Vec::with_capacity(WAITING_MAX);
    while let Some(first) = queue.blocking_recv() {
        group.push(first);
        while group.len() < WAITING_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let synced = write_all(&mut file, &group).and_then(|()| file.sync_data()).is_ok();
        for append in group.drain(..) {
            // The caller may have stopped waiting.
            let _ = append.synced.send(synced);
        }
    }
}

fn write_all(file: &mut File, group: &[Append]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = group.iter().map(|it| IoSlice::new(&it.body)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let written = file.write_vectored(left)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_that_was_answered_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let appender = Appender::start(dir.path()).unwrap();
        let bodies = (0..50).map(|number| appender.append(Bytes::from(format!("{number};"))));
        let answers = futures_util::future::join_all(bodies).await;
        assert!(answers.into_iter().all(|synced| synced));
        let text = std::fs::read_to_string(dir.path().join("appended")).unwrap();
        let mut numbers: Vec<u32> =
            text.split_terminator(';').map(|n| n.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..50));
    }
}
