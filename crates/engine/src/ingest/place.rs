//! The number that identifies a data directory, to distinguish journals of different machines on
//! one store. It is made once and kept in a file.

use std::io;
use std::path::Path;

use windlass_journal::Disk;

pub(crate) const FILE_NAME: &str = "place";
/// More than any number has.
const FILE_BYTES_MAX: usize = 100;

/// The directory's number; `fresh` if it has none yet. Durable when this returns.
pub(crate) fn of(disk: &dyn Disk, data_dir: &Path, fresh: u64) -> io::Result<u64> {
    windlass_journal::create_dir(disk, data_dir)?;
    let path = data_dir.join(FILE_NAME);
    if disk.bytes(&path).is_err() {
        // Written to another file and linked into place, so that two daemons that start at once
        // read the same number, and never a partial one.
        let aside = data_dir.join(format!("{FILE_NAME}.{}.{fresh:x}", std::process::id()));
        disk.remove(&aside)?;
        let file = disk.create(&aside)?;
        file.write_at(format!("{fresh}\n").as_bytes(), 0)?;
        file.sync()?;
        let linked = disk.link(&aside, &path);
        disk.remove(&aside)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    // Even if the file existed: its writer may have died before the sync.
    disk.sync_dir(data_dir)?;
    let bytes = usize::try_from(disk.bytes(&path)?).unwrap_or(usize::MAX).min(FILE_BYTES_MAX);
    let text = String::from_utf8(disk.read(&path, 0, bytes)?).unwrap_or_default();
    text.trim().parse().map_err(|_| {
        let what = format!("the file {FILE_NAME} does not hold a number");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use windlass_journal::RealDisk;

    use super::*;

    #[test]
    fn the_first_number_stays() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of(&RealDisk, dir.path(), 7).unwrap(), 7);
        assert_eq!(of(&RealDisk, dir.path(), 8).unwrap(), 7);
        let left: Vec<_> = dir.path().read_dir().unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn daemons_that_start_at_once_agree() {
        let dir = tempfile::tempdir().unwrap();
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let path = dir.path();
            let start = |fresh| scope.spawn(move || of(&RealDisk, path, fresh).unwrap());
            let started: Vec<_> = (0..8).map(start).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    }

    #[test]
    fn a_file_that_holds_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), "x").unwrap();
        assert!(of(&RealDisk, dir.path(), 1).is_err());
    }
}
