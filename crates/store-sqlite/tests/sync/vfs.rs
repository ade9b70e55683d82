//! A disk that fails to sync: SQLite's default VFS, with syncs that fail on request.

#![allow(unsafe_code, reason = "SQLite's file system is a table of C functions")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::{LazyLock, Mutex, OnceLock};

use rusqlite::ffi;

#[derive(Default)]
struct Disk {
    /// Names of open files, by the address of SQLite's handle.
    names: HashMap<usize, String>,
    /// How many further syncs of a file fail.
    failing: HashMap<String, u32>,
    synced: HashMap<String, u32>,
}

static DISK: LazyLock<Mutex<Disk>> = LazyLock::new(Mutex::default);
static ORIGINAL: OnceLock<usize> = OnceLock::new();
static SYNC: OnceLock<unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int> =
    OnceLock::new();

/// Installs the VFS for all connections that this process opens from now on.
pub(crate) fn install() {
    ORIGINAL.get_or_init(|| {
        // SAFETY: the default file system exists and lives as long as the process, as does the
        // copy that is registered in its place.
        unsafe {
            let original = ffi::sqlite3_vfs_find(std::ptr::null());
            let copy = ffi::sqlite3_vfs {
                zName: c"failing".as_ptr(),
                pNext: std::ptr::null_mut(),
                xOpen: Some(open),
                ..*original
            };
            let registered = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(copy)), 1);
            assert_eq!(registered, ffi::SQLITE_OK);
            original as usize
        }
    });
}

/// The next syncs of this file fail.
pub(crate) fn fail_syncs(path: &Path, times: u32) {
    DISK.lock().unwrap().failing.insert(path.to_str().unwrap().to_owned(), times);
}

/// How many syncs of this file have failed on request.
pub(crate) fn are_left(path: &Path) -> u32 {
    DISK.lock().unwrap().failing.get(path.to_str().unwrap()).copied().unwrap_or(0)
}

/// How often this file was synced.
pub(crate) fn syncs(path: &Path) -> u32 {
    DISK.lock().unwrap().synced.get(path.to_str().unwrap()).copied().unwrap_or(0)
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: all arguments come from SQLite, and are passed to the function that they are meant
    // for. The method table of an open file is constant; its copy is never freed.
    unsafe {
        let original = *ORIGINAL.get().unwrap() as *mut ffi::sqlite3_vfs;
        let opened = (*original).xOpen.unwrap()(original, name, file, flags, out_flags);
        if opened == ffi::SQLITE_OK && !(*file).pMethods.is_null() {
            let methods = *(*file).pMethods;
            SYNC.get_or_init(|| methods.xSync.unwrap());
            let methods = ffi::sqlite3_io_methods { xSync: Some(sync), ..methods };
            (*file).pMethods = Box::into_raw(Box::new(methods));
            let name: *const c_char = name;
            let name = if name.is_null() { c"" } else { CStr::from_ptr(name) };
            let name = name.to_str().unwrap().to_owned();
            DISK.lock().unwrap().names.insert(file as usize, name);
        }
        opened
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let mut disk = DISK.lock().unwrap();
    let name = disk.names[&(file as usize)].clone();
    if let Some(times) = disk.failing.get_mut(&name).filter(|times| **times > 0) {
        *times -= 1;
        return ffi::SQLITE_IOERR_FSYNC;
    }
    *disk.synced.entry(name).or_default() += 1;
    drop(disk);
    // SAFETY: the file is SQLite's, and the method is its original one.
    unsafe { SYNC.get().unwrap()(file, flags) }
}
