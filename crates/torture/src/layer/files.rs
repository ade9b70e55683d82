//! The calls of `pass`, as functions with results.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, FileTimes, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};

use super::nodes::Nodes;
use super::trouble::{Part, Switch, Trouble};

pub(super) struct Files {
    pub(super) under: PathBuf,
    nodes: Mutex<Nodes>,
    /// Folders as they were when they were opened.
    folders: Mutex<HashMap<u64, Arc<[Entry]>>>,
    switch: Arc<Switch>,
}

/// A number, a kind and a name.
pub(super) type Entry = (u64, FileType, OsString);
pub(super) type Done<T> = Result<T, Errno>;

impl Files {
    pub(super) fn new(under: &Path, switch: Arc<Switch>) -> Files {
        let nodes = Mutex::new(Nodes::new(under));
        Files { under: under.to_owned(), nodes, folders: Mutex::default(), switch }
    }

    pub(super) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open file, for a call that this trouble concerns.
    fn file(&self, handle: FileHandle, concerned: Trouble) -> Done<Arc<File>> {
        let part = self.nodes().part(handle.0)?;
        self.switch.pass(concerned, part)?;
        self.nodes().file(handle.0)
    }

    pub(super) fn child(&self, parent: INodeNo, name: &OsStr) -> Done<PathBuf> {
        Ok(self.nodes().path(parent)?.join(name))
    }

    /// The number and attributes of a path that exists.
    pub(super) fn entry(&self, path: &Path) -> Done<FileAttr> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(attributes(self.nodes().number(path), &metadata))
    }

    pub(super) fn attributes(&self, node: INodeNo) -> Done<FileAttr> {
        let path = self.nodes().path(node);
        let metadata = match path {
            Ok(path) => fs::symlink_metadata(path)?,
            Err(error) => self.nodes().any_open(node).ok_or(error)?.metadata()?,
        };
        Ok(attributes(node, &metadata))
    }

    pub(super) fn open_file(&self, node: INodeNo, flags: OpenFlags) -> Done<u64> {
        let path = self.nodes().path(node)?;
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        // The kernel reads pages of which it writes a part.
        let file = OpenOptions::new().read(true).write(writes).open(&path)?;
        Ok(self.nodes().opened(node, &path, file))
    }

    pub(super) fn make_folder(&self, parent: INodeNo, name: &OsStr, mode: u32) -> Done<FileAttr> {
        let path = self.child(parent, name)?;
        DirBuilder::new().mode(mode).create(&path)?;
        self.entry(&path)
    }

    pub(super) fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Done<(FileAttr, u64)> {
        let path = self.child(parent, name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(mode);
        let file = options.open(&path)?;
        let attr = self.entry(&path)?;
        Ok((attr, self.nodes().opened(attr.ino, &path, file)))
    }

    pub(super) fn resize(&self, node: INodeNo, handle: Option<FileHandle>, size: u64) -> Done<()> {
        let Some(handle) = handle else {
            let path = self.nodes().path(node)?;
            self.switch.pass(Trouble::Writes, Part::of(&path))?;
            return Ok(OpenOptions::new().write(true).open(path)?.set_len(size)?);
        };
        let file = self.file(handle, Trouble::Writes)?;
        Ok(file.set_len(size)?)
    }

    pub(super) fn set_time(&self, node: INodeNo, at: TimeOrNow) -> Done<()> {
        let at = match at {
            TimeOrNow::SpecificTime(at) => at,
            TimeOrNow::Now => SystemTime::now(),
        };
        let file = File::open(self.nodes().path(node)?)?;
        Ok(file.set_times(FileTimes::new().set_modified(at))?)
    }

    pub(super) fn read_at(&self, handle: FileHandle, offset: u64, size: u32) -> Done<Vec<u8>> {
        let file = self.file(handle, Trouble::Reads)?;
        let mut bytes = vec![0; size as usize];
        let mut have = 0;
        while have < bytes.len() {
            match file.read_at(&mut bytes[have..], offset + have as u64)? {
                0 => break,
                more => have += more,
            }
        }
        bytes.truncate(have);
        Ok(bytes)
    }

    pub(super) fn write_at(&self, handle: FileHandle, offset: u64, data: &[u8]) -> Done<u32> {
        self.file(handle, Trouble::Writes)?.write_all_at(data, offset)?;
        Ok(data.len() as u32)
    }

    pub(super) fn sync(&self, handle: FileHandle, only_data: bool) -> Done<()> {
        let file = self.file(handle, Trouble::Syncs)?;
        let synced = if only_data { file.sync_data() } else { file.sync_all() };
        Ok(synced?)
    }

    pub(super) fn sync_folder(&self, node: INodeNo) -> Done<()> {
        self.switch.pass(Trouble::Syncs, Part::Other)?;
        let path = self.nodes().path(node)?;
        Ok(File::open(path)?.sync_all()?)
    }

    pub(super) fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        how: fn(PathBuf) -> io::Result<()>,
    ) -> Done<()> {
        let path = self.child(parent, name)?;
        how(path.clone())?;
        self.nodes().removed(&path);
        Ok(())
    }

    pub(super) fn rename_file(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> Done<()> {
        let (from, to) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        fs::rename(&from, &to)?;
        self.nodes().renamed(&from, &to);
        Ok(())
    }

    /// The second name gets a number of its own; both see what is written down to the disk.
    pub(super) fn link_file(&self, node: INodeNo, parent: INodeNo, name: &OsStr) -> Done<FileAttr> {
        let path = self.child(parent, name)?;
        fs::hard_link(self.nodes().path(node)?, &path)?;
        self.entry(&path)
    }

    pub(super) fn open_folder(&self, node: INodeNo) -> Done<u64> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.nodes().path(node)?)? {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            entries.push((entry.ino(), kind, entry.file_name()));
        }
        let handle = self.nodes().unused();
        self.folders().insert(handle, entries.into());
        Ok(handle)
    }

    pub(super) fn folder(&self, handle: FileHandle) -> Done<Arc<[Entry]>> {
        self.folders().get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub(super) fn folders(&self) -> MutexGuard<'_, HashMap<u64, Arc<[Entry]>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attributes(ino: INodeNo, of: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanos: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        UNIX_EPOCH + Duration::new(seconds, u32::try_from(nanos).unwrap_or(0))
    };
    FileAttr {
        ino,
        size: of.len(),
        blocks: of.blocks(),
        atime: time(of.atime(), of.atime_nsec()),
        mtime: time(of.mtime(), of.mtime_nsec()),
        ctime: time(of.ctime(), of.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: FileType::from_std(of.file_type()).unwrap_or(FileType::RegularFile),
        perm: (of.mode() & 0o7777) as u16,
        nlink: u32::try_from(of.nlink()).unwrap_or(1),
        uid: of.uid(),
        gid: of.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
