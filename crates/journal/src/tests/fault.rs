//! A disk in memory that knows what a power cut would leave of it, and that fails on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, Lock};

/// What a failing operation does before it reports its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing; a failed sync loses what it should have made durable.
    Refuse,
    /// A write leaves its first half behind; a sync succeeds although it reports an error.
    Halfway,
    /// Nothing; permission is denied.
    Forbid,
    /// The machine loses power: nothing works from here on.
    PowerCut,
}

/// Which operations fail: those with a number in `from..until`, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

#[derive(Clone, Default)]
pub(crate) struct FaultDisk {
    files: Arc<Mutex<Files>>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Files {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    names_durable: BTreeMap<PathBuf, usize>,
    plan: Option<Plan>,
    operations: u64,
    syncs: u64,
}

#[derive(Default, Clone)]
struct Node {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    is_dir: bool,
    /// A sync has failed: what was written before it never reaches the disk.
    lossy: bool,
}

/// Blocks syncs while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl FaultDisk {
    pub(crate) fn failing(plan: Plan) -> FaultDisk {
        let disk = FaultDisk::default();
        disk.files().plan = Some(plan);
        disk
    }

    pub(crate) fn fail(&self, plan: Option<Plan>) {
        let mut files = self.files();
        files.plan = plan;
        files.operations = 0;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.files().operations
    }

    /// Syncs of files that were started.
    pub(crate) fn syncs(&self) -> u64 {
        self.files().syncs
    }

    pub(crate) fn shut_gate(&self) {
        *self.gate.shut.lock().unwrap() = true;
    }

    pub(crate) fn open_gate(&self) {
        *self.gate.shut.lock().unwrap() = false;
        self.gate.opened.notify_all();
    }

    /// The same disk as another process sees it after this one has ended.
    pub(crate) fn restarted(&self) -> FaultDisk {
        let files = self.files();
        let copy = Files {
            nodes: files.nodes.clone(),
            names: files.names.clone(),
            names_durable: files.names_durable.clone(),
            ..Files::default()
        };
        FaultDisk { files: Arc::new(Mutex::new(copy)), gate: Arc::default() }
    }

    /// What is left after a power cut: everything synced, and by chance some of the rest.
    pub(crate) fn after_power_cut(&self, luck: &mut fastrand::Rng) -> FaultDisk {
        let files = self.files();
        let nodes = files.nodes.iter().map(|node| node.after_power_cut(luck)).collect();
        let known: BTreeSet<_> = files.names.keys().chain(files.names_durable.keys()).collect();
        let mut names = BTreeMap::new();
        for name in known {
            let from = if luck.bool() { &files.names } else { &files.names_durable };
            if let Some(&node) = from.get(name) {
                names.insert(name.clone(), node);
            }
        }
        FaultDisk::of(nodes, names)
    }

    /// What is left if a power cut takes everything that was not synced.
    pub(crate) fn after_worst_power_cut(&self) -> FaultDisk {
        let files = self.files();
        let durable = |node: &Node| Node { bytes: node.durable.clone(), ..node.clone() };
        FaultDisk::of(files.nodes.iter().map(durable).collect(), files.names_durable.clone())
    }

    /// A disk on which these nodes are durable under these names, unless a parent directory is
    /// gone.
    fn of(nodes: Vec<Node>, found: BTreeMap<PathBuf, usize>) -> FaultDisk {
        let mut names = BTreeMap::new();
        // A directory sorts before its contents.
        for (path, node) in found {
            let parent = path.parent().unwrap();
            if parent == Path::new("/") || names.contains_key(parent) {
                names.insert(path, node);
            }
        }
        let files = Files { nodes, names_durable: names.clone(), names, ..Files::default() };
        FaultDisk { files: Arc::new(Mutex::new(files)), gate: Arc::default() }
    }

    pub(crate) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let files = self.files();
        files.names.get(path).map(|&node| files.nodes[node].bytes.clone())
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
    }
}

impl Node {
    fn after_power_cut(&self, luck: &mut fastrand::Rng) -> Node {
        const SECTOR_BYTES: usize = 64;
        let mut bytes = self.durable.clone();
        if !self.lossy && luck.bool() {
            let whole = luck.bool();
            bytes.resize(self.bytes.len(), 0);
            for start in (0..bytes.len()).step_by(SECTOR_BYTES) {
                let sector = start..bytes.len().min(start + SECTOR_BYTES);
                if whole || luck.bool() {
                    bytes[sector.clone()].copy_from_slice(&self.bytes[sector]);
                }
            }
        }
        Node { durable: bytes.clone(), bytes, lossy: false, is_dir: self.is_dir }
    }
}

impl Files {
    /// Counts an operation; returns its fault, if any.
    fn count(&mut self) -> Option<Fault> {
        self.operations += 1;
        let plan = self.plan?;
        let cut = plan.fault == Fault::PowerCut && self.operations >= plan.from;
        let hit = (plan.from..plan.until).contains(&self.operations);
        (cut || hit).then_some(plan.fault)
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, path: &Path) -> bool {
        path == Path::new("/") || self.find(path).is_ok_and(|node| self.nodes[node].is_dir)
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        if !path.parent().is_some_and(|parent| self.is_dir(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let number = self.nodes.len();
        self.nodes.push(node);
        self.names.insert(path.to_owned(), number);
        Ok(number)
    }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(28)
}

struct FaultFile {
    disk: FaultDisk,
    node: usize,
}

impl Disk for FaultDisk {
    fn is_dir(&self, dir: &Path) -> bool {
        self.files().is_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let mut files = self.files();
        if files.count().is_some() {
            return Err(refused());
        }
        if !files.is_dir(dir) {
            files.add(dir, Node { is_dir: true, ..Node::default() })?;
        }
        Ok(())
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>> {
        if !self.files().is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Box::new(())))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let files = self.files();
        let inside = files
            .names
            .iter()
            .filter(|(path, node)| path.parent() == Some(dir) && !files.nodes[**node].is_dir);
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        Ok(inside.map(|(path, &at)| (name(path), files.nodes[at].bytes.len() as u64)).collect())
    }

    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files();
        let inside = |path: &&PathBuf| path.parent() == Some(dir) && files.is_dir(path);
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        Ok(files.names.keys().filter(inside).map(name).collect())
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        let files = self.files();
        Ok(files.nodes[files.find(path)?].bytes.len() as u64)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        let mut files = self.files();
        if files.count().is_some() {
            return Err(refused());
        }
        let node = files.find(path)?;
        files.names.insert(name.to_owned(), node);
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files();
        if files.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let fault = files.count();
        if fault.is_none_or(|fault| fault == Fault::Halfway) {
            files.add(path, Node::default())?;
        }
        if fault.is_some() {
            return Err(refused());
        }
        let node = files.find(path)?;
        Ok(Arc::new(FaultFile { disk: self.clone(), node }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let node = self.files().find(path)?;
        Ok(Arc::new(FaultFile { disk: self.clone(), node }))
    }

    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let files = self.files();
        let content = &files.nodes[files.find(path)?].bytes;
        let range = offset as usize..offset as usize + bytes;
        content.get(range).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files();
        if files.count().is_some() {
            return Err(refused());
        }
        files.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        self.files().count().map_or(Ok(()), |_| Err(refused()))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut files = self.files();
        let fault = files.count();
        if fault.is_none_or(|fault| fault == Fault::Halfway) {
            let inside = |path: &Path| path.parent() == Some(dir);
            files.names_durable.retain(|path, _| !inside(path));
            let now: Vec<_> = files.names.iter().filter(|(path, _)| inside(path)).collect();
            let now: Vec<_> = now.into_iter().map(|(path, &node)| (path.clone(), node)).collect();
            files.names_durable.extend(now);
        }
        match fault {
            None => Ok(()),
            Some(Fault::Forbid) => Err(io::ErrorKind::PermissionDenied.into()),
            Some(_) => Err(refused()),
        }
    }
}

impl DiskFile for FaultFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut files = self.disk.files();
        let fault = files.count();
        let written = match fault {
            None => bytes,
            Some(Fault::Halfway) => &bytes[..bytes.len() / 2],
            Some(_) => &[],
        };
        let content = &mut files.nodes[self.node].bytes;
        let end = offset as usize + written.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(written);
        fault.map_or(Ok(()), |_| Err(refused()))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.files().syncs += 1;
        let mut shut = self.disk.gate.shut.lock().unwrap();
        while *shut {
            shut = self.disk.gate.opened.wait(shut).unwrap();
        }
        drop(shut);
        let mut files = self.disk.files();
        let fault = files.count();
        let node = &mut files.nodes[self.node];
        match fault {
            None | Some(Fault::Halfway) if !node.lossy => node.durable = node.bytes.clone(),
            Some(Fault::Refuse) => node.lossy = true,
            _ => {}
        }
        fault.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(5)))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut files = self.disk.files();
        if files.count().is_some() {
            return Err(refused());
        }
        files.nodes[self.node].bytes.resize(length as usize, 0);
        Ok(())
    }
}
