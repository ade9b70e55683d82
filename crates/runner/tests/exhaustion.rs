//! A daemon that has no descriptors left. The test runs in its own process, whose limit it changes.

#![allow(clippy::unwrap_used)]

#[path = "it/harness.rs"]
#[allow(dead_code)]
mod harness;

use harness::{Event, check_ended, fixture, job, spec};
use rustix::process::{Resource, Rlimit};
use windlass_core::Lang;

#[tokio::test]
async fn a_job_that_cannot_be_started_for_lack_of_descriptors_goes_back_unharmed() {
    let fixture = fixture();
    check_ended(&fixture.sh("exit 0").await, 200, None);
    let limit = rustix::process::getrlimit(Resource::Nofile);

    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(4), ..limit }).unwrap();
    let run = fixture.begin(spec(Lang::Sh, "exit 0"), vec![job(b"")]);
    let id = run.ids[0];
    let events = run.rest().await;
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();

    assert_eq!(events, [Event::Returned(id)]);
    // Removing a directory takes a descriptor, too: leftovers are removed with later attempts.
    let mut jobs_left = 100;
    while !fixture.scratch_is_empty() {
        check_ended(&fixture.sh("exit 0").await, 200, None);
        jobs_left -= 1;
        assert!(jobs_left > 0);
    }
}
