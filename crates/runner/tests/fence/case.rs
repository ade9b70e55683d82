//! The test cases of a fence.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use windlass_test_kit::process::is_alive;
use windlass_test_kit::wait::{until, until_some};

use crate::harness::{Node, send, wait_for_death};

/// With this limit, no fence fires on its own during a test.
const LONG: Duration = Duration::from_secs(600);
/// Long enough that a busy machine does not miss a tick.
const SHORT: Duration = Duration::from_secs(3);

fn all_alive(pids: &[u32]) -> bool {
    pids.iter().all(|pid| is_alive(*pid))
}

/// Also: started programs have none of the fence's descriptors.
pub(crate) fn a_killed_node_takes_all_with_it() {
    let mut node = Node::start(LONG);
    node.start_script("ls -l /proc/self/fd > $DIR/part; mv $DIR/part $DIR/descriptors");
    let path = node.file("descriptors");
    let listed = until_some("the list", || std::fs::read_to_string(&path).ok());
    let open = listed.lines().filter(|line| line.contains("->") && !line.contains("/proc/"));
    assert_eq!(open.count(), 3, "{listed}");

    let family = node.start_family();
    let fence = node.number("fence");
    assert!(all_alive(&family) && is_alive(fence));
    node.signal(Signal::KILL);
    wait_for_death(&family);
    wait_for_death(&[fence]);
}

pub(crate) fn a_node_that_hangs_loses_what_it_started() {
    let mut node = Node::start(SHORT);
    let family = node.start_family();
    node.signal(Signal::STOP);
    wait_for_death(&family);
    node.signal(Signal::CONT);
    assert_eq!(node.number("fired"), 1);
    // It gets ticks again, and is still guarded.
    let fence = node.number("fence");
    let path = node.file("allowed");
    until("leave to go on", || {
        node.start_script("sleep 0.2; touch $DIR/allowed");
        path.exists()
    });
    let family = node.start_family();
    assert!(all_alive(&family));
    assert_eq!(node.number("fence"), fence);
    node.signal(Signal::KILL);
    wait_for_death(&family);
}

pub(crate) fn ticks_keep_things_alive() {
    let mut node = Node::start(SHORT);
    let family = node.start_family();
    let begin = Instant::now();
    until("the time of two limits", || begin.elapsed() > 2 * SHORT);
    assert!(all_alive(&family));
    assert_eq!(node.number("fired"), 0);
    node.ask("ticks off");
    wait_for_death(&family);
    assert_eq!(node.number("fired"), 1);
}

pub(crate) fn without_ticks_nothing_may_run() {
    let mut node = Node::start(SHORT);
    until_some("leave to start something", || (node.number("allows") == 1).then_some(()));
    node.ask("ticks off");
    until("the fence to fire", || node.number("fired") == 1);
    assert_eq!(node.number("allows"), 0, "what the fence would end is not to be started");
    let path = node.file("late");
    let late = until_some("one that is not ended before it says who it is", || {
        node.start_script("echo $$ > $DIR/part$$; mv $DIR/part$$ $DIR/late; exec sleep 1000");
        std::fs::read_to_string(&path).ok()
    });
    wait_for_death(&[late.trim().parse().unwrap()]);
    // When it is seen dead, its killer is already known.
    assert!(node.number("fired") > 1);
}

pub(crate) fn another_mark_is_never_touched() {
    let mut one = Node::start(LONG);
    let mut other = Node::start(LONG);
    let (family, spared) = (one.start_family(), other.start_family());
    let fence = one.number("fence");
    one.signal(Signal::KILL);
    wait_for_death(&family);
    wait_for_death(&[fence]);
    assert!(all_alive(&spared));
    assert_eq!(other.number("fired"), 0);
    drop(other);
    wait_for_death(&spared);
}

pub(crate) fn a_fence_that_dies_is_replaced() {
    let mut node = Node::start(LONG);
    let family = node.start_family();
    let first = node.number("fence");
    send(first, Signal::KILL);
    let second = until_some("another fence", || {
        let fence = node.number("fence");
        (fence != 0 && fence != first).then_some(fence)
    });
    assert!(all_alive(&family) && is_alive(second));
    assert_eq!(node.number("fired"), 0);
    node.signal(Signal::KILL);
    wait_for_death(&family);
}

pub(crate) fn what_a_dead_fence_left_is_ended() {
    let mut dead = Node::start(LONG);
    let mut other = Node::start(LONG);
    let (family, spared) = (dead.start_family(), other.start_family());
    let fence = dead.number("fence");
    // The node cannot replace it while it is stopped, so both die.
    dead.signal(Signal::STOP);
    send(fence, Signal::KILL);
    dead.signal(Signal::KILL);
    wait_for_death(&[fence]);
    assert!(all_alive(&family));
    let boot = dead.boot.clone();
    other.ask(&format!("end left by {boot}"));
    wait_for_death(&family);
    assert!(all_alive(&spared));
}

pub(crate) fn requests_to_end_do_not_end_a_fence() {
    let mut node = Node::start(LONG);
    let family = node.start_family();
    let fence = node.number("fence");
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        send(fence, signal);
    }
    // Signals arrive before anything that follows on the same process.
    assert!(is_alive(fence) && all_alive(&family));
    node.signal(Signal::KILL);
    wait_for_death(&family);
}
