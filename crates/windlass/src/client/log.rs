//! The log of a job as the daemon shows it, line by line: which attempt wrote it, and to which
//! stream.

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
    /// Windlass itself had something to say.
    Windlass,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) stream: Stream,
    pub(super) text: &'a str,
}

/// What stands before lines that are not standard output.
const SIGNS: [(&str, Stream); 2] = [("[stderr] ", Stream::Err), ("[windlass] ", Stream::Windlass)];

/// The lines of all attempts behind number `attempt`.
pub(super) fn behind(attempt: u64, log: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut current = 0;
    for text in log.lines() {
        // A job may write such a line too, but hardly one that counts on.
        match attempt_of(text) {
            Some(next) if next > current => current = next,
            _ if current > attempt => lines.push(line(text)),
            _ => {}
        }
    }
    lines
}

/// The number in `--- attempt 1, ended 2026-11-15T20:00:00.000Z ---`.
fn attempt_of(line: &str) -> Option<u64> {
    let inside = line.strip_prefix("--- attempt ")?.strip_suffix(" ---")?;
    let (number, time) = inside.split_once(", ended ")?;
    time.parse::<jiff::Timestamp>().ok()?;
    number.parse().ok()
}

fn line(text: &str) -> Line<'_> {
    let signed = SIGNS.iter().find_map(|(sign, stream)| Some((stream, text.strip_prefix(sign)?)));
    match signed {
        Some((stream, text)) => Line { stream: *stream, text },
        None => Line { stream: Stream::Out, text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
--- attempt 1, ended 2026-11-15T20:00:00.000Z ---
a
[stderr] b
--- attempt 2, ended 2026-11-15T20:00:01.000Z ---
--- attempt 3, ended 2026-11-15T20:00:02.000Z ---
--- attempt 1, ended 2026-11-15T20:00:02.000Z ---
--- attempt 9, ended yesterday ---
[windlass] exit code 65
";

    #[test]
    fn lines_belong_to_an_attempt_and_a_stream() {
        let all = behind(0, LOG);
        assert_eq!(all[0], Line { stream: Stream::Out, text: "a" });
        assert_eq!(all[1], Line { stream: Stream::Err, text: "b" });
        let last = [
            Line { stream: Stream::Out, text: LOG.lines().nth(5).unwrap() },
            Line { stream: Stream::Out, text: "--- attempt 9, ended yesterday ---" },
            Line { stream: Stream::Windlass, text: "exit code 65" },
        ];
        assert_eq!(behind(1, LOG), last);
        assert_eq!(behind(2, LOG), last);
        assert!(behind(3, LOG).is_empty() && behind(0, "").is_empty());
    }
}
