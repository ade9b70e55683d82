//! A server that all tests of a process use. One that is of no use fails all that come later at
//! once, because hundreds of tests that each wait for it in vain take hours.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

pub(crate) struct Shared<S>(OnceLock<Result<S, String>>);

impl<S> Shared<S> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The server, which the first caller starts.
    ///
    /// # Panics
    ///
    /// When its start failed, also that of another caller, or when it has a fault since.
    #[track_caller]
    pub(crate) fn get(
        &self,
        start: impl FnOnce() -> S,
        fault: impl FnOnce(&S) -> Option<String>,
    ) -> &S {
        let started = || catch_unwind(AssertUnwindSafe(start)).map_err(|panic| text_of(&*panic));
        match self.0.get_or_init(started) {
            Ok(server) => match fault(server) {
                None => server,
                Some(fault) => panic!("the server that all tests share is of no use: {fault}"),
            },
            Err(told) => panic!("the server that all tests share did not start: {told}"),
        }
    }

    /// The server, if somebody has started it.
    pub(crate) fn started(&self) -> Option<&S> {
        self.0.get()?.as_ref().ok()
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("nobody knows why").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn told(get: impl FnOnce()) -> String {
        text_of(&*catch_unwind(AssertUnwindSafe(get)).expect_err("it is of no use"))
    }

    #[test]
    fn a_start_that_failed_is_not_tried_again() {
        let (shared, starts) = (Shared::<()>::new(), AtomicUsize::new(0));
        for _ in 0..2 {
            let start = || {
                starts.fetch_add(1, Ordering::SeqCst);
                panic!("no port for it");
            };
            let told = told(|| *shared.get(start, |()| None));
            assert!(told.ends_with("did not start: no port for it"), "{told}");
        }
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn one_with_a_fault_fails_those_who_come_later() {
        let shared = Shared::new();
        assert_eq!(*shared.get(|| 7, |_| None), 7);
        let fault = |_: &i32| Some("it ended".to_owned());
        let told = told(|| assert_eq!(*shared.get(|| 8, fault), 7));
        assert!(told.ends_with("of no use: it ended"), "{told}");
    }
}
