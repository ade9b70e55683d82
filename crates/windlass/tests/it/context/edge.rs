//! The edges of warm contexts: between two jobs of a batch, a batch and its scripts, and two
//! versions of a handler.

use serde_json::{Value, json};

use crate::harness::{Case, Config, in_every_language, text, until};

in_every_language! {
    /// A line without an end still belongs to its job, and does not run into the next one's.
    fn half_lines_stay_with_their_jobs(t) {
        node: "process.stdout.write('half ' + payload); process.stderr.write('error ' + payload);",
        python: "
            import sys
            sys.stdout.write('half ' + payload)
            sys.stderr.write('error ' + payload)",
        php: "echo 'half ', $payload; fwrite(STDERR, 'error ' . $payload);",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let payloads = ["1", "2", "3"];
        for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
            stage.end(id);
            assert_eq!(stage.printed(id), [format!("half {payload}")]);
            let log = stage.tenant.log(id);
            assert!(log.contains(&format!("[stderr] error {payload}\n")), "{log}");
        }
    }

    fn a_job_line_may_be_written_in_pieces(t) {
        node: "for (const piece of ['J', ': ou', 't|a', 'b|', 'c\\nJ: out|no newline']) {
                   process.stdout.write(piece);
               }",
        python: "
            import sys
            for piece in ['J', ': ou', 't|a', 'b|', 'c\\nJ: out|no newline']:
                sys.stdout.write(piece)
                sys.stdout.flush()",
        php: "foreach (['J', ': ou', 't|a', 'b|', \"c\\nJ: out|no newline\"] as $piece) {
                  echo $piece;
                  flush();
              }",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["1", "2"]) {
            stage.succeeded(&stage.end(&id));
        }
        let jobs = stage.tenant.until_count("out", "queued", 4);
        let mut payloads: Vec<String> = jobs.iter().map(|job| {
            let path = format!("jobs/{}/payload", text(&job["id"]));
            stage.tenant.get(&path).expect(200).text()
        }).collect();
        payloads.sort();
        assert_eq!(payloads, ["ab|c", "ab|c", "no newline", "no newline"]);
    }

    /// What a child prints is its job's output, and adds jobs only if that job succeeded.
    fn job_lines_of_child_processes_belong_to_their_job(t) {
        node: "const line = 'echo \"J: out|' + payload + '\"';
               require('child_process').execFileSync('sh', ['-c', line], {stdio: 'inherit'});
               if (payload % 2) throw new Error('odd');",
        python: "
            import subprocess
            subprocess.run(['sh', '-c', 'echo \"J: out|' + payload + '\"'])
            if int(payload) % 2:
                raise ValueError('odd')",
        php: "proc_close(proc_open(['sh', '-c', 'echo \"J: out|' . $payload . '\"'], [], $pipes));
              if ($payload % 2) throw new Exception('odd');",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["0", "1", "2", "3", "4", "5"]) {
            stage.end(&id);
        }
        let jobs = stage.tenant.until_count("out", "queued", 3);
        let mut payloads: Vec<String> = jobs.iter().map(|job| {
            let path = format!("jobs/{}/payload", text(&job["id"]));
            stage.tenant.get(&path).expect(200).text()
        }).collect();
        payloads.sort();
        assert_eq!(payloads, ["0", "2", "4"]);
    }

    /// Scripts have no job whose end could add others.
    fn job_lines_of_scripts_around_a_batch_add_nothing_odd(t) {
        node: json!({
            "before": "console.log('J: out|before'); console.log('before speaks');",
            "beforeEach": "console.log('beforeEach speaks');",
            "afterEach": "console.log('afterEach speaks'); console.error('and complains');",
            "body": "console.log('body ' + payload);",
        }),
        python: json!({
            "before": "print('J: out|before')\nprint('before speaks')",
            "beforeEach": "print('beforeEach speaks')",
            "afterEach": "import sys\nprint('afterEach speaks')\nprint('x', file=sys.stderr)",
            "body": "print('body', payload)",
        }),
        php: json!({
            "before": "echo \"J: out|before\\n\", \"before speaks\\n\";",
            "beforeEach": "echo \"beforeEach speaks\\n\";",
            "afterEach": "echo \"afterEach speaks\\n\"; fwrite(STDERR, \"x\\n\");",
            "body": "echo \"body $payload\\n\";",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let payloads = ["1", "2", "3"];
        for _ in 0..2 {
            for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
                stage.succeeded(&stage.end(id));
                let bodies: Vec<String> = stage.printed(id).into_iter()
                    .filter(|line| line.starts_with("body ")).collect();
                assert_eq!(bodies, [format!("body {payload}")]);
            }
        }
    }

    /// Even if the context dies before `afterEach` can run.
    fn s2_5_a_death_takes_no_result_from_jobs_of_a_handler_with_after_each(t) {
        node: json!({
            "afterEach": "ctx.n = 1;",
            "body": "if (payload === '3') process.kill(process.pid, 'SIGKILL');
                     while (payload === '3');
                     return {data: payload};",
        }),
        python: json!({
            "afterEach": "ctx.n = 1",
            "body": "import os\nif payload == '3':\n    os.kill(os.getpid(), 9)
return {'data': payload}",
        }),
        php: json!({
            "afterEach": "$ctx->n = 1;",
            "body": "if ($payload === '3') posix_kill(getmypid(), SIGKILL);
                     return ['data' => $payload];",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let payloads = ["0", "1", "2", "3", "4", "5"];
        for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
            let job = stage.end(id);
            if payload == "3" {
                stage.failed(&job, "KILL");
            } else {
                stage.succeeded(&job);
                assert_eq!(job["result"], payload);
            }
        }
    }

    /// `emit` and `progress` of an ended job belong to no job.
    fn what_a_job_does_after_its_end_harms_nobody(t) {
        node: "if (payload === 'late') {
                   setTimeout(() => emit('late', 'x'), 30);
                   setTimeout(() => job.progress(50, 'late'), 40);
                   setTimeout(() => console.log('late'), 50);
               } else {
                   await new Promise((go) => setTimeout(go, 30));
               }
               return {data: process.pid};",
        python: "
            import os, threading, time
            if payload == 'late':
                threading.Timer(0.03, emit, ['late', 'x']).start()
                threading.Timer(0.04, job.progress, [50, 'late']).start()
                threading.Timer(0.05, print, ['late']).start()
            else:
                time.sleep(0.03)
            return {'data': os.getpid()}",
        php: "$ctx->emit ??= $emit; $ctx->job ??= $job;
              if ($payload !== 'late') {
                  try { ($ctx->emit)('late', 'x'); } catch (Throwable) {}
                  try { $ctx->job->progress(50, 'late'); } catch (Throwable) {}
              }
              return ['data' => getmypid()];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let mut pids = Vec::new();
        for id in stage.batch("t", &["late", "1", "2", "3", "4", "5"]) {
            let job = stage.end(&id);
            stage.succeeded(&job);
            pids.push(job["result"].clone());
        }
        pids.dedup();
        assert_eq!(pids.len(), 1, "one process served them all");
        stage.succeeded(&stage.run("t", "later"));
    }

    fn standard_input_is_empty(t) {
        node: "return {data: require('fs').readFileSync(0, 'utf8')};",
        python: "import sys\nreturn {'data': sys.stdin.read()}",
        php: "return ['data' => file_get_contents('php://stdin')];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "timeout": "10s"}));
        for _ in 0..2 {
            assert_eq!(stage.data("t", "x"), "");
        }
    }

    /// A job's own names end with it.
    fn names_of_one_job_are_not_the_next_ones(t) {
        node: "const seen = [typeof leftover, job.id === payload, ctx.n ?? 0];
               try { job.id = 'mine'; job.tenant = 'b'; } catch {}
               ctx.n = 1; payload = job = emit = null;
               return {data: seen};",
        python: "
            seen = ['leftover' in dir(), job.id == payload, getattr(ctx, 'n', 0)]
            leftover = 1
            try:
                job.id = 'mine'
                job.tenant = 'b'
            except Exception:
                pass
            ctx.n = 1
            payload = job = emit = None
            return {'data': seen}",
        php: "$seen = [isset($leftover), $job->id === $payload, $ctx->n ?? 0];
              $leftover = 1;
              try { $job->id = 'mine'; $job->tenant = 'b'; } catch (Throwable) {}
              $ctx->n = 1; $payload = $job = $emit = null;
              return ['data' => $seen];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let absent = if t.lang == "node" { json!("undefined") } else { json!(false) };
        let ids = stage.batch("t", &["x", "x", "x"]);
        for (n, id) in ids.iter().enumerate() {
            let job = stage.end(id);
            assert_eq!(job["result"], json!([absent, false, n.min(1)]), "{}", stage.log_of(&job));
            assert_eq!((&job["tenant"], &job["id"]), (&json!("a"), &json!(id)));
        }
    }

    /// A source is the body of a function, not text pasted between two others.
    fn a_source_cannot_leave_its_function(t) {
        node: json!(["return 1; } { return 2;", "return 1; }); (async () => {", "} /*"]),
        python: json!(["return 1\n  return 2", "  return 1\nreturn 2", "yield = 3"]),
        php: json!(["return 1; } function x() { return 2;", "return 1; }; (function () {",
                    "__halt_compiler();", "} /*"]),
    } {
        let stage = Case::new(t.lang, "return 200;").stage();
        for source in t.sources() {
            let handler = json!({"lang": t.lang, "body": source});
            let answer = stage.daemon.send_json("PUT", &stage.tenant.path("handlers/t"), &handler);
            assert_eq!(answer.status, 400, "{source:?}: {}", answer.text());
            assert_eq!(answer.json()["error"]["field"], "body");
        }
    }

    fn a_long_source_runs(t) {
        node: "return 201;", python: "return 201", php: "return 201;",
    } {
        let stage = t.stage();
        let mut handler = stage.handler(json!({}));
        let sign = if t.lang == "python" { "#" } else { "//" };
        let filler = format!("{sign} {}\n", "ž".repeat(98)).repeat(5000);
        handler["body"] = json!(format!("{filler}{}", text(&handler["body"])));
        stage.tenant.handler("t", &handler);
        assert_eq!(stage.run("t", "x")["exitcode"], 201);
    }

    /// A context that is still starting does not delay a cancel.
    fn a_job_that_waits_for_its_context_is_cancelled(t) {
        node: json!({
            "before": "while (require('fs').existsSync(process.env.FILE)) {
                           await new Promise((go) => setTimeout(go, 10));
                       }",
            "body": "return 200;",
        }),
        python: json!({
            "before": "
                import os, time
                while os.path.exists(os.environ['FILE']):
                    time.sleep(0.01)",
            "body": "return 200",
        }),
        php: json!({
            "before": "while (file_exists(getenv('FILE'))) { clearstatcache(); usleep(10000); }",
            "body": "return 200;",
        }),
    } {
        let stage = t.stage();
        let file = stage.daemon.home().write("hold", "");
        stage.set("t", json!({"contexts": 1, "env": {"FILE": file}, "batch": 10}));
        let ids = stage.batch("t", &["1", "2"]);
        stage.tenant.post(&format!("jobs/{}/cancel", ids[0])).expect(200);
        assert_eq!(stage.end(&ids[0])["state"], "cancelled");
        stage.daemon.home().let_go("hold");
        stage.succeeded(&stage.end(&ids[1]));
    }

    /// A stop does not wait for a context that is still in its `before`.
    fn a_stop_while_a_context_starts_leaves_nothing_behind(t) {
        node: json!({"before": "for (;;);", "body": "return 200;"}),
        python: json!({"before": "while True:\n    pass", "body": "return 200"}),
        php: json!({"before": "for (;;);", "body": "return 200;"}),
    } {
        let mut stage = t.stage_with(Config::new().set("stop_grace", "\"300ms\""));
        stage.set("t", json!({"contexts": 1}));
        let id = stage.add("t", "x");
        stage.until_processes(1);
        assert!(stage.daemon.terminate().success());
        stage.until_no_process();
        stage.restarted();
        let job = stage.tenant.job(&id);
        assert!(job["attempt"].as_u64().unwrap() <= 1, "{job}");
        assert_eq!(job["finished_at"], Value::Null, "{job}");
    }

    /// Every version warms up a context; only that of the last one may stay.
    fn many_versions_in_a_row_leave_one_context(t) {
        node: "return 200;", python: "return 200", php: "return 200;",
    } {
        let stage = t.stage();
        for _ in 0..10 {
            stage.set("t", json!({"contexts": 1, "idle": "10m"}));
        }
        stage.succeeded(&stage.run("t", "x"));
        stage.until_processes(1);
    }

    fn s0_34_a_job_that_killed_its_context_three_times_finishes_at_last(t) {
        node: "console.log('attempt ' + job.attempt);
               if (job.attempt === 1) process.exit(1);
               if (job.attempt === 2) process.kill(process.pid, 'SIGKILL');
               while (job.attempt === 2);
               if (job.attempt === 3) throw new Error('no');",
        python: "
            import os
            print('attempt', job.attempt)
            if job.attempt == 1:
                os._exit(1)
            if job.attempt == 2:
                os.kill(os.getpid(), 9)
            if job.attempt == 3:
                raise ValueError('no')",
        php: "echo 'attempt ', $job->attempt, PHP_EOL;
              if ($job->attempt === 1) exit(1);
              if ($job->attempt === 2) posix_kill(getmypid(), SIGKILL);
              if ($job->attempt === 3) throw new Exception('no');",
    } {
        let stage = t.stage();
        stage.set("t", json!({"retry": {"attempts": 5, "delay": "10ms"}}));
        let job = stage.run("t", "x");
        assert_eq!((&job["state"], &job["attempt"]), (&json!("finished"), &json!(4)), "{job}");
        let log = stage.log_of(&job);
        for attempt in 1..=4 {
            assert!(log.contains(&format!("attempt {attempt}\n")), "{log}");
        }
    }

    /// Longer than a lease: it is renewed while the code runs, also for the jobs that wait behind
    /// it.
    fn a_long_job_keeps_its_lease_and_its_batchs(t) {
        node: "if (payload === 'long') for (const end = Date.now() + 2500; Date.now() < end;);",
        python: "
            import time
            end = time.time() + (2.5 if payload == 'long' else 0)
            while time.time() < end:
                pass",
        php: "$end = microtime(true) + ($payload === 'long' ? 2.5 : 0);
              while (microtime(true) < $end);",
    } {
        let stage = t.stage_with(Config::new().set("lease.duration", "\"1s\""));
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["long", "1", "2"]) {
            stage.succeeded(&stage.end(&id));
        }
        assert_eq!(stage.daemon.metric("windlass_leases_expired_total", &[]), 0.0);
    }
}

/// Sources are compiled by separate processes; those are bounded and end, too.
#[test]
fn many_handlers_set_at_once_are_all_checked() {
    const TYPES: usize = 24;
    let stage =
        Case::new("python", "return 201").stage_with(Config::new().set("contexts.max", "2"));
    let set = |n: usize| {
        let mut handler = stage.handler(json!({"idle": "300ms"}));
        if n % 2 == 1 {
            handler["body"] = json!("return (");
        }
        let path = stage.tenant.path(&format!("handlers/t{n}"));
        stage.daemon.send_json("PUT", &path, &handler).status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..TYPES).map(|n| scope.spawn(move || set(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let wanted: Vec<u16> = (0..TYPES).map(|n| if n % 2 == 1 { 400 } else { 200 }).collect();
    assert_eq!(statuses, wanted);
    assert_eq!(stage.run("t0", "x")["exitcode"], 201);
    stage.until_no_process();
}

/// Jobs that do not end take all slots for contexts; setting a handler still works.
#[test]
fn a_handler_can_be_set_while_all_contexts_are_busy() {
    let source = "import time\ntime.sleep(600)";
    let stage = Case::new("python", source).stage_with(Config::new().set("contexts.max", "1"));
    stage.set("t", json!({}));
    let id = stage.add("t", "x");
    stage.tenant.until_state(&id, "running");
    let path = stage.tenant.path("handlers/u");
    let bad = json!({"lang": "python", "body": "return ("});
    assert_eq!(stage.daemon.send_json("PUT", &path, &bad).status, 400);
    let good = json!({"lang": "python", "body": "return 201"});
    assert_eq!(stage.daemon.send_json("PUT", &path, &good).status, 200);
    let waiting = stage.add("u", "x");
    stage.tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    assert_eq!(stage.end(&waiting)["exitcode"], 201, "it gets the room");
    until("the first is cancelled", || stage.tenant.job(&id), |job| job["state"] == "cancelled");
}
