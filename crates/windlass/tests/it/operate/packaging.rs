//! The compose file and the Helm chart: what they render to is valid, and the environments that it
//! gives its daemons make three real ones, on a PostgreSQL server, one queue.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_test_servers::{Database, postgres};

use crate::harness::{Config, Daemon, Finished, run, windlass};

/// Brings Helm's own library, and the schemas of Kubernetes; `cargo xtask ci` installs it.
const PACKAGES: &str = "helm-python-sdk==0.2.2 kubernetes-validate==1.37.0";
/// The virtual environment with it, below the user's cache directory.
const ENVIRONMENT: &str = "windlass/helm-python-sdk-0.2.2";

type Environment = BTreeMap<String, String>;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The interpreter that has the packages.
fn python() -> Command {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.filter(|path| path.is_absolute()).unwrap_or_else(|| {
        std::env::home_dir().expect("a home directory, or XDG_CACHE_HOME").join(".cache")
    });
    let place = cache.join(ENVIRONMENT);
    let program = place.join("bin/python");
    let place = place.display();
    assert!(
        program.exists(),
        "the tests need {PACKAGES}; run: \
         python3 -m venv {place} && {place}/bin/pip install {PACKAGES}"
    );
    Command::new(program)
}

/// What the chart makes of these values.
fn render(values: &Value) -> Finished {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/operate/render_chart.py");
    let mut command = python();
    command.arg(script).arg(packaging("helm/windlass")).arg(values.to_string());
    run(&mut command, b"")
}

/// The compose file as the program reads it.
fn compose() -> Value {
    let mut read = Command::new("docker-compose");
    read.arg("-f").arg(packaging("compose/compose.yaml")).arg("config");
    let read = run(read.env("WINDLASS_DB_PASSWORD", "secret"), b"").ok();
    let mut to_json = python();
    to_json.args(["-c", "import json,sys,yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"]);
    run(&mut to_json, read.as_bytes()).json()
}

struct Manifests(Vec<Value>);

impl Manifests {
    #[track_caller]
    fn of(values: &Value) -> Manifests {
        let rendered = render(values).ok();
        Manifests(rendered.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[track_caller]
    fn find(&self, kind: &str, name: &str) -> &Value {
        let found =
            |manifest: &&Value| manifest["kind"] == kind && manifest["metadata"]["name"] == name;
        self.0.iter().find(found).unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// What the pods' container gets, and the files that it refers to.
    fn daemon(&self) -> (Environment, Vec<(&'static str, String)>) {
        let pod = &self.find("StatefulSet", "jobs")["spec"]["template"]["spec"];
        let env = pod["containers"][0]["env"].as_array().unwrap();
        let of_secret = |from: &Value| {
            let secret = self.find("Secret", from["name"].as_str().unwrap());
            text(&secret["stringData"][from["key"].as_str().unwrap()])
        };
        let value = |entry: &Value| match entry.get("value") {
            Some(value) => text(value),
            None => of_secret(&entry["valueFrom"]["secretKeyRef"]),
        };
        let env = env.iter().map(|entry| (text(&entry["name"]), value(entry))).collect();
        let data = |secret: &str, key: &str| {
            let encoded = text(&self.find("Secret", secret)["data"][key]);
            String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
        };
        let files = vec![
            ("keys/tls.crt", data("jobs-tls", "tls.crt")),
            ("keys/tls.key", data("jobs-tls", "tls.key")),
            ("keys/secrets.key", data("jobs-secrets-key", "secrets.key")),
            (
                "etc/windlass/windlass.toml",
                text(&self.find("ConfigMap", "jobs")["data"]["windlass.toml"]),
            ),
        ];
        (env, files)
    }
}

/// Starts a daemon with this environment, as far as the machine of a test allows: paths are below
/// a root of the test, the port is a free one, and the database is that of the test.
fn start(env: &Environment, root: &Path, database: &Database) -> Daemon {
    let config = Config::new();
    let mut command = windlass();
    command.arg("serve").current_dir(config.home.dir());
    for (name, value) in env {
        let below = |path: &str| root.join(path.trim_start_matches('/')).display().to_string();
        let value = match name.as_str() {
            "WINDLASS_STORE" => {
                let (as_configured, _) = value.split_once('@').expect("a user and a password");
                assert!(as_configured.starts_with("postgres://windlass:"), "{value}");
                database.url()
            }
            "WINDLASS_LISTEN" => {
                assert_eq!(value, "0.0.0.0:7600");
                "0.0.0.0:0".to_owned()
            }
            _ if value.starts_with('/') => below(value),
            _ => value.clone(),
        };
        command.env(name, value);
    }
    command.env("WINDLASS_DATA_DIR", config.home.data());
    Daemon::start_command(config, &mut command)
}

/// A command in the container of a daemon.
fn exec(daemon: &Daemon, arguments: &[&str], input: &str) -> Finished {
    let url = format!("https://127.0.0.1:{}", daemon.address.port());
    let mut command = windlass();
    command.args(arguments).args(["--url", &url]).current_dir(daemon.home().dir());
    run(&mut command, input.as_bytes())
}

/// Jobs, keys and secrets of one are those of the others.
fn are_one_queue(daemons: &[Daemon]) {
    let [first, second, third] = daemons else { panic!("three daemons") };
    exec(first, &["secret", "set", "TOKEN", "--tenant", "acme"], "open sesame").ok();
    let file = second.home().write("t.sh", "test \"$TOKEN\" = 'open sesame' && echo opened");
    let file = file.display().to_string();
    let set = ["handler", "set", "t", &file, "--secret", "TOKEN", "--tenant", "acme"];
    exec(second, &set, "").ok();
    let added = exec(third, &["add", "t", "x", "--wait", "--tenant", "acme"], "").ok();
    let id = added.split_whitespace().next().unwrap().to_owned();
    for daemon in daemons {
        exec(daemon, &["status"], "").ok();
        let log = exec(daemon, &["jobs", "log", &id, "--tenant", "acme"], "").ok();
        assert!(log.contains("opened"), "{log}");
    }
}

fn write_closed(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// In place of a container's root.
fn root() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn trial() -> Value {
    json!({ "store": { "trial": { "enabled": true } }, "hosts": ["jobs.example"] })
}

#[test]
fn the_chart_starts_three_daemons_that_are_one_queue() {
    let manifests = Manifests::of(&trial());
    assert_eq!(manifests.find("StatefulSet", "jobs")["spec"]["replicas"], 3);
    let (env, files) = manifests.daemon();
    let database = Database::in_shared(postgres());
    let start = || {
        let root = root();
        for (path, text) in &files {
            write_closed(&root.path().join(path), text);
        }
        (start(&env, root.path(), &database), root)
    };
    let (daemons, _roots): (Vec<Daemon>, Vec<TempDir>) =
        std::iter::repeat_with(start).take(3).unzip();
    are_one_queue(&daemons);
    // The names of the services and pods, under which clients call.
    let names = ["jobs", "jobs.prod", "jobs-2.jobs-daemons.prod.svc.cluster.local", "jobs.example"];
    let hosts: Vec<&str> = env["WINDLASS_HTTP_HOSTS"].split(',').collect();
    for name in names {
        assert!(hosts.contains(&name), "{name} is missing in {hosts:?}");
    }
}

/// The service that makes the certificate, with files of the user of the test.
fn make_certificate(service: &Value, root: &Path) {
    fs::create_dir(root.join("shared")).unwrap();
    let script = text(&service["command"][0]);
    assert!(script.contains("chown -R 7600:7600 /shared"), "{script}");
    let shared = root.join("shared").display().to_string();
    let user =
        format!("{}:{}", rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let script = script.replace("7600:7600", &user).replace("/shared", &shared);
    let entry: Vec<String> = service["entrypoint"].as_array().unwrap().iter().map(text).collect();
    run(Command::new(&entry[0]).args(&entry[1..]).arg(script), b"").ok();
}

#[test]
fn the_compose_file_starts_three_daemons_that_are_one_queue() {
    let services = &compose()["services"];
    let root = root();
    make_certificate(&services["certificate"], root.path());
    let database = Database::in_shared(postgres());
    let start = |name: &str| {
        let env = services[name]["environment"].as_object().unwrap();
        let env = env.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        start(&env, root.path(), &database)
    };
    are_one_queue(&["windlass-1", "windlass-2", "windlass-3"].map(start));
}

#[test]
fn a_mistake_in_the_values_is_refused_with_a_sentence() {
    for (values, named) in [
        (json!({}), "store.existingSecret"),
        (json!({ "stroe": {} }), "stroe"),
        (json!({ "replicas": 0, "store": { "existingSecret": "s" } }), "replicas"),
    ] {
        let refused = render(&values);
        assert_ne!(refused.code, Some(0), "{values}");
        assert!(refused.stderr.contains(named), "{values}: {}", refused.stderr);
    }
}

#[test]
fn what_the_operator_brings_takes_the_place_of_what_the_chart_makes() {
    let own = |name: &str| json!({ "existingSecret": name });
    let values = json!({
        "store": own("database"), "tls": own("certificate"), "secretsKey": own("key"),
        "replicas": 1, "cells": false,
    });
    let manifests = Manifests::of(&values);
    let kinds: Vec<_> = manifests.0.iter().map(|manifest| text(&manifest["kind"])).collect();
    assert!(!kinds.contains(&"Secret".to_owned()), "{kinds:?}");
    let pod = &manifests.find("StatefulSet", "jobs")["spec"]["template"]["spec"];
    let all = pod.to_string();
    for name in ["\"database\"", "\"certificate\"", "\"key\""] {
        assert!(all.contains(name), "{name}: {all}");
    }
    let rights = &pod["containers"][0]["securityContext"];
    assert_eq!(rights["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!((&rights["procMount"], &pod["hostUsers"]), (&Value::Null, &Value::Null));
}
