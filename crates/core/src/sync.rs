//! Locks that a panic of their holder does not poison, and the message of a panic.
//!
//! A poisoned lock would turn one panic into the end of everything behind it. So data under these
//! locks must be usable after a panic in the middle of a change: most changes are one insert or
//! remove, and those of several steps err on the safe side.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic that was caught.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_a_panic_of_its_holder() {
        let (mutex, shared) = (Mutex::new(7), RwLock::new(8));
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = (lock(&mutex), write(&shared));
                panic!("while it holds the locks");
            });
            assert!(holder.join().is_err());
        });
        assert!(mutex.is_poisoned() && shared.is_poisoned());
        assert_eq!((*lock(&mutex), *read(&shared)), (7, 8));
        assert_eq!(*write(&shared), 8);
    }

    #[test]
    fn a_panic_has_a_message_whatever_it_carries() {
        let text = |panic: Box<dyn Any + Send>| panic_text(&*panic).to_owned();
        assert_eq!(text(Box::new("a literal")), "a literal");
        assert_eq!(text(Box::new(format!("formatted {}", 1))), "formatted 1");
        assert_eq!(text(Box::new(1)), "no message");
    }
}
