//! A test's own folder, which is removed with the test.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub struct Folder {
    dir: TempDir,
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file in it, which may not exist yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// The complete lines of a file so far.
    pub fn lines(&self, name: &str) -> Vec<String> {
        whole_lines(&self.path(name))
    }
}

/// The lines of a file that is being written, without an incomplete last one; empty if there is no
/// file.
pub fn whole_lines(file: &Path) -> Vec<String> {
    let text = fs::read(file).unwrap_or_default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    String::from_utf8_lossy(&text[..whole]).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_whole_is_not_there_yet() {
        let folder = Folder::new();
        assert!(folder.lines("a").is_empty());
        folder.write("a", "one\ntwo\nthr");
        assert_eq!(folder.lines("a"), ["one", "two"]);
    }
}
