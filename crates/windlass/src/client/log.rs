//! The log of a job as the daemon keeps it: by attempt, each line with its stream. Polling it shows
//! each line once.

use serde::{Deserialize, Deserializer, de};

use windlass_core::log::Stream;

use super::http::Daemon;
use crate::output;

/// The first line of a truncated attempt, before and after the number of
/// missing lines.
const DROPPED: (&str, &str) = ("earlier output was dropped: ", " lines");

#[derive(Debug, Deserialize)]
pub(super) struct JobLog {
    /// Oldest first; the last one may still run.
    attempts: Vec<Attempt>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Attempt {
    pub(super) attempt: u64,
    /// `None` while it runs.
    pub(super) ended_at: Option<String>,
    lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Line {
    #[serde(deserialize_with = "stream")]
    pub(super) stream: Stream,
    pub(super) text: String,
}

fn stream<'de, D: Deserializer<'de>>(from: D) -> Result<Stream, D::Error> {
    let name = String::deserialize(from)?;
    Stream::from_name(&name).ok_or_else(|| de::Error::custom(format!("unknown stream {name}")))
}

impl Line {
    /// What the job wrote. Where our own lines may stand beside it, which begin with one of these
    /// `signs`, one that looks like them gets a backslash.
    pub(super) fn of_job(&self, signs: &[&str]) -> String {
        let is_beside = self.stream == Stream::Err || output::is_terminal();
        let is_like_ours = signs.iter().any(|sign| self.text.starts_with(sign));
        let mark = if is_beside && is_like_ours { "\\" } else { "" };
        format!("{mark}{}", self.text)
    }
}

pub(super) async fn get(daemon: &Daemon, id: &str) -> anyhow::Result<JobLog> {
    let log = daemon.get(&daemon.path(&["jobs", id, "log"]), &[("format", "json")]).await?;
    Ok(serde_json::from_value(log)?)
}

impl Attempt {
    /// The lines after the first `seen`, and how many there are now. If some were dropped unseen,
    /// the line that says so comes first.
    fn lines_after(&self, seen: usize) -> (&[Line], usize) {
        let missing = self.lines.first().and_then(missing);
        let Some(missing) = missing else {
            return (self.lines.get(seen..).unwrap_or_default(), self.lines.len());
        };
        let kept = &self.lines[1..];
        let new = match seen.checked_sub(missing) {
            Some(seen) => kept.get(seen..).unwrap_or_default(),
            None => &self.lines,
        };
        (new, missing + kept.len())
    }
}

fn missing(line: &Line) -> Option<usize> {
    let number = line.text.strip_prefix(DROPPED.0)?.strip_suffix(DROPPED.1)?;
    number.parse().ok().filter(|_| line.stream == Stream::Note)
}

/// How far a log has been read.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Number and end time of the last attempt that was read to its end.
    ended: Option<(u64, String)>,
    /// The attempt that was running, and how many of its lines have been read.
    running: Option<(u64, usize)>,
}

/// New lines of an attempt.
pub(super) struct NewLines<'a> {
    pub(super) attempt: &'a Attempt,
    /// Nothing of this attempt has been read before.
    pub(super) is_new: bool,
    pub(super) lines: &'a [Line],
}

impl Read {
    /// The new lines; all of them if the attempt read last is no longer kept.
    pub(super) fn news<'a>(&mut self, log: &'a JobLog) -> Vec<NewLines<'a>> {
        let is_last = |kept: &Attempt| {
            self.ended.as_ref().is_some_and(|(attempt, ended_at)| {
                (kept.attempt, &kept.ended_at) == (*attempt, &Some(ended_at.clone()))
            })
        };
        let start = log.attempts.iter().rposition(is_last).map_or(0, |at| at + 1);
        log.attempts[start..].iter().map(|attempt| self.read(attempt)).collect()
    }

    fn read<'a>(&mut self, attempt: &'a Attempt) -> NewLines<'a> {
        let number = attempt.attempt;
        let seen = self.running.take_if(|(running, _)| *running == number).map(|(_, seen)| seen);
        let (lines, count) = attempt.lines_after(seen.unwrap_or_default());
        match &attempt.ended_at {
            Some(at) => self.ended = Some((number, at.clone())),
            // Between its end and its verdict an attempt has no lines.
            None => self.running = Some((number, count.max(seen.unwrap_or_default()))),
        }
        NewLines { attempt, is_new: seen.is_none(), lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Attempts by number, end and lines; `missing 9` is the line that says so.
    fn log(attempts: &[(u64, Option<&str>, &[&str])]) -> JobLog {
        let line = |text: &&str| match text.strip_prefix("missing ") {
            Some(number) => {
                let text = format!("earlier output was dropped: {number} lines");
                json!({ "stream": "windlass", "text": text })
            }
            None => json!({ "stream": "stderr", "text": text }),
        };
        let attempt = |(attempt, ended_at, lines): &(u64, Option<&str>, &[&str])| {
            let lines: Vec<Value> = lines.iter().map(line).collect();
            json!({ "attempt": attempt, "ended_at": ended_at, "lines": lines })
        };
        let attempts: Vec<_> = attempts.iter().map(attempt).collect();
        serde_json::from_value(json!({ "attempts": attempts })).unwrap()
    }

    fn texts(read: &mut Read, log: &JobLog) -> Vec<String> {
        let news = read.news(log);
        let line =
            |new: &NewLines<'_>, line: &Line| format!("{} {}", new.attempt.attempt, line.text);
        news.iter().flat_map(|new| new.lines.iter().map(|text| line(new, text))).collect()
    }

    #[test]
    fn each_line_is_seen_once_while_the_log_grows_and_loses_its_beginning() {
        let mut read = Read::default();
        let mut new = |attempts: &[(u64, Option<&str>, &[&str])]| texts(&mut read, &log(attempts));
        assert!(new(&[]).is_empty());
        assert_eq!(new(&[(1, None, &["a"])]), ["1 a"]);
        assert!(new(&[(1, None, &[])]).is_empty(), "its verdict is on its way");
        let first: (u64, _, &[&str]) = (1, Some("then"), &["a", "b"]);
        assert_eq!(new(&[first]), ["1 b"]);
        assert!(new(&[first]).is_empty());
        assert_eq!(new(&[first, (2, None, &["c", "d"])]), ["2 c", "2 d"]);
        assert_eq!(new(&[first, (2, None, &["missing 1", "d", "e"])]), ["2 e"]);
        let lost = new(&[first, (2, None, &["missing 9", "x"])]);
        assert_eq!(lost, ["2 earlier output was dropped: 9 lines", "2 x"]);
        assert_eq!(new(&[first, (2, Some("now"), &["missing 9", "x", "y"])]), ["2 y"]);
    }

    #[test]
    fn what_was_shown_is_not_shown_again_unless_it_cannot_be_told() {
        let mut read = Read::default();
        let two: [(u64, _, &[&str]); 2] = [(1, Some("a"), &["x"]), (2, Some("b"), &["y"])];
        assert_eq!(texts(&mut read, &log(&two)), ["1 x", "2 y"]);
        let rerun = [two[0], two[1], (1, Some("c"), &["z"][..])];
        assert_eq!(texts(&mut read, &log(&rerun)), ["1 z"]);
        let gone: [(u64, _, &[&str]); 2] = [(8, Some("d"), &["v"]), (9, Some("e"), &["w"])];
        assert_eq!(texts(&mut read, &log(&gone)), ["8 v", "9 w"]);
    }
}
