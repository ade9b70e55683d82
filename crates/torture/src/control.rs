//! The control run: a disk that loses what was written since the last kill. No daemon survives
//! that, so a verdict without violations would show that the run proves nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Copies of a data directory while its only daemon is down.
pub(crate) struct Control {
    data: PathBuf,
    copy: PathBuf,
}

impl Control {
    pub(crate) fn new(data: &Path) -> Control {
        Control { data: data.to_owned(), copy: data.with_extension("copy") }
    }

    /// Puts back the copy of the last kill, and makes one for the next. The first kill and every
    /// other one after it lose nothing.
    pub(crate) fn lose(&self) -> Result<()> {
        if self.copy.exists() {
            fs::remove_dir_all(&self.data)?;
            fs::rename(&self.copy, &self.data).context("the copy cannot be put back")
        } else {
            copy(&self.data, &self.copy).context("the data cannot be copied")
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()? {
            kind if kind.is_dir() => copy(&source, &target)?,
            kind if kind.is_file() => drop(fs::copy(&source, &target)?),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_loses_what_came_after_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("journal")).unwrap();
        fs::write(data.join("journal/1"), "one").unwrap();
        let control = Control::new(&data);
        control.lose().unwrap();
        fs::write(data.join("journal/2"), "two").unwrap();
        control.lose().unwrap();
        assert!(data.join("journal/1").exists() && !data.join("journal/2").exists());
    }
}
