//! Noticing that files have changed, by looking at them now and then. This also sees links that
//! point elsewhere and files on other machines, of which the kernel does not tell.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Files;

/// What a file shows of its contents without being read; `None` if it is missing.
type Stamp = Option<[i128; 5]>;

/// Of all files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamps(Vec<Stamp>);

impl Files {
    pub(super) fn stamps(&self) -> Stamps {
        let all = [&self.cert, &self.key].into_iter().chain(&self.client_ca);
        Stamps(all.map(|file| stamp(file)).collect())
    }
}

fn stamp(file: &Path) -> Stamp {
    let file = fs::metadata(file).ok()?;
    let modified = (i128::from(file.mtime()) << 64) + i128::from(file.mtime_nsec());
    let changed = (i128::from(file.ctime()) << 64) + i128::from(file.ctime_nsec());
    Some([file.dev().into(), file.ino().into(), file.len().into(), modified, changed])
}

/// Decides when to read the files.
pub(super) struct Watch {
    /// As of the last time that they were read.
    read: Stamps,
    /// As of the last look.
    last: Stamps,
}

impl Watch {
    /// The files had these stamps before they were read.
    pub(super) fn new(read: Stamps) -> Watch {
        Watch { last: read.clone(), read }
    }

    /// Whether to read the files now: if someone asks for it, or if they differ from what was read
    /// and have not changed since the last look. Files that could not be used are not read again
    /// until they change.
    pub(super) fn look(&mut self, now: Stamps, is_asked: bool) -> bool {
        let is_settled = now == self.last;
        self.last = now;
        let reads = is_asked || is_settled && self.last != self.read;
        if reads {
            self.read = self.last.clone();
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(length: i128) -> Stamps {
        Stamps(vec![Some([0, 0, length, 0, 0]), None])
    }

    #[test]
    fn files_are_read_once_when_they_have_settled() {
        let mut watch = Watch::new(stamps(1));
        assert!(!watch.look(stamps(1), false));
        assert!(!watch.look(stamps(2), false), "it may still be changing");
        assert!(!watch.look(stamps(3), false), "it was");
        assert!(watch.look(stamps(3), false));
        assert!(!watch.look(stamps(3), false), "it was read");
        assert!(watch.look(stamps(4), true), "asked");
        assert!(!watch.look(stamps(4), false));
        assert!(!watch.look(stamps(3), false));
        assert!(!watch.look(stamps(4), false), "it is as it was read");
    }

    #[test]
    fn a_file_that_is_replaced_or_removed_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let files = Files { cert: file.clone(), key: file.clone(), client_ca: None };
        let missing = files.stamps();
        fs::write(&file, "one").unwrap();
        let one = files.stamps();
        let other = dir.path().join("other");
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &file).unwrap();
        let two = files.stamps();
        assert!(missing != one && one != two && two == files.stamps());
    }
}
