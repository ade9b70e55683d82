//! The rules of the house that no compiler checks: sizes, leftovers, arrows between crates, tables
//! of modules, clocks, random numbers and files through seams, tests for defects.
//!
//! Each rule is a pure function from a file's text to complaints, with a test that breaks it.

mod arrow;
mod defect;
mod leftover;
mod module_table;
mod seam;
mod size;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// One file of the repository, as text.
pub(crate) struct SourceFile {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_test(&self) -> bool {
        let named = self.path.ends_with("tests.rs") || self.path.ends_with("_test.rs");
        named || self.path.contains("/tests/") || self.path.starts_with("crates/store-test/")
    }
}

pub(crate) fn run() -> Result<()> {
    shell::say("==> tidy");
    let files = tracked_files()?;
    ensure!(!files.is_empty(), "git lists no files");
    let mut complaints: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let mut complaints = size::check(file);
            complaints.extend(leftover::check(file));
            complaints.extend(arrow::check(file));
            complaints.extend(module_table::check(file));
            complaints.extend(seam::check(file));
            complaints
        })
        .collect();
    complaints.extend(defect::check(&files));
    if complaints.is_empty() {
        shell::say(&format!("    {} files are tidy", files.len()));
        return Ok(());
    }
    complaints.iter().for_each(|complaint| shell::complain(complaint));
    bail!("{} places are not tidy", complaints.len())
}

/// All files that git tracks or would track, if they are text.
fn tracked_files() -> Result<Vec<SourceFile>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(shell::root())
        .output()
        .context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files failed");
    let paths = String::from_utf8(listed.stdout)?;
    Ok(paths.lines().filter_map(read).collect())
}

fn read(path: &str) -> Option<SourceFile> {
    let text = std::fs::read_to_string(Path::new(&shell::root()).join(path)).ok()?;
    Some(SourceFile { path: path.to_owned(), text })
}
