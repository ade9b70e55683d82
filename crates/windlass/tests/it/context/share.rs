//! The pool of warm contexts: which handlers share them, how many there are, when they start and
//! end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::{Case, Config, Stage, Tenant, in_every_language, until};

/// Sources that return their process id; they wait while the file named by the payload exists.
const NODE: &str = "
    while (payload.startsWith('/') && require('fs').existsSync(payload)) {
        await new Promise((go) => setTimeout(go, 10));
    }
    return {data: process.pid};";
const PYTHON: &str = "
    import os, time
    while payload.startswith('/') and os.path.exists(payload):
        time.sleep(0.01)
    return {'data': os.getpid()}";
const PHP: &str = "
    while (str_starts_with($payload, '/') && file_exists($payload)) {
        clearstatcache();
        usleep(10000);
    }
    return ['data' => getmypid()];";

/// The ids of the processes that ran these jobs, in order.
#[track_caller]
fn pids(stage: &Stage, ids: &[String]) -> Vec<u64> {
    let pid = |id: &String| {
        let job = stage.end(id);
        stage.succeeded(&job);
        job["result"].as_u64().expect("the data is a process id")
    };
    ids.iter().map(pid).collect()
}

/// Waits until all jobs of a tenant have finished; returns the largest number of processes seen
/// meanwhile.
#[track_caller]
fn most_processes(stage: &Stage, tenants: &[&Tenant]) -> usize {
    let mut most = 0;
    until(
        "all jobs have finished",
        || {
            most = most.max(stage.processes().len());
            let left = |tenant: &&Tenant| {
                let of = |state: &str| tenant.list(&format!("state={state}")).len();
                of("queued") + of("running")
            };
            tenants.iter().map(left).sum::<usize>()
        },
        |left| *left == 0,
    );
    most
}

in_every_language! {
    /// Two types with one eid share a process, but neither sees what the other did there.
    fn s0_55_types_with_one_eid_share_a_context_and_nothing_else(t) {
        node: json!({"eid": "shared", "body": "
            const seen = {
                ctx: ctx.n ?? 0, global: globalThis.left ?? 0, env: process.env.LEFT ?? '',
                cwd: process.cwd() === process.env.HOME, pid: process.pid,
            };
            ctx.n = seen.ctx + 1;
            globalThis.left = 'left by ' + job.type;
            process.env.LEFT = 'left by ' + job.type;
            process.chdir('/');
            return {data: seen};"}),
        python: json!({"eid": "shared", "body": "
            import builtins, os
            seen = {
                'ctx': getattr(ctx, 'n', 0), 'global': getattr(builtins, 'left', 0),
                'env': os.environ.get('LEFT', ''), 'pid': os.getpid(),
                'cwd': os.getcwd() == os.path.realpath(os.environ['HOME']),
            }
            ctx.n = seen['ctx'] + 1
            builtins.left = os.environ['LEFT'] = 'left by ' + job.type
            os.chdir('/')
            return {'data': seen}"}),
        php: json!({"eid": "shared", "body": "
            $seen = [
                'ctx' => $ctx->n ?? 0, 'global' => $GLOBALS['left'] ?? 0,
                'env' => (string) getenv('LEFT'), 'cwd' => getcwd() === getenv('HOME'),
                'pid' => getmypid(),
            ];
            $ctx->n = $seen['ctx'] + 1;
            $GLOBALS['left'] = 'left by ' . $job->type;
            putenv('LEFT=left by ' . $job->type);
            chdir('/');
            return ['data' => $seen];"}),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        stage.set("u", json!({"contexts": 1}));
        let first = stage.data("t", "x");
        let clean = |n: u64| {
            json!({"ctx": n, "global": 0, "env": "", "cwd": true, "pid": first["pid"]})
        };
        assert_eq!(first, clean(0));
        assert_eq!(stage.data("u", "x"), clean(0), "the other type finds it clean");
        assert_eq!(stage.data("t", "x"), clean(1), "and the first one its ctx");
        assert_eq!(stage.data("u", "x"), clean(1));
        assert_eq!(stage.processes().len(), 1);
    }

    fn jobs_after_a_new_version_run_it_and_contexts_of_the_old_one_end(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("hold", "");
        stage.set("t", json!({"contexts": 2, "idle": "10m", "batch": 1}));
        let old = stage.add("t", file.to_str().unwrap());
        stage.tenant.until_state(&old, "running");
        let new = json!({"lang": t.lang, "body": "return 207;", "options": {"idle": "10m"}});
        stage.tenant.handler("t", &new);
        for _ in 0..5 {
            assert_eq!(stage.run("t", "x")["exitcode"], 207);
        }
        assert_eq!(stage.tenant.job(&old)["state"], "running", "what runs goes on");
        stage.daemon.home().let_go("hold");
        stage.succeeded(&stage.end(&old));
        // The new version's process has no mark.
        stage.until_no_process();
    }

    fn a_deleted_handlers_contexts_end(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"idle": "10m"}));
        stage.data("t", "x");
        stage.daemon.delete(&stage.tenant.path("handlers/t")).expect(200);
        stage.until_no_process();
    }

    fn s0_55_before_runs_once_for_each_type_that_shares(t) {
        node: json!({
            "eid": "shared", "before": "ctx.before = (ctx.before ?? 0) + 1; ctx.by = process.pid;",
            "body": "return {data: [ctx.before, ctx.by === process.pid]};",
        }),
        python: json!({
            "eid": "shared",
            "before": "import os\nctx.before = getattr(ctx, 'before', 0) + 1\nctx.by = os.getpid()",
            "body": "import os\nreturn {'data': [ctx.before, ctx.by == os.getpid()]}",
        }),
        php: json!({
            "eid": "shared",
            "before": "$ctx->before = ($ctx->before ?? 0) + 1; $ctx->by = getmypid();",
            "body": "return ['data' => [$ctx->before, $ctx->by === getmypid()]];",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        stage.set("u", json!({"contexts": 1}));
        for kind in ["t", "u", "t", "u"] {
            assert_eq!(stage.data(kind, "x"), json!([1, true]));
        }
    }

    fn s0_55_tenants_with_one_eid_share_nothing(t) {
        node: json!({"eid": "shared", "body": NODE}),
        python: json!({"eid": "shared", "body": PYTHON}),
        php: json!({"eid": "shared", "body": PHP}),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let other = stage.daemon.tenant("b");
        other.handler("t", &stage.handler(json!({"contexts": 1})));
        let own = stage.data("t", "x");
        assert_ne!(other.until_end(&other.add_one("t", "x"))["result"], own);
        assert_eq!(stage.data("t", "x"), own);
    }

    fn a_context_is_replaced_after_so_many_jobs(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "context_jobs": 3}));
        let ids: Vec<String> = (0..9).map(|_| {
            let id = stage.add("t", "x");
            stage.end(&id);
            id
        }).collect();
        let pids = pids(&stage, &ids);
        let groups: Vec<BTreeSet<&u64>> =
            pids.chunks(3).map(|three| three.iter().collect()).collect();
        assert!(groups.iter().all(|group| group.len() == 1), "{pids:?}");
        assert_eq!(groups.iter().collect::<BTreeSet<_>>().len(), 3, "{pids:?}");
        until("those before are gone", || stage.processes(), |left| left.len() <= 1);
    }

    fn a_context_is_replaced_also_in_the_middle_of_a_batch(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "context_jobs": 3, "batch": 10}));
        let pids = pids(&stage, &stage.batch("t", &["x"; 10]));
        let mut jobs: BTreeMap<u64, usize> = BTreeMap::new();
        for pid in &pids {
            *jobs.entry(*pid).or_default() += 1;
        }
        assert!(jobs.values().all(|count| *count <= 3), "{pids:?}");
    }

    fn an_idle_context_is_ended_and_a_new_one_serves_the_next_job(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "300ms"}));
        let first = stage.data("t", "x");
        stage.until_no_process();
        let second = stage.data("t", "x");
        assert_ne!(first, second);
        stage.until_no_process();
    }

    fn a_handler_has_at_most_so_many_contexts(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("hold", "");
        stage.set("t", json!({"contexts": 2, "batch": 1, "idle": "10m"}));
        let ids = stage.batch("t", &[file.to_str().unwrap(); 8]);
        let running = || stage.tenant.list("type=t&state=running").len();
        until("two run", running, |count| *count == 2);
        assert!(stage.processes().len() <= 2, "{:?}", stage.processes());
        stage.daemon.home().let_go("hold");
        assert!(most_processes(&stage, &[&stage.tenant]) <= 2);
        let pids: BTreeSet<u64> = pids(&stage, &ids).into_iter().collect();
        assert!(pids.len() <= 2, "{pids:?}");
    }

    /// Prewarming must not exceed the limit when jobs arrive at the same time.
    fn one_context_is_one_from_the_very_first_job(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        let kinds: Vec<String> = (0..6).map(|n| format!("t{n}")).collect();
        for kind in &kinds {
            stage.set(kind, json!({"contexts": 1, "idle": "10m"}));
            stage.tenant.add(kind, &["1", "2", "3"]);
        }
        for kind in &kinds {
            let jobs = stage.tenant.until_count(kind, "finished", 3);
            let pids: BTreeSet<String> = jobs.iter().map(|job| job["result"].to_string()).collect();
            assert_eq!(pids.len(), 1, "{kind} ran in {pids:?}");
        }
        assert_eq!(stage.processes().len(), kinds.len());
    }

    fn a_context_is_there_before_the_first_job(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "10m"}));
        let found = stage.until_processes(1);
        let runs = stage.data("t", "x");
        // A wrapper may have stood in for the interpreter for a moment; the process is the same.
        assert_eq!(runs, found[0]);
    }

    fn contexts_of_all_tenants_are_bounded(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let config = Config::new().set("contexts.max", "2").set("scheduler.slots_reserved", "0");
        let stage = t.stage_with(config);
        let tenants: Vec<Tenant> =
            ["a", "b", "c", "d"].iter().map(|name| stage.daemon.tenant(name)).collect();
        for tenant in &tenants {
            for kind in ["t", "u"] {
                tenant.handler(kind, &stage.handler(json!({"idle": "10m"})));
                tenant.add(kind, &["1", "2", "3"]);
            }
        }
        let all: Vec<&Tenant> = tenants.iter().collect();
        let most = most_processes(&stage, &all);
        assert!(most <= 2, "{most} processes at once");
        for tenant in &tenants {
            assert!(tenant.list("").iter().all(|job| job["state"] == "finished"));
        }
    }

    /// A tenant that fills its share with endless work does not keep other tenants waiting.
    fn s2_13_contexts_of_one_tenant_are_bounded_and_others_go_on(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let config = Config::new().set("contexts.max", "3").set("contexts.tenant_max", "2");
        let stage = t.stage_with(config);
        let file = stage.daemon.home().write("hold", "");
        for kind in ["t", "u", "v", "w"] {
            stage.set(kind, json!({"idle": "10m"}));
            stage.tenant.add(kind, &[file.to_str().unwrap()]);
        }
        until("two live", || stage.processes().len(), |count| *count == 2);
        let other = stage.daemon.tenant("b");
        let body = stage.handler(json!({}))["body"].clone();
        other.handler("t", &json!({"lang": t.lang, "body": body}));
        for _ in 0..3 {
            let job = other.until_end(&other.add_one("t", "x"));
            assert_eq!(job["state"], "finished", "{job}");
            let live = until("its share is in use", || stage.processes().len(), |n| *n >= 2);
            assert_eq!(live, 2, "no more than its share");
        }
        stage.daemon.home().let_go("hold");
        assert!(most_processes(&stage, &[&stage.tenant]) <= 2);
    }

    /// With room for only one context, every switch between types is a cold start. Of two drawn
    /// types the warm one is preferred: one pick in four is a switch, not one in two.
    fn s0_28_work_for_a_warm_context_is_preferred(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        const JOBS: usize = 40;
        let config = Config::new().one_slot().set("contexts.max", "1");
        let stage = t.stage_with(config);
        stage.daemon.stop_picking();
        stage.set("t", json!({"batch": 1}));
        stage.set("u", json!({"batch": 1}));
        let mut ids = stage.tenant.add("t", &["x"; JOBS]);
        ids.extend(stage.batch("u", &["x"; JOBS]));
        let starts: BTreeSet<u64> = pids(&stage, &ids).into_iter().collect();
        // Draws are random: 45 of a hundred is four deviations from the expected number.
        let most = ids.len() * 45 / 100;
        assert!(starts.len() < most, "{} starts for {} picks", starts.len(), ids.len());
    }
}

/// The same eid, but two languages: they share nothing.
#[test]
fn s0_55_languages_with_one_eid_share_nothing() {
    let stage = Case::new("node", json!({"eid": "shared", "body": NODE})).stage();
    stage.set("t", json!({}));
    let python = Case::new("python", json!({"eid": "shared", "body": PYTHON}));
    stage.tenant.handler("u", &python.handler(&json!({})));
    let node = stage.data("t", "x");
    let python = stage.data("u", "x");
    assert!(node.is_number() && python.is_number() && node != python);
}

/// Types that share a context may arrive in quick succession, and mixed.
#[test]
fn s0_55_many_types_of_one_eid_take_turns() {
    const TYPES: usize = 8;
    const JOBS: usize = 10;
    let source = json!({"eid": "shared", "body": "
        import os
        ctx.n = getattr(ctx, 'n', 0) + 1
        return {'data': [job.type, ctx.n, os.getpid()]}"});
    let stage = Case::new("python", source).stage();
    let kinds: Vec<String> = (0..TYPES).map(|n| format!("t{n}")).collect();
    for kind in &kinds {
        stage.set(kind, json!({"contexts": 1}));
    }
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids: Vec<Vec<String>> =
        kinds.iter().map(|kind| stage.tenant.add(kind, &payloads)).collect();
    let mut processes = BTreeSet::new();
    for (kind, ids) in kinds.iter().zip(&ids) {
        let results: Vec<Value> = ids.iter().map(|id| stage.end(id)["result"].clone()).collect();
        let counts: BTreeSet<u64> =
            results.iter().map(|result| result[1].as_u64().unwrap()).collect();
        assert_eq!(counts, (1..=JOBS as u64).collect(), "{kind} has its own ctx");
        processes.extend(results.iter().map(|result| result[2].as_u64().unwrap()));
    }
    assert_eq!(processes.len(), 1, "{processes:?}");
}
