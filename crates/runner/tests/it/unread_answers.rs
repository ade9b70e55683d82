//! Everything that a context has written is read before anything is decided: no job runs twice
//! because its end was not read, none is blamed for another, and none that was stopped in time
//! runs.
//!
//! Runner and test share one thread here. While the test blocks it, the context works ahead unread,
//! as if the daemon itself was stopped for a while.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use windlass_core::runner::{Assignment, Report, Runner, Stop};
use windlass_core::{HandlerSpec, JobId, Lang};
use windlass_test_kit::folder::whole_lines;
use windlass_test_kit::wait::until;

use crate::harness::{Event, Fixture, Run, check_ended, fixture, job, limited, lines_of, spec};

const JOBS: usize = 30;
/// Longer than a busy machine takes for an empty job, and short enough to wait for.
const LIMIT: Duration = Duration::from_secs(2);

/// Generates a test of each case for each language.
macro_rules! in_each_language {
    ($($case:ident)*) => {
        mod in_node {
            $(#[tokio::test] async fn $case() { super::$case(windlass_core::Lang::Node).await; })*
        }
        mod in_python {
            $(#[tokio::test] async fn $case() { super::$case(windlass_core::Lang::Python).await; })*
        }
        mod in_php {
            $(#[tokio::test] async fn $case() { super::$case(windlass_core::Lang::Php).await; })*
        }
    };
}

in_each_language! {
    a_stop_of_a_waiting_job_keeps_it_from_running_and_runs_no_other_twice
    a_stop_that_comes_after_the_end_harms_no_job_of_the_batch
    many_stops_of_waiting_jobs_run_no_other_twice
    a_time_limit_counts_what_was_said_before_it
    a_stop_of_a_job_that_ended_unheard_leaves_the_running_one_alone
    scripts_around_a_batch_that_was_cut_run_for_both_parts
}

/// A handler in its own directory. Its jobs write their payload to `ran`, and then wait while the
/// file named by their payload exists.
struct Scene {
    fixture: Fixture,
    lang: Lang,
}

impl Scene {
    fn new(lang: Lang) -> Scene {
        Scene { fixture: fixture(), lang }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.scratch.path().join(name)
    }

    fn handler(&self) -> HandlerSpec {
        let dir = self.fixture.scratch.path().to_str().unwrap().to_owned();
        let body = match self.lang {
            Lang::Node => {
                "const fs = require('fs');
                 fs.appendFileSync('DIR/ran', payload + '\\n');
                 while (fs.existsSync('DIR/hold-' + payload)) {
                     await new Promise((go) => setTimeout(go, 5));
                 }"
            }
            Lang::Python => {
                "import os, time
with open('DIR/ran', 'a') as ran: ran.write(payload + '\\n')
while os.path.exists('DIR/hold-' + payload): time.sleep(0.005)"
            }
            _ => {
                "file_put_contents('DIR/ran', $payload . \"\\n\", FILE_APPEND);
                 while (file_exists('DIR/hold-' . $payload)) { usleep(5000); clearstatcache(); }"
            }
        };
        spec(self.lang, &body.replace("DIR", &dir))
    }

    /// The job with this payload waits until it is released.
    fn hold(&self, payload: &str) {
        std::fs::write(self.path(&format!("hold-{payload}")), "").unwrap();
    }

    fn let_go(&self, payload: &str) {
        std::fs::remove_file(self.path(&format!("hold-{payload}"))).unwrap();
    }

    fn jobs() -> Vec<Assignment> {
        (0..JOBS).map(|n| job(n.to_string().as_bytes())).collect()
    }

    fn begin(&self, jobs: Vec<Assignment>) -> Run {
        self.fixture.begin(self.handler(), jobs)
    }

    /// Lets the runner read until this many jobs have begun.
    async fn until_ran(&self, count: usize) {
        lines_of(&self.path("ran"), count).await;
    }

    /// Blocks this thread, and with it the runner, until this many jobs have begun.
    fn deaf_until_ran(&self, count: usize) {
        deaf_until(&self.path("ran"), |path| whole_lines(path).len() >= count);
    }

    /// Each of these jobs ran once, and nothing else did.
    #[track_caller]
    fn check_ran_once(&self, expected: impl Iterator<Item = usize>) {
        let expected: BTreeMap<usize, usize> = expected.map(|n| (n, 1)).collect();
        assert_eq!(self.times_ran(), expected, "how often each job ran");
    }

    fn times_ran(&self) -> BTreeMap<usize, usize> {
        let mut times = BTreeMap::new();
        for line in whole_lines(&self.path("ran")) {
            *times.entry(line.parse().unwrap()).or_default() += 1;
        }
        times
    }
}

fn deaf_until(path: &Path, is_reached: impl Fn(&Path) -> bool) {
    until(&format!("{} changes", path.display()), || is_reached(path));
}

/// The reports until the first job ends.
async fn until_end(run: &mut Run) -> Vec<Event> {
    let mut events = Vec::new();
    while !matches!(events.last(), Some(Event::Ended(..))) {
        events.push(run.next().await.expect("a job ends"));
    }
    events
}

/// The only end of this job, which was reported as started once.
#[track_caller]
fn end_of(id: JobId, events: &[Event]) -> &Report {
    let started = events.iter().filter(|event| **event == Event::Started(id)).count();
    let end = |event| match event {
        &Event::Ended(ended, ref report) if ended == id => Some(report),
        _ => None,
    };
    let ends: Vec<_> = events.iter().filter_map(end).collect();
    assert_eq!((started, ends.len()), (1, 1), "job {id} of {events:?}");
    ends[0]
}

/// Each job was reported once, with this reason if it was stopped.
#[track_caller]
fn check_reports(ids: &[JobId], events: &[Event], stopped: Option<(usize, Stop)>) {
    for (place, id) in ids.iter().enumerate() {
        let why = stopped.filter(|(at, _)| *at == place).map(|(_, why)| why);
        check_ended(end_of(*id, events), if why.is_some() { 500 } else { 200 }, why);
    }
}

async fn a_stop_of_a_waiting_job_keeps_it_from_running_and_runs_no_other_twice(lang: Lang) {
    for why in [Stop::Cancelled, Stop::Expired, Stop::LeaseLost] {
        let scene = Scene::new(lang);
        scene.hold("0");
        let mut run = scene.begin(Scene::jobs());
        let (ids, attempts) = (run.ids.clone(), run.attempts.clone());
        let mut events = vec![Event::Started(run.started().await)];
        scene.deaf_until_ran(1);
        scene.fixture.runner.stop(attempts[1], why);
        events.extend(until_end(&mut run).await);
        end_of(ids[1], &events); // While the first one still runs.
        scene.let_go("0");
        events.extend(run.rest().await);
        check_reports(&ids, &events, Some((1, why)));
        scene.check_ran_once((0..JOBS).filter(|n| *n != 1));
    }
}

async fn a_stop_that_comes_after_the_end_harms_no_job_of_the_batch(lang: Lang) {
    let scene = Scene::new(lang);
    scene.hold("0");
    let mut run = scene.begin(Scene::jobs());
    let (ids, attempts) = (run.ids.clone(), run.attempts.clone());
    let mut events = vec![Event::Started(run.started().await)];
    scene.fixture.runner.stop(attempts[1], Stop::Cancelled);
    scene.let_go("0");
    scene.deaf_until_ran(JOBS);
    events.extend(run.rest().await);
    check_reports(&ids, &events, None);
    scene.check_ran_once(0..JOBS);
}

async fn many_stops_of_waiting_jobs_run_no_other_twice(lang: Lang) {
    let scene = Scene::new(lang);
    let mut run = scene.begin(Scene::jobs());
    let (ids, attempts) = (run.ids.clone(), run.attempts.clone());
    let mut events = Vec::new();
    // Each report stops a job that may be waiting, running, or ended but unread.
    while let Some(event) = run.next().await {
        if let Some(attempt) = attempts.get(events.len() + 5) {
            scene.fixture.runner.stop(*attempt, Stop::Cancelled);
        }
        events.push(event);
    }
    let ran = scene.times_ran();
    for (place, id) in ids.iter().enumerate() {
        let end = end_of(*id, &events);
        let log = end.log.to_string();
        let never_began = log.contains("before it was started");
        let times = ran.get(&place).copied().unwrap_or(0);
        assert!(times <= 1, "job {place} ran {times} times");
        assert!(!never_began || times == 0, "job {place} was said not to have begun: {log}");
        assert!(end.stopped.is_some() || times == 1, "job {place} is done, and never ran");
    }
}

async fn a_time_limit_counts_what_was_said_before_it(lang: Lang) {
    let scene = Scene::new(lang);
    let jobs = Scene::jobs().into_iter().map(|job| limited(job, LIMIT)).collect();
    let mut run = scene.begin(jobs);
    let ids = run.ids.clone();
    let mut events = vec![Event::Started(run.started().await)];
    let begun = Instant::now();
    scene.deaf_until_ran(JOBS);
    deaf_until(&scene.path("ran"), |_| begun.elapsed() > LIMIT);
    events.extend(run.rest().await);
    check_reports(&ids, &events, None);
    scene.check_ran_once(0..JOBS);
}

async fn a_stop_of_a_job_that_ended_unheard_leaves_the_running_one_alone(lang: Lang) {
    let scene = Scene::new(lang);
    scene.hold("0");
    scene.hold("1");
    let mut run = scene.begin(Scene::jobs());
    let (ids, attempts) = (run.ids.clone(), run.attempts.clone());
    let mut events = vec![Event::Started(run.started().await)];
    scene.deaf_until_ran(1);
    scene.let_go("0");
    scene.deaf_until_ran(2);
    scene.fixture.runner.stop(attempts[0], Stop::Cancelled);
    events.extend(until_end(&mut run).await);
    scene.let_go("1");
    events.extend(run.rest().await);
    check_reports(&ids, &events, None);
    scene.check_ran_once(0..JOBS);
}

async fn scripts_around_a_batch_that_was_cut_run_for_both_parts(lang: Lang) {
    let scene = Scene::new(lang);
    scene.hold("0");
    let mut handler = scene.handler();
    let dir = scene.fixture.scratch.path().to_str().unwrap().to_owned();
    let script = |name: &str| match lang {
        Lang::Node => format!("require('fs').appendFileSync('{dir}/scripts', '{name}\\n')"),
        Lang::Python => format!("open('{dir}/scripts', 'a').write('{name}\\n')"),
        _ => format!("file_put_contents('{dir}/scripts', \"{name}\\n\", FILE_APPEND);"),
    };
    handler.before = Some(script("before"));
    handler.before_each = Some(script("["));
    handler.after_each = Some(script("]"));
    let run = scene.fixture.begin(handler, Scene::jobs());
    let (ids, attempts) = (run.ids.clone(), run.attempts.clone());
    scene.until_ran(1).await;
    scene.fixture.runner.stop(attempts[3], Stop::Cancelled);
    // It does not matter whether the order was read before or after the release.
    scene.let_go("0");
    let events = run.rest().await;
    let stopped = end_of(ids[3], &events).stopped.map(|why| (3, why));
    check_reports(&ids, &events, stopped);
    let is_done = |place: &usize| stopped.is_none_or(|(at, _)| at != *place);
    scene.check_ran_once((0..JOBS).filter(is_done));
    let scripts = whole_lines(&scene.path("scripts"));
    assert_eq!(scripts[0], "before", "{scripts:?}");
    assert!(scripts[1..].chunks(2).all(|pair| pair == ["[", "]"]), "{scripts:?}");
}
