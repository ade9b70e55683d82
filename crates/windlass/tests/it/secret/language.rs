//! Secrets in handlers of every language that has processes.

use serde_json::json;

use crate::harness::{Case, Stage, in_every_language};

/// How the handlers below show a value that the log would hide.
fn spaced(value: &str) -> String {
    value.chars().map(|letter| format!("{letter} ")).collect::<String>().trim_end().to_owned()
}

#[track_caller]
fn shows(stage: &Stage, value: &str) {
    let job = stage.run("t", "x");
    stage.succeeded(&job);
    let lines = stage.log_of(&job);
    assert!(lines.lines().any(|line| line.trim_end() == spaced(value)), "{lines}");
}

in_every_language! {
    fn a_handler_gets_its_secret_and_nothing_that_it_says_shows_it(t) {
        node: "process.stdout.write('of ' + process.env.DOOR.slice(0, 5));
               process.stdout.write(process.env.DOOR.slice(5) + ' it\\n');
               console.error(process.env.DOOR + process.env.DOOR);
               require('child_process').execFileSync('sh', ['-c', 'echo child $DOOR'],
                                                     {stdio: 'inherit'});
               console.log([...process.env.DOOR].join(' '));",
        python: "
            import os, subprocess, sys
            sys.stdout.write('of ' + os.environ['DOOR'][:5])
            sys.stdout.write(os.environ['DOOR'][5:] + ' it\\n')
            print(os.environ['DOOR'] * 2, file=sys.stderr)
            sys.stdout.flush()
            subprocess.run(['sh', '-c', 'echo child $DOOR'])
            print(' '.join(os.environ['DOOR']))",
        php: "echo 'of ', substr(getenv('DOOR'), 0, 5);
              echo substr(getenv('DOOR'), 5), ' it', PHP_EOL;
              fwrite(STDERR, getenv('DOOR') . getenv('DOOR') . PHP_EOL);
              passthru('echo child $DOOR');
              echo implode(' ', str_split(getenv('DOOR'))), PHP_EOL;",
        sh: "printf 'of %s' \"$(printf %s \"$DOOR\" | cut -c1-5)\"
             printf '%s it\\n' \"$(printf %s \"$DOOR\" | cut -c6-)\"
             echo \"$DOOR$DOOR\" >&2
             sh -c 'echo child $DOOR'
             printf %s \"$DOOR\" | sed 's/./& /g'; echo",
        exec: "sh -c 'echo \"of $DOOR it\"; echo \"$DOOR$DOOR\" >&2; sh -c \"echo child \\$DOOR\";
                      printf %s \"$DOOR\" | sed \"s/./& /g\"; echo'",
    } {
        let stage = t.stage();
        stage.tenant.secret("DOOR", "hunter2!");
        stage.set("t", json!({"secrets": ["DOOR"]}));
        let job = stage.run("t", "x");
        stage.succeeded(&job);
        let log = stage.log_of(&job);
        assert!(!log.contains("hunter2!"), "{log}");
        let lines: Vec<&str> = log.lines().map(str::trim_end).collect();
        for line in ["of *** it", "[stderr] ***", "child ***", &spaced("hunter2!")] {
            assert!(lines.contains(&line), "{line:?} in {log}");
        }
    }

    fn a_result_a_progress_and_an_error_do_not_show_a_secret(t) {
        node: "job.progress(50, 'at ' + process.env.DOOR);
               if (payload === 'error') throw new Error('cannot open ' + process.env.DOOR);
               return {status: 200, data: {[process.env.DOOR]: ['x' + process.env.DOOR]}};",
        python: "
            import os
            job.progress(50, 'at ' + os.environ['DOOR'])
            if payload == 'error':
                raise ValueError('cannot open ' + os.environ['DOOR'])
            return {'status': 200, 'data': {os.environ['DOOR']: ['x' + os.environ['DOOR']]}}",
        php: "$job->progress(50, 'at ' . getenv('DOOR'));
              if ($payload === 'error') throw new Exception('cannot open ' . getenv('DOOR'));
              return ['status' => 200, 'data' => [getenv('DOOR') => ['x' . getenv('DOOR')]]];",
    } {
        let stage = t.stage();
        stage.tenant.secret("DOOR", "ge\"heim\n2");
        stage.set("t", json!({"secrets": ["DOOR"]}));
        assert_eq!(stage.data("t", "x"), json!({"***": ["x***"]}));
        let job = stage.run("t", "error");
        stage.failed(&job, "cannot open ***");
        assert_eq!(job["progress"]["message"], "at ***", "{job}");
    }

    fn a_script_before_the_first_job_has_the_secret_and_its_failure_does_not_show_it(t) {
        node: json!({"before": "
                         if (process.env.DOOR !== 'open!') throw new Error(process.env.DOOR)",
                     "body": "console.log([...process.env.DOOR].join(' '))"}),
        python: json!({"before": "
                           import os
                           if os.environ['DOOR'] != 'open!':
                               raise ValueError(os.environ['DOOR'])",
                       "body": "
                           import os
                           print(' '.join(os.environ['DOOR']))"}),
        php: json!({"before": "
                        if (getenv('DOOR') !== 'open!') throw new Exception(getenv('DOOR'));",
                    "body": "echo implode(' ', str_split(getenv('DOOR'))), PHP_EOL;"}),
    } {
        let stage = t.stage();
        stage.tenant.secret("DOOR", "closed!");
        stage.set("t", json!({"secrets": ["DOOR"]}));
        let job = stage.run("t", "x");
        stage.failed(&job, "before failed: ");
        assert!(!stage.log_of(&job).contains("closed!"), "{}", stage.log_of(&job));
        stage.tenant.secret("DOOR", "open!");
        shows(&stage, "open!");
    }

    /// One context, so that the next job would get the warm one.
    fn a_changed_secret_is_in_force_with_the_next_job_and_a_removed_one_fails_it(t) {
        node: "console.log([...process.env.DOOR].join(' '))",
        python: "
            import os
            print(' '.join(os.environ['DOOR']))",
        php: "echo implode(' ', str_split(getenv('DOOR'))), PHP_EOL;",
        sh: "printf %s \"$DOOR\" | sed 's/./& /g'; echo",
    } {
        let stage = t.stage();
        let version = stage.tenant.secret("DOOR", "first");
        stage.set("t", json!({"secrets": ["DOOR"], "contexts": 1, "idle": "1h"}));
        shows(&stage, "first");
        shows(&stage, "first");
        assert_ne!(stage.tenant.secret("DOOR", "second"), version);
        shows(&stage, "second");
        if t.lang != "sh" {
            stage.until_processes(1);
        }
        stage.tenant.client.delete("/v1/a/secrets/DOOR").expect(200);
        let sentence = "there is no secret DOOR; set it with: windlass secret set DOOR";
        stage.failed(&stage.run("t", "x"), sentence);
        stage.tenant.secret("DOOR", "third");
        shows(&stage, "third");
        stage.set("plain", json!({}));
        let job = stage.run("plain", "x");
        assert!(!stage.log_of(&job).contains("t h i r d"), "it names no secret");
    }
}
