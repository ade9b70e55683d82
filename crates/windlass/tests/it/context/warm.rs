//! Warm contexts: which jobs share a process, what handlers see there, and what it costs.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::harness::{Case, Config, Stage, field, in_every_language, text, until};

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..=to).map(|n| n.to_string()).collect()
}

/// Objects of node and php are the same in JSON, so sources may return either.
fn keys(value: &Value) -> Vec<String> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value} is not an object"));
    object.keys().cloned().collect()
}

in_every_language! {
    fn s0_27_a_type_keeps_its_process_and_shares_it_with_nobody(t) {
        node: "globalThis.calls = (globalThis.calls ?? 0) + 1;
               return {data: [process.pid, globalThis.calls]};",
        python: "
            import os
            global calls
            calls = globals().get('calls', 0) + 1
            return {'data': [os.getpid(), calls]}",
        php: "$GLOBALS['calls'] = ($GLOBALS['calls'] ?? 0) + 1;
              return ['data' => [getmypid(), $GLOBALS['calls']]];",
    } {
        let stage = t.stage();
        let one = json!({"contexts": 1});
        stage.set("t", one.clone());
        stage.set("u", one.clone());
        let b = stage.daemon.tenant("b");
        b.handler("t", &stage.handler(one));
        let first = stage.data("t", "x")[0].clone();
        for call in 2..=5 {
            assert_eq!(stage.data("t", "x"), json!([first, call]));
        }
        let other = stage.data("u", "x");
        assert_eq!(other[1], 1, "another type begins anew");
        let job = b.until_end(&b.add_one("t", "x"));
        let third = &job["result"];
        assert_eq!(third[1], 1, "another tenant begins anew: {job}");
        assert!(other[0] != first && third[0] != first && third[0] != other[0]);
        assert_eq!(stage.data("t", "x"), json!([first, 6]), "and the first is still there");
    }

    fn s0_54_before_runs_once_a_context_and_the_others_once_a_batch(t) {
        node: json!({
            "before": "ctx.before = (ctx.before ?? 0) + 1; ctx.begun = 0; ctx.after = 0;",
            "beforeEach": "ctx.begun += 1;",
            "afterEach": "ctx.after += 1;",
            "body": "return {data: [ctx.before, ctx.begun, ctx.after]};",
        }),
        python: json!({
            "before": "ctx.before = getattr(ctx, 'before', 0) + 1\nctx.begun = ctx.after = 0",
            "beforeEach": "ctx.begun += 1",
            "afterEach": "ctx.after += 1",
            "body": "return {'data': [ctx.before, ctx.begun, ctx.after]}",
        }),
        php: json!({
            "before": "$ctx->before = ($ctx->before ?? 0) + 1; $ctx->begun = $ctx->after = 0;",
            "beforeEach": "$ctx->begun += 1;",
            "afterEach": "$ctx->after += 1;",
            "body": "return ['data' => [$ctx->before, $ctx->begun, $ctx->after]];",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 5}));
        let ids = stage.batch("t", &numbers(1, 15));
        let seen: Vec<Value> = ids.iter().map(|id| stage.end(id)["result"].clone()).collect();
        let wanted: Vec<Value> = (0..15).map(|n| json!([1, n / 5 + 1, n / 5])).collect();
        assert_eq!(seen, wanted);
        assert_eq!(stage.data("t", "one more"), json!([1, 4, 3]), "1 / 3 / 3 before this one");
    }

    fn s0_54_after_each_runs_also_when_a_job_failed(t) {
        node: json!({
            "afterEach": "ctx.after = (ctx.after ?? 0) + 1;",
            "body": "if (payload === 'bad') throw new Error('no');
                     return {data: ctx.after ?? 0};",
        }),
        python: json!({
            "afterEach": "ctx.after = getattr(ctx, 'after', 0) + 1",
            "body": "
                if payload == 'bad':
                    raise ValueError('no')
                return {'data': getattr(ctx, 'after', 0)}",
        }),
        php: json!({
            "afterEach": "$ctx->after = ($ctx->after ?? 0) + 1;",
            "body": "if ($payload === 'bad') throw new Exception('no');
                     return ['data' => $ctx->after ?? 0];",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["bad", "good", "bad"]) {
            stage.end(&id);
        }
        assert_eq!(stage.data("t", "good"), 1, "once for the batch whose jobs failed");
    }

    /// Nothing can run without it, so every job that needed it is an error.
    fn s0_54_before_that_throws_is_an_error_of_each_job(t) {
        node: json!({"before": "throw new Error('no connection');", "body": "return 200;"}),
        python: json!({"before": "raise IOError('no connection')", "body": "return 200"}),
        php: json!({"before": "throw new Exception('no connection');", "body": "return 200;"}),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["1", "2", "3"]) {
            stage.failed(&stage.end(&id), "no connection");
        }
        stage.tenant.handler("t", &json!({"lang": t.lang, "body": "return 204;"}));
        assert_eq!(stage.run("t", "x")["exitcode"], 204, "a better version serves the type");
    }

    /// The batch is over before any of its jobs has run.
    fn s0_54_before_each_that_throws_is_an_error_of_each_job(t) {
        node: json!({
            "beforeEach": "if (require('fs').existsSync(process.env.FILE)) throw Error('not now');",
            "body": "return 204;",
        }),
        python: json!({
            "beforeEach": "
                import os
                if os.path.exists(os.environ['FILE']):
                    raise IOError('not now')",
            "body": "return 204",
        }),
        php: json!({
            "beforeEach": "if (file_exists(getenv('FILE'))) throw new Exception('not now');",
            "body": "return 204;",
        }),
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("file", "");
        stage.set("t", json!({"contexts": 1, "batch": 10, "env": {"FILE": file}}));
        for id in stage.batch("t", &["1", "2", "3"]) {
            stage.failed(&stage.end(&id), "not now");
        }
        stage.daemon.home().let_go("file");
        assert_eq!(stage.run("t", "x")["exitcode"], 204);
    }

    /// What a batch has not completed is not done.
    fn s0_54_after_each_that_throws_is_an_error_of_each_job(t) {
        node: json!({"afterEach": "throw new Error('too late');", "body": "return {data: 1};"}),
        python: json!({"afterEach": "raise IOError('too late')", "body": "return {'data': 1}"}),
        php: json!({
            "afterEach": "throw new Exception('too late');", "body": "return ['data' => 1];"
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for _ in 0..2 {
            for id in stage.batch("t", &["1", "2", "3"]) {
                stage.failed(&stage.end(&id), "too late");
            }
        }
    }

    fn s0_54_many_jobs_are_handed_over_at_once_by_default(t) {
        node: json!({
            "beforeEach": "ctx.begun = (ctx.begun ?? 0) + 1;", "body": "return {data: ctx.begun};"
        }),
        python: json!({
            "beforeEach": "ctx.begun = getattr(ctx, 'begun', 0) + 1",
            "body": "return {'data': ctx.begun}",
        }),
        php: json!({
            "beforeEach": "$ctx->begun = ($ctx->begun ?? 0) + 1;",
            "body": "return ['data' => $ctx->begun];",
        }),
    } {
        const JOBS: usize = 200;
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        let ids = stage.batch("t", &numbers(1, JOBS));
        let batches = stage.end(ids.last().unwrap())["result"].as_u64().unwrap();
        assert!(batches < JOBS as u64 / 4, "{batches} batches of {JOBS} jobs");
    }

    fn s0_57_the_cost_of_before_and_before_each_is_shared_out_over_the_jobs(t) {
        node: json!({
            "before": "await new Promise((go) => setTimeout(go, 800));",
            "beforeEach": "await new Promise((go) => setTimeout(go, 400));",
            "body": ";",
        }),
        python: json!({
            "before": "import time\ntime.sleep(0.8)",
            "beforeEach": "import time\ntime.sleep(0.4)",
            "body": "pass",
        }),
        php: json!({
            "before": "usleep(800000);", "beforeEach": "usleep(400000);", "body": ";",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let runs = run_ms(&stage, &stage.batch("t", &["1", "2", "3", "4"]));
        assert!(runs.iter().all(|run| *run >= 99.0), "each has its share of 400 ms: {runs:?}");
        assert!(runs.iter().sum::<f64>() >= 400.0 - 4.0, "{runs:?}");
    }

    fn s0_57_the_cost_of_after_each_is_shared_out_over_the_jobs(t) {
        node: json!({"afterEach": "await new Promise((go) => setTimeout(go, 400));", "body": ";"}),
        python: json!({"afterEach": "import time\ntime.sleep(0.4)", "body": "pass"}),
        php: json!({"afterEach": "usleep(400000);", "body": ";"}),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let mut runs = run_ms(&stage, &stage.batch("t", &["1", "2", "3", "4"]));
        runs.extend(run_ms(&stage, &stage.batch("t", &["1", "2", "3", "4"])));
        assert!(runs.iter().all(|run| *run >= 99.0), "each has its share of 400 ms: {runs:?}");
    }

    fn the_body_sees_its_job(t) {
        node: "const {id, tenant, type, attempt, priority, created_at} = job;
               return {data: {id, tenant, type, attempt, priority, created_at, payload}};",
        python: "
            names = ['id', 'tenant', 'type', 'attempt', 'priority', 'created_at']
            data = {name: getattr(job, name) for name in names}
            assert all(job[name] == data[name] for name in names), 'items are the attributes'
            data['payload'] = payload
            return {'data': data}",
        php: "$data = ['payload' => $payload];
              foreach (['id', 'tenant', 'type', 'attempt', 'priority', 'created_at'] as $name) {
                  if ($job[$name] !== $job->$name) throw new Exception('items are properties');
                  $data[$name] = $job->$name;
              }
              return ['data' => $data];",
    } {
        let stage = t.stage_with(Config::new().set("retry.delay", "\"10ms\""));
        stage.set("a%2Fb", json!({}));
        let id = stage.tenant.add_with("a%2Fb", "priority=77", &["the payload"]).remove(0);
        let job = stage.end(&id);
        let wanted = json!({
            "id": id, "tenant": "a", "type": "a/b", "attempt": 1, "priority": 77,
            "created_at": job["created_at"], "payload": "the payload",
        });
        assert_eq!(job["result"], wanted, "{job}\n{}", stage.log_of(&job));
    }

    fn the_attempt_grows_and_may_be_asked_for(t) {
        node: "return job.attempt < 3 ? 100 : {data: job.attempt};",
        python: "return 100 if job.attempt < 3 else {'data': job.attempt}",
        php: "return $job->attempt < 3 ? 100 : ['data' => $job->attempt];",
    } {
        let stage = t.stage();
        let retry = json!({"attempts": 5, "delay": "10ms", "factor": 1});
        stage.set("t", json!({"retry": retry}));
        let job = stage.run("t", "x");
        assert_eq!((&job["state"], &job["result"]), (&json!("finished"), &json!(3)), "{job}");
    }

    fn environment_is_the_handlers_own(t) {
        node: "return {data: {...process.env}};",
        python: "import os\nreturn {'data': dict(os.environ)}",
        php: "return ['data' => getenv()];",
    } {
        let config = Config::new();
        let mut command = config.command();
        command.env("DAEMON_SECRET", "of-the-operator").env("WINDLASS_LOG_LEVEL", "info");
        command.env("NODE_OPTIONS", "--no-warnings").env("PYTHONPATH", "/of/the/operator");
        let stage = t.stage_started(config, &mut command);
        stage.set("t", json!({"env": {"COLOUR": "deep blue"}}));
        let env = stage.data("t", "x");
        assert_eq!((&env["COLOUR"], &env["WINDLASS_TENANT"]), (&json!("deep blue"), &json!("a")));
        let known = [
            "PATH", "HOME", "TMPDIR", "LANG", "COLOUR", "STAGE_MARK", "WINDLASS_TENANT",
            "WINDLASS_DIR",
        ];
        let strange: Vec<String> =
            keys(&env).into_iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    /// Its own directory, not another context's, that it can write to and that is removed with it.
    fn a_context_works_in_a_private_directory(t) {
        node: "const fs = require('fs');
               const found = fs.readdirSync('.');
               fs.writeFileSync('mine', payload);
               return {data: {cwd: process.cwd(), home: process.env.HOME, found}};",
        python: "
            import os
            found = os.listdir('.')
            with open('mine', 'w') as file:
                file.write(payload)
            return {'data': {'cwd': os.getcwd(), 'home': os.environ['HOME'], 'found': found}}",
        php: "$found = array_values(array_diff(scandir('.'), ['.', '..']));
              file_put_contents('mine', $payload);
              return ['data' => ['cwd' => getcwd(), 'home' => getenv('HOME'), 'found' => $found]];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "5s"}));
        stage.set("u", json!({"contexts": 1, "idle": "5s"}));
        let (first, second) = (stage.data("t", "x"), stage.data("u", "x"));
        assert_eq!(first["cwd"], first["home"], "the directory is also HOME");
        // Both have the same name, and neither sees the other's file.
        assert_eq!((&first["found"], &second["found"]), (&json!([]), &json!([])));
        assert_eq!(stage.data("t", "x")["found"], json!(["mine"]));
        stage.until_no_process();
        let scratch = stage.daemon.home().data().join("scratch/1");
        let left = || std::fs::read_dir(&scratch).unwrap().flatten().map(|file| file.file_name());
        let of_runner = |name: &OsString| name == ".lock" || name == ".groups";
        let left = || left().filter(|name| !of_runner(name)).count();
        until("their directories are gone", left, |left| *left == 0);
    }

    /// Apart from what the contract gives it, a context has none of the daemon's descriptors.
    fn descriptors_of_the_daemon_are_closed(t) {
        node: "const fs = require('fs');
               const links = fs.readdirSync('/proc/self/fd').map((fd) => {
                   try { return fs.readlinkSync('/proc/self/fd/' + fd); } catch { return ''; }
               });
               return {data: links};",
        python: "
            import os
            links = []
            for fd in os.listdir('/proc/self/fd'):
                try:
                    links.append(os.readlink('/proc/self/fd/' + fd))
                except OSError:
                    pass
            return {'data': links}",
        php: "$links = [];
              foreach (scandir('/proc/self/fd') as $fd) {
                  $links[] = (string) @readlink('/proc/self/fd/' . $fd);
              }
              return ['data' => $links];",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let links = stage.data("t", "x").to_string();
        for secret in ["store.db", "journal", ".lock"] {
            assert!(!links.contains(secret), "{links}");
        }
    }

    fn s2_28_an_error_in_one_job_does_not_stop_the_next(t) {
        node: "if (payload === '1') throw new Error('at fault'); return {data: process.pid};",
        python: "
            import os
            if payload == '1':
                raise ValueError('at fault')
            return {'data': os.getpid()}",
        php: "if ($payload === '1') throw new Exception('at fault');
              return ['data' => getmypid()];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let first = stage.data("t", "0");
        let ids = stage.batch("t", &["1", "2"]);
        stage.failed(&stage.end(&ids[0]), "at fault");
        let second = stage.end(&ids[1]);
        stage.succeeded(&second);
        assert_eq!(second["result"], first, "in the same process");
    }

    /// The trace is what makes an error in a log useful.
    fn an_exceptions_message_and_trace_are_in_the_jobs_log(t) {
        node: "function deep_inside() { throw new TypeError('what went wrong'); }
               deep_inside();",
        python: "
            def deep_inside():
                raise TypeError('what went wrong')
            deep_inside()",
        php: "$in = new class {
                  function deep_inside() { throw new TypeError('what went wrong'); }
              };
              $in->deep_inside();",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let job = stage.run("t", "x");
        stage.failed(&job, "what went wrong");
        stage.failed(&job, "deep_inside");
        stage.failed(&job, "TypeError");
    }

    fn the_standard_library_can_be_used(t) {
        node: "const {createHash} = require('crypto');
               const os = await import('os');
               return {data: createHash('sha256').update(payload).digest('hex') + typeof os.EOL};",
        python: "
            import hashlib, json, urllib.request, sqlite3
            return {'data': hashlib.sha256(payload.encode()).hexdigest() + 'string'}",
        php: "return ['data' => hash('sha256', $payload) . 'string'];",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(stage.data("t", "abc"), format!("{abc}string"));
    }

    fn a_source_that_is_not_the_language_is_refused_and_nothing_stored(t) {
        node: "return 'fine';",
        python: "return 'fine'",
        php: "return 'fine';",
    } {
        let stage = t.stage();
        let path = stage.tenant.path("handlers/t");
        for name in ["body", "before", "beforeEach", "afterEach"] {
            let mut handler = stage.handler(json!({}));
            handler[name] = json!("if ( {{{ nothing like it");
            let answer = stage.daemon.send_json("PUT", &path, &handler);
            let answer = answer.expect(400).json();
            assert_eq!(answer["error"]["code"], "invalid_value", "{answer}");
            assert_eq!(answer["error"]["field"], name, "{answer}");
            assert_eq!(stage.daemon.get(&path).status, 404, "nothing is stored");
        }
        stage.set("t", json!({}));
        assert_eq!(stage.data("t", "x"), "fine");
    }

    /// Comments at the end, several lines, no last semicolon: what people write.
    fn a_body_may_end_in_a_comment_or_be_empty(t) {
        node: "return 201 // done",
        python: "return 201 # done",
        php: "return 201; // done",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        assert_eq!(stage.run("t", "x")["exitcode"], 201);
        let path = stage.tenant.path("handlers/u");
        let mut comment = stage.handler(json!({}));
        comment["body"] = json!(if t.lang == "python" { "# nothing" } else { "// nothing" });
        stage.daemon.send_json("PUT", &path, &comment).expect(200);
        assert_eq!(stage.run("u", "x")["exitcode"], 200);
    }
}

/// The reported run time of each of these jobs.
fn run_ms(stage: &Stage, ids: &[String]) -> Vec<f64> {
    let ended = || {
        let ends = stage.daemon.log.events("job_ended").into_iter();
        ends.filter(|end| ids.iter().any(|id| field(end, "id") == id.as_str())).collect::<Vec<_>>()
    };
    let ends = until("all ends are logged", ended, |ends| ends.len() == ids.len());
    ends.iter().map(|end| field(end, "run_ms").as_f64().expect("run_ms is a number")).collect()
}

/// The daemon looks for interpreters in its own `PATH`.
#[test]
fn a_missing_interpreter_is_named_when_a_handler_is_set() {
    let config = Config::new();
    let mut command = config.command();
    command.env("PATH", "/nonexistent");
    let case = Case::new("node", "return 200");
    let stage = case.stage_started(config, &mut command);
    for (lang, program) in [("node", "node"), ("python", "python3"), ("php", "php")] {
        let path = stage.tenant.path("handlers/t");
        let handler = json!({"lang": lang, "body": "return 200;"});
        let answer = stage.daemon.send_json("PUT", &path, &handler).expect(400).json();
        assert_eq!(answer["error"]["field"], "lang", "{answer}");
        let message = text(&answer["error"]["message"]);
        assert!(message.contains(program), "{message}");
        assert_eq!(stage.daemon.get(&path).status, 404, "nothing is stored");
    }
}
