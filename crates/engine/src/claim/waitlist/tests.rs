//! Who is woken, in which order, and what becomes of an unused wake-up.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::*;

fn key(name: &str) -> TypeKey {
    TypeKey::new("acme", name).unwrap()
}

fn interest(names: &[&str]) -> Interest {
    let names = names.iter().map(|text| Pattern::of(text)).collect();
    let (priority, payload_bytes_max, hidden) = (None, u64::MAX, false);
    Interest { tenant: key("t").tenant, names, priority, payload_bytes_max, hidden }
}

fn enter(waitlist: &Waitlist, interest: Interest) -> Entry<'_> {
    waitlist.enter(interest).unwrap()
}

/// Which of these have been woken, without waiting.
fn woken(places: &mut [Entry<'_>]) -> Vec<usize> {
    let is_called = |(index, place): (usize, &mut Entry<'_>)| {
        let calling = std::pin::pin!(place.woken());
        let polled = calling.poll(&mut Context::from_waker(Waker::noop()));
        (polled == Poll::Ready(())).then_some(index)
    };
    places.iter_mut().enumerate().filter_map(is_called).collect()
}

fn nobody_is_left(waitlist: &Waitlist) -> bool {
    let table = waitlist.table();
    table.names.is_empty() && table.globs.is_empty() && table.hidden.is_empty()
}

#[test]
fn as_many_as_there_are_jobs_are_woken_the_oldest_first() {
    let waitlist = Waitlist::default();
    let patterns = ["a*", "abc", "b", "?bc", "*", "abc", "[a-c]bc"];
    let mut places: Vec<_> =
        patterns.iter().map(|text| enter(&waitlist, interest(&[text]))).collect();
    waitlist.wake([(&key("abc"), 3)]);
    assert_eq!(woken(&mut places), [0, 1, 3]);
    places.iter_mut().for_each(|place| place.checked(|_| true));
    waitlist.wake([(&key("b"), 1), (&key("zzz"), 7)]);
    assert_eq!(woken(&mut places), [2, 4], "each type wakes its own");
    drop(places);
    assert!(nobody_is_left(&waitlist) && waitlist.is_empty());
}

#[test]
fn a_worker_that_found_nothing_keeps_its_place() {
    let waitlist = Waitlist::default();
    let mut places: Vec<_> = (0..3).map(|_| enter(&waitlist, interest(&["t"]))).collect();
    for _ in 0..2 {
        waitlist.wake([(&key("t"), 1)]);
        assert_eq!(woken(&mut places), [0]);
        places[0].checked(|_| true);
    }
}

#[test]
fn a_wake_up_during_a_look_is_not_lost() {
    let waitlist = Waitlist::default();
    let mut places: Vec<_> = (0..2).map(|_| enter(&waitlist, interest(&["t"]))).collect();
    waitlist.wake([(&key("t"), 1)]);
    assert_eq!(woken(&mut places), [0]);
    waitlist.wake([(&key("t"), 1)]);
    places[0].checked(|_| true);
    assert_eq!(woken(&mut places), [0], "it looks once more");
    places[0].checked(|_| true);
    waitlist.wake([(&key("t"), 2)]);
    assert_eq!(woken(&mut places), [0, 1]);
}

#[test]
fn a_worker_that_disconnects_passes_its_wake_up_on() {
    let waitlist = Waitlist::default();
    let mut places: Vec<_> = (0..5).map(|_| enter(&waitlist, interest(&["t", "u*"]))).collect();
    waitlist.wake([(&key("t"), 1)]);
    places.remove(0);
    assert_eq!(woken(&mut places), [0], "it had not noticed");
    places.remove(0);
    assert_eq!(woken(&mut places), [0], "it had not looked");
    places[0].checked(|_| false);
    places.remove(0);
    assert_eq!(woken(&mut places), [0], "it had found another type");
    places[0].checked(|key| key.name.as_str() == "t");
    places.remove(0);
    assert!(woken(&mut places).is_empty(), "it had looked");
    drop(places);
    assert!(nobody_is_left(&waitlist));
}

#[test]
fn a_worker_whose_look_was_cut_short_keeps_its_wake_up_until_another_one_comes() {
    let waitlist = Waitlist::default();
    let mut places: Vec<_> = (0..2).map(|_| enter(&waitlist, interest(&["t", "u"]))).collect();
    waitlist.wake([(&key("t"), 1)]);
    assert_eq!(woken(&mut places), [0]);
    waitlist.wake([(&key("u"), 1)]);
    assert_eq!(woken(&mut places), [0, 1], "the second one is woken for the first type");
    places[0].checked(|key| key.name.as_str() == "u");
    places.remove(0);
    assert!(woken(&mut places).is_empty(), "it has used the last one");
}

#[test]
fn a_worker_that_wants_one_priority_takes_no_wake_up_from_others() {
    let waitlist = Waitlist::default();
    let priority = |number| Priority::new(number).ok();
    let lines = [priority(1000), priority(0), None, None, priority(1000)];
    let place = |priority| enter(&waitlist, Interest { priority, ..interest(&["t*"]) });
    let mut places: Vec<_> = lines.into_iter().map(place).collect();
    waitlist.wake([(&key("t"), 1)]);
    assert_eq!(woken(&mut places), [0, 1, 2]);
}

#[test]
fn a_worker_that_wants_small_payloads_takes_no_wake_up_from_others() {
    let waitlist = Waitlist::default();
    let place =
        |payload_bytes_max| enter(&waitlist, Interest { payload_bytes_max, ..interest(&["t*"]) });
    let mut places: Vec<_> = [1, 1, u64::MAX, u64::MAX].map(place).into();
    waitlist.wake([(&key("t"), 1)]);
    assert_eq!(woken(&mut places), [0, 2]);
}

#[test]
fn a_worker_that_wants_hidden_jobs_takes_no_wake_up_from_others() {
    let waitlist = Waitlist::default();
    let other = TypeKey::new("other", "t").unwrap();
    let mut places = vec![
        enter(&waitlist, Interest { hidden: true, ..interest(&["t"]) }),
        enter(&waitlist, interest(&["t"])),
        enter(&waitlist, interest(&["t"])),
        enter(&waitlist, Interest { hidden: true, ..interest(&["u"]) }),
        enter(
            &waitlist,
            Interest { hidden: true, tenant: other.tenant.clone(), ..interest(&["t"]) },
        ),
    ];
    waitlist.wake([(&key("t"), 1)]);
    assert_eq!(woken(&mut places), [0, 1]);
    waitlist.wake([(&other, 1)]);
    assert_eq!(woken(&mut places), [4], "a tenant's own");
    waitlist.wake_hidden();
    assert_eq!(woken(&mut places), [0, 3, 4]);
}

#[test]
fn all_who_wait_for_types_of_one_tenant_can_be_woken() {
    let waitlist = Waitlist::default();
    let other = TypeKey::new("other", "t").unwrap().tenant;
    let mut places = vec![
        enter(&waitlist, interest(&["t"])),
        enter(&waitlist, Interest { tenant: other, ..interest(&["t"]) }),
        enter(&waitlist, interest(&["u*"])),
    ];
    waitlist.wake_all_of(&key("t").tenant);
    assert_eq!(woken(&mut places), [0, 2]);
}

#[test]
fn the_different_patterns_of_a_tenant_are_bounded() {
    let waitlist = Waitlist::default();
    let globs: Vec<String> = (0..GLOBS_MAX).map(|number| format!("{number}*")).collect();
    let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
    let all = enter(&waitlist, interest(&globs));
    let refused = waitlist.enter(interest(&["one more*"]));
    assert!(matches!(refused, Err(Error::Unavailable(why)) if why.contains("different patterns")));
    enter(&waitlist, interest(&["0*", "a name"]));
    let other = Interest { tenant: Tenant::new("other").unwrap(), ..interest(&["one more*"]) };
    enter(&waitlist, other);
    drop(all);
    enter(&waitlist, interest(&["one more*"]));
    assert!(nobody_is_left(&waitlist));
}
