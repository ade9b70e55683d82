//! A test's own headless Chromium, driven through ChromeDriver: open a page, find elements, click,
//! type, query the page. Both end with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, until};

/// The protocol's key for the name of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Chromium itself must not use the network, and root has no sandbox.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];

pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(program("chromedriver", "chromium-driver"));
        // Its own group, so that all of Chromium's processes can be killed together.
        command.arg("--port=0").process_group(0).stdin(Stdio::null()).stderr(Stdio::null());
        // Both have their own files, which are removed with the profile.
        command.env("TMPDIR", profile.path());
        let driver = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut browser = Browser { driver, port: 0, session: String::new(), _profile: profile };
        browser.port = port_of(&mut browser.driver);
        let folder = format!("--user-data-dir={}", browser._profile.path().display());
        let mut flags: Vec<&str> = FLAGS.to_vec();
        flags.push(&folder);
        let chromium = program("chromium", "chromium");
        let options = json!({ "args": flags, "binary": chromium });
        let wanted = json!({ "goog:chromeOptions": options, "acceptInsecureCerts": true });
        let asked = json!({ "capabilities": { "alwaysMatch": wanted } });
        let answer = browser.ask("POST", "/session", Some(&asked)).unwrap();
        browser.session = answer["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", Some(&json!({ "url": url }))).unwrap();
    }

    /// Waits until the page has an element for the selector, and clicks it.
    pub(crate) fn click(&self, selector: &str) {
        self.on(selector, "/click", &json!({}));
    }

    /// Replaces the contents of a field and leaves it with Enter.
    pub(crate) fn enter(&self, selector: &str, text: &str) {
        self.on(selector, "/clear", &json!({}));
        self.on(selector, "/value", &json!({ "text": format!("{text}\u{e007}") }));
    }

    /// Types into a field without leaving it.
    pub(crate) fn type_text(&self, selector: &str, text: &str) {
        self.on(selector, "/clear", &json!({}));
        self.on(selector, "/value", &json!({ "text": text }));
    }

    /// Continues typing in a field, without leaving it.
    pub(crate) fn add_text(&self, selector: &str, text: &str) {
        self.on(selector, "/value", &json!({ "text": text }));
    }

    /// Selects an option by its visible text.
    pub(crate) fn choose(&self, selector: &str, shown: &str) {
        let script = "const list = document.querySelector(arguments[0]);
            const option = list && [...list.options].find((each) => each.text === arguments[1]);
            if (!option) return false;
            list.value = option.value;
            list.dispatchEvent(new Event('change', { bubbles: true }));
            return true;";
        until(&format!("{shown:?} in {selector}"), || {
            self.script(script, &[json!(selector), json!(shown)]) == json!(true)
        });
    }

    /// The visible text of the first element for the selector, if there is one.
    pub(crate) fn text(&self, selector: &str) -> Option<String> {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        self.script(script, &[json!(selector)]).as_str().map(str::to_owned)
    }

    /// Waits until an element for the selector shows the text.
    pub(crate) fn sees(&self, selector: &str, text: &str) {
        let found = || self.text(selector).is_some_and(|shown| shown.contains(text));
        until(&format!("{text:?} in {selector}"), found);
    }

    pub(crate) fn script(&self, script: &str, words: &[Value]) -> Value {
        let asked = json!({ "script": script, "args": words });
        self.command("POST", "/execute/sync", Some(&asked)).unwrap()
    }

    /// Retries until the element exists and can be used: the page may just be rebuilding it.
    fn on(&self, selector: &str, action: &str, body: &Value) {
        let find = json!({ "using": "css selector", "value": selector });
        until(&format!("{action} on {selector}"), || {
            let Ok(found) = self.command("POST", "/element", Some(&find)) else { return false };
            let element = found[ELEMENT].as_str().unwrap();
            self.command("POST", &format!("/element/{element}{action}"), Some(body)).is_ok()
        });
    }

    fn command(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    /// One request to the driver. An error is its message.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let length = body.len();
        let host = format!("Host: 127.0.0.1:{}\r\nConnection: close", self.port);
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let answer = read_body(BufReader::new(stream));
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", value["message"])),
            None => Ok(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.driver.id().cast_signed()).unwrap();
        if !self.session.is_empty() {
            let _ = self.command("DELETE", "", None);
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.driver.wait();
    }
}

/// The driver prints its port.
fn port_of(driver: &mut Child) -> u16 {
    let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let (sender, told) = sync_channel(1);
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                let _ = sender.try_send(port.trim_end_matches('.').parse().unwrap());
            }
            // Keep reading, so that it never blocks on a write.
        }
    });
    told.recv_timeout(PATIENCE).expect("chromedriver names its port")
}

fn read_body(mut stream: BufReader<TcpStream>) -> Vec<u8> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    body
}

fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    found.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "the tests need {name}; run as root: \
             apt-get update && apt-get install -y --no-install-recommends {package}"
        )
    })
}
