//! What node alone can do: read lines from a pipe and answer each, without a queue or a handler.

use std::io::{Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::limits::disk::line;
use crate::machine;
use crate::report::figure::micros;

const SCRIPT: &str = include_str!("../../script/answer.cjs");
/// Lines per write, as many as jobs per batch.
const WRITE_LINES: u64 = 100;
const READ_BYTES: usize = 64 * 1024;

/// How node writes its answers.
#[derive(Clone, Copy)]
pub(crate) enum Answers {
    /// One write per answer.
    Single,
    /// One write for the answers to all lines of one read.
    Together,
}

pub(crate) struct LineRate {
    /// Lines per second.
    pub(crate) rate: f64,
    /// CPU time of node per line.
    pub(crate) cpu_micros: f64,
}

pub(crate) fn measure(answers: Answers, time: Duration) -> anyhow::Result<LineRate> {
    let word = match answers {
        Answers::Single => "single",
        Answers::Together => "together",
    };
    let mut command = Command::new("node");
    command.args(["-e", SCRIPT, word]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.spawn().context("node cannot be started")?;
    let mut input = node.stdin.take().context("node has an input")?;
    let mut output = node.stdout.take().context("node has an output")?;
    let mut buffer = vec![0; READ_BYTES];
    // The first answers show that it has started.
    let lines = line().repeat(WRITE_LINES as usize);
    input.write_all(&lines)?;
    let mut early = 0;
    while early < WRITE_LINES {
        early += read_lines(&mut output, &mut buffer)?.context("node ended by itself")?;
    }
    let process = node.id().to_string();
    let (began, cpu_before) = (Instant::now(), machine::cpu(&process)?);
    let writing = std::thread::spawn(move || write_for(input, &lines, time));
    let mut answered = 0;
    while let Some(lines) = read_lines(&mut output, &mut buffer)? {
        answered += lines;
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = machine::cpu(&process)? - cpu_before;
    let written = writing.join().ok().context("the writer panicked")??;
    let status = node.wait()?;
    ensure!(status.success() && answered == written, "node answered {answered} of {written} lines");
    Ok(LineRate { rate: answered as f64 / seconds, cpu_micros: micros(cpu) / answered as f64 })
}

/// Closes the input; returns the number of lines written.
fn write_for(mut input: ChildStdin, lines: &[u8], time: Duration) -> std::io::Result<u64> {
    let began = Instant::now();
    let mut written = 0;
    while began.elapsed() < time {
        input.write_all(lines)?;
        written += WRITE_LINES;
    }
    Ok(written)
}

/// How many lines ended in what was read; `None` at the end.
fn read_lines(output: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<Option<u64>> {
    let length = output.read(buffer)?;
    let lines = buffer[..length].iter().filter(|byte| **byte == b'\n').count();
    Ok((length > 0).then_some(lines as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_answered() {
        for answers in [Answers::Single, Answers::Together] {
            let answered = measure(answers, Duration::from_millis(20)).unwrap();
            assert!(answered.rate > 0.0);
        }
    }
}
