//! The page for newcomers is correct: its files are written, its commands run, and their output is
//! what the page shows.
//!
//! A code block whose first line names a file is that file. In a block called `console`, a line
//! that starts with `$ ` is a command, and the lines after it are its output; `…` stands for
//! anything.

use std::path::Path;
use std::process::Command;

use crate::harness::{Config, Daemon, find_keys, run};

struct Block<'a> {
    language: &'a str,
    file: Option<&'a str>,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut words = info.split_whitespace();
        let (language, file) = (words.next().unwrap_or_default(), words.next());
        let lines = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
        blocks.push(Block { language, file, lines });
    }
    blocks
}

/// The commands of a block, each with its output.
fn commands<'a>(block: &Block<'a>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in &block.lines {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command, Vec::new())),
            None => commands.last_mut().expect("a block begins with a command").1.push(line),
        }
    }
    commands
}

fn shows(pattern: &str, line: &str) -> bool {
    let parts: Vec<&str> = pattern.split('…').collect();
    let [first, .., last] = &parts[..] else { return pattern == line };
    let inner = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let mut rest = inner;
    for part in &parts[1..parts.len() - 1] {
        rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
    }
    rest.is_some()
}

#[test]
fn a_newcomer_sees_what_the_page_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/writing-a-handler.md");
    let page = std::fs::read_to_string(page).unwrap();
    let daemon = Daemon::start(Config::new());
    let bin = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut ran = 0;
    for block in blocks(&page) {
        if let Some(name) = block.file {
            daemon.home().write(name, block.lines.join("\n") + "\n");
        } else if block.language == "console" {
            for (line, expected) in commands(&block) {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("exec 2>&1\n{line}")]);
                command.env("PATH", &path).current_dir(daemon.home().path("."));
                find_keys(&mut command);
                command.env("WINDLASS_URL", format!("http://{}", daemon.address));
                let shown = run(&mut command, b"").stdout;
                let shown: Vec<&str> = shown.lines().collect();
                let same = shown.len() == expected.len()
                    && expected.iter().zip(&shown).all(|(pattern, line)| shows(pattern, line));
                assert!(same, "{line}\n  shows {shown:?}\n  not   {expected:?}");
                ran += 1;
            }
        }
    }
    assert!(ran > 0);
    // What the page says about the chain of jobs.
    let tenant = daemon.tenant("default");
    let reports = tenant.until_count("report", "finished", 2);
    let log = |job: &serde_json::Value| tenant.log(job["id"].as_str().unwrap());
    let logs: String = reports.iter().map(log).collect();
    assert!(logs.contains(r#"{"word":"wind","length":4}"#), "{logs}");
}

#[test]
fn three_dots_stand_for_anything() {
    assert!(shows("a", "a") && !shows("a", "b"));
    assert!(shows("a…c", "abc") && shows("a…c", "ac") && !shows("a…c", "ab"));
    assert!(shows("[…] hello, …", "[1] hello, Ada") && !shows("[…] hello, …", "[1] bye"));
}
