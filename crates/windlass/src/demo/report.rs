//! The summary, read from the daemon.

use anyhow::bail;
use serde_json::Value;

use super::plan::{PLAN, Work};
use crate::client::Daemon;
use crate::client::when;
use crate::output::{Table, number, text};

/// More than the demonstration has of any type.
const JOBS_MAX: &str = "1000";

/// All jobs of one type of the plan.
pub(super) struct TypeSummary {
    work: &'static Work,
    jobs: Vec<Value>,
}

impl TypeSummary {
    pub(super) async fn read(daemon: &Daemon, work: &'static Work) -> anyhow::Result<TypeSummary> {
        let query = [("type", work.name), ("limit", JOBS_MAX)];
        let mut answer = daemon.get(&daemon.path(&["jobs"]), &query).await?;
        match answer["jobs"].take() {
            Value::Array(jobs) => Ok(TypeSummary { work, jobs }),
            _ => bail!("the daemon's answer to a list has no jobs"),
        }
    }

    /// Checks that every job ended as planned, after the planned number of attempts.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Work { tenant, name, expected, attempts, .. } = *self.work;
        let finished = self.jobs.iter().filter(|job| job["state"] == "finished").count();
        if finished != expected || self.jobs.len() != expected {
            let all = self.jobs.len();
            bail!("{finished} of {all} jobs of {tenant}/{name} finished instead of {expected}");
        }
        if let Some(job) = self.jobs.iter().find(|job| job["attempt"] != attempts) {
            let made = &job["attempt"];
            bail!("job {} of {tenant}/{name} took {made} attempts, not {attempts}", job["id"]);
        }
        Ok(())
    }

    pub(super) fn attempts(&self) -> u64 {
        self.jobs.iter().filter_map(|job| job["attempt"].as_u64()).sum()
    }

    pub(super) fn was_retried(&self) -> bool {
        self.attempts() > self.jobs.len() as u64
    }

    /// The oldest job, as a sample.
    pub(super) fn first_id(&self) -> Option<&str> {
        self.jobs.last()?["id"].as_str()
    }

    /// When the last job ended, in milliseconds since the epoch.
    pub(super) fn ended_ms(&self) -> Option<i64> {
        let ends = self.jobs.iter().filter_map(|job| when::read(&job["finished_at"]));
        ends.map(|end| end.as_millisecond()).max()
    }

    /// The median wait between being due and the start of the last attempt.
    fn wait_p50_ms(&self) -> Option<i64> {
        let mut waits: Vec<_> = self.jobs.iter().filter_map(wait_ms).collect();
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied()
    }
}

fn wait_ms(job: &Value) -> Option<i64> {
    let (due, start) = (when::read(&job["run_at"])?, when::read(&job["started_at"])?);
    Some((start.as_millisecond() - due.as_millisecond()).max(0))
}

/// One row per type; times count from `began_ms`.
pub(super) fn table(summaries: &[TypeSummary], began_ms: i64) -> Table {
    let mut table = Table::new(&[
        text("TENANT"),
        text("TYPE"),
        number("JOBS"),
        number("OK"),
        number("FAILED"),
        number("RETRIES"),
        number("WAIT p50"),
        number("LAST ENDED"),
    ]);
    for of in summaries {
        let count = |state: &str| of.jobs.iter().filter(|job| job["state"] == state).count();
        let last = of.ended_ms().map_or("-".into(), |end| seconds(end - began_ms));
        table.row(vec![
            of.work.tenant.into(),
            of.work.name.into(),
            of.jobs.len().to_string(),
            count("finished").to_string(),
            count("failed").to_string(),
            of.attempts().saturating_sub(of.jobs.len() as u64).to_string(),
            of.wait_p50_ms().map_or("-".into(), |ms| format!("{ms} ms")),
            last,
        ]);
    }
    table
}

/// One sentence about how the large backlog affected the small tenant.
pub(super) fn fairness(summaries: &[TypeSummary], began_ms: i64) -> Option<String> {
    let large = summaries.iter().find(|of| of.work.added > 0)?;
    let small = summaries.iter().filter(|of| of.work.tenant != large.work.tenant);
    let small_ms = small.clone().filter_map(TypeSummary::ended_ms).max()? - began_ms;
    let small_jobs: usize = small.map(|of| of.jobs.len()).sum();
    let other = PLAN.iter().find(|work| work.tenant != large.work.tenant)?.tenant;
    Some(format!(
        "{other} queued behind {} waiting jobs of {}, yet its {small_jobs} jobs ended after {}; \
         {} needed {}.",
        large.jobs.len(),
        large.work.tenant,
        seconds(small_ms),
        large.work.tenant,
        seconds(large.ended_ms()? - began_ms),
    ))
}

fn seconds(ms: i64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}
