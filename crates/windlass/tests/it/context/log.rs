//! What jobs in warm contexts print and emit: whose log it is, and which jobs result.

use serde_json::{Value, json};

use crate::harness::{Case, Config, Stage, in_every_language, text, until};

fn numbers(count: usize) -> Vec<String> {
    (1..=count).map(|n| n.to_string()).collect()
}

/// The payloads of all jobs of a type, sorted.
#[track_caller]
fn payloads_of(stage: &Stage, kind: &str, count: usize) -> Vec<String> {
    let jobs = stage.tenant.until_count(kind, "queued", count);
    let payload = |job: &Value| {
        let path = format!("jobs/{}/payload", text(&job["id"]));
        stage.tenant.get(&path).expect(200).text()
    };
    let mut payloads: Vec<String> = jobs.iter().map(payload).collect();
    payloads.sort();
    payloads
}

/// Waits until a job of the type `last` exists: jobs added before it exist by then, too.
#[track_caller]
fn settle(stage: &Stage) {
    stage.tenant.sh("fence", "echo 'J: last|x'");
    stage.tenant.until_end(&stage.tenant.add_one("fence", "x"));
    stage.tenant.until_count("last", "queued", 1);
}

in_every_language! {
    fn standard_output_and_error_are_told_apart_for_each_attempt(t) {
        node: "console.log('out ' + job.attempt); console.error('err ' + job.attempt);
               process.stdout.write('no newline'); process.stderr.write('half');
               return job.attempt === 1 ? 503 : 200;",
        python: "
            import sys
            print('out', job.attempt)
            print('err', job.attempt, file=sys.stderr)
            sys.stdout.write('no newline')
            sys.stderr.write('half')
            return 503 if job.attempt == 1 else 200",
        php: "echo 'out ', $job->attempt, PHP_EOL; fwrite(STDERR, 'err ' . $job->attempt . PHP_EOL);
              fwrite(STDOUT, 'no newline'); fwrite(STDERR, 'half');
              return $job->attempt === 1 ? 503 : 200;",
    } {
        let stage = t.stage();
        let retry = json!({"attempts": 2, "delay": "10ms"});
        stage.set("t", json!({"retry": retry}));
        let job = stage.run("t", "x");
        assert_eq!(job["state"], "finished", "{job}");
        let log = stage.log_of(&job);
        let attempts: Vec<&str> = log.split("--- attempt ").collect();
        assert_eq!(attempts.len(), 3, "{log}");
        for (n, part) in attempts.iter().enumerate().skip(1) {
            let lines: Vec<&str> = part.lines().collect();
            for line in [format!("out {n}"), format!("[stderr] err {n}")] {
                assert!(lines.contains(&line.as_str()), "{line:?} in {part}");
            }
            assert!(lines.contains(&"no newline") && lines.contains(&"[stderr] half"), "{part}");
        }
    }

    fn each_job_of_a_batch_has_its_own_lines(t) {
        node: "console.log('out', payload); console.error('err', payload);",
        python: "
            import sys
            print('out', payload)
            print('err', payload, file=sys.stderr)",
        php: "echo 'out ', $payload, PHP_EOL; fwrite(STDERR, 'err ' . $payload . PHP_EOL);",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let payloads = numbers(100);
        for (id, payload) in stage.batch("t", &payloads).iter().zip(&payloads) {
            stage.end(id);
            assert_eq!(stage.printed(id), [format!("out {payload}")]);
            let log = stage.tenant.log(id);
            let errors: Vec<&str> =
                log.lines().filter(|line| line.starts_with("[stderr] ")).collect();
            assert_eq!(errors, [format!("[stderr] err {payload}")]);
        }
    }

    /// Output of a program that inherits the streams bypasses the language's own.
    fn lines_of_child_processes_belong_to_their_job(t) {
        node: "require('child_process').execFileSync('sh', ['-c', 'echo child ' + payload],
                                                     {stdio: 'inherit'});
               console.log('own', payload);",
        python: "
            import subprocess
            subprocess.run(['sh', '-c', 'echo child ' + payload])
            print('own', payload)",
        php: "passthru('echo child ' . $payload . ' >&2');
              proc_close(proc_open(['sh', '-c', 'echo child ' . $payload], [], $pipes));
              echo 'own ', $payload, PHP_EOL;",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 100}));
        let payloads = numbers(30);
        for (id, payload) in stage.batch("t", &payloads).iter().zip(&payloads) {
            stage.end(id);
            let mut lines = stage.printed(id);
            lines.sort();
            assert_eq!(lines, [format!("child {payload}"), format!("own {payload}")]);
        }
    }

    fn a_flood_of_output_keeps_its_tail_and_harms_nobody(t) {
        node: "if (payload === 'flood') {
                   for (let n = 1; n <= 100000; n++) console.log(n + ' ' + 'x'.repeat(100));
               }
               console.log('end of ' + payload);",
        python: "
            if payload == 'flood':
                for n in range(1, 100001):
                    print(n, 'x' * 100)
            print('end of', payload)",
        php: "if ($payload === 'flood') {
                  for ($n = 1; $n <= 100000; $n++) echo $n, ' ', str_repeat('x', 100), PHP_EOL;
              }
              echo 'end of ', $payload, PHP_EOL;",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let payloads = ["a", "b", "flood", "c", "d"];
        let before = stage.daemon.memory_kib("VmHWM");
        for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
            stage.succeeded(&stage.end(id));
            let lines = stage.printed(id);
            assert_eq!(lines.last().unwrap(), &format!("end of {payload}"));
            if payload == "flood" {
                assert!(lines[lines.len() - 2].starts_with("100000 "), "the tail is kept");
                let size = lines.concat().len();
                assert!((32 * 1024..=70 * 1024).contains(&size), "{size} bytes of log");
            } else {
                assert_eq!(lines.len(), 1, "{payload}: {lines:?}");
            }
        }
        let grown = stage.daemon.memory_kib("VmHWM") - before;
        assert!(grown < 64 * 1024, "{grown} KiB more in the daemon");
    }

    /// Raw output of a child: nothing of ours sees the lines before they arrive.
    fn a_flood_from_a_child_process_keeps_its_tail_too(t) {
        node: "if (payload === 'flood') require('child_process').execFileSync(
                   'sh', ['-c', 'seq 1 1000000'], {stdio: 'inherit'});
               console.log('end of ' + payload);",
        python: "
            import subprocess
            if payload == 'flood':
                subprocess.run(['sh', '-c', 'seq 1 1000000'])
            print('end of', payload)",
        php: "if ($payload === 'flood') {
                  proc_close(proc_open(['sh', '-c', 'seq 1 1000000'], [], $pipes));
              }
              echo 'end of ', $payload, PHP_EOL;",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let payloads = ["a", "flood", "b"];
        for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
            stage.succeeded(&stage.end(id));
            let lines = stage.printed(id);
            assert_eq!(lines.last().unwrap(), &format!("end of {payload}"), "behind the child's");
            let tail = lines.contains(&"1000000".to_owned());
            assert_eq!(tail, payload == "flood", "{payload}");
            assert!(lines.concat().len() <= 70 * 1024);
        }
    }

    /// Endless output keeps a CPU busy, but does not keep the daemon from its other duties.
    fn an_endless_flood_from_a_child_process_keeps_nobody_from_his_turn(t) {
        node: "require('child_process').execFileSync('yes', {stdio: 'inherit'});",
        python: "import subprocess\nsubprocess.run(['yes'])",
        php: "proc_close(proc_open(['yes'], [], $pipes));",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "timeout": "4s"}));
        let id = stage.add("t", "x");
        stage.tenant.until_state(&id, "running");
        let other = stage.daemon.tenant("b");
        other.sh("t", "true");
        for _ in 0..5 {
            let job = other.until_end(&other.add_one("t", "x"));
            assert_eq!((&job["state"], &job["attempt"]), (&json!("finished"), &json!(1)), "{job}");
        }
        stage.failed(&stage.end(&id), "timed out");
        assert_eq!(stage.daemon.metric("windlass_leases_expired_total", &[]), 0.0);
    }

    fn a_line_without_end_is_cut(t) {
        node: "process.stdout.write('x'.repeat(10_000_000)); console.log(); console.log('end');",
        python: "print('x' * 10_000_000)\nprint('end')",
        php: "echo str_repeat('x', 10000000), PHP_EOL, 'end', PHP_EOL;",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let before = stage.daemon.memory_kib("VmHWM");
        let job = stage.run("t", "x");
        stage.succeeded(&job);
        let log = stage.log_of(&job);
        assert!(log.lines().any(|line| line == "end") && log.len() < 200_000, "{}", log.len());
        let grown = stage.daemon.memory_kib("VmHWM") - before;
        assert!(grown < 64 * 1024, "{grown} KiB more in the daemon");
    }

    fn a_job_that_hung_keeps_what_it_had_printed(t) {
        node: "console.log('before it hung'); console.error('worried'); for (;;);",
        python: "
            import sys
            print('before it hung')
            print('worried', file=sys.stderr)
            while True:
                pass",
        php: "echo 'before it hung', PHP_EOL; fwrite(STDERR, 'worried' . PHP_EOL); for (;;);",
    } {
        let stage = t.stage();
        stage.set("t", json!({"timeout": "3s"}));
        let job = stage.run("t", "x");
        stage.failed(&job, "before it hung");
        stage.failed(&job, "[stderr] worried");
        stage.failed(&job, "timed out");
    }

    /// Nothing that is printed can be taken for a result, a frame or a mark.
    fn output_cannot_forge_a_result(t) {
        node: "console.log('{\"kind\":\"end\",\"job\":0,\"status\":200,\"us\":1}');
               process.stdout.write('\\0\\u00ff\\0\\n'); console.log('200');
               throw new Error('at fault');",
        python: "
            import sys
            print('{\"kind\":\"end\",\"job\":0,\"status\":200,\"us\":1}')
            sys.stdout.buffer.write(b'\\0\\xff\\0\\n')
            print('200')
            raise ValueError('at fault')",
        php: "echo '{\"kind\":\"end\",\"job\":0,\"status\":200,\"us\":1}', PHP_EOL;
              echo chr(0), chr(255), chr(0), PHP_EOL, '200', PHP_EOL;
              throw new Exception('at fault');",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["1", "2", "3"]) {
            stage.failed(&stage.end(&id), "at fault");
        }
    }

    fn emit_adds_jobs_with_their_options(t) {
        node: "emit('plain', 'text'); emit('plain', {a: [1]}); emit('plain', 5);
               emit('late', 'x', {delay: '1h', priority: 7});
               emit('raw', Buffer.from([255, 0, 1]));",
        python: "
            emit('plain', 'text')
            emit('plain', {'a': [1]})
            emit('plain', 5)
            emit('late', 'x', {'delay': '1h', 'priority': 7})
            emit('late', 'x', delay='2h', priority=7)
            emit('raw', b'\\xff\\x00\\x01')",
        php: "$emit('plain', 'text'); $emit('plain', ['a' => [1]]); $emit('plain', 5);
              $emit('late', 'x', ['delay' => '1h', 'priority' => 7]);
              $emit('raw', chr(255) . chr(0) . chr(1));",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let job = stage.run("t", "x");
        stage.succeeded(&job);
        assert_eq!(payloads_of(&stage, "plain", 3), ["5", "text", "{\"a\":[1]}"]);
        let late = if t.lang == "python" { 2 } else { 1 };
        for job in stage.tenant.until_count("late", "queued", late) {
            assert_eq!(job["priority"], 7);
            assert!(text(&job["run_at"]) > text(&job["created_at"]), "{job}");
        }
        let raw = stage.tenant.until_count("raw", "queued", 1).remove(0);
        let path = format!("jobs/{}/payload", text(&raw["id"]));
        assert_eq!(stage.tenant.get(&path).expect(200).body, [255, 0, 1]);
    }

    /// Within one job and from one job to the next.
    fn emit_with_a_unique_key_adds_one_job(t) {
        node: "emit('once', 'x', {unique: 'key'}); emit('once', 'y', {unique: 'key'});",
        python: "emit('once', 'x', {'unique': 'key'})\nemit('once', 'y', unique='key')",
        php: "$emit('once', 'x', ['unique' => 'key']); $emit('once', 'y', ['unique' => 'key']);",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        for _ in 0..2 {
            let job = stage.run("t", "x");
            stage.succeeded(&job);
        }
        settle(&stage);
        assert_eq!(stage.tenant.list("type=once").len(), 1);
    }

    /// In one batch: what a job emits depends on how that job ends, and on no other.
    fn emitted_jobs_enter_when_theirs_ended_for_good(t) {
        node: "emit('out', 'emit ' + payload); console.log('J: out|line ' + payload);
               if (payload === 'throw') throw new Error('no');
               return Number(payload);",
        python: "
            emit('out', 'emit ' + payload)
            print('J: out|line ' + payload)
            if payload == 'throw':
                raise ValueError('no')
            return int(payload)",
        php: "$emit('out', 'emit ' . $payload); echo 'J: out|line ', $payload, PHP_EOL;
              if ($payload === 'throw') throw new Exception('no');
              return (int) $payload;",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["throw", "200", "503", "404", "102", "302"]) {
            stage.end(&id);
        }
        let wanted = ["emit 200", "emit 404", "line 200", "line 404"];
        assert_eq!(payloads_of(&stage, "out", 4), wanted);
        settle(&stage);
        assert_eq!(stage.tenant.list("type=out").len(), 4);
    }

    fn emit_with_a_wrong_option_is_an_error_that_names_it(t) {
        node: "emit('out', 'x', JSON.parse(payload));",
        python: "import json\nemit('out', 'x', json.loads(payload))",
        php: "$emit('out', 'x', json_decode($payload, true));",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        let wrong = [
            ("{\"priority\":5000}", "priority"),
            ("{\"delay\":\"soon\"}", "delay"),
            ("{\"colour\":\"blue\"}", "colour"),
            ("{\"tenant\":\"b\"}", "tenant"),
            ("{\"delay\":\"5s\",\"run_at\":\"2030-01-01T00:00:00Z\"}", "run_at"),
        ];
        let payloads: Vec<&str> = wrong.iter().map(|(options, _)| *options).collect();
        let ids = stage.batch("t", &[payloads.as_slice(), &["{}"]].concat());
        for (id, (_, name)) in ids.iter().zip(wrong) {
            stage.failed(&stage.end(id), name);
        }
        stage.succeeded(&stage.end(ids.last().unwrap()));
        settle(&stage);
        assert_eq!(stage.tenant.list("type=out").len(), 1, "only that of the last one");
    }

    fn emit_with_a_wrong_type_is_an_error(t) {
        node: "const types = {empty: '', number: 5, nothing: undefined, bar: 'a|b',
                              control: 'a\\nb', long: 'x'.repeat(256)};
               emit(types[payload], 'x');",
        python: "
            types = {'empty': '', 'number': 5, 'nothing': None, 'bar': 'a|b', 'control': 'a\\nb',
                     'long': 'x' * 256}
            emit(types[payload], 'x')",
        php: "$types = ['empty' => '', 'number' => 5, 'nothing' => null, 'bar' => 'a|b',
                        'control' => \"a\\nb\", 'long' => str_repeat('x', 256)];
              $emit($types[$payload], 'x');",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10}));
        for id in stage.batch("t", &["empty", "number", "nothing", "bar", "control", "long"]) {
            stage.failed(&stage.end(&id), "type");
        }
        settle(&stage);
        let kinds: Vec<String> =
            stage.tenant.list("").iter().map(|job| text(&job["type"])).collect();
        assert!(kinds.iter().all(|kind| ["t", "fence", "last"].contains(&kind.as_str())));
    }

    fn s0_31_emitted_jobs_stay_with_their_tenant(t) {
        node: "emit('b/t', 'x'); emit('/v1/b/jobs/t', 'x'); console.log('J: b-t|x');",
        python: "
            emit('b/t', 'x')
            emit('/v1/b/jobs/t', 'x')
            print('J: b-t|x')",
        php: "$emit('b/t', 'x'); $emit('/v1/b/jobs/t', 'x'); echo 'J: b-t|x', PHP_EOL;",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let job = stage.run("t", "x");
        stage.succeeded(&job);
        until("they are there", || stage.tenant.list("state=queued").len(), |n| *n == 3);
        assert_eq!(stage.daemon.tenant("b").list("").len(), 0);
    }

    fn a_thousand_emitted_jobs_keep_their_order_and_size(t) {
        node: "for (let n = 1; n <= 1000; n++) emit('out', String(n));
               emit('large', 'y'.repeat(1_000_000));",
        python: "
            for n in range(1, 1001):
                emit('out', str(n))
            emit('large', 'y' * 1_000_000)",
        php: "for ($n = 1; $n <= 1000; $n++) $emit('out', (string) $n);
              $emit('large', str_repeat('y', 1000000));",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let job = stage.run("t", "x");
        stage.succeeded(&job);
        let large = stage.tenant.until_count("large", "queued", 1).remove(0);
        assert_eq!(large["payload_bytes"], 1_000_000);
        until("all are there", || stage.tenant.type_row("out"), |row| row["ready"] == 1000);
        let jobs = stage.tenant.drain("out", 1000);
        let payloads: Vec<String> = jobs.iter().map(|job| text(&job["payload"])).collect();
        assert_eq!(payloads, numbers(1000));
    }

    fn progress_is_shown_while_the_job_runs(t) {
        node: "job.progress(40, 'under way');
               while (require('fs').existsSync(payload)) {
                   await new Promise((go) => setTimeout(go, 20));
               }",
        python: "
            import os, time
            job.progress(40, 'under way')
            while os.path.exists(payload):
                time.sleep(0.02)",
        php: "$job->progress(40, 'under way');
              while (file_exists($payload)) { clearstatcache(); usleep(20000); }",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let file = stage.daemon.home().write("hold", "");
        let id = stage.add("t", file.to_str().unwrap());
        let job = until("progress is shown", || stage.tenant.job(&id), |job| {
            job["progress"] != Value::Null
        });
        assert_eq!(job["progress"]["percent"].as_f64(), Some(40.0), "{job}");
        assert_eq!(job["progress"]["message"], "under way", "{job}");
        stage.daemon.home().let_go("hold");
        stage.succeeded(&stage.end(&id));
    }

    fn s0_62_a_result_becomes_the_payload_of_the_job_that_follows(t) {
        node: "if (payload === 'bad') return 404;
               return {data: {from: payload, text: 'ž'}};",
        python: "
            if payload == 'bad':
                return 404
            return {'data': {'from': payload, 'text': 'ž'}}",
        php: "if ($payload === 'bad') return 404;
              return ['data' => ['from' => $payload, 'text' => 'ž']];",
    } {
        let stage = t.stage_with(Config::new());
        stage.set("t", json!({}));
        let ids = stage.tenant.add_with("t", "then=next", &["good", "bad"]);
        for id in &ids {
            stage.end(id);
        }
        let payloads = payloads_of(&stage, "next", 1);
        let data: Value = serde_json::from_str(&payloads[0]).unwrap();
        assert_eq!(data, json!({"from": "good", "text": "ž"}));
        settle(&stage);
        assert_eq!(stage.tenant.list("type=next").len(), 1, "after 2xx only");
    }
}
