//! Runs the fuzz targets on libFuzzer, which needs a nightly compiler and cargo-fuzz. The ordinary
//! tests run the same targets with the committed inputs and changes of them, and need neither.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

const USAGE: &str = "cargo xtask fuzz [TARGET] [--seconds N]";
/// Seconds for each target, unless told otherwise.
const SECONDS: u64 = 600;
/// Longest input; longer ones find little more, and take long.
const INPUT_BYTES_MAX: u32 = 4096;
/// Longest time for one input.
const INPUT_SECONDS_MAX: u32 = 20;
const MEMORY_MB_MAX: u32 = 2048;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let all = targets()?;
    let (chosen, seconds) = parse(arguments, &all)?;
    let nightly = ["run", "nightly", "rustc", "--version"];
    if !shell::succeeds("rustup", &nightly) {
        bail!("there is no nightly compiler: rustup toolchain install nightly --profile minimal");
    }
    if !shell::succeeds("rustup", &["run", "nightly", "cargo", "fuzz", "--version"]) {
        bail!("there is no cargo-fuzz: cargo install --locked cargo-fuzz");
    }
    // The same versions as the daemon's.
    let root = shell::root();
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock")).context("fuzz/Cargo.lock")?;
    for target in chosen {
        fuzz(&target, seconds)?;
    }
    Ok(())
}

fn fuzz(target: &str, seconds: u64) -> Result<()> {
    let (found, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
    fs::create_dir_all(shell::root().join(&found)).with_context(|| found.clone())?;
    let limits = [
        format!("-max_total_time={seconds}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-rss_limit_mb={MEMORY_MB_MAX}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
    ];
    // There is hardly any unsafe code for the sanitizer to look at, and it halves the speed.
    let cargo = ["run", "nightly", "cargo", "fuzz", "run", "--sanitizer", "none", target];
    let mut line = cargo.to_vec();
    line.extend([found.as_str(), &seeds, "--", "-print_final_stats=1"]);
    line.extend(limits.iter().map(String::as_str));
    shell::step("rustup", &line, None).with_context(|| {
        format!(
            "the input is in fuzz/artifacts/{target}; mend the fault, and keep the input as \
             fuzz/seeds/{target}/NAME, or bad-NAME if it is to be refused"
        )
    })
}

fn parse(arguments: &[String], all: &[String]) -> Result<(Vec<String>, u64)> {
    let (mut chosen, mut seconds) = (Vec::new(), SECONDS);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            seconds = number.with_context(|| format!("--seconds needs a number: {USAGE}"))?;
        } else {
            let known = all.join(", ");
            ensure!(all.contains(argument), "{USAGE}, where TARGET is one of {known}");
            chosen.push(argument.clone());
        }
    }
    if chosen.is_empty() {
        chosen = all.to_vec();
    }
    Ok((chosen, seconds))
}

/// Each target has a file, and the seeds of its name.
fn targets() -> Result<Vec<String>> {
    let dir = shell::root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for file in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = file?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci;

    #[test]
    fn all_targets_are_run_unless_some_are_named() {
        let all = ["a".to_owned(), "b".to_owned()];
        let parse = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            super::parse(&arguments, &all).ok()
        };
        assert_eq!(parse(""), Some((all.to_vec(), SECONDS)));
        assert_eq!(parse("b --seconds 5"), Some((vec!["b".to_owned()], 5)));
        for line in ["c", "--seconds", "--seconds x", "a --help"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    /// A program is one call of a function of ours, which `cargo xtask ci` compiles as part of its
    /// crate: so it builds if there is such a function, and `libfuzzer-sys` does.
    fn check_program(target: &str) {
        let file = shell::root().join(format!("fuzz/fuzz_targets/{target}.rs"));
        let text = fs::read_to_string(file).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("//!")).collect();
        let ["#![no_main]", "", "libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {", call, "});"] =
            code[..]
        else {
            panic!("{target} is more than a call");
        };
        let path = call.trim().strip_suffix("(bytes);").unwrap();
        let (package, function) = path.split_once("::fuzz::").unwrap();
        let package = package.replace('_', "-");
        assert!(ci::FUZZED.contains(&format!("{package}/fuzz").as_str()), "{package}");
        let tested = format!("corpus::check\\(\"{target}\", [0-9_]+, (super::)?{function}\\);");
        let defined = format!("pub fn {function}\\(bytes: &\\[u8\\]\\)");
        let folder = format!(":/crates/{}", package.trim_start_matches("windlass-"));
        for pattern in [tested, defined] {
            let grep = ["grep", "--untracked", "--quiet", "--extended-regexp", &pattern, &folder];
            assert!(shell::succeeds("git", &grep), "{target}: no {pattern} in {folder}");
        }
    }

    #[test]
    fn every_target_is_a_program_has_seeds_and_is_tested() {
        let manifest = fs::read_to_string(shell::root().join("fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        for target in &targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            assert!(shell::root().join("fuzz/seeds").join(target).is_dir(), "{target}");
            let check = format!("corpus::check(\"{target}\"");
            let grep = ["grep", "--untracked", "--quiet", "--fixed-strings", &check, ":/crates"];
            assert!(shell::succeeds("git", &grep), "{target} has no ordinary test");
            check_program(target);
        }
        let programs = manifest.matches("[[bin]]").count();
        assert_eq!(programs, targets.len());
    }
}
