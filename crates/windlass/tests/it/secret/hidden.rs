//! Where a value must not be: files, logs, answers, arguments, and other handlers' reach.

use std::fs;

use serde_json::json;

use crate::harness::{Config, Daemon, files_below, run, text, windlass};

const VALUE: &str = "4f-hunter2-very-secret-9c";

fn holds_value(bytes: &[u8]) -> bool {
    bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes())
}

/// Files below the data directory that have the value in clear.
fn files_with_value(daemon: &Daemon) -> Vec<String> {
    let files = files_below(&daemon.home().data()).into_iter();
    let read = files.filter_map(|path| Some((fs::read(&path).ok()?, path)));
    read.filter(|(bytes, _)| holds_value(bytes)).map(|(_, path)| format!("{path:?}")).collect()
}

/// Processes that have the value in their arguments.
fn arguments_with_value() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.filter(|line| holds_value(line));
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

#[test]
fn a_value_is_in_no_file_log_answer_or_argument() {
    let mut daemon = Daemon::start(Config::new());
    let url = format!("http://{}", daemon.address);
    let mut set = windlass();
    set.args(["secret", "set", "DOOR", "--tenant", "a", "--url", &url]);
    let shown = run(&mut set, VALUE.as_bytes()).ok();
    assert!(!shown.contains(VALUE), "{shown}");
    let tenant = daemon.tenant("a");
    let hold = format!("echo $DOOR; {}", daemon.home().holder("begun", "hold"));
    for (kind, lang, body) in [
        (
            "warm",
            "python",
            "import os; print(os.environ['DOOR']); return {'data': dict(os.environ)}",
        ),
        ("held", "sh", hold.as_str()),
    ] {
        let options = json!({"secrets": ["DOOR"]});
        tenant.handler(kind, &json!({"lang": lang, "body": body, "options": options}));
    }
    let done = tenant.until_end(&tenant.add_one("warm", "x"));
    assert_eq!(done["state"], "finished", "{}", tenant.log(&text(&done["id"])));
    let held = tenant.add_one("held", "x");
    crate::harness::until("the job runs", || daemon.home().lines("begun"), |l| l.len() == 1);
    assert_eq!(arguments_with_value(), [""; 0], "while its processes live");
    assert_eq!(files_with_value(&daemon), [""; 0], "while they live");
    let id = text(&done["id"]);
    let paths = [
        "/v1/a/secrets".to_owned(),
        "/v1/a/handlers".to_owned(),
        "/v1/a/handlers/held".to_owned(),
        "/v1/a/jobs".to_owned(),
        format!("/v1/a/jobs/{id}"),
        format!("/v1/a/jobs/{id}/log"),
        format!("/v1/a/jobs/{held}/log"),
        "/v1/status".to_owned(),
        "/metrics".to_owned(),
    ];
    for path in paths {
        let answer = daemon.get(&path).expect(200).text();
        assert!(!answer.contains(VALUE), "{path}: {answer}");
    }
    assert!(tenant.log(&held).contains("***"), "its log while it runs");
    assert_eq!(tenant.job(&id)["result"]["DOOR"], "***");
    daemon.home().let_go("hold");
    assert_eq!(tenant.until_end(&held)["state"], "finished");
    assert!(daemon.terminate().success());
    assert_eq!(files_with_value(&daemon), [""; 0], "after its end");
    let log = daemon.log.lines().join("\n");
    assert!(!log.contains(VALUE) && log.contains("job_ended"), "{log}");
    assert!(fs::read_to_string(daemon.home().data().join("secrets.key")).unwrap().len() > 64);
}

/// Searches the environments of all processes that it sees.
const SEARCH: &str = "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null |
                      tr '\\0' '\\n' | grep -c 'hunter2' || true";

#[test]
fn the_environment_of_a_handler_is_out_of_reach_of_others() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.secret("DOOR", VALUE);
    let hold = daemon.home().holder("begun", "hold");
    let options = json!({"secrets": ["DOOR"]});
    tenant.handler("held", &json!({"lang": "sh", "body": hold, "options": options}));
    let held = tenant.add_one("held", "x");
    crate::harness::until("the job runs", || daemon.home().lines("begun"), |l| l.len() == 1);
    for other in [&tenant, &daemon.tenant("b")] {
        other.sh("search", SEARCH);
        let id = other.add_one("search", "x");
        assert_eq!(other.until_end(&id)["state"], "finished");
        let log = other.log(&id);
        assert!(log.lines().any(|line| line == "0"), "{}: {log}", other.name);
    }
    tenant.handler("own", &json!({"lang": "sh", "body": SEARCH, "options": options}));
    let own = tenant.add_one("own", "x");
    tenant.until_end(&own);
    let log = tenant.log(&own);
    assert!(!log.lines().any(|line| line == "0"), "the search finds its own: {log}");
    daemon.home().let_go("hold");
    assert_eq!(tenant.until_end(&held)["state"], "finished");
}
