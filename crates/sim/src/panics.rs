//! Panics: the engine catches them and goes on, but in a simulation each of them is a defect.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static NOTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes panics of this thread instead of printing them. Other threads print them as ever.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            NOTED.with_borrow_mut(|noted| noted.push(panic.to_string()));
        }));
    });
}

/// The panics of this thread since the last call.
pub(crate) fn take() -> Vec<String> {
    watch();
    NOTED.take()
}
