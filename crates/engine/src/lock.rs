//! The one way to take a lock: a panic of its holder does not take it from everybody else.
//!
//! What is behind the engine's locks can be used after a panic in the middle of a change. Most
//! changes are one insert or remove. Those of more steps err on the safe side: a worker that was
//! called and still stands in line is called twice; the scheduler's numbers of waiting jobs are
//! estimates that the next look at the store puts right, and its slots are given back by whoever
//! holds them (`dispatch::reserved`). Their arithmetic is on numbers that were checked where they
//! entered.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_a_panic_of_its_holder() {
        let mutex = Mutex::new(7);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = lock(&mutex);
                panic!("while it holds the lock");
            });
            assert!(holder.join().is_err());
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 7);
    }
}
