//! A server that all tests of a process share. Once it is unusable, later tests fail at once,
//! because hundreds of tests that each time out take hours.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

pub(crate) struct SharedServer<S>(OnceLock<Result<S, String>>);

impl<S> SharedServer<S> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The server, which the first caller starts.
    ///
    /// # Panics
    ///
    /// If it could not be started, by this or another caller, or has become unusable.
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
                Some(fault) => panic!("the shared server is unusable: {fault}"),
            },
            Err(told) => panic!("the shared server did not start: {told}"),
        }
    }

    /// The server, if it has been started.
    pub(crate) fn started(&self) -> Option<&S> {
        self.0.get()?.as_ref().ok()
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("unknown reason").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn told(get: impl FnOnce()) -> String {
        text_of(&*catch_unwind(AssertUnwindSafe(get)).expect_err("it is unusable"))
    }

    #[test]
    fn a_start_that_failed_is_not_tried_again() {
        let (shared, starts) = (SharedServer::<()>::new(), AtomicUsize::new(0));
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
        let shared = SharedServer::new();
        assert_eq!(*shared.get(|| 7, |_| None), 7);
        let fault = |_: &i32| Some("it ended".to_owned());
        let told = told(|| assert_eq!(*shared.get(|| 8, fault), 7));
        assert!(told.ends_with("unusable: it ended"), "{told}");
    }
}
