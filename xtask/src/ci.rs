//! All checks, in the order in which they fail fastest.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Result, anyhow, ensure};

use crate::shell::{Limit, Show};
use crate::{needs, shell, sim, supply, test as end_to_end, tidy, torture};

/// More than twice as long as a run takes on two quiet cores with everything built, and shorter
/// than the limit of those who start it, so that we report a hanging test before they cut us off.
const RUN_TIME_MAX: Duration = Duration::from_secs(70 * 60);

/// The features with which the fuzz targets use our crates. With them, clippy compiles all that is
/// ours of the targets; the tests alone would not show what only tests can use.
pub(crate) const FUZZED: [&str; 9] = [
    "windlass-bedrock-rules/fuzz",
    "windlass-core/fuzz",
    "windlass-door-bedrock/fuzz",
    "windlass-door-disbatch/fuzz",
    "windlass-door-http/fuzz",
    "windlass-door-jobd/fuzz",
    "windlass-journal/fuzz",
    "windlass-runner/fuzz",
    "windlass-store-sqlite/fuzz",
];

pub(crate) fn run() -> Result<()> {
    let limit = Limit::new(RUN_TIME_MAX);
    let cargo = |arguments: &[&str]| shell::cargo(arguments, Some(&limit));
    needs::install(&limit)?;
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    supply::check()?;
    let fuzzed = FUZZED.join(",");
    let clippy = ["clippy", "--workspace", "--all-targets", "--features", &fuzzed];
    cargo(&[&clippy[..], &["--", "-D", "warnings"]].concat())?;
    test(&limit)?;
    sim::run_in_ci(&limit)?;
    torture::short(&limit)
}

/// The slowest tests, which run beside all others. They have leases of seconds, which run out on a
/// machine that is too busy, so there are two lanes and not more.
const SLOWEST: &str = "it";
/// Tests that wait for other programs most of the time: more of them at once than processors.
const WAITING: &str = "disbatch";
const WAITING_THREADS: &str = "--test-threads=4";

/// Two lanes, so that one works while the other one waits.
fn test(limit: &Limit) -> Result<()> {
    // Always of the whole workspace: with fewer crates, dependencies have fewer features, and cargo
    // would build them again.
    let test = |arguments: &[&'static str]| [&["test", "--workspace"], arguments].concat();
    shell::cargo(&test(&["--no-run"]), Some(limit))?;
    let targets = test_targets()?;
    let others = targets.iter().filter(|name| ![SLOWEST, WAITING].contains(&name.as_str()));
    let others: Vec<&str> = others.flat_map(|name| ["--test", name]).collect();
    let beside = || {
        let waiting = test(&["--test", WAITING, "--", WAITING_THREADS]);
        let waiting = shell::cargo_test(WAITING, &waiting, limit, Show::AtItsEnd);
        let others = [&test(&["--no-fail-fast", "--lib", "--bins"])[..], &others].concat();
        let others = shell::cargo_test("others", &others, limit, Show::AtItsEnd);
        let doc = shell::cargo(&test(&["--doc"]), Some(limit));
        vec![waiting, others, doc, end_to_end::run_in_ci(limit)]
    };
    let ended = thread::scope(|scope| {
        let beside = scope.spawn(beside);
        let slowest = test(&["--no-fail-fast", "--test", SLOWEST]);
        let slowest = shell::cargo_test(SLOWEST, &slowest, limit, Show::AsItComes);
        let mut ended = beside.join().unwrap_or_else(|_| vec![Err(anyhow!("a lane panicked"))]);
        ended.push(slowest);
        ended
    });
    let failed = ended.into_iter().filter_map(Result::err);
    let failed: Vec<_> = failed.map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The names of all tests in files of their own: `tests/NAME.rs` or `tests/NAME/main.rs`.
fn test_targets() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for member in fs::read_dir(shell::root().join("crates"))? {
        let tests = member?.path().join("tests");
        for entry in fs::read_dir(tests).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_stem().and_then(OsStr::to_str);
            if path.is_file() || path.join("main.rs").is_file() {
                names.extend(name.map(str::to_owned));
            }
        }
    }
    Ok(names)
}
