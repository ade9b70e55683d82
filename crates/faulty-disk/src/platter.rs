//! What a power cut would leave of the files below a directory. Only syncs make anything durable:
//! that of a file its content, that of a directory its names. A failed sync loses what it should
//! have written; a later one does not make up for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The kernel writes, and gives up, whole pages.
const PAGE_BYTES: usize = 4096;
/// What a disk writes at once.
const SECTOR_BYTES: usize = 512;

/// Identifies a file or directory under whatever name. Numbers are used again, so the time of
/// creation is part of it.
type FileId = (u64, Option<SystemTime>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Dir(FileId),
    File(FileId),
}

type Names = BTreeMap<OsString, Entry>;

pub(crate) struct Platter {
    root: PathBuf,
    dirs: HashMap<FileId, Names>,
    files: HashMap<FileId, Content>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// Pages that a failed sync has given up, and that were not written since.
    lost: BTreeSet<usize>,
}

impl Platter {
    /// Everything that exists is durable.
    pub(crate) fn new(root: &Path) -> io::Result<Platter> {
        let mut platter =
            Platter { root: root.to_owned(), dirs: HashMap::new(), files: HashMap::new() };
        for path in paths_below(root)?.into_values() {
            platter.sync(&path)?;
        }
        Ok(platter)
    }

    /// Of an open file or directory.
    pub(crate) fn sync(&mut self, file: &Path) -> io::Result<()> {
        let metadata = fs::metadata(file)?;
        if metadata.is_dir() {
            self.dirs.insert(id_of(&metadata), names_in(file)?);
            return Ok(());
        }
        let mut bytes = fs::read(file)?;
        let content = self.files.entry(id_of(&metadata)).or_default();
        for page in &content.lost {
            let (now, before) =
                (page_range(*page, bytes.len()), page_range(*page, content.bytes.len()));
            let (kept, new) = bytes[now.clone()].split_at_mut(before.len().min(now.len()));
            kept.copy_from_slice(&content.bytes[before][..kept.len()]);
            new.fill(0);
        }
        content.bytes = bytes;
        Ok(())
    }

    /// The pages of this range will be part of the next sync.
    pub(crate) fn written(&mut self, file: &Path, range: impl Fn() -> Option<Range<u64>>) {
        let content = fs::metadata(file).ok().and_then(|file| self.files.get_mut(&id_of(&file)));
        let Some(content) = content.filter(|content| !content.lost.is_empty()) else { return };
        let range = range().map(|range| range.start as usize..range.end as usize);
        let rewritten = |page: &usize| {
            let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
            range.as_ref().is_none_or(|range| range.start < to && from < range.end)
        };
        content.lost.retain(|page| !rewritten(page));
    }

    /// A sync has failed: what differs from the disk will never be on it.
    pub(crate) fn lose(&mut self, file: &Path) {
        let (Ok(metadata), Ok(bytes)) = (fs::metadata(file), fs::read(file)) else { return };
        let content = self.files.entry(id_of(&metadata)).or_default();
        for page in 0..bytes.len().div_ceil(PAGE_BYTES) {
            let range = page_range(page, bytes.len());
            if content.bytes.get(range.clone()) != Some(&bytes[range]) {
                content.lost.insert(page);
            }
        }
    }

    pub(crate) fn copy_to(&self, to: &Path, seed: Option<u64>) -> io::Result<()> {
        let root = id_of(&fs::metadata(&self.root)?);
        let mut luck = seed.map(fastrand::Rng::with_seed);
        self.copy_dir(root, to, &paths_below(&self.root)?, &mut luck)
    }

    fn copy_dir(
        &self,
        dir: FileId,
        to: &Path,
        paths: &HashMap<FileId, PathBuf>,
        luck: &mut Option<fastrand::Rng>,
    ) -> io::Result<()> {
        let durable = self.dirs.get(&dir).cloned().unwrap_or_default();
        let now = match (paths.get(&dir), &luck) {
            (Some(path), Some(_)) => names_in(path)?,
            _ => Names::new(),
        };
        let names: BTreeSet<&OsString> = durable.keys().chain(now.keys()).collect();
        for name in names {
            let by_chance = luck.as_mut().is_some_and(|luck| luck.bool());
            let entry = if by_chance { now.get(name) } else { durable.get(name) };
            let copy = to.join(name);
            match entry {
                Some(Entry::Dir(id)) => {
                    fs::create_dir(&copy)?;
                    self.copy_dir(*id, &copy, paths, luck)?;
                }
                Some(Entry::File(id)) => {
                    let current = paths.get(id).and_then(|path| fs::read(path).ok());
                    fs::write(&copy, self.left_of(*id, current, luck.as_mut()))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn left_of(
        &self,
        id: FileId,
        current: Option<Vec<u8>>,
        luck: Option<&mut fastrand::Rng>,
    ) -> Vec<u8> {
        let content = self.files.get(&id);
        let mut bytes = content.map(|content| content.bytes.clone()).unwrap_or_default();
        let (Some(current), Some(luck)) = (current, luck) else { return bytes };
        if luck.bool() {
            return bytes;
        }
        let all = luck.bool();
        bytes.resize(current.len(), 0);
        for start in (0..bytes.len()).step_by(SECTOR_BYTES) {
            let sector = start..bytes.len().min(start + SECTOR_BYTES);
            let page = start / PAGE_BYTES;
            let is_lost = content.is_some_and(|content| content.lost.contains(&page));
            if !is_lost && (all || luck.bool()) {
                bytes[sector.clone()].copy_from_slice(&current[sector]);
            }
        }
        bytes
    }
}

fn page_range(page: usize, length: usize) -> Range<usize> {
    let start = (page * PAGE_BYTES).min(length);
    start..(start + PAGE_BYTES).min(length)
}

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.ino(), metadata.created().ok())
}

fn names_in(dir: &Path) -> io::Result<Names> {
    let mut names = Names::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // It may have been removed meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let id = id_of(&metadata);
        let kind = if metadata.is_dir() { Entry::Dir(id) } else { Entry::File(id) };
        names.insert(entry.file_name(), kind);
    }
    Ok(names)
}

/// Where everything is, including the directory itself.
fn paths_below(dir: &Path) -> io::Result<HashMap<FileId, PathBuf>> {
    let mut paths = HashMap::from([(id_of(&fs::metadata(dir)?), dir.to_owned())]);
    for (name, entry) in names_in(dir)? {
        match entry {
            Entry::Dir(_) => paths.extend(paths_below(&dir.join(name))?),
            Entry::File(id) => drop(paths.insert(id, dir.join(name))),
        }
    }
    Ok(paths)
}
