//! Warm contexts as the engine sees them: batches in, a report for each job out. The conformance
//! list of `tests/contexts` covers what handler code sees.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::network::Network;
use windlass_core::runner::{Assignment, NotCompiled, Report, Runner, Stop};
use windlass_core::{HandlerSpec, JobId, Lang, TypeKey};
use windlass_runner::LocalRunner;
use windlass_runner::network::Lookup;
use windlass_test_kit::process::is_alive;
use windlass_test_kit::wait::in_time;

use crate::harness::{
    Event, Fixture, LIMITS, PYTHON_NS, check_ended, exists, fixture, handler, job, limited,
    lines_of, options, spec, until_gone, with_env,
};

fn python(body: &str) -> HandlerSpec {
    spec(Lang::Python, body)
}

fn jobs(payloads: &[&str]) -> Vec<Assignment> {
    payloads.iter().map(|payload| job(payload.as_bytes())).collect()
}

/// The reports of a batch in which every job starts and ends, in the order of the jobs.
async fn reports(fixture: &Fixture, spec: HandlerSpec, jobs: Vec<Assignment>) -> Vec<Report> {
    let run = fixture.begin(spec, jobs);
    let ids = run.ids.clone();
    let events = run.rest().await;
    let started = events.iter().filter(|event| matches!(event, Event::Started(_))).count();
    assert_eq!(started, ids.len(), "{events:?}");
    let report_of = |id: &JobId| {
        events.iter().find_map(|event| match event {
            Event::Ended(ended, report) if ended == id => Some(report.clone()),
            _ => None,
        })
    };
    ids.iter().map(|id| report_of(id).expect("each job ends")).collect()
}

/// The result, a text without its quotes.
fn data(report: &Report) -> &str {
    report.data.as_ref().map_or("", |data| data.as_str()).trim_matches('"')
}

#[tokio::test]
async fn s0_27_one_process_runs_batch_after_batch() {
    let fixture = fixture();
    let handler = python(&format!(
        "import os\nctx.n = getattr(ctx, 'n', 0) + 1\n\
         return {PYTHON_NS} + f'/{{os.getpid()}},{{ctx.n}}'"
    ));
    let first = reports(&fixture, handler.clone(), jobs(&["a", "b"])).await;
    let second = reports(&fixture, handler, jobs(&["c"])).await;
    let pid = data(&first[0]).split_once(',').unwrap().0;
    let expected: Vec<String> = (1..=3).map(|n| format!("{pid},{n}")).collect();
    let seen: Vec<&str> = first.iter().chain(&second).map(data).collect();
    assert_eq!(seen, expected);
    assert!(is_alive(pid));
    fixture.runner.close().await;
    assert!(fixture.scratch_is_empty());
    assert!(!exists(pid));
}

#[tokio::test]
async fn s2_28_a_death_costs_the_running_job_and_the_rest_runs_elsewhere() {
    let fixture = fixture();
    let body = "import os\nif payload == 'die': os._exit(3)\nreturn str(os.getpid())";
    let ended = reports(&fixture, python(body), jobs(&["a", "die", "b", "c"])).await;
    check_ended(&ended[1], 500, None);
    assert!(ended[1].log.to_string().contains("exit code 3"), "{}", ended[1].log);
    for at in [0, 2, 3] {
        check_ended(&ended[at], 200, None);
    }
    assert_ne!(data(&ended[0]), data(&ended[2]));
    assert_eq!(data(&ended[2]), data(&ended[3]));
}

#[tokio::test]
async fn s2_30_a_time_limit_is_that_of_one_job_and_keeps_what_it_wrote() {
    let fixture = fixture();
    let body = "print('seen', payload)\nwhile payload == 'hang': pass";
    for limit in LIMITS {
        let batch = jobs(&["a", "hang", "b"]).into_iter().map(|job| limited(job, limit)).collect();
        let ended = reports(&fixture, python(body), batch).await;
        check_ended(&ended[1], 500, Some(Stop::TimedOut));
        let log = ended[1].log.to_string();
        // On a busy machine the others may also reach their limit, and this one before it printed.
        let is_too_short = [&ended[0], &ended[2]].iter().any(|report| report.stopped.is_some());
        if is_too_short || !log.contains("seen") {
            continue;
        }
        assert_eq!(log, format!("seen hang\n[windlass] timed out after {}s\n", limit.as_secs()));
        check_ended(&ended[0], 200, None);
        check_ended(&ended[2], 200, None);
        return;
    }
    panic!("no limit was long enough");
}

#[tokio::test]
async fn a_job_that_waits_in_a_batch_is_stopped_at_once_and_harms_no_other() {
    let fixture = fixture();
    let hold = fixture.scratch.path().join("hold");
    let ran = fixture.scratch.path().join("ran");
    std::fs::write(&hold, "").unwrap();
    let body = format!(
        "import os, time\nopen({ran:?}, 'a').write(payload + '\\n')\n\
         while payload == 'first' and os.path.exists({hold:?}): time.sleep(0.01)"
    );
    let mut run = fixture.begin(python(&body), jobs(&["first", "second", "third"]));
    let ids = run.ids.clone();
    assert_eq!(run.started().await, ids[0]);
    fixture.runner.stop(run.attempts[1], Stop::Cancelled);
    let (stopped, report) = run.ended().await;
    assert_eq!((stopped, report.stopped), (ids[1], Some(Stop::Cancelled)));
    std::fs::remove_file(&hold).unwrap();
    for id in [ids[0], ids[2]] {
        let (ended, report) = run.ended().await;
        assert_eq!((ended, report.stopped), (id, None));
    }
    assert!(run.rest().await.is_empty());
    let ran = lines_of(&ran, 2).await;
    assert!(ran.first().is_some_and(|first| first == "first"), "{ran:?}");
    assert!(ran.last().is_some_and(|last| last == "third"), "{ran:?}");
}

#[tokio::test]
async fn what_is_being_made_ready_ends_with_the_runner() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    let mut spec = python("return");
    spec.before = Some(format!(
        "import os\nopen({pids:?}, 'a').write({PYTHON_NS} + f'/{{os.getpid()}}\\n')\n\
         while True: pass"
    ));
    fixture.runner.prepare(std::sync::Arc::new(handler(spec)), Default::default());
    let pids = lines_of(&pids, 1).await;
    fixture.runner.close().await;
    until_gone(&pids[0]).await;
}

#[tokio::test]
async fn a_shutdown_ends_the_running_job_and_gives_the_others_back() {
    let fixture = fixture();
    let mut run = fixture.begin(python("import time\ntime.sleep(1000)"), jobs(&["a", "b", "c"]));
    let ids = run.ids.clone();
    assert_eq!(run.started().await, ids[0]);
    fixture.runner.stop(run.attempts[0], Stop::Shutdown);
    let events = run.rest().await;
    assert!(
        matches!(&events[..], [Event::Ended(_, report), Event::Returned(b), Event::Returned(c)]
            if report.stopped == Some(Stop::Shutdown) && [*b, *c] == ids[1..]),
        "{events:?}"
    );
}

#[tokio::test]
async fn s0_54_scripts_around_a_batch_run_once_and_their_failure_is_that_of_all_its_jobs() {
    let fixture = fixture();
    let mut handler = python("ctx.log.append(payload)\nreturn ctx.log");
    handler.before = Some("ctx.log = ['before']".into());
    handler.before_each = Some("ctx.log.append('[')".into());
    handler.after_each =
        Some("ctx.log.append(']')\nif len(ctx.log) > 7: raise Exception('no')".into());
    let first = reports(&fixture, handler.clone(), jobs(&["a", "b"])).await;
    assert_eq!(data(&first[1]).replace(' ', ""), r#"["before","[","a","b"]"#);
    let second = reports(&fixture, handler, jobs(&["c", "d"])).await;
    for report in second {
        check_ended(&report, 500, None);
        assert!(report.log.to_string().contains("afterEach failed: "), "{}", report.log);
    }
}

#[tokio::test]
async fn a_before_that_fails_is_an_error_of_the_jobs_that_needed_it() {
    let fixture = fixture();
    let mut handler = python("return 200");
    handler.before = Some("print('trying')\nraise Exception('no database')".into());
    let ended = reports(&fixture, handler, jobs(&["a", "b"])).await;
    for report in &ended {
        check_ended(report, 500, None);
        assert!(report.log.to_string().contains("before failed: "), "{}", report.log);
    }
    assert!(ended[0].log.to_string().contains("trying\n"));
    assert!(fixture.runner.warm().is_empty() && fixture.scratch_is_empty());
}

#[tokio::test]
async fn a_before_each_that_fails_is_an_error_of_its_batch_and_the_context_stays() {
    let fixture = fixture();
    let mut handler = python("import os\nreturn str(os.getpid())");
    handler.before = Some("ctx.n = 0".into());
    handler.before_each = Some("ctx.n += 1\nif ctx.n == 2: raise Exception('not now')".into());
    let first = reports(&fixture, handler.clone(), jobs(&["a"])).await;
    for report in reports(&fixture, handler.clone(), jobs(&["b", "c"])).await {
        check_ended(&report, 500, None);
        assert!(report.log.to_string().contains("beforeEach failed: "), "{}", report.log);
    }
    let third = reports(&fixture, handler, jobs(&["d"])).await;
    assert_eq!(data(&first[0]), data(&third[0]), "it is the same process");
}

#[tokio::test]
async fn a_batch_that_a_broken_context_cannot_begin_runs_elsewhere_unharmed() {
    let fixture = fixture();
    let body = "if ($payload === 'trap') { ini_set('memory_limit', '3M'); }\n\
                return (string) getmypid();";
    let handler = spec(Lang::Php, body);
    let first = reports(&fixture, handler.clone(), jobs(&["trap"])).await;
    let long = "x".repeat(900_000);
    for report in reports(&fixture, handler, jobs(&[&long, "b"])).await {
        check_ended(&report, 200, None);
        assert_ne!(data(&report), data(&first[0]));
    }
}

#[tokio::test]
async fn s0_57_the_time_of_the_scripts_is_shared_out() {
    let fixture = fixture();
    let mut handler = python("return");
    handler.before_each = Some("import time\ntime.sleep(0.2)".into());
    handler.after_each = Some("import time\ntime.sleep(0.2)".into());
    let ended = reports(&fixture, handler, jobs(&["a", "b", "c", "d"])).await;
    for report in ended {
        assert!(report.run_time >= Duration::from_millis(100), "{:?}", report.run_time);
    }
}

#[tokio::test]
async fn a_context_is_replaced_when_it_has_run_enough_also_within_a_batch() {
    let fixture = fixture();
    let mut handler = python("import os\nreturn str(os.getpid())");
    handler.options.context_jobs = Some(2);
    let ended = reports(&fixture, handler, jobs(&["a", "b", "c", "d", "e"])).await;
    let pids: Vec<&str> = ended.iter().map(data).collect();
    assert!(pids[0] == pids[1] && pids[2] == pids[3], "{pids:?}");
    assert!(pids[0] != pids[2] && pids[2] != pids[4], "{pids:?}");
}

#[tokio::test]
async fn an_idle_context_is_warm_and_ends_after_its_time() {
    let mut handler = python(&format!("import os\nreturn {PYTHON_NS} + f'/{{os.getpid()}}'"));
    for idle in LIMITS {
        let fixture = fixture();
        handler.options.idle = Some(idle);
        let ended = reports(&fixture, handler.clone(), jobs(&["a"])).await;
        let warm = fixture.runner.warm();
        until_gone(data(&ended[0])).await;
        assert!(fixture.runner.warm().is_empty());
        // A busy machine may have used up a short time before the check.
        if !warm.is_empty() {
            assert_eq!(warm, [JobId::new(1).unwrap()]);
            return;
        }
    }
    panic!("it was never warm");
}

#[tokio::test]
async fn a_context_that_is_being_made_ready_is_waited_for() {
    let fixture = fixture();
    let mut spec = python("return ctx.pids");
    let pids = fixture.scratch.path().join("pids");
    spec.before = Some(format!(
        "import os\nopen({pids:?}, 'a').write(f'{{os.getpid()}}\\n')\nctx.pids = str(os.getpid())"
    ));
    fixture.runner.prepare(std::sync::Arc::new(handler(spec.clone())), Default::default());
    let ended = reports(&fixture, spec, jobs(&["a"])).await;
    assert_eq!(lines_of(&pids, 1).await, [data(&ended[0])], "one process was started");
}

#[tokio::test]
async fn what_children_write_belongs_to_their_job() {
    let fixture = fixture();
    let body = "import subprocess\nsubprocess.run(['echo', 'child of ' + payload])\n\
                subprocess.run('echo error of ' + payload + ' >&2', shell=True)";
    let payloads: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    let ended = reports(&fixture, python(body), jobs(&payloads)).await;
    for (payload, report) in payloads.iter().zip(ended) {
        let log = format!("child of {payload}\n[stderr] error of {payload}\n");
        let mut lines: Vec<String> = report.log.to_string().lines().map(str::to_owned).collect();
        lines.sort();
        let mut expected: Vec<String> = log.lines().map(str::to_owned).collect();
        expected.sort();
        assert_eq!(lines, expected);
    }
}

#[tokio::test]
async fn processes_that_a_job_leaves_behind_are_ended_and_those_of_before_are_kept() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    let start =
        format!("import subprocess\nns = {PYTHON_NS}\nchild = subprocess.Popen(['sleep', '1000']");
    let mut handler = python(&format!(
        "{start})\norphan = subprocess.Popen(['setsid', 'sleep', '1000'])\n\
         open({pids:?}, 'a').write(f'{{ns}}/{{child.pid}}\\n{{ns}}/{{orphan.pid}}\\n')"
    ));
    handler.before = Some(format!("{start})\nctx.helper = f'{{ns}}/{{child.pid}}'"));
    handler.after_each = Some(format!("open({pids:?}, 'a').write(f'{{ctx.helper}}\\n')"));
    reports(&fixture, handler, jobs(&["a"])).await;
    let pids = lines_of(&pids, 3).await;
    until_gone(&pids[0]).await;
    until_gone(&pids[1]).await;
    assert!(is_alive(&pids[2]), "a helper of the handler lives as long as its context");
    fixture.runner.close().await;
    assert!(!exists(&pids[2]));
}

#[tokio::test]
async fn a_source_that_cannot_be_read_is_refused_with_its_field() {
    let fixture = fixture();
    for (lang, source) in [(Lang::Node, "let x = ;"), (Lang::Python, "x ="), (Lang::Php, "$x = ;")]
    {
        for field in ["body", "before", "beforeEach", "afterEach"] {
            let mut handler = spec(lang, "return 200;");
            let place = match field {
                "body" => &mut handler.body,
                "before" => handler.before.get_or_insert_default(),
                "beforeEach" => handler.before_each.get_or_insert_default(),
                _ => handler.after_each.get_or_insert_default(),
            };
            source.clone_into(place);
            let key = TypeKey::new("acme", "t").unwrap();
            let compiled = fixture.runner.compile(&key, &handler).await;
            let Err(NotCompiled::Invalid(refused)) = compiled else { panic!("{compiled:?}") };
            assert_eq!(refused.field, field, "{lang}: {refused}");
        }
    }
    assert!(fixture.scratch_is_empty());
}

/// Looks up names for ever, and notes that it is asked.
struct Silent(Arc<Notify>);

#[async_trait::async_trait]
impl Lookup for Silent {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        self.0.notify_one();
        std::future::pending().await
    }
}

fn silent_fixture(asked: &Arc<Notify>) -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.network.lookup = Arc::new(Silent(Arc::clone(asked)));
    Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch }
}

fn with_a_name(mut handler: HandlerSpec) -> HandlerSpec {
    handler.options.network = Some(Network::Only(vec!["db.example:80".parse().unwrap()]));
    handler
}

#[tokio::test]
async fn a_source_is_compiled_without_the_variables_and_names_of_its_handler() {
    let fixture = silent_fixture(&Arc::default());
    let endless = "--import \"data:text/javascript,await new Promise(r=>setTimeout(r,1e9))\"";
    let handler = with_env(spec(Lang::Node, "return 200"), "NODE_OPTIONS", endless);
    let key = TypeKey::new("acme", "t").unwrap();
    assert_eq!(fixture.runner.compile(&key, &with_a_name(handler)).await, Ok(()));
    assert!(fixture.scratch_is_empty());
}

#[tokio::test]
async fn a_job_that_waits_for_the_lookup_of_a_name_can_be_stopped() {
    let asked = Arc::new(Notify::new());
    let fixture = silent_fixture(&asked);
    let mut run = fixture.begin(with_a_name(python("return 200")), jobs(&["a"]));
    in_time("the name is looked up", asked.notified()).await;
    fixture.runner.stop(run.attempts[0], Stop::Cancelled);
    let (_, report) = run.ended().await;
    assert_eq!(report.stopped, Some(Stop::Cancelled));
}

#[tokio::test]
async fn a_run_that_is_dropped_takes_its_context_along() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    let body = format!(
        "import os, time\nopen({pids:?}, 'a').write({PYTHON_NS} + f'/{{os.getpid()}}\\n')\n\
         time.sleep(1000)"
    );
    let run = fixture.begin(python(&body), jobs(&["a"]));
    let pids = lines_of(&pids, 1).await;
    run.abandon().await;
    until_gone(&pids[0]).await;
}
