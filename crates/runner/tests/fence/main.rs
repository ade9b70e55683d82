//! Fences, with real processes. This program contains the tests; started by them it is also a node
//! and the node's fence, so that both can be killed and stopped.

// Everything here is test code, which clippy cannot know without the usual harness.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod case;
mod harness;

use std::process::ExitCode;

const CASES: [(&str, fn()); 8] = [
    ("a_killed_node_takes_all_with_it", case::a_killed_node_takes_all_with_it),
    ("a_node_that_hangs_loses_what_it_started", case::a_node_that_hangs_loses_what_it_started),
    ("ticks_keep_things_alive", case::ticks_keep_things_alive),
    ("without_ticks_nothing_may_run", case::without_ticks_nothing_may_run),
    ("another_mark_is_never_touched", case::another_mark_is_never_touched),
    ("a_fence_that_dies_is_replaced", case::a_fence_that_dies_is_replaced),
    ("what_a_dead_fence_left_is_ended", case::what_a_dead_fence_left_is_ended),
    ("requests_to_end_do_not_end_a_fence", case::requests_to_end_do_not_end_a_fence),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(windlass_runner::fence::WORD) => {
            windlass_runner::fence::guard(&words[1..]).expect("a fence is started as it must be");
        }
        Some("node") => harness::run(&words[1..]),
        _ => return run_cases(words.iter().find(|word| !word.starts_with('-'))),
    }
    ExitCode::SUCCESS
}

/// Runs those whose name contains the word, one after the other.
fn run_cases(filter: Option<&String>) -> ExitCode {
    let wanted = |name: &str| filter.is_none_or(|word| name.contains(word.as_str()));
    let mut failed = 0;
    for (name, case) in CASES.into_iter().filter(|(name, _)| wanted(name)) {
        let ended = std::panic::catch_unwind(case);
        println!("test {name} ... {}", if ended.is_ok() { "ok" } else { "FAILED" });
        failed += u32::from(ended.is_err());
    }
    ExitCode::from(u8::from(failed > 0))
}
