//! What the jobs of a batch hold in the daemon until `afterEach` has run is bounded: a batch that
//! holds too much is cut, and no job of it is lost or run twice.

use std::path::{Path, PathBuf};

use windlass_core::runner::{Assignment, Report};
use windlass_core::{HandlerSpec, Lang};
use windlass_test_kit::folder::whole_lines;

use crate::harness::{Event, Fixture, check_ended, fixture, job, spec};

const JOBS: usize = 12;
/// What each job emits, in payloads of a million bytes.
const EMITS: usize = 20;
/// The jobs that fit into 64 MiB, the one that reaches it, and one that may have begun meanwhile.
const PART_JOBS_MAX: usize = 5;

fn jobs() -> Vec<Assignment> {
    (0..JOBS).map(|number| job(number.to_string().as_bytes())).collect()
}

/// A handler whose `afterEach` writes how many jobs ran since the last one.
fn counting(fixture: &Fixture, body: &str) -> (HandlerSpec, PathBuf) {
    let parts = fixture.scratch.path().join("parts");
    let mut handler = spec(Lang::Python, &format!("ctx.n += 1\n{body}"));
    handler.before_each = Some("ctx.n = 0".into());
    handler.after_each = Some(format!("open({parts:?}, 'a').write(f'{{ctx.n}}\\n')"));
    (handler, parts)
}

fn parts(path: &Path) -> Vec<usize> {
    whole_lines(path).iter().map(|line| line.parse().unwrap()).collect()
}

/// The reports in their order; each job of the batch has one, and was started once.
async fn reports(fixture: &Fixture, handler: HandlerSpec) -> Vec<Report> {
    let run = fixture.begin(handler, jobs());
    let ids = run.ids.clone();
    let (mut started, mut ended, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    for event in run.rest().await {
        match event {
            Event::Started(id) => started.push(id),
            Event::Ended(id, report) => {
                ended.push(id);
                reports.push(report);
            }
            Event::Progress(id, ..) | Event::Returned(id) => panic!("{id} is not expected here"),
        }
    }
    assert_eq!((&started, &ended), (&ids, &ids));
    reports
}

#[tokio::test]
async fn a_batch_that_holds_too_much_is_cut_and_loses_no_job() {
    let fixture = fixture();
    let body = format!("for _ in range({EMITS}): emit('sink', 'x' * 1000000)\nreturn payload");
    let (handler, path) = counting(&fixture, &body);
    for (number, report) in reports(&fixture, handler).await.iter().enumerate() {
        check_ended(report, 200, None);
        assert_eq!(report.emitted.len(), EMITS);
        assert_eq!(report.data.as_ref().unwrap().as_str(), format!("\"{number}\""));
    }
    let parts = parts(&path);
    assert_eq!(parts.iter().sum::<usize>(), JOBS, "each ran once: {parts:?}");
    assert!(parts.iter().all(|jobs| (1..=PART_JOBS_MAX).contains(jobs)), "{parts:?}");
}

#[tokio::test]
async fn results_and_unfinished_lines_count_too() {
    let fixture = fixture();
    let line = "import sys\nsys.stdout.write('J: sink|' + 'x' * 1000000)\nreturn 'y' * 15000000";
    let (handler, path) = counting(&fixture, line);
    for report in reports(&fixture, handler).await {
        check_ended(&report, 200, None);
        assert_eq!(report.emitted.len(), 1);
    }
    let parts = parts(&path);
    assert_eq!(parts.iter().sum::<usize>(), JOBS, "each ran once: {parts:?}");
    assert!(parts.iter().all(|jobs| *jobs <= PART_JOBS_MAX + 1), "{parts:?}");
}

#[tokio::test]
async fn an_ordinary_batch_is_not_cut() {
    let fixture = fixture();
    let (handler, path) = counting(&fixture, "print(payload)\nemit('sink', payload)");
    for report in reports(&fixture, handler).await {
        check_ended(&report, 200, None);
    }
    assert_eq!(parts(&path), [JOBS]);
}

/// A handler that has searched its process for the nonces, and writes answers in place of its
/// context, which would halt.
#[tokio::test]
async fn a_context_that_goes_on_after_a_halt_is_ended() {
    let fixture = fixture();
    let body = format!(
        "import json, os, sys\n\
         jobs = sys._getframe(1).f_locals['request']['jobs']\n\
         def say(**message):\n\
         \x20 text = json.dumps(message).encode()\n\
         \x20 rest = memoryview(len(text).to_bytes(4, 'big') + text)\n\
         \x20 while rest: rest = rest[os.write(4, rest):]\n\
         for nonce in [job['nonce'] for job in jobs]:\n\
         \x20 for _ in range({EMITS}):\n\
         \x20   say(kind='emit', nonce=nonce, type='sink', payload='x' * 1000000)\n\
         \x20 say(kind='end', nonce=nonce, status=200, us=1)\n\
         say(kind='done', us=1)"
    );
    let (handler, _) = counting(&fixture, &body);
    let reports = reports(&fixture, handler).await;
    let ok = |report: &&Report| report.status.get() == 200;
    let first = reports.iter().take_while(ok).count();
    assert!((1..=PART_JOBS_MAX).contains(&first), "{first} jobs were held at once");
    let log = reports[first].log.to_string();
    assert!(log.contains("wrote to the descriptors"), "{log}");
}
