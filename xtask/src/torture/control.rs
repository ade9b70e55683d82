//! Controls of the torture run: defects that it must find, or its verdicts prove nothing. They are
//! edits in a copy of the workspace, so the product has no switches for them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

pub(crate) struct Control {
    pub(crate) name: &'static str,
    pub(crate) edits: &'static [Edit],
    /// The faults that bring it to light.
    pub(crate) faults: &'static str,
    /// The rules of which it breaks at least one. What else it upsets does not count.
    pub(crate) rules: &'static str,
}

pub(crate) struct Edit {
    pub(crate) file: &'static str,
    /// Occurs once in the file.
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// The journal's mark is moved before its jobs are in the store.
pub(crate) const EARLY_MARK: &[Edit] = &[Edit {
    file: "crates/engine/src/ingest/mod.rs",
    from: "        let insert = Insert { jobs, keys, mark, durability };\n",
    to: "        let (none, no_keys) = (Vec::new(), Vec::new());
        let early = Insert { jobs: none, keys: no_keys, mark, durability };
        let moved = self.shared.store.job_insert(early).await.map_err(store_error)?;
        if let Insertion::Behind(store_at) = moved {
            return Ok(BatchMove::Refused { store_at });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let insert = Insert { jobs, keys, mark: None, durability };\n",
}];

pub(super) static CONTROLS: [Control; 4] = [
    Control {
        name: "tokens ignored",
        edits: &[
            Edit {
                file: "crates/engine/src/settle/worker.rs",
                from: "is_none_or(|lease| lease.token != *token)",
                to: "is_none_or(|_| *token != *token)",
            },
            Edit {
                file: "crates/store-sqlite/src/settle.rs",
                from: "if leased.token != settlement.lease.token\n        || broken_too_early\n",
                to: "if broken_too_early\n",
            },
        ],
        faults: "stop",
        rules: "fence,in_force,overlap",
    },
    Control {
        name: "the mark moved before the insert",
        edits: EARLY_MARK,
        faults: "kill",
        rules: "lost",
    },
    Control {
        name: "the journal's fsync taken out",
        edits: &[Edit {
            file: "crates/journal/src/writer.rs",
            from: "    file.sync()?;\n",
            to: "    let _ = file;\n",
        }],
        faults: "power",
        rules: "lost",
    },
    Control {
        name: "failed syncs of the journal ignored",
        edits: &[Edit {
            file: "crates/journal/src/writer.rs",
            from: "    file.sync()?;\n",
            to: "    let _ = file.sync();\n",
        }],
        faults: "sync,power",
        rules: "lost",
    },
];

/// Its own name, so that it does not replace the product's binary.
const PROGRAM: &str = "windlass-control";
/// What the copy has; everything else is not needed to build.
const PARTS: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", "xtask"];

/// Runs all of them, by this command of the program, and fails if one was not found.
pub(crate) fn run(
    controls: &[Control],
    command: &[&str],
    profile: &[&str],
    arguments: &[&str],
) -> Result<()> {
    let (root, target) = (shell::root(), shell::target());
    let copy = target.join("control");
    let mut missed = Vec::new();
    for control in controls {
        shell::say(&format!("control: {}", control.name));
        for part in PARTS {
            synchronise(&root.join(part), &copy.join(part))?;
        }
        name_program(&copy)?;
        plant(control, &copy)?;
        build(profile, &copy)?;
        let folder = if profile.is_empty() { "debug" } else { "release" };
        let binary = target.join(folder).join(PROGRAM).display().to_string();
        let found = ["--must-break", control.rules, "--fault", control.faults];
        let control_arguments = [command, &found, &["--binary", &binary]].concat();
        if let Err(error) = super::torture(profile, &[&control_arguments, arguments].concat(), None)
        {
            shell::complain(&format!("{error:#}"));
            missed.push(control.name);
        }
    }
    ensure!(missed.is_empty(), "not found: {}", missed.join("; "));
    shell::say(&format!("all {} controls were found", controls.len()));
    Ok(())
}

/// In the target directory of the workspace: dependencies are built already.
fn build(profile: &[&str], copy: &Path) -> Result<()> {
    let manifest = copy.join("Cargo.toml").display().to_string();
    let target = shell::target().display().to_string();
    let build = ["build", "--quiet", "--locked", "--package", "windlass", "--bin", PROGRAM];
    let place = ["--manifest-path", &manifest, "--target-dir", &target];
    shell::cargo(&[&build[..], &place, profile].concat(), None)
}

fn name_program(copy: &Path) -> Result<()> {
    let manifest = copy.join("crates/windlass/Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let program = format!("\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n");
    fs::write(manifest, text + &program).context("the copy cannot be written")
}

fn plant(control: &Control, copy: &Path) -> Result<()> {
    for edit in control.edits {
        let file = copy.join(edit.file);
        let text = fs::read_to_string(&file)?;
        ensure!(text.matches(edit.from).count() == 1, "{}: not found once", control.name);
        fs::write(file, text.replace(edit.from, edit.to)).context("the copy cannot be written")?;
    }
    Ok(())
}

/// Makes `to` like `from`. Equal files keep their times, so that only what differs is built again.
fn synchronise(from: &Path, to: &Path) -> Result<()> {
    if from.is_file() {
        let wanted = fs::read(from)?;
        if fs::read(to).ok().as_ref() != Some(&wanted) {
            fs::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs::write(to, wanted)?;
        }
        return Ok(());
    }
    if !from.is_dir() {
        bail!("{} is missing", from.display());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            let gone = entry.path();
            if gone.is_dir() { fs::remove_dir_all(gone)? } else { fs::remove_file(gone)? }
        }
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        synchronise(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_still_finds_its_place() {
        let all = CONTROLS.iter().chain(&crate::cluster::CONTROLS);
        for edit in all.flat_map(|control| control.edits) {
            let text = fs::read_to_string(shell::root().join(edit.file)).unwrap();
            assert_eq!(text.matches(edit.from).count(), 1, "{}", edit.file);
        }
    }
}
