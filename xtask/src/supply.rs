//! Where the dependencies come from, and under which licences they may be used: `deny.toml` lists
//! these. `cargo deny` reads the same file and also knows advisories, but it takes minutes to build
//! and needs the network; this check needs neither.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// How the source of a crate from the public registry begins and ends in `Cargo.lock`.
const REGISTRY: (&str, &str) = ("registry+", "/crates.io-index");

pub(crate) fn check() -> Result<()> {
    shell::say("==> licences and sources of the dependencies");
    let read = |name| fs::read_to_string(shell::root().join(name)).context(name);
    let allowed = allowed(&read("deny.toml")?)?;
    let mut complaints = foreign_sources(&read("Cargo.lock")?);
    let crates = tree()?;
    ensure!(crates.lines().count() > 1, "cargo tree lists no crates");
    complaints.extend(crates.lines().filter_map(|line| refused(line, &allowed)));
    complaints.sort();
    complaints.dedup();
    if complaints.is_empty() {
        return Ok(());
    }
    complaints.iter().for_each(|complaint| shell::complain(complaint));
    bail!("{} dependencies may not be used as they are", complaints.len())
}

/// A line for each crate, for whatever machine: its licence, a tab, its name and version.
fn tree() -> Result<String> {
    let arguments = ["tree", "--workspace", "--locked", "--target", "all", "--edges", "all"];
    let output = Command::new(shell::cargo_program())
        .args(arguments)
        .args(["--prefix", "none", "--format", "{l}\t{p}"])
        .current_dir(shell::root())
        .output()
        .context("cannot start cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree failed: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The list `allow` of the table `[licenses]`.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let table = deny.split_once("[licenses]").context("deny.toml has no [licenses]")?.1;
    let list = table.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.context("deny.toml allows no licences")?;
    let quoted = list.split('"').skip(1).step_by(2);
    Ok(quoted.map(str::to_owned).collect())
}

fn foreign_sources(lock: &str) -> Vec<String> {
    let sources =
        lock.lines().filter_map(|line| line.strip_prefix("source = \"")?.strip_suffix('"'));
    let is_foreign =
        |source: &&str| !(source.starts_with(REGISTRY.0) && source.ends_with(REGISTRY.1));
    sources.filter(is_foreign).map(|source| format!("Cargo.lock: a crate from {source}")).collect()
}

fn refused(line: &str, allowed: &[String]) -> Option<String> {
    let (licence, package) = line.split_once('\t')?;
    let name = package.split(" (").next().unwrap_or(package);
    match is_allowed(licence, allowed) {
        true => None,
        false if licence.is_empty() => Some(format!("{name} names no licence")),
        false => Some(format!("{name} has the licence {licence}, which deny.toml does not allow")),
    }
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met. Old crates write
/// `/` for `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any_of(&words, &mut at, allowed);
    met && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(words, at, allowed);
    }
    met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

/// A licence, maybe with an exception, or an expression in parentheses.
fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any_of(words, at, allowed);
        *at += 1;
        return met && words.get(*at - 1) == Some(&")");
    }
    let mut licence = (*word).to_owned();
    if let [with @ "WITH", exception, ..] = words[*at..] {
        licence = [&licence, with, exception].join(" ");
        *at += 2;
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<String> {
        let deny =
            "[bans]\nallow = [\"no\"]\n\n[licenses]\nallow = [\n    \"MIT\", \"ISC\", # two\n]\n";
        allowed(deny).unwrap()
    }

    #[test]
    fn licences_are_allowed_by_the_list() {
        assert_eq!(list(), ["MIT", "ISC"]);
        for met in
            ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT", "(GPL-3.0 OR MIT) AND ISC", "ISC AND MIT"]
        {
            assert!(is_allowed(met, &list()), "{met}");
        }
        let with = "MIT WITH LLVM-exception";
        for unmet in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT ISC", "OR MIT", with] {
            assert!(!is_allowed(unmet, &list()), "{unmet}");
        }
        assert!(is_allowed(with, &[with.to_owned()]));
        assert!(is_allowed("GPL-3.0 OR MIT AND ISC", &list()));
    }

    #[test]
    fn what_is_refused_is_named() {
        let line = "GPL-3.0\tevil v1.2.3 (proc-macro)";
        let complaint = refused(line, &list()).unwrap();
        assert_eq!(
            complaint,
            "evil v1.2.3 has the licence GPL-3.0, which deny.toml does not allow"
        );
        assert_eq!(refused("\tbare v1.0.0", &list()).unwrap(), "bare v1.0.0 names no licence");
        assert_eq!(refused("MIT\tgood v1.0.0", &list()), None);
    }

    #[test]
    fn crates_come_from_the_registry() {
        let good = "source = \"registry+https://example.com/crates.io-index\"\n";
        assert_eq!(foreign_sources(good), Vec::<String>::new());
        let git = "name = \"x\"\nsource = \"git+https://example.com/x#1234\"\n";
        assert_eq!(
            foreign_sources(git),
            ["Cargo.lock: a crate from git+https://example.com/x#1234"]
        );
    }
}
