//! Files in messages. Errors of the store and the journal reach clients, who must not learn where
//! the daemon keeps its data: only the last part of a path is shown. What an operator sees at start
//! names the directory as well.

use std::fmt;
use std::path::Path;

/// Shows the name of a file without its directory.
pub struct FileName<'a>(pub &'a Path);

impl fmt::Display for FileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.file_name() {
            Some(name) => name.display().fmt(f),
            None => f.write_str("the directory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_not_shown() {
        for (path, shown) in [("/a/b.db", "b.db"), ("b.db", "b.db"), ("a/b/", "b")] {
            assert_eq!(FileName(Path::new(path)).to_string(), shown);
        }
        assert_eq!(FileName(Path::new("/")).to_string(), "the directory");
    }
}
