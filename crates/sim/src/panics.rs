//! Panics while a schedule is played: the engine catches them and goes on, but in a simulation each
//! of them is a defect. They are noted for the verdict, which is printed with the seed.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// The panics of this thread, while they are noted.
    static NOTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs this, and returns its value unless it panics, and the panics of this thread meanwhile. All
/// others are printed as usual.
pub(crate) fn noted<T>(work: impl FnOnce() -> T) -> (Option<T>, Vec<String>) {
    watch();
    NOTED.set(Some(Vec::new()));
    let done = catch_unwind(AssertUnwindSafe(work));
    (done.ok(), NOTED.take().unwrap_or_default())
}

fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !note(|| panic.to_string()) {
                usual(panic);
            }
        }));
    });
}

/// False outside of `noted`.
fn note(panic: impl FnOnce() -> String) -> bool {
    NOTED.with_borrow_mut(|noted| match noted {
        Some(noted) => {
            noted.push(panic());
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_noted_whether_they_are_caught_or_not() {
        let (done, panics) = noted(|| {
            let _caught = catch_unwind(|| panic!("caught by the engine"));
            1
        });
        assert_eq!((done, panics.len()), (Some(1), 1));
        let (done, panics) = noted(|| -> u8 { panic!("caught by nobody") });
        assert!(done.is_none() && panics[0].contains("caught by nobody"), "{panics:?}");
        assert!(panics[0].contains(file!()), "it says where: {panics:?}");
    }

    #[test]
    fn panics_outside_of_a_schedule_are_left_to_the_usual_hook() {
        assert_eq!(noted(|| note(|| "inside".into())), (Some(true), vec!["inside".into()]));
        assert!(!note(|| unreachable!("nobody asks for the text")));
    }
}
