//! Daemons that open, take over and remove the same journal at once.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::disk::{Disk, DiskFile, Lock, RealDisk};

/// The real file system, with the journal's empty directory removed right before it is locked, this
/// many times.
struct RacingDisk {
    removals: AtomicU32,
}

impl RacingDisk {
    fn open(removals: u32, root: &Path) -> Result<Journal, Error> {
        let disk = Arc::new(RacingDisk { removals: AtomicU32::new(removals) });
        super::open_on(disk, options(root), clock(), None)
    }
}

impl Disk for RacingDisk {
    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>> {
        let left = |left: u32| left.checked_sub(1);
        if self.removals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            RealDisk.remove_dir(dir)?;
        }
        RealDisk.lock(dir)
    }

    fn is_dir(&self, dir: &Path) -> bool {
        RealDisk.is_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        RealDisk.list(dir)
    }

    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.dirs(dir)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        Disk::bytes(&RealDisk, path)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        RealDisk.link(path, name)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Disk::open(&RealDisk, path)
    }

    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        RealDisk.read(path, offset, bytes)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
}

#[tokio::test]
async fn a_directory_that_is_removed_before_it_is_locked_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let journal = RacingDisk::open(3, root.path()).unwrap();
    journal.append(entries(&["a"]), None).await.unwrap();
    journal.close().await;
    assert_eq!(texts(&drain(&open(root.path())).await), ["a"]);
}

#[tokio::test]
async fn a_directory_that_is_always_removed_counts_as_in_use() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(RacingDisk::open(u32::MAX, root.path()), Err(Error::Locked(_))));
}

/// Owners append, others take over and remove: the disk never refuses anyone, and every accepted
/// record is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn owners_and_adopters_of_one_directory_lose_nothing() {
    let root = Arc::new(tempfile::tempdir().unwrap());
    let owners = ["one", "two"].map(|name| tokio::spawn(open_and_append(root.clone(), name)));
    let owned = Arc::new(AtomicBool::new(false));
    let adopters = [(); 2].map(|()| tokio::spawn(adopt(root.clone(), owned.clone())));
    let mut accepted = Vec::new();
    for owner in owners {
        accepted.extend(owner.await.unwrap());
    }
    owned.store(true, Ordering::SeqCst);
    let mut read = HashSet::new();
    for adopter in adopters {
        read.extend(adopter.await.unwrap());
    }
    let left = drain(&open(root.path())).await;
    read.extend(texts(&left).into_iter().map(str::to_owned));
    for text in accepted {
        assert!(read.contains(&text), "{text} was accepted and read by nobody");
    }
}

/// Opens the journal, appends a record and closes it, again and again.
async fn open_and_append(root: Arc<TempDir>, name: &str) -> Vec<String> {
    const ROUNDS: u64 = 50;
    let mut accepted = Vec::new();
    for round in 0..ROUNDS {
        let now = Arc::new(ManualClock::at(NOW + Duration::from_secs(round)));
        let journal = loop {
            match Journal::open(options(root.path()), now.clone(), None, None) {
                Ok(journal) => break journal,
                Err(Error::Locked(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let text = format!("{name} {round}");
        journal.append(vec![entry(text.clone())], None).await.unwrap();
        accepted.push(text);
        journal.close().await;
    }
    accepted
}

/// Reads and removes the journal whenever it has no owner.
async fn adopt(root: Arc<TempDir>, owned: Arc<AtomicBool>) -> Vec<String> {
    let mut read = Vec::new();
    while !owned.load(Ordering::SeqCst) {
        if let Some(journal) = Journal::adopt(options(root.path()), clock(), None).unwrap() {
            let records = drain(&journal).await;
            read.extend(texts(&records).into_iter().map(str::to_owned));
            journal.remove().await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    read
}
