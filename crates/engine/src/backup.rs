//! The files of a data directory that a backup has, beside the store, and the order in which they
//! are copied while daemons may be using them.
//!
//! ```text
//! place ─► segments of every journal ─► large payloads ─► the store, in one committed state
//! ```
//! Let a job be acknowledged before the backup begins. The store's copy has, for each journal, the
//! position up to which it has ingested it (its *mark*), in the same state as the jobs.
//!
//! - *It is not lost.* It is in the store, and all later states of the store have it until it is
//!   deleted. Or its record is in a segment that exists when the segments are listed. Then the
//!   segment is copied; or it is gone by then, after a commit of the store that has the record, and
//!   the store's copy is later than that. The other order would lose jobs that are ingested, and
//!   whose segments are removed, between the two copies.
//! - *It does not run again.* If it has ended, or was deleted, the store had it before, so the mark
//!   in the store's copy is not before its record, and restart skips the record. This relies on
//!   `place`, which identifies the journals that marks belong to.
//! - *Its payload is whole.* A payload is complete before its record is written, so it is complete
//!   when it is copied after the segments. If it is gone by then, a synced commit has its job, and
//!   the store's copy as well.
//!
//! A journal of a dead daemon may be taken over and removed meanwhile, and a daemon may start; both
//! follow from the same argument. Files in `payload/` that no copied record refers to are removed
//! by the first start.

use std::io;
use std::path::{Component, Path, PathBuf};

use windlass_core::Sysid;
use windlass_journal::RealDisk;

use crate::ingest::adopt::journals_in;
use crate::ingest::place;

pub(crate) const JOURNAL_DIR: &str = "journal";
pub(crate) const PAYLOAD_DIR: &str = "payload";
const PAYLOAD_EXTENSION: &str = "payload";

/// The file that every data directory has, relative to it.
pub const PLACE: &str = place::FILE_NAME;

/// The segments of all journals, relative to the data directory. To be copied first, as
/// `windlass_journal::segment_names` says.
pub fn segments(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let journals = match journals_in(&RealDisk, &data_dir.join(JOURNAL_DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        journals => journals?,
    };
    let mut paths = Vec::new();
    for sysid in journals {
        let dir = Path::new(JOURNAL_DIR).join(sysid.to_string());
        let names = windlass_journal::segment_names(&data_dir.join(&dir))?;
        paths.extend(names.into_iter().map(|name| dir.join(name)));
    }
    Ok(paths)
}

/// The large payloads, relative to the data directory. To be listed and copied after the segments;
/// those that are gone by then are left out.
pub fn payloads(data_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = windlass_journal::file_names(&data_dir.join(PAYLOAD_DIR))?;
    let paths = names.into_iter().map(|name| Path::new(PAYLOAD_DIR).join(name));
    let mut paths: Vec<PathBuf> = paths.filter(|path| is_payload(path)).collect();
    paths.sort();
    Ok(paths)
}

/// Whether this can be the relative path of one of these files.
pub fn is_data_file(path: &Path) -> bool {
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match parts.as_deref() {
        Some([name]) => *name == PLACE,
        Some([PAYLOAD_DIR, _]) => is_payload(path),
        Some([JOURNAL_DIR, sysid, name]) => {
            sysid.parse().ok().and_then(Sysid::new).is_some() && name.ends_with(".log")
        }
        _ => false,
    }
}

/// Not the remains of a payload that could not be read (`unreadable-…`).
fn is_payload(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.extension().is_some_and(|extension| extension == PAYLOAD_EXTENSION)
        && name.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_payloads_are_listed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            segments(dir.path()).unwrap().is_empty() && payloads(dir.path()).unwrap().is_empty()
        );
        for path in [
            "journal/2/0000000000000000007.log",
            "journal/11/0000000000000000009.log",
            "journal/11/0000000000000000008.log",
            "journal/11/lock",
            "journal/other/0000000000000000001.log",
            "payload/2-7.payload",
            "payload/unreadable-2-6.payload",
            "scratch/x",
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let expected = [
            "journal/2/0000000000000000007.log",
            "journal/11/0000000000000000008.log",
            "journal/11/0000000000000000009.log",
        ];
        assert_eq!(segments(dir.path()).unwrap(), expected.map(PathBuf::from));
        assert_eq!(payloads(dir.path()).unwrap(), [PathBuf::from("payload/2-7.payload")]);
    }

    #[test]
    fn paths_out_of_the_data_directory_are_not_its_files() {
        for path in ["place", "payload/1-2.payload", "journal/4095/0000000000000000001.log"] {
            assert!(is_data_file(Path::new(path)), "{path}");
        }
        for path in [
            "",
            "/place",
            "../place",
            "payload/../place",
            "payload/x/1-2.payload",
            "payload/1-2.exe",
            "journal/0/0000000000000000001.log",
            "journal/../1.log",
            "journal/1",
            "scratch/x",
        ] {
            assert!(!is_data_file(Path::new(path)), "{path}");
        }
    }
}
