//! How much later a context runs its first job in a cell than as a bare process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use windlass_core::job::Token;
use windlass_core::runner::{Assignment, Batch, Pieces, Report, Reports, Runner};
use windlass_core::{
    AttemptId, Handler, HandlerSpec, Job, JobId, Lang, NewJob, Payload, Timestamp, TypeKey,
};
use windlass_runner::{Level, LocalRunner};

use crate::engine::{context, daemon};
use crate::report::figure::{Figure, Outcome, Samples};
use crate::scale::Scale;

const LATER_MS_MAX: f64 = 20.0;
const LANGUAGES: [(Lang, &str); 2] = [(Lang::Python, "return 200"), (Lang::Node, "return 200")];
/// Longer than any start.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("cell-start-").tempdir_in(dir)?;
    let runtime = daemon::runtime()?;
    let figures = runtime.block_on(starts(dir.path(), scale.starts));
    runtime.shutdown_background();
    let (figures, later) = figures?;
    Ok(Outcome {
        promise: "≤ 20 ms later than bare",
        reached: format!("{later:.1} ms later"),
        kept: later <= LATER_MS_MAX,
        figures,
    })
}

/// The figures, and how much later the slower language starts, in milliseconds.
async fn starts(dir: &Path, count: u64) -> anyhow::Result<(Vec<Figure>, f64)> {
    let cells = context::runner(&dir.join("cells"), Level::Required)?;
    let bare = context::runner(&dir.join("bare"), Level::Off)?;
    let (mut figures, mut latest) = (Vec::new(), 0.0_f64);
    for (lang, body) in LANGUAGES {
        let (mut in_cell, mut alone) = (Samples::default(), Samples::default());
        for number in 0..count {
            in_cell.push(start(&cells, lang, body, number).await?);
            alone.push(start(&bare, lang, body, number).await?);
        }
        let ms = |samples: &Samples| samples.p50().as_secs_f64() * 1e3;
        let name = lang.as_str();
        figures.push(Figure::new(format!("{name}, in a cell, p50"), ms(&in_cell), "ms"));
        figures.push(Figure::new(format!("{name}, bare, p50"), ms(&alone), "ms"));
        latest = latest.max(ms(&in_cell) - ms(&alone));
    }
    cells.close().await;
    bare.close().await;
    Ok((figures, latest))
}

/// From the order to the end of the first job of a new context.
async fn start(
    runner: &LocalRunner,
    lang: Lang,
    body: &str,
    number: u64,
) -> anyhow::Result<Duration> {
    let id = JobId::new(number.cast_signed() + 1).context("an id above 0")?;
    let key = TypeKey::new("bench", &format!("type{number}"))?;
    let payload = Payload::Inline(Bytes::new());
    let new = NewJob::new(id, key.clone(), payload.clone(), Timestamp(0));
    let job = Arc::new(Job::running(new, 1, Timestamp(0)));
    let attempt = AttemptId { job: id, token: Token(1) };
    let (timeout, live) = (TIME_MAX, Arc::default());
    let jobs = vec![Assignment { id: attempt, job, payload, timeout, live }];
    let spec = HandlerSpec::new(lang, body);
    let handler = Arc::new(Handler { id, key: key.clone(), created_at: Timestamp(0), spec });
    let (ended, mut reports) = mpsc::unbounded_channel();
    let began = Instant::now();
    let batch = Batch { handler, jobs, pieces: Arc::new(NoPieces), secrets: Arc::default() };
    runner.run(batch, Arc::new(Ends(ended))).await;
    let took = began.elapsed();
    let report: Report = reports.recv().await.context("the job did not end")?;
    ensure!(report.status.get() == 200, "a context did not start: {}", report.log);
    runner.forget(&key);
    Ok(took)
}

struct Ends(mpsc::UnboundedSender<Report>);

#[async_trait]
impl Reports for Ends {
    async fn started(&self, _: AttemptId) {}

    async fn progress(&self, _: AttemptId, _: f64, _: String) {}

    async fn ended(&self, _: AttemptId, report: Report) {
        let _ = self.0.send(report);
    }

    async fn returned(&self, _: AttemptId) {}
}

struct NoPieces;

#[async_trait]
impl Pieces for NoPieces {
    async fn piece(&self, _: JobId, _: u32) -> Result<Option<Bytes>, String> {
        Err("no payload here has pieces".into())
    }
}
