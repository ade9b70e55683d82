//! The contents of a disk: as processes see them, and as they are on the medium. Nothing reaches
//! the medium but by a sync: not by closing a file, nor by a new name. A power cut leaves what is
//! on the medium and, by chance, parts of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;

use crate::life::Life;

/// A power cut leaves or loses this much at once.
const SECTOR_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Files {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    names_durable: BTreeMap<PathBuf, usize>,
    pub(super) locks: BTreeMap<PathBuf, Arc<Life>>,
}

#[derive(Default)]
struct Node {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Everything before this is on the medium, or a failed sync has lost it.
    dirty_from: usize,
    is_dir: bool,
}

impl Files {
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path == Path::new("/") || self.find(path).is_ok_and(|node| self.nodes[node].is_dir)
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn bytes(&self, node: usize) -> &[u8] {
        &self.nodes[node].bytes
    }

    /// The names in a directory, sorted, each with its node.
    pub(super) fn inside(&self, dir: &Path, dirs: bool) -> Vec<(String, usize)> {
        let inside = self
            .names
            .iter()
            .filter(|(path, node)| path.parent() == Some(dir) && self.nodes[**node].is_dir == dirs);
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        inside.filter_map(|(path, node)| Some((name(path)?, *node))).collect()
    }

    pub(super) fn add(&mut self, path: &Path, is_dir: bool) -> io::Result<usize> {
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = self.nodes.len();
        self.name(path, node)?;
        self.nodes.push(Node { is_dir, ..Node::default() });
        Ok(node)
    }

    pub(super) fn name(&mut self, path: &Path, node: usize) -> io::Result<()> {
        if !path.parent().is_some_and(|parent| self.is_dir(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.names.insert(path.to_owned(), node);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.names.remove(path);
    }

    pub(super) fn write(&mut self, node: usize, bytes: &[u8], offset: usize) {
        let node = &mut self.nodes[node];
        let end = offset + bytes.len();
        node.dirty_from = node.dirty_from.min(offset).min(node.bytes.len());
        node.bytes.resize(node.bytes.len().max(end), 0);
        node.bytes[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn truncate(&mut self, node: usize, length: usize) {
        let node = &mut self.nodes[node];
        node.dirty_from = node.dirty_from.min(length).min(node.bytes.len());
        node.bytes.resize(length, 0);
    }

    pub(super) fn sync(&mut self, node: usize) {
        let Node { bytes, durable, dirty_from, .. } = &mut self.nodes[node];
        durable.resize(bytes.len(), 0);
        let from = (*dirty_from).min(bytes.len());
        durable[from..].copy_from_slice(&bytes[from..]);
        *dirty_from = bytes.len();
    }

    /// What should have been written is never written: the system takes it for clean.
    pub(super) fn lose(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.dirty_from = node.bytes.len();
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        let inside = |path: &Path| path.parent() == Some(dir);
        self.names_durable.retain(|path, _| !inside(path));
        let now = self.names.iter().filter(|(path, _)| inside(path));
        self.names_durable.extend(now.map(|(path, node)| (path.clone(), *node)));
    }

    /// All processes are dead. Half of the time, everything goes that was not synced.
    pub(crate) fn cut_power(&mut self, rng: &mut Rng) {
        self.locks.clear();
        let worst = rng.bool();
        for node in &mut self.nodes {
            node.cut_power(worst, rng);
        }
        let known: BTreeSet<&PathBuf> =
            self.names.keys().chain(self.names_durable.keys()).collect();
        let mut names = BTreeMap::new();
        // A directory sorts before its contents.
        for path in known {
            let from = if worst || rng.bool() { &self.names_durable } else { &self.names };
            let parent = path.parent().unwrap_or(Path::new("/"));
            if let Some(&node) = from.get(path)
                && (parent == Path::new("/") || names.contains_key(parent))
            {
                names.insert(path.clone(), node);
            }
        }
        self.names_durable.clone_from(&names);
        self.names = names;
    }
}

impl Node {
    fn cut_power(&mut self, worst: bool, rng: &mut Rng) {
        let Node { bytes, durable, dirty_from, .. } = self;
        if *dirty_from < bytes.len() && !worst && rng.bool() {
            let whole = rng.bool();
            durable.resize(bytes.len(), 0);
            for start in (*dirty_from..bytes.len()).step_by(SECTOR_BYTES) {
                let sector = start..bytes.len().min(start + SECTOR_BYTES);
                if whole || rng.bool() {
                    durable[sector.clone()].copy_from_slice(&bytes[sector]);
                }
            }
        }
        bytes.clone_from(durable);
        *dirty_from = bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worst that a power cut can do to what `change` has done.
    fn after_worst(change: impl Fn(&mut Files)) -> Files {
        (0..)
            .find_map(|seed| {
                let mut files = Files::default();
                change(&mut files);
                let mut rng = Rng::with_seed(seed);
                let is_worst = rng.clone().bool();
                files.cut_power(&mut rng);
                is_worst.then_some(files)
            })
            .unwrap()
    }

    #[test]
    fn a_power_cut_takes_what_was_not_synced_and_nothing_else() {
        let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
        let files = after_worst(|files| {
            files.add(dir, true).unwrap();
            files.sync_dir(Path::new("/"));
            let node = files.add(path, false).unwrap();
            files.write(node, b"one", 0);
            files.sync(node);
            files.sync_dir(dir);
            files.write(node, b"two", 3);
            files.add(Path::new("/d/g"), false).unwrap();
        });
        assert_eq!(files.bytes(files.find(path).unwrap()), b"one");
        assert_eq!(files.inside(dir, false).len(), 1);
        let files = after_worst(|files| {
            files.add(dir, true).unwrap();
        });
        assert!(!files.is_dir(dir));
    }

    #[test]
    fn what_a_failed_sync_lost_stays_lost_after_one_that_succeeds() {
        let path = Path::new("/f");
        let files = after_worst(|files| {
            let node = files.add(path, false).unwrap();
            files.sync_dir(Path::new("/"));
            files.write(node, b"one", 0);
            files.lose(node);
            files.write(node, b"two", 3);
            files.sync(node);
        });
        assert_eq!(files.bytes(files.find(path).unwrap()), b"\0\0\0two");
    }
}
