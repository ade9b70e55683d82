//! What a plugin's end means: statuses, exit codes, signals, and the texts of each.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Fields, in_both, is_alive, status_of};

/// One plugin and the outcome of its task.
struct Case {
    script: &'static str,
    status: i32,
    stdout: fn(&str) -> bool,
    stderr: &'static str,
    exit: Option<i64>,
    error: Option<&'static str>,
}

const fn case(script: &'static str, status: i32, stderr: &'static str) -> Case {
    Case { script, status, stdout: |_| true, stderr, exit: Some(0), error: Some("<nil>") }
}

const NOT_CLEAN: &str = "plugin returned status:1 but did not exit cleanly (see stdout for any \
                         stdout or stderr it may have set)";

/// Statuses of every kind, and exit codes that match them or do not.
fn statuses() -> Vec<Case> {
    vec![
        Case { stdout: |text| text == "out", ..case("say 1 out err", 1, "err") },
        Case { stdout: |text| text == "out", ..case("say 2 out err", 2, "err") },
        Case { stdout: |text| text == "out", ..case("say 70000 out err", 70_000, "err") },
        Case {
            stdout: |text| text == "out",
            exit: Some(3),
            error: Some("exit status 3"),
            ..case("say 5 out err; exit 3", 5, "err")
        },
        Case {
            stdout: |text| {
                let shown: Value = serde_json::from_str(text).unwrap_or_default();
                shown["stdout"] == "out" && shown["stderr"] == "err"
            },
            exit: Some(3),
            error: Some("exit status 3"),
            ..case("say 1 out err; exit 3", 2, NOT_CLEAN)
        },
        case(
            "answer '{\"status\":\"good\",\"stdout\":\"\",\"stderr\":\"\"}'",
            2,
            "plugin returned unknown type for status",
        ),
        case(
            "answer '{\"status\":[1],\"stdout\":\"\",\"stderr\":\"\"}'",
            2,
            "plugin returned unknown type for status",
        ),
        case(
            "answer '{\"stdout\":\"\",\"stderr\":\"\"}'",
            2,
            "plugin returned unknown type for status",
        ),
        case("say 1.5 out err", 2, "plugin returned"),
        case("say 0 out err", 2, "plugin returned non-positive status"),
        case("say -3 out err", 2, "plugin returned"),
        case("say 99999999999999999999 out err", 2, "plugin returned"),
    ]
}

/// Answers that are missing, broken, or larger than necessary.
fn odd_answers() -> Vec<Case> {
    vec![
        case(":", 2, "could not read task plugin response file: "),
        Case {
            stdout: |text| text == "all went well",
            ..case("answer 'all went well'", 2, "plugin saved non-json in response file")
        },
        case("answer ''", 2, "plugin saved non-json in response file"),
        case("answer '[1]'", 2, "plugin"),
        Case {
            exit: Some(7),
            error: Some("exit status 7"),
            ..case("exit 7", 2, "could not read task plugin response file: ")
        },
        Case {
            exit: Some(-1),
            error: Some("signal: killed"),
            ..case("kill -9 $$", 2, "could not read task plugin response file: ")
        },
        Case {
            exit: Some(-1),
            error: Some("signal: killed"),
            ..case("say 1 out err; kill -9 $$", 2, NOT_CLEAN)
        },
        Case {
            exit: Some(-1),
            error: Some("signal: killed"),
            ..case("say 9 out err; kill -9 $$", 9, "err")
        },
        // Unknown keys do no harm, nor do those that would change the task.
        case(
            r#"answer '{"status":1,"stdout":"o","stderr":"e","node":"x","_id":5,"mtime":0}'"#,
            1,
            "e",
        ),
        // Its own output is not the task's output.
        Case { stdout: |text| text.is_empty(), ..case("echo loud; echo lost >&2; say 1", 1, "") },
        Case {
            stdout: |text| text == "ä€𝄞\0",
            ..case(r#"say 1 'ä€𝄞\u0000' '\ud834\udd1e'"#, 1, "𝄞")
        },
        // Output that is missing or not text.
        case("answer '{\"status\":1}'", 1, ""),
    ]
}

fn check(case: &Case, ended: &Document) {
    let script = case.script;
    assert_eq!(status_of(ended), case.status, "{script}: {ended}");
    let (stdout, stderr) = (ended.text("stdout"), ended.text("stderr"));
    assert!((case.stdout)(stdout.unwrap_or_default()), "{script}: {ended}");
    assert!(stderr.unwrap_or_default().starts_with(case.stderr), "{script}: {ended}");
    assert_eq!(ended.int("cmdExit"), case.exit, "{script}: {ended}");
    assert_eq!(ended.text("cmdErr"), case.error, "{script}: {ended}");
    assert_eq!(ended.get("complete"), Some(&Bson::Boolean(true)), "{script}: {ended}");
    assert_eq!(ended.text("node"), Some("one"), "{script}");
}

#[test]
fn every_end_has_its_status_and_its_texts() {
    in_both(|home| {
        let mut cases = statuses();
        cases.extend(odd_answers());
        let tasks: Vec<ObjectId> = cases
            .iter()
            .map(|case| home.add(home.line(&home.plugin("default", case.script), 1), 1)[0])
            .collect();
        let _den = home.den("one");
        for (case, task) in cases.iter().zip(&tasks) {
            check(case, &home.ends(*task));
        }
    });
}

/// The only trace of a crashed program is what it wrote to its own standard error.
#[test]
fn a_program_that_leaves_no_result_is_quoted() {
    in_both(|home| {
        let broken = "echo 'no disk' >&2; exit 1";
        let queues = ["nomongo", "mongo"].map(|kind| home.line(&home.plugin(kind, broken), 1));
        let tasks = queues.map(|queue| home.add(queue, 1)[0]);
        let _den = home.den("one");
        for task in tasks {
            let ended = home.reaches(task, 2);
            let said = ended.text("stderr").unwrap_or_default();
            assert!(said.ends_with("its own standard error: no disk\n"), "{ended}");
        }
    });
}

#[test]
fn a_program_that_cannot_be_started_ends_its_task() {
    in_both(|home| {
        let plugin = home.ok();
        std::fs::write(&plugin, "#!/nonexistent/interpreter\n").unwrap();
        let task = home.add(home.line(&plugin, 1), 1)[0];
        let _den = home.den("one");
        let ended = home.reaches(task, 2);
        assert_eq!(ended.text("stdout"), Some("Unable to start"), "{ended}");
        assert!(!ended.text("stderr").unwrap_or_default().is_empty(), "{ended}");
        assert_eq!(ended.int("cmdExit"), Some(-3), "{ended}");
    });
}

#[test]
fn a_time_limit_ends_a_plugin_with_its_tree_and_says_so() {
    in_both(|home| {
        let tree = "sleep 1000 & echo $! > \"$home/child\"; gate; say 1";
        let slow = home.plugin_with(json!({"type": "default", "timeout": 2.5}), tree);
        let quick = home.plugin_with(json!({"type": "default", "timeout": 600}), "say 1 out");
        let (slow, quick) =
            (home.add(home.line(&slow, 1), 1)[0], home.add(home.line(&quick, 1), 1)[0]);
        let _den = home.den("one");
        let ended = home.reaches(slow, 2);
        // On a slow machine they may have been killed before they recorded their process id.
        for file in [format!("{slow}.began"), "child".to_owned()] {
            let pid = std::fs::read_to_string(home.path(&file)).unwrap_or_default();
            assert!(!pid.trim().parse().is_ok_and(is_alive), "{file}: {pid}");
        }
        let why = ended.text("stderr").unwrap_or_default();
        assert!(why.contains("2.5"), "{ended}");
        assert_eq!(ended.int("cmdExit"), Some(-1), "{ended}");
        home.reaches(quick, 1);
    });
}

/// The task's own limit, in one of our fields.
#[test]
fn a_task_may_have_a_time_limit_of_its_own() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 2);
        let short = home.task_with(queue, -2, doc! {"windlass": {"timeout": 1}});
        let long = home.task(queue, -2);
        let _den = home.den("one");
        home.reaches(long, 0);
        home.reaches(short, 2);
        assert_eq!(home.status(long), 0);
        home.open(long);
        home.reaches(long, 1);
    });
}

/// The status of an ended task is visible only together with the output.
#[test]
fn status_and_output_come_together_and_mtime_tells_start_and_end() {
    in_both(|home| {
        let plugin = home.gated();
        let queue = home.line(&plugin, 1);
        let task = home.add(queue, 1)[0];
        let made = home.mongo.get("tasks", task);
        let _den = home.den("one");
        home.began(task);
        let running = home.reaches(task, 0);
        assert!(running.date("mtime") > made.date("mtime"), "{running}");
        assert!(running.date("mtime").is_some() && running.get("stdout") == Some(&Bson::Null));
        home.open(task);
        let ended = home.ends(task);
        assert_eq!((ended.text("stdout"), ended.text("stderr")), (Some("out"), Some("err")));
        assert!(ended.date("mtime") > running.date("mtime"), "{ended}");
        assert_eq!(ended.date("ctime"), made.date("ctime"));
        // Nothing of the lease remains on it.
        let boot = ended.get_document("windlass").ok().and_then(|own| own.get("boot"));
        assert_eq!(boot, None, "{ended}");
    });
}
