//! A context on plain pipes: the test writes requests and reads answers, the rest is real.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_test_kit::process::Tied;
use windlass_test_kit::wait::PATIENCE;

const ANSWERS_MAX: usize = 64;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const HALT: &str = "halt";
pub(crate) const MARK: &str = "0123456789abcdefghijklmnopqrstuv";
pub(crate) const RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lang {
    Node,
    Python,
    Php,
}

impl Lang {
    /// The one of the three for this language.
    pub(crate) fn pick<T>(self, node: T, python: T, php: T) -> T {
        match self {
            Lang::Node => node,
            Lang::Python => python,
            Lang::Php => php,
        }
    }

    fn bootstrap(self) -> (&'static str, &'static str) {
        self.pick(
            ("bootstrap.cjs", include_str!("../../bootstrap/node.cjs")),
            ("bootstrap.py", include_str!("../../bootstrap/python.py")),
            ("bootstrap.php", include_str!("../../bootstrap/php.php")),
        )
    }

    fn command(self) -> &'static [&'static str] {
        self.pick(
            &["node"],
            &["python3", "-X", "utf8"],
            &["php", "-d", "display_errors=stderr", "-d", "disable_functions=error_log"],
        )
    }

    fn need_interpreter(self) {
        let program = self.command()[0];
        let is_there = PATH.split(':').any(|dir| Path::new(dir).join(program).exists());
        let package = self.pick("nodejs", "python3", "php-cli");
        assert!(is_there, "{program} is missing; as root: apt-get install -y {package}");
    }
}

pub(crate) struct Context {
    child: Tied,
    requests: Option<ChildStdin>,
    answers: Option<Receiver<Vec<u8>>>,
    /// The first job of the batch without an `end`.
    place: usize,
    dir: TempDir,
}

/// How a context ended, and what it wrote to its ordinary descriptors.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Context {
    /// Starts a bootstrap without a greeting.
    pub(crate) fn silent(lang: Lang) -> Context {
        lang.need_interpreter();
        let dir = tempfile::tempdir().unwrap();
        let (name, text) = lang.bootstrap();
        let bootstrap = dir.path().join(name);
        fs::write(&bootstrap, text).unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(dir.path().join(HALT), "0").unwrap();
        // The shell moves our pipes to where a context expects them.
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "exec \"$@\" 3<&0 4>&1 5<../halt </dev/null >../stdout 2>../stderr", "sh"])
            .args(lang.command())
            .arg(&bootstrap)
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("KEPT", "as it was")])
            .env("HOME", &work)
            .env("TMPDIR", &work)
            .current_dir(&work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Tied::spawn(&mut command);
        let (sender, answers) = sync_channel(ANSWERS_MAX);
        let mut channel = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            while let Some(frame) = read_frame(&mut channel) {
                if sender.send(frame).is_err() {
                    break;
                }
            }
        });
        let requests = child.stdin.take();
        Context { child, requests, answers: Some(answers), place: 0, dir }
    }

    pub(crate) fn greeted(lang: Lang) -> Context {
        let mut context = Context::silent(lang);
        context.ask(&hello(1));
        assert_eq!(context.answer().unwrap()["kind"], "ready");
        context
    }

    /// Loads a handler with this body as number 1.
    pub(crate) fn loaded(lang: Lang, body: &str) -> Context {
        let mut context = Context::greeted(lang);
        context.load(&json!({"body": body}));
        context
    }

    /// Loads a handler, number 1 unless these members set another.
    pub(crate) fn load(&mut self, members: &Value) {
        let answers = self.try_load(members);
        assert_eq!(answers.last().unwrap()["kind"], "loaded", "{answers:?}");
    }

    pub(crate) fn try_load(&mut self, members: &Value) -> Vec<Value> {
        self.ask(&load(members));
        self.answers()
    }

    pub(crate) fn ask(&mut self, request: &Value) {
        self.write(&frame(&serde_json::to_vec(request).unwrap()));
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // If it ended, its answers explain why, and the test can look at them.
        let _ = self.requests.as_mut().unwrap().write_all(bytes);
    }

    /// The next answer, or nothing if the context has ended. Times are checked and left out, and so
    /// is the nonce, which is always that of the job that runs: `end` and `halted` get its place.
    pub(crate) fn answer(&mut self) -> Option<Value> {
        let bytes = match self.answers.as_ref().unwrap().recv_timeout(PATIENCE) {
            Ok(bytes) => bytes,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(timeout) => panic!("no answer: {timeout}; stderr: {}", self.stderr()),
        };
        let mut value: Value = serde_json::from_slice(&bytes).unwrap();
        let members = value.as_object_mut().unwrap();
        let kind = members["kind"].as_str().unwrap().to_owned();
        let us = members.remove("us");
        let has_us = ["loaded", "begun", "end", "done"].contains(&kind.as_str());
        assert_eq!(us.is_some_and(|us| us.is_u64()), has_us, "{members:?}");
        if kind == "begun" {
            self.place = 0;
        }
        let nonce = members.remove("nonce");
        let speaks_for_job = ["emit", "progress", "end", "halted"].contains(&kind.as_str());
        assert_eq!(nonce, speaks_for_job.then(|| json!(nonce_of(self.place))), "{members:?}");
        if kind == "end" || kind == "halted" {
            members.insert("job".into(), json!(self.place));
            self.place += 1;
        }
        Some(value)
    }

    /// All answers to one request.
    pub(crate) fn answers(&mut self) -> Vec<Value> {
        let mut answers = Vec::new();
        loop {
            let Some(answer) = self.answer() else {
                panic!("it ended after {answers:?}; stderr: {}", self.stderr());
            };
            let is_last =
                ["ready", "loaded", "done", "failed"].iter().any(|k| answer["kind"] == *k);
            answers.push(answer);
            if is_last {
                return answers;
            }
        }
    }

    /// A batch of handler 1 with these texts as payloads.
    pub(crate) fn run(&mut self, payloads: &[&str]) -> Vec<Value> {
        self.run_as(1, payloads)
    }

    pub(crate) fn run_as(&mut self, handler: u32, payloads: &[&str]) -> Vec<Value> {
        let payloads = payloads.iter().map(|payload| json!({"payload": payload}));
        self.ask(&run(handler, false, payloads));
        self.answers()
    }

    /// A batch of one job; its `end`.
    pub(crate) fn run_one(&mut self, payload: &str) -> Value {
        self.run_one_as(1, payload)
    }

    pub(crate) fn run_one_as(&mut self, handler: u32, payload: &str) -> Value {
        let answers = self.run_as(handler, &[payload]);
        let mut ends = ends(&answers);
        assert_eq!(ends.len(), 1, "{answers:?}");
        ends.remove(0)
    }

    /// Runs one job of this body, without payload, and returns its `end`.
    pub(crate) fn end_of(&mut self, body: &str) -> Value {
        self.load(&json!({"body": body}));
        self.run_one("")
    }

    /// Runs one job of this body, without payload, and checks its `end`.
    pub(crate) fn check(&mut self, body: &str, expected: &Value) {
        let mut end = self.end_of(body);
        let members = end.as_object_mut().unwrap();
        assert_eq!(members.remove("kind"), Some(json!("end")));
        assert_eq!(members.remove("job"), Some(json!(0)));
        assert_eq!(&end, expected, "{body}");
    }

    /// Runs one job of this body, without payload: it is an error (500) whose text contains these
    /// words.
    pub(crate) fn check_error(&mut self, body: &str, words: &str) {
        let end = self.end_of(body);
        assert_eq!(end["status"], 500, "{body}: {end}");
        assert_eq!(end.get("data"), None, "{body}");
        let error = end["error"].as_str().unwrap();
        assert!(error.contains(words), "{body}: {error}");
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("stdout")).unwrap()).into()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("stderr")).unwrap()).into()
    }

    /// A file next to its working directory.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        File::create(&path).unwrap().write_all(content).unwrap();
        path
    }

    pub(crate) fn work_dir(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    /// Sets whether batches end before their next job.
    pub(crate) fn halt(&self, is_set: bool) {
        let cell = fs::OpenOptions::new().write(true).open(self.dir.path().join(HALT)).unwrap();
        cell.write_at(if is_set { b"1" } else { b"0" }, 0).unwrap();
    }

    /// Closes the requests.
    pub(crate) fn close(&mut self) {
        self.requests = None;
    }

    /// Closes the answers.
    pub(crate) fn turn_away(&mut self) {
        self.answers = None;
    }

    /// Waits for the end, which the test must have caused.
    pub(crate) fn ended(mut self) -> Ended {
        let code = self.child.ended().code();
        Ended { code, stderr: self.stderr() }
    }
}

pub(crate) fn hello(protocol: u32) -> Value {
    json!({"kind": "hello", "protocol": protocol, "mark": MARK,
        "result_bytes_max": RESULT_BYTES_MAX})
}

pub(crate) fn load(members: &Value) -> Value {
    let mut request = json!({"kind": "load", "handler": 1, "tenant": "acme", "type": "mail",
        "body": "", "before": null, "beforeEach": null, "afterEach": null, "check": false});
    for (name, value) in members.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

pub(crate) fn run(handler: u32, mark: bool, payloads: impl Iterator<Item = Value>) -> Value {
    let job = |(place, mut job): (usize, Value)| {
        job["id"] = json!(place.to_string());
        job["nonce"] = json!(nonce_of(place));
        job["attempt"] = json!(1);
        job["priority"] = json!(500);
        job["created_at"] = json!("2026-11-15T22:23:32.000Z");
        job
    };
    let jobs: Vec<Value> = payloads.enumerate().map(job).collect();
    json!({"kind": "run", "handler": handler, "mark": mark, "jobs": jobs})
}

pub(crate) fn nonce_of(place: usize) -> String {
    format!("{:016x}", 0xfeed_0000 + place)
}

pub(crate) fn frame(json: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(json.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(json);
    frame
}

fn read_frame(channel: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    channel.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    channel.read_exact(&mut frame).ok()?;
    Some(frame)
}

pub(crate) fn of_kind(answers: &[Value], kind: &str) -> Vec<Value> {
    answers.iter().filter(|answer| answer["kind"] == kind).cloned().collect()
}

pub(crate) fn ends(answers: &[Value]) -> Vec<Value> {
    of_kind(answers, "end")
}

/// Everything written to one of the two streams.
pub(crate) fn text(answers: &[Value], stream: &str) -> String {
    let outputs = answers.iter().filter(|answer| answer["stream"] == stream);
    outputs.map(|answer| answer["text"].as_str().unwrap()).collect()
}
