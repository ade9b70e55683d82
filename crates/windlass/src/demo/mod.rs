//! `windlass demo`: starts a queue in a temporary directory, adds jobs over its HTTP door, shows
//! the progress and a summary. All numbers come from the daemon.

mod plan;
mod report;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use windlass_core::KeyText;

use self::plan::{PLAN, jobs_expected};
use self::report::TypeSummary;
use self::screen::{Count, Screen};
use crate::client::Daemon;
use crate::client::http::AddRequest;
use crate::client::when;
use crate::keys::Login;
use crate::{output, temporary};

/// Few, so that a visible backlog builds up.
const SLOTS: usize = 4;
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// If it takes longer, something is wrong, and the demonstration should not hide it.
const TIME_MAX: Duration = Duration::from_secs(90);

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    temporary::with_daemon(SLOTS, async |url, key| {
        show(url, key).await?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn show(url: &str, key: &KeyText) -> anyhow::Result<()> {
    output::print(&format!("A daemon is running on {url}, in a temporary directory.\n\n"))?;
    let began = Instant::now();
    let began_ms = when::now().as_millisecond();
    let daemons: anyhow::Result<Vec<_>> = PLAN
        .iter()
        .map(|work| Daemon::new(url, work.tenant, Login::with_key(key.reveal())))
        .collect();
    let daemons = daemons?;
    give_work(&daemons).await?;
    watch(&daemons, began).await?;
    let mut summaries = Vec::new();
    for (work, daemon) in PLAN.iter().zip(&daemons) {
        summaries.push(TypeSummary::read(daemon, work).await?);
    }
    account(&daemons, &summaries, began_ms).await?;
    summaries.iter().try_for_each(TypeSummary::check)
}

/// Sets all handlers, then adds the jobs in the order of the plan.
async fn give_work(daemons: &[Daemon]) -> anyhow::Result<()> {
    for (work, daemon) in PLAN.iter().zip(daemons) {
        daemon.put(&daemon.path(&["handlers", work.name]), &work.handler()).await?;
        let from = match work.added {
            0 => String::new(),
            added => format!(", {added} jobs"),
        };
        output::print(&format!("  {}/{}{from}: {}\n", work.tenant, work.name, work.what))?;
    }
    output::print("\n")?;
    for (work, daemon) in PLAN.iter().zip(daemons).filter(|(work, _)| work.added > 0) {
        let request = AddRequest {
            content_type: "text/plain",
            body: work.payloads().into_bytes(),
            query: &[],
            idempotency_key: None,
        };
        daemon.add(work.name, request).await?;
    }
    Ok(())
}

/// Redraws until every job has ended.
async fn watch(daemons: &[Daemon], began: Instant) -> anyhow::Result<()> {
    let mut screen = Screen::new();
    loop {
        let counts = counts(daemons).await?;
        let ended: u64 = counts.iter().map(|count| count.finished + count.failed).sum();
        let all = ended as usize >= jobs_expected();
        screen.show(&counts, began.elapsed(), all)?;
        if all {
            return Ok(());
        }
        if began.elapsed() > TIME_MAX {
            bail!("the jobs did not end within {} s", TIME_MAX.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn counts(daemons: &[Daemon]) -> anyhow::Result<Vec<Count>> {
    let mut counts = Vec::new();
    for (work, daemon) in PLAN.iter().zip(daemons) {
        let types = daemon.get(&daemon.path(&["types"]), &[]).await?;
        let items = types.as_array().map_or(&[][..], Vec::as_slice);
        let item = items.iter().find(|item| item["type"] == work.name);
        counts.push(item.map(Count::read).unwrap_or_default());
    }
    Ok(counts)
}

async fn account(
    daemons: &[Daemon],
    summaries: &[TypeSummary],
    began_ms: i64,
) -> anyhow::Result<()> {
    let jobs = jobs_expected();
    let attempts: u64 = summaries.iter().map(TypeSummary::attempts).sum();
    let last_ms = summaries.iter().filter_map(TypeSummary::ended_ms).max().unwrap_or(began_ms);
    let took_s = ((last_ms - began_ms) as f64 / 1000.0).max(0.001);
    let mut text = format!("\n{}", report::table(summaries, began_ms).render(output::width()));
    text.push_str(&format!(
        "\n{jobs} jobs in {attempts} attempts took {took_s:.1} s: {:.0} jobs per second with \
         {SLOTS} slots. Most of that time the jobs sleep, so that there is something to watch.\n",
        jobs as f64 / took_s
    ));
    if let Some(sentence) = report::fairness(summaries, began_ms) {
        text.push_str(&format!("{sentence}\n"));
    }
    let sample = summaries.iter().zip(daemons).find(|(of, _)| of.was_retried());
    if let Some((daemon, id)) = sample.and_then(|(of, daemon)| Some((daemon, of.first_id()?))) {
        let log = daemon.get_text(&daemon.path(&["jobs", id, "log"])).await?;
        text.push_str(&format!("\nThe log of job {id}, which took two attempts:\n"));
        text.extend(log.lines().map(|line| format!("  {}\n", output::plain(line))));
    }
    text.push_str(BY_HAND);
    Ok(output::print(&text)?)
}

const BY_HAND: &str = r#"
The same by hand, with a daemon in another terminal (`windlass serve`):
  KEY="Authorization: Bearer $(cat windlass-data/admin.key)"
  curl -X PUT http://127.0.0.1:7600/v1/acme/handlers/shout -H "$KEY" \
       -H 'Content-Type: application/json' -d '{"lang":"sh","body":"tr a-z A-Z"}'
  printf 'hello\nworld\n' | curl -H "$KEY" -H 'Content-Type: text/plain' --data-binary @- \
       http://127.0.0.1:7600/v1/acme/jobs/shout
  windlass jobs list --tenant acme
"#;
