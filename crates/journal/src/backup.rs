//! Which segments a backup copies while the journal may be in use.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use windlass_core::JobId;

use crate::disk::{Disk, RealDisk};
use crate::segment;

/// How often to list a directory whose files vanish meanwhile.
const LIST_TRIES_MAX: usize = 100;

/// The names of the segments in `dir`, oldest first; none if it does not exist. If each of them is
/// copied after this has returned, from its start to its end at that time, and those that are gone
/// by then are left out, recovery accepts the copy together with a later state of the store:
///
/// - *Every one but the newest is complete.* A segment is created after the last write to the one
///   before it, so the length that its head gives for that one has been reached. The newest may
///   have grown, and its end may be torn, as after a crash.
/// - *None is missing in between.* A listing need not have what is created meanwhile, so it could
///   have the second of two new segments and not the first. Hence there are two: everything up to
///   the newest name of the first listing existed when the second began.
/// - *What is gone is in the store.* Segments are removed after a synced commit has all their
///   records.
pub fn segment_names(dir: &Path) -> io::Result<Vec<String>> {
    let newest = list(&RealDisk, dir)?.into_keys().next_back();
    let mut segments = list(&RealDisk, dir)?;
    segments.retain(|first, _| Some(*first) <= newest);
    Ok(segments.into_values().collect())
}

/// The names of the files in `dir`, whose files may vanish meanwhile; none if it does not exist.
pub fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let files = until_none_vanishes(|| RealDisk.list(dir))?;
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

fn list(disk: &dyn Disk, dir: &Path) -> io::Result<BTreeMap<JobId, String>> {
    let files = until_none_vanishes(|| disk.list(dir))?;
    let named = |(name, _): (String, u64)| Some((segment::first_of_name(&name)?, name));
    Ok(files.into_iter().filter_map(named).collect())
}

/// Lists again if a file was removed between its listing and the look at its size.
fn until_none_vanishes<T>(mut list: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 1;
    loop {
        match list() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < LIST_TRIES_MAX => {
                tries += 1;
            }
            listed => return listed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_listed_oldest_first_without_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        assert!(segment_names(&dir.path().join("missing")).unwrap().is_empty());
        let names = ["0000000000000000009.log", "0000000000000000010.log"];
        for name in [names[1], "lock", names[0], "10.log"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(segment_names(dir.path()).unwrap(), names);
    }

    #[test]
    fn a_directory_is_listed_again_while_files_vanish_but_not_for_ever() {
        let tries = |error: io::ErrorKind, succeeds_after: usize| {
            let mut tries = 0;
            let listed = until_none_vanishes(|| {
                tries += 1;
                if tries > succeeds_after { Ok(()) } else { Err(error.into()) }
            });
            (tries, listed.is_ok())
        };
        assert_eq!(tries(io::ErrorKind::NotFound, 2), (3, true));
        assert_eq!(tries(io::ErrorKind::NotFound, usize::MAX), (LIST_TRIES_MAX, false));
        assert_eq!(tries(io::ErrorKind::PermissionDenied, 2), (1, false));
    }
}
