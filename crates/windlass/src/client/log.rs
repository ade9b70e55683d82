//! The log of a job as the daemon keeps it: attempt by attempt, each line with the stream that it
//! was written to.

use serde::{Deserialize, Deserializer, de};

use windlass_core::log::Stream;

use super::http::Daemon;

#[derive(Debug, Deserialize)]
pub(super) struct JobLog {
    /// Oldest first.
    pub(super) attempts: Vec<Attempt>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Attempt {
    pub(super) attempt: u64,
    pub(super) ended_at: String,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Line {
    #[serde(deserialize_with = "stream")]
    pub(super) stream: Stream,
    pub(super) text: String,
}

fn stream<'de, D: Deserializer<'de>>(from: D) -> Result<Stream, D::Error> {
    let name = String::deserialize(from)?;
    Stream::from_name(&name).ok_or_else(|| de::Error::custom(format!("no stream is called {name}")))
}

pub(super) async fn get(daemon: &Daemon, id: &str) -> anyhow::Result<JobLog> {
    let log = daemon.get(&daemon.path(&["jobs", id, "log"]), &[("format", "json")]).await?;
    Ok(serde_json::from_value(log)?)
}

impl JobLog {
    /// The lines of all attempts behind number `attempt`.
    pub(super) fn behind(&self, attempt: u64) -> impl Iterator<Item = &Line> {
        let later = self.attempts.iter().filter(move |kept| kept.attempt > attempt);
        later.flat_map(|kept| &kept.lines)
    }

    /// The attempts behind the one that was shown last, which may have been dropped meanwhile: then
    /// all of them.
    pub(super) fn after(&self, last: Option<&Attempt>) -> &[Attempt] {
        let is_last = |kept: &Attempt| {
            last.is_some_and(|last| {
                (kept.attempt, &kept.ended_at) == (last.attempt, &last.ended_at)
            })
        };
        match self.attempts.iter().rposition(is_last) {
            Some(at) => &self.attempts[at + 1..],
            None => &self.attempts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn log(attempts: &[(u64, &str)]) -> JobLog {
        let attempt = |(attempt, ended_at): &(u64, &str)| {
            let line = json!({ "stream": "stderr", "text": format!("{attempt} {ended_at}") });
            json!({ "attempt": attempt, "ended_at": ended_at, "lines": [line] })
        };
        let attempts: Vec<_> = attempts.iter().map(attempt).collect();
        serde_json::from_value(json!({ "attempts": attempts })).unwrap()
    }

    #[test]
    fn lines_belong_to_an_attempt_and_a_stream() {
        let log = log(&[(1, "a"), (2, "b"), (3, "c")]);
        let behind: Vec<_> = log.behind(1).collect();
        let line = |text: &str| Line { stream: Stream::Err, text: text.into() };
        assert_eq!(behind, [&line("2 b"), &line("3 c")]);
        assert_eq!(log.behind(3).count(), 0);
    }

    #[test]
    fn what_was_shown_is_not_shown_again_unless_it_cannot_be_told() {
        let count = |log: &JobLog, last: Option<&JobLog>| {
            log.after(last.and_then(|last| last.attempts.last())).len()
        };
        let two = log(&[(1, "a"), (2, "b")]);
        assert_eq!(count(&two, None), 2);
        assert_eq!(count(&two, Some(&two)), 0);
        assert_eq!(count(&log(&[(1, "a"), (2, "b"), (1, "c")]), Some(&two)), 1, "a rerun");
        assert_eq!(count(&log(&[(8, "x"), (9, "y")]), Some(&two)), 2, "the others are gone");
    }
}
