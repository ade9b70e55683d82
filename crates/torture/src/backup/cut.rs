//! The history as it was known when a backup began. What was sent by its end may be in it: these
//! requests stay, without an answer. The old daemons are gone from then on.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Taken;

/// Copies the histories in one directory to another one, up to the cut.
pub(super) fn copy(from: &Path, to: &Path, taken: &Taken) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let input = BufReader::new(File::open(&path)?);
        let mut output = BufWriter::new(File::create(to.join(format!("before-{name}")))?);
        for line in input.lines() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            if is_known(&line, taken) {
                writeln!(output, "{line}")?;
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// A torn line is not.
fn is_known(line: &str, taken: &Taken) -> bool {
    let Ok(record) = serde_json::from_str::<Value>(line) else { return false };
    let at = record["at"].as_u64().unwrap_or(u64::MAX);
    let may_be_in_it = !record["event"]["sent"].is_null() && at <= taken.ended_ns;
    at <= taken.began_ns || may_be_in_it
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_runs_count_until_the_begin_and_requests_until_the_end() {
        let taken = Taken { dir: "x".into(), began_ns: 10, ended_ns: 20 };
        let known = |at: u64, event: &str| {
            is_known(&format!(r#"{{"at":{at},"event":{{"{event}":{{}}}}}}"#), &taken)
        };
        assert!(known(10, "answered") && !known(11, "answered") && !known(11, "ended"));
        assert!(known(20, "sent") && !known(21, "sent"));
        assert!(!is_known(r#"{"at":1,"event":{"se"#, &taken));
    }
}
