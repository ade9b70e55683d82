//! A disk in memory, as one process sees it. It never blocks, so the journal runs on the one thread
//! that there is. Calls fail while the daemon has trouble with its disk, and a daemon whose fuse
//! burns down dies in the middle of one.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use windlass_core::sync::lock;
use windlass_journal::{Disk, DiskFile, Lock};

use crate::life::{Life, Step, Trouble};
use crate::world::World;

pub(crate) use files::Files;

/// Error codes of the system.
const NO_SPACE: i32 = 28;
const BROKEN: i32 = 5;

#[derive(Clone)]
pub(crate) struct SimDisk {
    pub(crate) world: Arc<World>,
    pub(crate) files: Arc<Mutex<Files>>,
    pub(crate) life: Arc<Life>,
}

/// Kinds of calls, by the faults that they suffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    /// A change that needs no room.
    Remove,
    Sync,
}

/// How much of a call is carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Half,
    Whole,
}

/// How a call ends.
#[derive(Clone, Copy)]
struct Fate {
    part: Part,
    error: Option<i32>,
}

impl Fate {
    fn answer<T>(self, answer: T) -> io::Result<T> {
        self.error.map_or(Ok(answer), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

impl SimDisk {
    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    fn fate(&self, call: Call) -> Fate {
        let fails = |part, code| Fate { part, error: Some(code) };
        let some_part = || [Part::None, Part::Half, Part::Whole][self.world.draw(3) as usize];
        match self.life.step() {
            Step::Dead => return fails(Part::None, BROKEN),
            Step::Dies => return fails(some_part(), BROKEN),
            Step::Lives => {}
        }
        let half_the_time = || self.world.draw(2) == 0;
        match (self.life.condition.trouble(), call) {
            (Some(Trouble::DiskFull), Call::Write) => {
                let part = if half_the_time() { Part::Half } else { Part::None };
                fails(part, NO_SPACE)
            }
            (Some(Trouble::Writes), Call::Write | Call::Remove) if half_the_time() => {
                fails(some_part(), BROKEN)
            }
            (Some(Trouble::Reads), Call::Read) if half_the_time() => fails(Part::None, BROKEN),
            (Some(Trouble::Syncs), Call::Sync) if half_the_time() => fails(some_part(), BROKEN),
            _ => Fate { part: Part::Whole, error: None },
        }
    }

    /// Reads are refused or carried out.
    fn reads(&self) -> io::Result<MutexGuard<'_, Files>> {
        self.fate(Call::Read).answer(())?;
        Ok(self.files())
    }

    fn file(&self, node: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), node })
    }
}

impl Disk for SimDisk {
    fn blocks(&self) -> bool {
        false
    }

    fn is_dir(&self, dir: &Path) -> bool {
        self.files().is_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let fate = self.fate(Call::Write);
        let mut files = self.files();
        if fate.part != Part::None && !files.is_dir(dir) {
            files.add(dir, true)?;
        }
        fate.answer(())
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>> {
        let mut files = self.reads()?;
        if !files.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if files.locks.get(dir).is_some_and(|owner| !owner.is_over()) {
            return Ok(None);
        }
        files.locks.insert(dir.to_owned(), self.life.clone());
        Ok(Some(Box::new(SimLock { disk: self.clone(), dir: dir.to_owned() })))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let files = self.reads()?;
        let named = files.inside(dir, false).into_iter();
        Ok(named.map(|(name, node)| (name, files.bytes(node).len() as u64)).collect())
    }

    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.reads()?;
        if !files.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(files.inside(dir, true).into_iter().map(|(name, _)| name).collect())
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        let files = self.reads()?;
        Ok(files.bytes(files.find(path)?).len() as u64)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let fate = self.fate(Call::Write);
        if fate.part == Part::None {
            fate.answer(())?;
        }
        let node = self.files().add(path, false)?;
        fate.answer(self.file(node))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let node = self.reads()?.find(path)?;
        Ok(self.file(node))
    }

    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let files = self.reads()?;
        let content = files.bytes(files.find(path)?);
        let range = offset as usize..offset as usize + bytes;
        content.get(range).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        let fate = self.fate(Call::Write);
        let mut files = self.files();
        if files.find(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if fate.part != Part::None {
            let node = files.find(path)?;
            files.name(name, node)?;
        }
        fate.answer(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let fate = self.fate(Call::Remove);
        if fate.part != Part::None {
            self.files().remove(path);
        }
        fate.answer(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let fate = self.fate(Call::Remove);
        let mut files = self.files();
        if fate.part != Part::None {
            if !files.inside(dir, false).is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            files.remove(dir);
        }
        fate.answer(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let fate = self.fate(Call::Sync);
        if fate.part != Part::None && !self.world.loses_syncs() {
            self.files().sync_dir(dir);
        }
        fate.answer(())
    }
}

struct SimFile {
    disk: SimDisk,
    node: usize,
}

impl DiskFile for SimFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fate = self.disk.fate(Call::Write);
        let written = match fate.part {
            Part::None => &[],
            Part::Half => &bytes[..bytes.len() / 2],
            Part::Whole => bytes,
        };
        if !written.is_empty() {
            self.disk.files().write(self.node, written, offset as usize);
        }
        fate.answer(())
    }

    fn sync(&self) -> io::Result<()> {
        let fate = self.disk.fate(Call::Sync);
        match fate.part {
            _ if self.disk.world.loses_syncs() => {}
            Part::Whole => self.disk.files().sync(self.node),
            // The process is alive and hears of it.
            Part::Half if fate.error.is_some() && !self.disk.life.is_over() => {
                self.disk.files().lose(self.node);
            }
            Part::Half | Part::None => {}
        }
        fate.answer(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let fate = self.disk.fate(Call::Remove);
        if fate.part != Part::None {
            self.disk.files().truncate(self.node, length as usize);
        }
        fate.answer(())
    }
}

/// A directory's lock; free when this is dropped or its process is dead.
struct SimLock {
    disk: SimDisk,
    dir: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut files = self.disk.files();
        let is_ours = |owner: &Arc<Life>| Arc::ptr_eq(owner, &self.disk.life);
        if files.locks.get(&self.dir).is_some_and(is_ours) {
            files.locks.remove(&self.dir);
        }
    }
}
