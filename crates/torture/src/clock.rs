//! The wall clock of the daemons, which can be set. A small library is loaded before the daemons'
//! own: it adds an offset that all of them read from one file. The machine's clock stays as it is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("clock.c");
/// Longest time between a step and its record, and what other programs may set the clock by.
const STEP_MS_MAX: i64 = 2000;

pub(crate) struct Clock {
    file: File,
    ahead_s: i64,
    latest_s: i64,
}

/// What a daemon's environment needs for this clock.
pub(crate) fn environment(dir: &Path) -> [(&'static str, PathBuf); 2] {
    [("LD_PRELOAD", dir.join("clock.so")), ("TORTURE_CLOCK", dir.join("clock"))]
}

impl Clock {
    /// Builds the library and makes the file, in this folder.
    pub(crate) fn new(dir: &Path) -> Result<Clock> {
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        fs::write(&source, SOURCE)?;
        let mut command = Command::new("cc");
        command.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let output = command.output().context("cannot start cc; run: apt-get install -y gcc")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the clock cannot be built: {said}");
        let file = File::create(dir.join("clock"))?;
        let clock = Clock { file, ahead_s: 0, latest_s: 0 };
        clock.write()?;
        Ok(clock)
    }

    /// Sets the clock of all daemons, in either direction.
    pub(crate) fn step(&mut self, by_ms: i64) -> Result<()> {
        self.ahead_s += by_ms / 1000;
        self.latest_s = self.latest_s.max(self.ahead_s);
        self.write()
    }

    /// The step, in milliseconds, after which everything that was delayed by the clock so far is
    /// due.
    pub(crate) fn step_to_latest(&self) -> i64 {
        (self.latest_s - self.ahead_s) * 1000
    }

    pub(crate) fn ahead_s(&self) -> i64 {
        self.ahead_s
    }

    /// One write of eight bytes, which no reader sees in parts.
    fn write(&self) -> Result<()> {
        self.file.write_all_at(&self.ahead_s.to_ne_bytes(), 0).context("the clock cannot be set")
    }
}

/// How far the daemons' clock was ahead, and since when in the time of the run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Steps(Vec<(u64, i64)>);

impl Steps {
    pub(crate) fn add(&mut self, at_ns: u64, ahead_s: i64) {
        self.0.push((at_ns, ahead_s));
    }

    /// When it was so late by the daemons' clock, in milliseconds of a run that ends now; `None` if
    /// it never was. Steps are of hours, so runs of minutes leave no choice.
    pub(crate) fn real_ms(&self, shown_ms: i64, now_ns: u64) -> Option<u64> {
        let ms = |at_ns: u64| i64::try_from(at_ns / 1_000_000).unwrap_or(i64::MAX);
        let begins = [(0, 0)].into_iter().chain(self.0.iter().copied());
        let ends = self.0.iter().map(|(at_ns, _)| *at_ns).chain([now_ns]);
        begins.zip(ends).find_map(|((from_ns, ahead_s), to_ns)| {
            let real_ms = shown_ms - ahead_s * 1000;
            let span = ms(from_ns) - STEP_MS_MAX..=ms(to_ns).saturating_add(STEP_MS_MAX);
            span.contains(&real_ms).then(|| u64::try_from(real_ms).unwrap_or(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_logs_are_those_of_the_run_whatever_the_clock_was_set_to() {
        const HOUR_S: i64 = 3600;
        let mut steps = Steps::default();
        let now_ns = 30_000_000_000;
        assert_eq!(steps.real_ms(5000, now_ns), Some(5000));
        steps.add(10_000_000_000, 48 * HOUR_S);
        steps.add(20_000_000_000, -HOUR_S);
        let shown = |ms: i64, ahead_s: i64| steps.real_ms(ms + ahead_s * 1000, now_ns);
        assert_eq!(shown(5000, 0), Some(5000));
        assert_eq!(shown(15_000, 48 * HOUR_S), Some(15_000));
        assert_eq!(shown(25_000, -HOUR_S), Some(25_000));
        assert_eq!(shown(15_000, 2 * HOUR_S), None, "no clock was set to that");
    }

    #[test]
    fn a_program_sees_the_steps_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let mut clock = Clock::new(dir.path()).unwrap();
        let shown = || {
            let mut date = Command::new("date");
            let output = date.arg("+%s").envs(environment(dir.path())).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<i64>().unwrap()
        };
        let real = shown();
        clock.step(-7_200_000).unwrap();
        assert!((shown() - real + 7200).abs() < 60);
        clock.step(clock.step_to_latest()).unwrap();
        assert!((shown() - real).abs() < 60);
    }
}
