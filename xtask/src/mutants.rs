//! Mutation: small changes of the code, of which each should make a test fail. `cargo mutants`
//! makes them in a copy below the target directory, builds each and runs the unit tests of its
//! package.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;

pub(crate) const HELP: &str = "\
cargo xtask mutants [PATH...] [--list]

Changes the code in small ways, one at a time, and names the changes that no unit test notices:
those of PATH (files or folders), or of core, journal, and the engine's schedule and settle. Each
takes a build, so all of them take days; name the files that have changed.

  --list  only names the changes

What is left is in target/mutants/mutants.out/missed.txt; it is killed by a test, or explained in
docs/reliability.md. Tests of other packages, such as the conformance suite of the stores, are not
run: try what is left with these by hand.
";

/// The code whose changes are tried, with the package of each part.
const PARTS: [(&str, &str); 4] = [
    ("crates/core/src", "windlass-core"),
    ("crates/journal/src", "windlass-journal"),
    ("crates/engine/src/schedule", "windlass-engine"),
    ("crates/engine/src/settle", "windlass-engine"),
];
/// Longest time for the tests of one change. One that hangs counts as noticed.
const TEST_SECONDS_MAX: u32 = 120;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| ["--help", "-h"].contains(&argument.as_str())) {
        shell::say(HELP);
        return Ok(());
    }
    let line = line(arguments)?;
    if !shell::succeeds(&shell::cargo_program(), &["mutants", "--version"]) {
        bail!("there is no cargo-mutants: cargo install --locked cargo-mutants");
    }
    // The copy goes where temporary files go.
    let output = shell::target().join("mutants");
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let output = output.display().to_string();
    let (temporary, cargo) = (format!("TMPDIR={output}"), shell::cargo_program());
    let start = [temporary.as_str(), &cargo, "mutants", "--output", &output];
    let line: Vec<&str> = start.into_iter().chain(line.iter().map(String::as_str)).collect();
    shell::step("env", &line, None)
}

/// What `cargo mutants` is told.
fn line(arguments: &[String]) -> Result<Vec<String>> {
    let (mut paths, mut lists) = (Vec::new(), false);
    for argument in arguments {
        match argument.as_str() {
            "--list" => lists = true,
            flag if flag.starts_with('-') => bail!("there is no option '{flag}'\n\n{HELP}"),
            path => paths.push(path.trim_end_matches('/')),
        }
    }
    if paths.is_empty() {
        paths = PARTS.iter().map(|(path, _)| *path).collect();
    }
    let (mut files, mut packages) = (Vec::new(), Vec::new());
    for path in paths {
        let Some(package) = package_of(path) else {
            let known = PARTS.map(|(folder, _)| folder).join(", ");
            bail!("'{path}' is not in {known}");
        };
        if !packages.contains(&package) {
            packages.push(package);
        }
        let is_file = path.ends_with(".rs");
        files.push(if is_file { path.to_owned() } else { format!("{path}/**/*.rs") });
    }
    // The entry points for fuzzing are tests themselves.
    let mut line = ["--exclude", "**/fuzz*", "--exclude", "**/fuzz/**"].map(str::to_owned).to_vec();
    line.extend(packages.iter().flat_map(|package| ["--package", package]).map(str::to_owned));
    line.extend(files.into_iter().flat_map(|file| ["--file".to_owned(), file]));
    if lists {
        line.push("--list".to_owned());
    } else {
        let timeout = TEST_SECONDS_MAX.to_string();
        let how = ["--cap-lints", "true", "--timeout", &timeout, "--cargo-arg", "--lib"];
        line.extend(how.map(str::to_owned));
    }
    Ok(line)
}

fn package_of(path: &str) -> Option<&'static str> {
    let mut parts = PARTS.iter();
    let part = parts.find(|(folder, _)| path == *folder || path.starts_with(&format!("{folder}/")));
    part.map(|(_, package)| *package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(text: &str) -> Option<String> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        line(&arguments).ok().map(|line| line.join(" "))
    }

    #[test]
    fn all_parts_are_changed_unless_some_files_are_named() {
        let all = line_of("").unwrap();
        for (folder, package) in PARTS {
            assert!(all.contains(&format!("--file {folder}/**/*.rs")), "{all}");
            assert_eq!(all.matches(&format!("--package {package}")).count(), 1, "{all}");
            assert!(shell::root().join(folder).is_dir(), "{folder}");
        }
        let one = line_of("crates/engine/src/settle/ crates/engine/src/schedule/usage.rs").unwrap();
        let files =
            "--file crates/engine/src/settle/**/*.rs --file crates/engine/src/schedule/usage.rs";
        assert!(one.contains(files) && one.ends_with("--cargo-arg --lib"), "{one}");
        assert!(!one.contains("windlass-core"), "{one}");
        assert!(line_of("--list").unwrap().ends_with("--list"));
    }

    #[test]
    fn what_has_no_tests_for_it_and_mistyped_options_are_refused() {
        for text in ["crates/runner/src", "crates/engine/src/settler", "--lists"] {
            assert_eq!(line_of(text), None, "{text}");
        }
    }
}
