//! What an attempt leaves behind: its result, its log and its progress.

use windlass_core::job::Progress;
use windlass_core::limit::LOG_ATTEMPTS_MAX;
use windlass_core::log::Log;
use windlass_core::store::{LeaseRef, Settlement};
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::row::{Stored, part};
use crate::tx::Tx;

/// Stores what the attempts of settled jobs leave behind. Returns the jobs' new parts.
pub(crate) async fn put_all(tx: &Tx<'_>, run: &[(&Settlement, Stored)]) -> Result<Vec<i32>> {
    let mut parts: Vec<i32> = run.iter().map(|(_, stored)| stored.parts).collect();
    let (mut ids, mut results) = (Vec::new(), Vec::new());
    let (mut progress, mut logs) = (Vec::new(), Vec::new());
    for ((by, stored), parts) in run.iter().zip(&mut parts) {
        let id = by.lease.id.get();
        if let Some(data) = &by.data {
            ids.push(id);
            results.push(data.as_str());
            *parts |= part::RESULT;
        }
        if let Some(noted) = &by.progress {
            progress.push((&by.lease, noted));
            *parts |= part::PROGRESS;
        }
        if !by.log.is_empty() {
            let attempt = stored.job.attempt;
            logs.push(LogEntry { id, attempt, ended_at: tx.now, log: &by.log, parts: *parts });
            *parts |= part::LOG;
        }
    }
    if !ids.is_empty() {
        tx.execute(PUT_RESULTS, &[&ids, &results]).await?;
    }
    put_progress_rows(tx, &progress).await?;
    put_logs(tx, &logs).await?;
    Ok(parts)
}

const PUT_RESULTS: &str = "
    INSERT INTO result (id, data) SELECT * FROM unnest($1::int8[], $2::text[])
    ON CONFLICT (id) DO UPDATE SET data = excluded.data";

/// The log of an attempt of a job with these parts.
pub(crate) struct LogEntry<'a> {
    pub(crate) id: i64,
    pub(crate) attempt: u32,
    pub(crate) ended_at: Timestamp,
    pub(crate) log: &'a Log,
    pub(crate) parts: i32,
}

const PUT_LOGS: &str = "
    INSERT INTO log (id, attempt, ended_at, text)
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::bytea[])";
const DROP_OLD_LOGS: &str = "
    DELETE FROM log l
     USING (SELECT id, seq, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS nth
              FROM log WHERE id = ANY ($1)) AS old
     WHERE old.nth > $2 AND l.id = old.id AND l.seq = old.seq";

/// Stores logs that are not empty, and deletes old ones beyond a bounded number. Their jobs have
/// `part::LOG` from now on.
pub(crate) async fn put_logs(tx: &Tx<'_>, logs: &[LogEntry<'_>]) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = logs.iter().map(|entry| entry.id).collect();
    let attempts: Vec<i32> = logs.iter().map(|entry| entry.attempt as i32).collect();
    let ends: Vec<i64> = logs.iter().map(|entry| entry.ended_at.ms()).collect();
    let texts: Vec<&[u8]> = logs.iter().map(|entry| entry.log.as_stored().as_bytes()).collect();
    tx.execute(PUT_LOGS, &[&ids, &attempts, &ends, &texts]).await?;
    let had_logs = logs.iter().filter(|entry| entry.parts & part::LOG != 0);
    let had_logs: Vec<i64> = had_logs.map(|entry| entry.id).collect();
    if !had_logs.is_empty() {
        tx.execute(DROP_OLD_LOGS, &[&had_logs, &i64::from(LOG_ATTEMPTS_MAX)]).await?;
    }
    Ok(())
}

const PUT_PROGRESS: &str = "
    INSERT INTO progress (id, token, percent, at, message)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::float8[], $4::int8[], $5::bytea[])
    ON CONFLICT (id) DO UPDATE
       SET token = excluded.token, percent = excluded.percent, at = excluded.at,
           message = excluded.message";

/// Stores the progress of running jobs, of each once.
pub(crate) async fn put_progress(tx: &Tx<'_>, noted: &[(&LeaseRef, &Progress)]) -> Result<()> {
    put_progress_rows(tx, noted).await?;
    let ids: Vec<i64> = noted.iter().map(|(lease, _)| lease.id.get()).collect();
    let mark = "UPDATE job SET parts = parts | 16 WHERE id = ANY ($1) AND parts & 16 = 0";
    tx.execute(mark, &[&ids]).await?;
    Ok(())
}

async fn put_progress_rows(tx: &Tx<'_>, noted: &[(&LeaseRef, &Progress)]) -> Result<()> {
    if noted.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = noted.iter().map(|(lease, _)| lease.id.get()).collect();
    let tokens: Vec<i64> = noted.iter().map(|(lease, _)| lease.token.0).collect();
    let percents: Vec<f64> = noted.iter().map(|(_, progress)| progress.percent).collect();
    let times: Vec<i64> = noted.iter().map(|(_, progress)| progress.at.ms()).collect();
    let messages: Vec<&[u8]> =
        noted.iter().map(|(_, progress)| progress.message.as_bytes()).collect();
    tx.execute(PUT_PROGRESS, &[&ids, &tokens, &percents, &times, &messages]).await?;
    Ok(())
}
