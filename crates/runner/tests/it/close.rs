//! A runner that is closed while jobs still run: nothing of them remains.

use rustix::process::{Pid, Signal, kill_process};
use windlass_core::{HandlerSpec, Lang, Runner};
use windlass_test_kit::process::number_here;

use crate::harness::{
    Event, Fixture, NODE_NS, PHP_NS, PYTHON_NS, SH_NS, fixture, job, lines_of, spec, until_gone,
};

/// Writes the name of its process into `pids`, and never ends.
fn endless(fixture: &Fixture, lang: Lang) -> HandlerSpec {
    let pids = fixture.scratch.path().join("pids");
    let pids = pids.to_str().unwrap();
    let body = match lang {
        Lang::Node => format!(
            "require('fs').appendFileSync('{pids}', {NODE_NS} + '/' + process.pid + '\\n');\n\
             await new Promise(() => 0)"
        ),
        Lang::Python => format!(
            "import os, time\n\
             with open('{pids}', 'a') as f: f.write({PYTHON_NS} + f'/{{os.getpid()}}\\n')\n\
             time.sleep(1000)"
        ),
        Lang::Php => {
            let own = format!("{PHP_NS} . '/' . getmypid() . \"\\n\"");
            format!("file_put_contents('{pids}', {own}, FILE_APPEND); sleep(1000);")
        }
        _ => format!("{SH_NS}; echo $NS/$$ >> {pids}; sleep 1000"),
    };
    spec(lang, &body)
}

async fn pid(fixture: &Fixture) -> String {
    lines_of(&fixture.scratch.path().join("pids"), 1).await.remove(0)
}

const LANGS: [Lang; 4] = [Lang::Sh, Lang::Node, Lang::Python, Lang::Php];

#[tokio::test]
async fn what_still_runs_is_killed() {
    for lang in LANGS {
        let fixture = fixture();
        let _run = fixture.begin(endless(&fixture, lang), vec![job(b"")]);
        let pid = pid(&fixture).await;
        fixture.runner.close().await;
        until_gone(&pid).await;
    }
}

/// A process is stopped before it is killed, and the end of the daemon may find it in that state.
#[tokio::test]
async fn what_is_stopped_and_not_yet_killed_does_not_stay_frozen() {
    for lang in LANGS {
        let fixture = fixture();
        let _run = fixture.begin(endless(&fixture, lang), vec![job(b"")]);
        let pid = pid(&fixture).await;
        let process = Pid::from_raw(number_here(&pid).unwrap().cast_signed()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        fixture.runner.close().await;
        until_gone(&pid).await;
    }
}

#[tokio::test]
async fn a_job_that_comes_later_is_given_back() {
    for lang in LANGS {
        let fixture = fixture();
        fixture.runner.close().await;
        let run = fixture.begin(endless(&fixture, lang), vec![job(b"")]);
        let id = run.ids[0];
        assert_eq!(run.rest().await, [Event::Returned(id)]);
    }
}
