//! The contents of `packaging`, used as the guide says, and the guide itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

use crate::harness::{Home, Program, both, run, status_of, windlass};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Under the original's names, its own programs would be started if it is installed.
#[test]
fn units_start_the_binary_by_its_own_name() {
    for (unit, command) in [("windlass-den.service", "den"), ("windlass-dci.service", "dci")] {
        let text = fs::read_to_string(file("systemd").join(unit)).unwrap();
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let words: Vec<&str> = start.split_whitespace().collect();
        assert_eq!(words[..2], ["/usr/bin/windlass", command], "{unit}");
        let ended = run(windlass(&[&words[1..], &["--help"]].concat()), "");
        assert_eq!(ended.code, Some(0), "{unit}: {ended:?}");
    }
}

/// Stands in for Disbatch's own package, which plugins of the type `default` get.
const DISBATCH: &str = "
package Disbatch;
sub new { my $class = shift; bless {@_}, $class }
sub load_config { $_[0]{loaded} = -e $_[0]{config_file} ? 'its file' : 'no file' }
1;
";

/// A node with a Perl package for each of these bodies of `run`, and how their tasks end.
fn ran(home: &Home, kind: &str, runs: &[&str]) -> Vec<Document> {
    let lib = home.path("lib");
    fs::create_dir_all(lib.join("My")).unwrap();
    fs::write(lib.join("Disbatch.pm"), DISBATCH).unwrap();
    let mut config = home.den_config("one");
    config["plugins"] = json!({});
    let mut tasks = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let package = format!("My::Plugin{number}");
        let new = "sub new { my $class = shift; bless {@_}, $class }";
        let text = format!("package {package};\n{new}\nsub run {{ {run} }}\n1;\n");
        fs::write(lib.join(format!("My/Plugin{number}.pm")), text).unwrap();
        let program = home.path(&format!("My-Plugin{number}"));
        symlink(file("disbatch/perl-plugin"), &program).unwrap();
        config["plugins"][&package] = json!({"program": program, "type": kind});
        let params = doc! {home.dialect.params(): {"user": "ann"}};
        tasks.push(home.task_with(home.line(&package, 1), -2, params));
    }
    let _den = den(home, &config, &lib);
    tasks.into_iter().map(|task| home.ends(task)).collect()
}

fn den(home: &Home, config: &Value, lib: &Path) -> Program {
    let file = home.write(config);
    let mut command = windlass(&["den", "--config", file.to_str().unwrap()]);
    command.env("PERL5LIB", lib);
    Program::spawn(command, home.folder())
}

#[track_caller]
fn has(task: &Document, status: i32, stdout: &str, stderr: &str) {
    assert_eq!(status_of(task), status, "{task}");
    let text = |field: &str| task.get_str(field).unwrap_or_default().to_owned();
    assert_eq!(text("stdout"), stdout, "{task}");
    assert!(text("stderr").starts_with(stderr), "{task}");
}

#[test]
fn a_package_of_perl_is_run_and_its_result_is_the_tasks() {
    let text = r#"
        my $task = $_[0]{task};
        return {status => '1', stdout => $task->{params}{user}, stderr => "of $task->{_id}"};
    "#;
    for home in both() {
        let tasks = ran(&home, "nomongo", &[text, "+{status => 1, stdout => 5, stderr => undef}"]);
        has(&tasks[0], 1, "ann", &format!("of {}", tasks[0].get_object_id("_id").unwrap()));
        has(&tasks[1], 1, "5", "");
    }
}

#[test]
fn a_package_of_perl_is_given_its_worker_where_it_may_use_the_database() {
    let told = ["+{status => 1, stdout => $_[0]{workerthread}{loaded} // 'none'}"];
    has(&ran(&Home::released(), "default", &told)[0], 1, "its file", "");
    has(&ran(&Home::released(), "nomongo", &told)[0], 1, "none", "");
}

#[test]
fn a_package_of_perl_that_fails_is_a_failed_task_that_says_why() {
    let runs = ["die 'it broke'", "5", "undef", "[1]", "return", "+{status => 0}"];
    let tasks = ran(&Home::released(), "nomongo", &runs);
    let failed = "Unable to complete";
    has(&tasks[0], 2, failed, "Thread has uncaught exception: it broke at ");
    for task in &tasks[1..5] {
        has(task, 2, failed, "the package returned no hash");
    }
    assert_eq!(status_of(&tasks[5]), 2, "{}", tasks[5]);
}

#[test]
fn the_plugin_that_the_guide_shows_runs() {
    let guide = fs::read_to_string(file("../docs/guide/moving-from-disbatch.md")).unwrap();
    let (_, rest) = guide.split_once("```python\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    for home in both() {
        let plugin = home.path("hello");
        fs::write(&plugin, script).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        let plugin = plugin.to_str().unwrap();
        let _den = home.den_with("one", json!({"plugins": {plugin: {"type": "nomongo"}}}));
        let params = doc! {home.dialect.params(): {"user": "ann"}};
        let task = home.task_with(home.line(plugin, 1), -2, params);
        has(&home.ends(task), 1, "hello ann", "");
    }
}
