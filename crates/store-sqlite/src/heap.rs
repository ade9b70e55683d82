//! A bound of the memory that SQLite takes for one query. SQLite's own limit is one for the whole
//! process, so a query at the limit would stop the store's writer. This counts what the thread of a
//! query allocates and frees, and refuses more than its bound; SQLite ends the query then, with
//! `SQLITE_NOMEM`. Other threads are not counted.

#![allow(unsafe_code, reason = "SQLite's allocator is a table of C functions")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use rusqlite::ffi;

thread_local! {
    /// The bytes that this thread may still allocate; `None` if it is not counted.
    static LEFT: Cell<Option<i64>> = const { Cell::new(None) };
}

/// SQLite's own allocator, which does the work.
struct Allocator {
    malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    size: unsafe extern "C" fn(*mut c_void) -> c_int,
}

static ALLOCATOR: OnceLock<Option<Allocator>> = OnceLock::new();

/// Has to be called before the first connection is opened. If another part of the process has
/// opened one, queries are not bounded. Returns whether they are.
pub(crate) fn install() -> bool {
    ALLOCATOR.get_or_init(|| {
        // SAFETY: the table is filled by SQLite before it is read, and copied by SQLite when it is
        // set. SQLite refuses both once it is in use.
        unsafe {
            let mut methods: ffi::sqlite3_mem_methods = std::mem::zeroed();
            let got = ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods);
            let (Some(malloc), Some(realloc), Some(free), Some(size)) =
                (methods.xMalloc, methods.xRealloc, methods.xFree, methods.xSize)
            else {
                return None;
            };
            let own = ffi::sqlite3_mem_methods {
                xMalloc: Some(counted_malloc),
                xRealloc: Some(counted_realloc),
                xFree: Some(counted_free),
                ..methods
            };
            let set = ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const own);
            let is_ours = got == ffi::SQLITE_OK && set == ffi::SQLITE_OK;
            is_ours.then_some(Allocator { malloc, realloc, free, size })
        }
    });
    allocator().is_some()
}

/// Runs work on this thread that may allocate this much through SQLite, besides what it frees.
pub(crate) fn within<T>(bytes_max: i64, work: impl FnOnce() -> T) -> T {
    struct Uncount;
    impl Drop for Uncount {
        fn drop(&mut self) {
            LEFT.set(None);
        }
    }
    LEFT.set(Some(bytes_max));
    let _uncount = Uncount;
    work()
}

fn allocator() -> Option<&'static Allocator> {
    ALLOCATOR.get()?.as_ref()
}

fn is_counted() -> bool {
    LEFT.get().is_some()
}

/// Whether this thread may allocate so much more.
fn take(bytes: c_int) -> bool {
    match LEFT.get() {
        None => true,
        Some(left) if left < i64::from(bytes) => false,
        Some(left) => {
            LEFT.set(Some(left - i64::from(bytes)));
            true
        }
    }
}

fn give_back(bytes: c_int) {
    LEFT.set(LEFT.get().map(|left| left.saturating_add(i64::from(bytes))));
}

/// SQLite calls these only after `install` has set them, which it does not before it has the
/// allocator: it is initialised when the first connection is opened.
unsafe extern "C" fn counted_malloc(bytes: c_int) -> *mut c_void {
    match allocator() {
        // SAFETY: the arguments are SQLite's.
        Some(real) if take(bytes) => unsafe { (real.malloc)(bytes) },
        _ => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn counted_realloc(old: *mut c_void, bytes: c_int) -> *mut c_void {
    let Some(real) = allocator() else { return std::ptr::null_mut() };
    // SAFETY: the arguments are SQLite's, and `old` came from the same allocator.
    unsafe {
        if !is_counted() {
            return (real.realloc)(old, bytes);
        }
        let grown = bytes - (real.size)(old);
        if grown > 0 && !take(grown) {
            return std::ptr::null_mut();
        }
        let new = (real.realloc)(old, bytes);
        if grown < 0 && !new.is_null() {
            give_back(-grown);
        }
        new
    }
}

unsafe extern "C" fn counted_free(old: *mut c_void) {
    let Some(real) = allocator() else { return };
    // SAFETY: `old` came from the same allocator.
    unsafe {
        if is_counted() {
            give_back((real.size)(old));
        }
        (real.free)(old);
    }
}
