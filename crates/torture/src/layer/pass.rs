//! The calls of the kernel: each is the same call on the folder below.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::files::Files;

/// The kernel asks again each time, so that tests may change what is below.
const TTL: Duration = Duration::ZERO;

/// Answers with what was done, or its error.
macro_rules! answer {
    ($reply:ident, $done:expr, $value:pat => $good:expr) => {
        match $done {
            Ok($value) => $good,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.child(parent, name).and_then(|path| self.entry(&path));
        answer!(reply, found, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(node), attr => reply.attr(&TTL, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            if let Some(mode) = mode {
                fs::set_permissions(self.nodes().path(node)?, Permissions::from_mode(mode))?;
            }
            if let Some(size) = size {
                self.resize(node, handle, size)?;
            }
            if let Some(at) = mtime {
                self.set_time(node, at)?;
            }
            self.attributes(node)
        };
        answer!(reply, change(), attr => reply.attr(&TTL, &attr));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make_folder(parent, name, mode);
        answer!(reply, made, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, fs::remove_file), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, fs::remove_dir), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.rename_file((parent, name), (new_parent, new_name));
        answer!(reply, renamed, () => reply.ok());
    }

    fn link(
        &self,
        _: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.link_file(node, new_parent, new_name);
        answer!(reply, linked, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.open_file(node, flags);
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        answer!(reply, self.create_file(parent, name, mode), (attr, handle) => {
            let (handle, flags) = (FileHandle(handle), FopenFlags::empty());
            reply.created(&TTL, &attr, Generation(0), handle, flags);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        answer!(reply, self.read_at(handle, offset, size), bytes => reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        answer!(reply, self.write_at(handle, offset, data), bytes => reply.written(bytes));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.nodes().closed(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        answer!(reply, self.sync(handle, data), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.sync_folder(node), () => reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        answer!(reply, self.folder(handle), entries => {
            for (index, (number, kind, name)) in (1..).zip(entries.iter()).skip(offset as usize) {
                if reply.add(INodeNo(*number), index, *kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.open_folder(node);
        answer!(reply, opened, handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let found = rustix::fs::statvfs(&self.under).map_err(io::Error::from).map_err(Errno::from);
        answer!(reply, found, of => reply.statfs(
            of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree, of.f_bsize as u32,
            of.f_namemax as u32, of.f_frsize as u32,
        ));
    }
}
