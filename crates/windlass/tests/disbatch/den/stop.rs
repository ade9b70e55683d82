//! Signals: exit codes, what is released, and what happens to running tasks.

use mongodb::bson::doc;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Fields, Home, Program, in_both, is_alive, until};

#[test]
fn each_signal_ends_an_idle_node_with_its_code() {
    let home = Home::seed();
    let codes = [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)];
    let mut dens: Vec<Program> =
        codes.iter().map(|(_, code)| home.den(&code.to_string())).collect();
    for ((signal, code), den) in codes.iter().zip(&mut dens) {
        den.signal(*signal);
        assert_eq!(den.ended().code(), Some(*code), "{}", den.console());
    }
}

#[test]
fn a_running_task_gets_time_to_end_and_its_end_is_written() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let tasks = home.add(queue, 2);
        let mut den = home.den_with("one", json!({"stop_timeout": 60}));
        until("one runs", || tasks.iter().any(|task| home.has_begun(*task)));
        let (running, waiting) = match home.has_begun(tasks[0]) {
            true => (tasks[0], tasks[1]),
            false => (tasks[1], tasks[0]),
        };
        home.reaches(running, 0);
        den.signal(Signal::TERM);
        until("it says that it stops", || den.console().to_lowercase().contains("stop"));
        assert!(den.alive());
        home.open_all();
        assert_eq!(den.ended().code(), Some(143));
        let ended = home.mongo.get("tasks", running);
        assert_eq!((ended.int("status"), ended.text("stdout")), (Some(1), Some("out")));
        let left = home.mongo.get("tasks", waiting);
        assert_eq!(left.int("status"), Some(-2));
        assert_eq!(left.get("node"), Some(&home.dialect.nobody()));
    });
}

#[test]
fn a_task_that_outlasts_a_stop_is_ended_with_its_tree_and_a_reason() {
    in_both(|home| {
        let tree = "sleep 1000 & echo $! > \"$home/child\"; gate; say 1";
        let task = home.add(home.line(&home.plugin("default", tree), 1), 1)[0];
        let mut den = home.den_with("one", json!({"stop_timeout": 0.2}));
        let parent = home.began(task);
        let child = std::fs::read_to_string(home.path("child")).unwrap().trim().parse().unwrap();
        home.reaches(task, 0);
        assert!(is_alive(parent) && is_alive(child));
        assert_eq!(den.stop().code(), Some(143));
        assert!(!is_alive(parent) && !is_alive(child));
        let left = home.mongo.get("tasks", task);
        assert_eq!(left.int("status"), Some(-6));
        assert!(!left.text("stderr").unwrap_or_default().is_empty(), "{left}");
        assert_eq!(left.text("node"), Some("one"));
    });
}

#[test]
fn a_second_signal_does_not_wait() {
    in_both(|home| {
        let task = home.add(home.line(&home.gated(), 1), 1)[0];
        let mut den = home.den_with("one", json!({"stop_timeout": 3600}));
        let pid = home.began(task);
        home.reaches(task, 0);
        den.signal(Signal::TERM);
        until("it says that it stops", || den.console().to_lowercase().contains("stop"));
        // Two that arrive together count as one.
        until("it ends", || {
            den.signal(Signal::INT);
            !den.alive()
        });
        let code = den.ended().code();
        assert!(matches!(code, Some(130 | 143)), "{code:?}");
        assert!(!is_alive(pid));
        assert_eq!(home.status(task), -6);
    });
}

/// No claim is left behind, nothing ran twice, and what did not run is there for the next.
#[test]
fn a_stop_under_load_hands_everything_back() {
    in_both(|home| {
        let queue = home.line(&home.plugin("default", "note ran; say 1"), 4);
        let tasks = home.add(queue, 40);
        let mut den = home.den_with("one", json!({"stop_timeout": 30}));
        until("some have ended", || home.notes().len() > 5);
        assert_eq!(den.stop().code(), Some(143));
        assert_eq!(home.active(queue), 0);
        let handed_back = doc! {"status": -2};
        for left in home.mongo.all("tasks", handed_back) {
            assert_eq!(left.get("node"), Some(&home.dialect.nobody()), "{left}");
            let boot = left.get_document("windlass").ok().and_then(|own| own.get("boot"));
            assert_eq!(boot, None, "{left}");
        }
        let _next = home.den("one");
        home.all_reach(&tasks, 1);
        let mut ran: Vec<_> = home.notes().into_iter().map(|(_, task)| task).collect();
        ran.sort();
        assert_eq!(ran, tasks);
    });
}
