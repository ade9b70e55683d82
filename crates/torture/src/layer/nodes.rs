//! Which number is which file. Numbers are never used again, so that the kernel cannot confuse a
//! new file with one that it still remembers.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{Errno, INodeNo};

use super::trouble::Part;

pub(super) struct Nodes {
    numbers: HashMap<PathBuf, u64>,
    paths: HashMap<u64, PathBuf>,
    open: HashMap<u64, Open>,
    next: u64,
}

struct Open {
    node: INodeNo,
    file: Arc<File>,
    part: Part,
}

impl Nodes {
    pub(super) fn new(root: &Path) -> Nodes {
        let number = INodeNo::ROOT.0;
        Nodes {
            numbers: HashMap::from([(root.to_owned(), number)]),
            paths: HashMap::from([(number, root.to_owned())]),
            open: HashMap::new(),
            next: number,
        }
    }

    pub(super) fn path(&self, node: INodeNo) -> Result<PathBuf, Errno> {
        self.paths.get(&node.0).cloned().ok_or(Errno::ENOENT)
    }

    /// The number of an existing file.
    pub(super) fn number(&mut self, path: &Path) -> INodeNo {
        if let Some(number) = self.numbers.get(path) {
            return INodeNo(*number);
        }
        let number = self.unused();
        self.numbers.insert(path.to_owned(), number);
        self.paths.insert(number, path.to_owned());
        INodeNo(number)
    }

    pub(super) fn removed(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    /// Everything below it moves too.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        self.removed(to);
        let moved = self.paths.iter_mut().filter(|(_, path)| path.starts_with(from));
        for (number, path) in moved {
            let below = path.strip_prefix(from).unwrap_or(Path::new(""));
            let target = if below.as_os_str().is_empty() { to.into() } else { to.join(below) };
            self.numbers.remove(path);
            self.numbers.insert(target.clone(), *number);
            *path = target;
        }
    }

    /// A number that nothing else has.
    pub(super) fn unused(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Notes a file that was opened by this path. Returns its handle.
    pub(super) fn opened(&mut self, node: INodeNo, path: &Path, file: File) -> u64 {
        let handle = self.unused();
        self.open.insert(handle, Open { node, file: Arc::new(file), part: Part::of(path) });
        handle
    }

    pub(super) fn closed(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    pub(super) fn file(&self, handle: u64) -> Result<Arc<File>, Errno> {
        self.open.get(&handle).map(|open| open.file.clone()).ok_or(Errno::EBADF)
    }

    /// Which part of the disk an open file is.
    pub(super) fn part(&self, handle: u64) -> Result<Part, Errno> {
        self.open.get(&handle).map(|open| open.part).ok_or(Errno::EBADF)
    }

    /// An open file with this number, which may have been removed since.
    pub(super) fn any_open(&self, node: INodeNo) -> Option<Arc<File>> {
        self.open.values().find(|open| open.node == node).map(|open| open.file.clone())
    }
}
