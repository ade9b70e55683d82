//! The failure matrix of warm contexts: whatever one job does to its process costs that job one
//! attempt and no other job anything, and leaves no process behind.

use serde_json::json;

use crate::harness::{Case, Stage, in_every_language, text, until};

/// The jobs of one batch; the fourth is at fault.
const PAYLOADS: [&str; 10] = ["0", "1", "2", "fault", "4", "5", "6", "7", "8", "9"];

/// A script that ends in 64 sleeping processes below as many shells.
const BOMB: &str = "f() { [ $1 -gt 0 ] || exec sleep 600; f $(($1-1)) & f $(($1-1)) & wait; }; f 6";

/// How the job at fault ends.
enum Ends<'a> {
    /// As an error whose log contains this word.
    Error(&'a str),
    /// In any way: what it did may also have no consequence.
    Anyhow,
}

/// Runs a batch in which one job does what the case's source says.
#[track_caller]
fn one_at_fault(t: &Case, timeout: &str, ends: &Ends) {
    let mut stage = t.only_for("fault").stage();
    stage.set("t", json!({"contexts": 1, "batch": 10, "timeout": timeout, "idle": "10m"}));
    let ids = stage.batch("t", &PAYLOADS);
    for (id, payload) in ids.iter().zip(PAYLOADS) {
        let job = stage.end(id);
        match ends {
            _ if payload != "fault" => stage.succeeded(&job),
            Ends::Error(word) => stage.failed(&job, word),
            Ends::Anyhow => assert_eq!(job["attempt"], 1, "{job}\n{}", stage.log_of(&job)),
        }
    }
    goes_on(&mut stage);
}

/// The type still works, with nothing left from before, and nothing after the daemon's end.
#[track_caller]
fn goes_on(stage: &mut Stage) {
    let large = stage.run("t", &"more ".repeat(100_000));
    stage.succeeded(&large);
    let left = "only the context itself is left";
    until(left, || stage.processes(), |pids| pids.len() <= 1);
    let status = stage.daemon.terminate();
    assert!(status.success(), "{status}");
    stage.until_no_process();
}

in_every_language! {
    fn throw(t) {
        node: "throw new Error('at fault');",
        python: "raise ValueError('at fault')",
        php: "throw new Exception('at fault');",
        sh: "echo at fault; exit 1",
    } { one_at_fault(t, "60s", &Ends::Error("at fault")); }

    fn throw_something_strange(t) {
        node: "throw null;",
        python: "raise KeyboardInterrupt('at fault')",
        php: "throw new Error('at fault');",
    } { one_at_fault(t, "60s", &Ends::Error("")); }

    fn throw_what_cannot_be_printed(t) {
        node: "throw {
                   toString() { throw 1; }, get stack() { throw 2; }, get status() { throw 3; }
               };",
        python: "
            class Bad(Exception):
                def __str__(self):
                    raise ValueError('again')
                __repr__ = __str__
                @property
                def status(self):
                    raise ValueError('and again')
            raise Bad()",
        php: "throw new class(chr(255) . chr(254)) extends Exception {};",
    } { one_at_fault(t, "60s", &Ends::Error("")); }

    fn fatal_error(t) {
        node: "nothing_of_this_name();",
        python: "nothing_of_this_name()",
        php: "eval('class Same {} class Same {}');",
        sh: "nothing_of_this_name",
    } { one_at_fault(t, "60s", &Ends::Error("ame")); }

    fn exit_0(t) {
        node: "process.exit(0);",
        python: "import sys\nsys.exit(0)",
        php: "exit(0);",
    } { one_at_fault(t, "60s", &Ends::Error("exit")); }

    fn exit_3(t) {
        node: "process.exit(3);",
        python: "import sys\nsys.exit(3)",
        php: "exit(3);",
        sh: "exit 3",
    } { one_at_fault(t, "60s", &Ends::Error("3")); }

    fn exit_at_once(t) {
        node: "process.reallyExit(0);",
        python: "import os\nos._exit(0)",
        php: "posix_kill(getmypid(), SIGTERM); sleep(600);",
        sh: "kill -TERM $$; sleep 600",
    } { one_at_fault(t, "60s", &Ends::Error("")); }

    fn kill_9(t) {
        node: "process.kill(process.pid, 'SIGKILL'); for (;;);",
        python: "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        php: "posix_kill(getmypid(), SIGKILL);",
        sh: "kill -KILL $$",
    } { one_at_fault(t, "60s", &Ends::Error("KILL")); }

    fn segmentation_fault(t) {
        node: "process.kill(process.pid, 'SIGSEGV'); for (;;);",
        python: "import ctypes\nctypes.string_at(0)",
        php: "posix_kill(getmypid(), SIGSEGV);",
        sh: "kill -SEGV $$",
    } { one_at_fault(t, "60s", &Ends::Error("SEGV")); }

    fn abort(t) {
        node: "process.abort();",
        python: "import os\nos.abort()",
        php: "posix_kill(getmypid(), SIGABRT);",
    } { one_at_fault(t, "60s", &Ends::Error("ABRT")); }

    fn kill_its_whole_process_group(t) {
        node: "process.kill(0, 'SIGKILL'); for (;;);",
        python: "import os, signal\nos.kill(0, signal.SIGKILL)",
        php: "posix_kill(0, SIGKILL);",
        sh: "kill -KILL 0",
    } { one_at_fault(t, "60s", &Ends::Error("KILL")); }

    fn endless_loop(t) {
        node: "for (;;);",
        python: "while True:\n    pass",
        php: "for (;;);",
        sh: "while :; do :; done",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    fn endless_sleep(t) {
        node: "await new Promise(() => setInterval(() => {}, 1000));",
        python: "import time\ntime.sleep(600)",
        php: "sleep(600);",
        sh: "sleep 600",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    /// Nothing is pending that could ever end this: node alone would exit here.
    fn wait_for_nothing(t) {
        node: "await new Promise(() => {});",
        python: "import threading\nthreading.Event().wait()",
        php: "pcntl_sigwaitinfo([SIGUSR1]);",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    fn stop_itself(t) {
        node: "process.kill(process.pid, 'SIGSTOP'); for (;;);",
        python: "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nos.kill(os.getpid(), 19)",
        php: "posix_kill(getmypid(), SIGSTOP); posix_kill(getmypid(), SIGSTOP);",
        sh: "kill -STOP $$; sleep 600",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    fn ignore_sigterm(t) {
        node: "process.on('SIGTERM', () => {}); process.on('SIGINT', () => {});
               require('child_process').execFileSync('sh', ['-c', 'trap \"\" TERM; sleep 600']);",
        python: "
            import signal, subprocess
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
            subprocess.run(['sh', '-c', 'trap \"\" TERM; sleep 600'])",
        php: "pcntl_signal(SIGTERM, SIG_IGN); pcntl_sigprocmask(SIG_BLOCK, [SIGINT, SIGHUP]);
              exec('trap \"\" TERM; sleep 600');",
        sh: "trap '' TERM INT HUP; sleep 600",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    fn endless_flood_of_output(t) {
        node: "for (;;) { console.log('x'.repeat(1000)); console.error('y'.repeat(1000)); }",
        python: "
            import sys
            while True:
                print('x' * 1000)
                print('y' * 1000, file=sys.stderr)",
        php: "for (;;) { echo str_repeat('x', 1000), PHP_EOL; fwrite(STDERR, 'yyyy'); }",
        sh: "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    } { one_at_fault(t, "1s", &Ends::Error("timed out")); }

    /// A hundred waiting processes: fewer than a handler may have.
    fn fork_bomb(t) {
        node: format!("require('child_process').execFileSync('sh', ['-c', '{BOMB}']);"),
        python: "
            import os, time
            for _ in range(7):
                os.fork()
            time.sleep(600)",
        php: "for ($i = 0; $i < 7; $i++) pcntl_fork();
              sleep(600);",
        sh: BOMB,
    } { one_at_fault(t, "2s", &Ends::Error("timed out")); }

    /// The fork bomb goes off and the job reports success.
    fn fork_bomb_in_the_background(t) {
        node: format!("require('child_process').spawn(
                           'sh', ['-c', '{BOMB}'], {{detached: true, stdio: 'ignore'}}).unref();"),
        python: format!("
            import subprocess
            subprocess.Popen(['sh', '-c', '{BOMB}'], start_new_session=True)"),
        php: format!("exec('sh -c ' . escapeshellarg('{BOMB}') . ' > /dev/null 2>&1 &');"),
        sh: format!("{BOMB} &"),
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    /// Two processes return from the body, and both would answer.
    fn fork_and_return_twice(t) {
        python: "import os\nos.fork()",
        php: "pcntl_fork();",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }

    fn become_another_program(t) {
        python: "import os\nos.execvp('sleep', ['sleep', '600'])",
        php: "pcntl_exec('/bin/sleep', ['600']);",
        sh: "exec sleep 600",
    } { one_at_fault(t, "2s", &Ends::Error("")); }

    fn close_every_descriptor(t) {
        node: "for (let fd = 0; fd <= 64; fd++) try { require('fs').closeSync(fd); } catch {}",
        python: "import os\nos.closerange(0, 65)",
        php: "$libc = FFI::cdef('int close(int fd);');
              for ($fd = 0; $fd <= 64; $fd++) $libc->close($fd);",
        sh: "exec 0<&- 1>&- 2>&- 3<&- 4>&-",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }

    fn close_its_streams(t) {
        node: "process.stdout.destroy(); process.stderr.destroy(); process.stdin.destroy();
               require('fs').closeSync(1); require('fs').closeSync(2);",
        python: "
            import sys
            for stream in (sys.stdin, sys.stdout, sys.stderr):
                stream.close()",
        php: "fclose(STDIN); fclose(STDOUT); fclose(STDERR);",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }

    fn write_garbage_to_every_descriptor(t) {
        node: "for (let fd = 0; fd <= 64; fd++) {
                   try { require('fs').writeSync(fd, Buffer.alloc(5000, 0xff)); } catch {}
               }",
        python: "
            import os
            for fd in range(65):
                try:
                    os.write(fd, b'\\xff' * 5000)
                except OSError:
                    pass",
        php: "$libc = FFI::cdef('long write(int fd, const char *text, unsigned long size);');
              $text = str_repeat(chr(255), 5000);
              for ($fd = 0; $fd <= 64; $fd++) $libc->write($fd, $text, 5000);",
        sh: "for fd in 0 1 2 3 4 5 6 7 8 9; do eval \"printf '\\377\\377' >&$fd\"; done; exit 0",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }

    /// Answers for jobs that have not run: those must still run.
    fn write_answers_for_other_jobs(t) {
        node: "const fs = require('fs');
               for (const job of [9, 8, 4]) {
                   const body = JSON.stringify({kind: 'end', job, status: 500, us: 1});
                   const frame = Buffer.concat([Buffer.alloc(4), Buffer.from(body)]);
                   frame.writeUInt32BE(body.length);
                   for (let fd = 3; fd <= 64; fd++) try { fs.writeSync(fd, frame); } catch {}
               }",
        python: "
            import json, os
            for job in (9, 8, 4):
                body = json.dumps({'kind': 'end', 'job': job, 'status': 500, 'us': 1}).encode()
                for fd in range(3, 65):
                    try:
                        os.write(fd, len(body).to_bytes(4, 'big') + body)
                    except OSError:
                        pass",
        php: "$libc = FFI::cdef('long write(int fd, const char *text, unsigned long size);');
              foreach ([9, 8, 4] as $number) {
                  $end = ['kind' => 'end', 'job' => $number, 'status' => 500, 'us' => 1];
                  $body = json_encode($end);
                  $frame = pack('N', strlen($body)) . $body;
                  for ($fd = 3; $fd <= 64; $fd++) $libc->write($fd, $frame, strlen($frame));
              }",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }

    /// The job would read the next request instead of the context.
    fn read_from_every_descriptor(t) {
        node: "const fs = require('fs');
               for (let fd = 0; fd <= 64; fd++) {
                   try { fs.readSync(fd, Buffer.alloc(65536)); } catch {}
               }",
        python: "
            import os
            for fd in range(65):
                os.set_blocking(fd, False) if os.path.exists(f'/proc/self/fd/{fd}') else None
                try:
                    os.read(fd, 65536)
                except OSError:
                    pass",
        sh: "cat > /dev/null",
    } { one_at_fault(t, "3s", &Ends::Anyhow); }

    fn leave_a_child_behind(t) {
        node: "require('child_process').spawn('sleep', ['600'], {stdio: 'ignore'}).unref();",
        python: "import subprocess\nsubprocess.Popen(['sleep', '600'])",
        php: "exec('sleep 600 > /dev/null 2>&1 &');",
        sh: "sleep 600 &",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    /// It keeps the streams open, too.
    fn leave_a_grandchild_with_the_streams_behind(t) {
        node: "require('child_process').spawn('sh', ['-c', 'sleep 600 & sleep 600'],
                                              {stdio: 'inherit'}).unref();",
        python: "import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 600 & sleep 600'])",
        php: "proc_open('sleep 600 & sleep 600', [], $pipes);",
        sh: "sh -c 'sleep 600 & sleep 600' &",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    /// Its parent is gone and its session is its own: only its origin leads back to the job.
    fn leave_a_daemon_behind(t) {
        node: "require('child_process').execFileSync('sh', ['-c',
                   'setsid sh -c \"sleep 600 & exit\" > /dev/null 2>&1 < /dev/null']);",
        python: "
            import subprocess
            command = 'setsid sh -c \"sleep 600 & exit\" > /dev/null 2>&1 < /dev/null'
            subprocess.run(['sh', '-c', command])",
        php: "exec('setsid sh -c \"sleep 600 & exit\" > /dev/null 2>&1 < /dev/null');",
        sh: "setsid sh -c 'sleep 600 & exit' > /dev/null 2>&1 < /dev/null",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    fn leave_a_daemon_behind_and_die(t) {
        node: "require('child_process').execFileSync('sh', ['-c',
                   'setsid sh -c \"trap : TERM HUP; sleep 600 & exit\" > /dev/null 2>&1']);
               process.kill(process.pid, 'SIGKILL'); for (;;);",
        python: "
            import os, subprocess
            command = 'setsid sh -c \"trap : TERM HUP; sleep 600 & exit\" > /dev/null 2>&1'
            subprocess.run(['sh', '-c', command])
            os.kill(os.getpid(), 9)",
        php: "exec('setsid sh -c \"trap : TERM HUP; sleep 600 & exit\" > /dev/null 2>&1');
              posix_kill(getmypid(), SIGKILL);",
        sh: "setsid sh -c 'trap : TERM HUP; sleep 600 & exit' > /dev/null 2>&1; kill -KILL $$",
    } { one_at_fault(t, "60s", &Ends::Error("KILL")); }

    fn change_the_working_directory(t) {
        node: "process.chdir('/');",
        python: "import os\nos.chdir('/')",
        php: "chdir('/');",
        sh: "cd /",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    fn delete_its_own_directory(t) {
        node: "require('fs').rmSync(process.cwd(), {recursive: true, force: true});",
        python: "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)",
        php: "exec('rm -rf ' . escapeshellarg(getcwd()));",
        sh: "rm -rf \"$PWD\"",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    /// Everything that the context may write to, including where its large payloads arrive.
    fn delete_everything_it_can(t) {
        node: "for (const name of ['WINDLASS_DIR', 'TMPDIR', 'HOME']) try {
                   require('fs').rmSync(process.env[name], {recursive: true, force: true});
               } catch {}",
        python: "
            import os, shutil
            for name in ('WINDLASS_DIR', 'TMPDIR', 'HOME'):
                shutil.rmtree(os.environ[name], ignore_errors=True)",
        php: "exec('rm -rf \"$WINDLASS_DIR\" \"$TMPDIR\" \"$HOME\" 2> /dev/null');",
        sh: "rm -rf \"$HOME\" \"$TMPDIR\" 2> /dev/null",
    } { one_at_fault(t, "60s", &Ends::Anyhow); }

    fn endless_recursion(t) {
        node: "const f = () => f() + 1; f();",
        python: "
            def f():
                return f() + 1
            f()",
        php: "$f = function () use (&$f) { return array_map($f, [1]); }; $f();",
    } { one_at_fault(t, "20s", &Ends::Error("")); }

    /// One job breaks what others in the same context rely on.
    fn break_the_languages_own_tools(t) {
        node: "JSON.stringify = () => 'broken'; Buffer.from = null; process.nextTick = null;
               Promise.prototype.then = null; Array.prototype.push = null;
               String.prototype.split = null; process.stdout.write = null;",
        python: "
            import builtins, json, os, sys
            json.dumps = json.loads = os.write = os.read = None
            builtins.len = builtins.print = builtins.isinstance = None
            sys.stdout = sys.stderr = None",
        php: "set_error_handler(fn() => throw new Exception('a trap'));
              ob_start(fn() => 'broken');",
    } { one_at_fault(t, "5s", &Ends::Anyhow); }
}

in_every_language! {
    /// The limit applies to each job, not to the batch.
    fn a_time_limit_is_of_one_job_of_a_batch(t) {
        node: "await new Promise((go) => setTimeout(go, 1000));",
        python: "import time\ntime.sleep(1)",
        php: "sleep(1);",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "batch": 10, "timeout": "4s"}));
        for id in stage.batch("t", &["1", "2", "3", "4", "5", "6"]) {
            stage.succeeded(&stage.end(&id));
        }
    }

    fn s2_30_a_hung_job_is_killed_with_its_children_and_tried_again(t) {
        node: "console.log('attempt ' + job.attempt);
               require('child_process').execFileSync('sh', ['-c', 'sleep 600 & wait']);",
        python: "
            import subprocess
            print('attempt', job.attempt)
            subprocess.run(['sh', '-c', 'sleep 600 & wait'])",
        php: "echo 'attempt ', $job->attempt, PHP_EOL; exec('sleep 600 & wait');",
    } {
        let stage = t.stage();
        let retry = json!({"attempts": 2, "delay": "10ms"});
        stage.set("t", json!({"contexts": 1, "timeout": "3s", "idle": "300ms", "retry": retry}));
        let job = stage.run("t", "x");
        assert_eq!((&job["state"], &job["attempt"]), (&json!("failed"), &json!(2)), "{job}");
        let log = stage.log_of(&job);
        assert_eq!(log.matches("timed out").count(), 2, "{log}");
        assert!(log.contains("attempt 1") && log.contains("attempt 2"), "{log}");
        stage.until_no_process();
    }

    /// What `before` started serves the jobs, and ends with its context.
    fn what_before_started_lives_as_long_as_the_context(t) {
        node: json!({
            "before": "ctx.child = require('child_process').spawn('sleep', ['600']);",
            "body": "return {data: ctx.child.exitCode === null && ctx.child.signalCode === null};",
        }),
        python: json!({
            "before": "import subprocess\nctx.child = subprocess.Popen(['sleep', '600'])",
            "body": "return {'data': ctx.child.poll() is None}",
        }),
        php: json!({
            "before": "$ctx->child = proc_open(['sleep', '600'], [], $pipes);",
            "body": "return ['data' => proc_get_status($ctx->child)['running']];",
        }),
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "1s"}));
        for id in stage.batch("t", &["1", "2", "3"]) {
            assert_eq!(stage.end(&id)["result"], true);
        }
        assert_eq!(stage.data("t", "after a batch"), true);
        stage.until_no_process();
    }

    fn before_that_hangs_or_dies_is_an_error_of_its_jobs(t) {
        node: json!({
            "before": "if (process.env.HOW === 'hang') for (;;); else process.exit(3);",
            "body": "return 200;",
        }),
        python: json!({
            "before": "
                import os
                while os.environ['HOW'] == 'hang':
                    pass
                os._exit(3)",
            "body": "return 200",
        }),
        php: json!({
            "before": "while (getenv('HOW') === 'hang'); exit(3);",
            "body": "return 200;",
        }),
    } {
        let stage = t.stage();
        for (how, word) in [("die", "3"), ("hang", "timed out")] {
            let env = json!({"HOW": how});
            let options = json!({
                "contexts": 1, "batch": 10, "timeout": "1s", "env": env, "idle": "300ms"
            });
            stage.set(how, options);
            for id in stage.batch(how, &["1", "2"]) {
                stage.failed(&stage.end(&id), word);
            }
        }
        stage.until_no_process();
    }

    fn scripts_around_a_batch_that_hang_are_stopped(t) {
        node: json!({
            "beforeEach": "if (process.env.HOW === 'beforeEach') for (;;);",
            "afterEach": "if (process.env.HOW === 'afterEach') for (;;);",
            "body": "return 200;",
        }),
        python: json!({
            "beforeEach": "import os\nwhile os.environ['HOW'] == 'beforeEach':\n    pass",
            "afterEach": "import os\nwhile os.environ['HOW'] == 'afterEach':\n    pass",
            "body": "return 200",
        }),
        php: json!({
            "beforeEach": "while (getenv('HOW') === 'beforeEach');",
            "afterEach": "while (getenv('HOW') === 'afterEach');",
            "body": "return 200;",
        }),
    } {
        let stage = t.stage();
        for how in ["beforeEach", "afterEach"] {
            let env = json!({"HOW": how});
            let options = json!({
                "contexts": 1, "batch": 10, "timeout": "1s", "env": env, "idle": "300ms"
            });
            stage.set(how, options);
            for id in stage.batch(how, &["1", "2"]) {
                stage.failed(&stage.end(&id), "timed out");
            }
        }
        stage.until_no_process();
    }

    /// Many deaths: every second job kills its process, the others finish at once.
    fn s2_5_many_deaths_in_a_row_cost_only_the_jobs_that_died(t) {
        node: "if (payload % 2 === 1) process.kill(process.pid, 'SIGKILL');
               while (payload % 2 === 1);",
        python: "import os\nif int(payload) % 2 == 1:\n    os.kill(os.getpid(), 9)",
        php: "if ($payload % 2 === 1) posix_kill(getmypid(), SIGKILL);",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 2, "batch": 10}));
        let payloads: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        for (n, id) in stage.batch("t", &payloads).iter().enumerate() {
            let job = stage.end(id);
            if n % 2 == 1 { stage.failed(&job, "KILL") } else { stage.succeeded(&job) }
        }
    }
}

/// The context dies when it receives the next batch, before any job of it has started.
#[test]
fn a_php_context_without_memory_for_the_next_batch_costs_nobody_anything() {
    let source = "if ($payload === 'fault') ini_set('memory_limit', '2M');";
    let stage = Case::new("php", source).stage();
    stage.set("t", json!({"contexts": 1, "idle": "10m"}));
    stage.succeeded(&stage.run("t", "fault"));
    stage.succeeded(&stage.run("t", &"more ".repeat(100_000)));
}

/// Errors of node that belong to no running job.
#[test]
fn a_late_error_of_node_harms_no_other_job() {
    let source = "
        if (payload === 'timer') setTimeout(() => { throw new Error('late'); }, 1);
        if (payload === 'promise') Promise.reject(new Error('never awaited'));
        if (payload === 'emitter') setImmediate(() => process.emit('error', new Error('odd')));
        if (payload === 'wait') await new Promise((go) => setTimeout(go, 50));
        return {data: process.pid};";
    let stage = Case::new("node", source).stage();
    stage.set("t", json!({"contexts": 1, "batch": 10}));
    let payloads = ["timer", "wait", "promise", "wait", "emitter", "wait", "last"];
    for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
        let job = stage.end(id);
        if ["wait", "last"].contains(&payload) {
            stage.succeeded(&job);
        }
        assert_eq!(job["attempt"], 1, "{job}");
    }
}

#[test]
fn an_exec_handler_leaves_no_process_behind_either() {
    let mut stage = Case::new("exec", "sh -c 'setsid sleep 600 & sleep 600 & exit 0'").stage();
    stage.set("t", json!({"batch": 10}));
    let ids = stage.batch("t", &["1", "2", "3"]);
    for id in &ids {
        let job = stage.end(id);
        stage.succeeded(&job);
        assert_eq!(text(&job["id"]), *id);
    }
    stage.until_no_process();
    assert!(stage.daemon.terminate().success());
}
