//! A FUSE file system between the daemons and their disk. It passes every call through, unless the
//! run has ordered it to fail or hang. The daemons need no test switches for that.
//!
//! | module | owns |
//! |---|---|
//! | `pass`, `files` | the calls of the kernel |
//! | `nodes` | which number is which file |
//! | `trouble` | what fails at the moment |

mod files;
mod nodes;
mod pass;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, SessionACL};

use crate::volume::unmount;

use trouble::Switch;
pub(crate) use trouble::Trouble;

/// Requests of the kernel that are answered at the same time. More than wait in one sync each, and
/// more than all connections to a store that hangs.
const THREADS: usize = 32;

pub(crate) struct Layer {
    /// What is below.
    under: PathBuf,
    place: PathBuf,
    switch: Arc<Switch>,
    session: Option<BackgroundSession>,
}

impl Layer {
    /// Shows the folder `under` at `place`. Its owner guards the place.
    pub(crate) fn mount(under: &Path, place: &Path) -> Result<Layer> {
        fs::create_dir_all(under)?;
        fs::create_dir_all(place)?;
        let (under, place) = (under.to_owned(), place.to_owned());
        let mut layer = Layer { under, place, switch: Arc::default(), session: None };
        layer.open()?;
        Ok(layer)
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        self.switch.set(trouble);
    }

    /// Mounts it; nothing of what the kernel knew of it before is left.
    pub(crate) fn open(&mut self) -> Result<()> {
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        let files = files::Files::new(&self.under, self.switch.clone());
        let session = fuser::spawn_mount(files, &self.place, &config);
        self.session = Some(session.context("cannot mount a FUSE")?);
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        self.set(Trouble::None);
        let Some(session) = self.session.take() else { return Ok(()) };
        unmount(&self.place)?;
        session.join().context("the FUSE did not end well")
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            println!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use windlass_proof::history::FaultKind;

    use super::*;
    use crate::disk;
    use crate::guard::Guard;

    /// A layer over a folder, as the run uses it.
    fn with_layer(test: impl FnOnce(&Path, &Layer)) {
        if let Some(obstacle) = disk::obstacle(&FaultKind::WriteError) {
            println!("skipped: {obstacle}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("disk");
        let _guard = Guard::of_mount(&place, &dir.path().join("none")).unwrap();
        let layer = Layer::mount(&dir.path().join("under"), &place).unwrap();
        test(&place, &layer);
        drop(layer);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "it is unmounted");
    }

    #[test]
    fn it_passes_everything_on() {
        with_layer(|place, layer| {
            fs::create_dir_all(place.join("a/b")).unwrap();
            let path = place.join("a/b/file");
            fs::write(&path, vec![7; 300_000]).unwrap();
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            file.write_all_at(b"end", 300_000).unwrap();
            file.sync_all().unwrap();
            fs::rename(place.join("a/b"), place.join("a/c")).unwrap();
            File::open(place.join("a")).unwrap().sync_all().unwrap();
            let moved = place.join("a/c/file");
            assert_eq!(fs::metadata(&moved).unwrap().len(), 300_003);
            assert_eq!(fs::read(layer.under.join("a/c/file")).unwrap().len(), 300_003);
            file.set_len(2).unwrap();
            fs::hard_link(&moved, place.join("linked")).unwrap();
            assert_eq!(fs::read(place.join("linked")).unwrap(), [7, 7]);
            fs::remove_file(&moved).unwrap();
            assert!(!moved.exists());
            let mut text = Vec::new();
            file.read_to_end(&mut text).unwrap();
            assert_eq!((text, file.metadata().unwrap().len()), (vec![7, 7], 2), "it is still open");
            let names = fs::read_dir(place.join("a")).unwrap().map(|it| it.unwrap().file_name());
            assert_eq!(names.collect::<Vec<_>>(), ["c"]);
            fs::remove_dir(place.join("a/c")).unwrap();
        });
    }

    #[test]
    fn it_fails_what_it_is_told_to_and_works_again() {
        with_layer(|place, layer| {
            let mut file = File::create(place.join("file")).unwrap();
            file.write_all(b"one").unwrap();
            layer.set(Trouble::Syncs);
            assert!(file.sync_data().is_err());
            file.write_all(b"two").unwrap();
            layer.set(Trouble::Writes);
            assert!(file.write_all(b"three").is_err());
            fs::write(layer.under.join("unread"), "text").unwrap();
            layer.set(Trouble::Reads);
            assert!(fs::read(place.join("unread")).is_err());
            layer.set(Trouble::None);
            file.sync_data().unwrap();
            assert_eq!(fs::read(place.join("file")).unwrap(), b"onetwo");
            assert_eq!(fs::read(place.join("unread")).unwrap(), b"text");
        });
    }

    #[test]
    fn a_store_that_hangs_leaves_the_rest_of_the_disk_alone() {
        with_layer(|place, layer| {
            let mut log = File::create(place.join("store.db-wal")).unwrap();
            let mut journal = File::create(place.join("1.log")).unwrap();
            layer.set(Trouble::StoreHang);
            journal.write_all(b"accepted").unwrap();
            journal.sync_data().unwrap();
            let (done, ended) = channel();
            let writer = std::thread::spawn(move || {
                log.write_all(b"one").unwrap();
                log.sync_data().unwrap();
                done.send(()).unwrap();
            });
            // Calls that pass take less than a millisecond.
            let waited = ended.recv_timeout(Duration::from_millis(300));
            assert_eq!(waited, Err(RecvTimeoutError::Timeout), "the store's files hang");
            layer.set(Trouble::None);
            writer.join().unwrap();
            assert_eq!(fs::read(place.join("store.db-wal")).unwrap(), b"one");
            assert_eq!(fs::read(place.join("1.log")).unwrap(), b"accepted");
        });
    }
}
