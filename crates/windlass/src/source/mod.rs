//! A handler's file: the language it is in, the options in its first comment, and the scripts that
//! stand beside the body. Pure: text in, a handler as the daemon takes it out.
//!
//! ```text
//! #!/usr/bin/env python3
//! # windlass: timeout=30s retry.attempts=3      options, in the first comment
//! # windlass: before                            from here on: runs once for each context
//! import sqlite3
//! # windlass: body                              from here on: runs for each job
//! return len(payload)
//! ```
//!
//! Every script keeps the line numbers that it has in the file, so that a trace names the line that
//! its author sees.

mod comment;
mod option;
mod same;

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value, json};

use windlass_core::Lang;

use self::comment::{Comments, Seen};
pub(crate) use self::same::is_same;

/// Endings of files, and the language that each stands for.
const ENDINGS: [(&str, Lang); 7] = [
    ("js", Lang::Node),
    ("cjs", Lang::Node),
    ("mjs", Lang::Node),
    ("py", Lang::Python),
    ("php", Lang::Php),
    ("sh", Lang::Sh),
    ("bash", Lang::Sh),
];

/// Programs that a `#!` line may name, without the number of their version.
const PROGRAMS: [(&str, Lang); 8] = [
    ("node", Lang::Node),
    ("nodejs", Lang::Node),
    ("python", Lang::Python),
    ("php", Lang::Php),
    ("sh", Lang::Sh),
    ("bash", Lang::Sh),
    ("dash", Lang::Sh),
    ("ash", Lang::Sh),
];

/// What a comment of ours begins with.
const MARK: &str = "windlass:";
/// The parts of a file, by the name that they have in a handler.
const PARTS: [&str; 4] = ["body", "before", "beforeEach", "afterEach"];
const BODY: usize = 0;
const PHP_OPEN: &str = "<?php";
const PHP_CLOSE: &str = "?>";

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Source {
    /// By the numbers of `PARTS`.
    parts: [Option<String>; PARTS.len()],
    eid: Option<String>,
    options: Map<String, Value>,
}

/// What is wrong with a file, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.reason)
    }
}

/// By the file's ending, else by its `#!` line.
pub(crate) fn lang(file: &Path, text: &str) -> Option<Lang> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let by_ending = ENDINGS.iter().find(|(known, _)| Some(*known) == ending);
    by_ending.map(|(_, lang)| *lang).or_else(|| by_first_line(text))
}

/// How a file says its language, as the sentence behind "cannot tell the language of FILE".
pub(crate) fn how_to_tell() -> String {
    let endings: Vec<_> =
        ENDINGS.iter().map(|(ending, lang)| format!(".{ending} ({lang})")).collect();
    format!(
        "let its name end with {}, or its first line be such as #!/usr/bin/env python3",
        endings.join(", ")
    )
}

fn by_first_line(text: &str) -> Option<Lang> {
    let line = text.lines().next()?.strip_prefix("#!")?;
    let mut names = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    // What stands behind `env` may begin with its own flags, such as -S.
    let name = match names.next()? {
        "env" => names.find(|word| !word.starts_with('-'))?,
        name => name,
    };
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PROGRAMS.iter().find(|(program, _)| *program == name).map(|(_, lang)| *lang)
}

/// Takes a file of one of the four languages apart.
pub(crate) fn read(lang: Lang, text: &str) -> Result<Source, Wrong> {
    let text = without_tags(lang, text);
    let mut reading = Reading::default();
    let mut comments = Comments::new(lang);
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let seen = comments.next(line);
        match seen.text.trim().strip_prefix(MARK) {
            Some(said) => reading
                .said(at, said.trim(), line, &seen)
                .map_err(|reason| Wrong { line: at + 1, reason })?,
            None => reading.line(line, seen.is_code),
        }
    }
    reading.end().ok_or_else(|| Wrong {
        line: text.lines().count(),
        reason: format!("the file has no body; it begins behind a comment '{MARK} body'"),
    })
}

/// Without what is no code: the first line of a script for the kernel, and the tags of PHP. The
/// lines keep their numbers.
pub(crate) fn without_tags(lang: Lang, text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_comment = matches!(lang, Lang::Python | Lang::Sh);
    let text = match text.find('\n') {
        Some(end) if text.starts_with("#!") && !is_comment => &text[end..],
        _ => text,
    };
    if lang != Lang::Php {
        return text.to_owned();
    }
    let code = text.trim_start();
    let blank = &text[..text.len() - code.len()];
    let code = code.strip_prefix(PHP_OPEN).unwrap_or(code);
    let code = code.trim_end().strip_suffix(PHP_CLOSE).unwrap_or(code);
    format!("{blank}{code}")
}

/// A file that is being read, line by line.
#[derive(Default)]
struct Reading {
    source: Source,
    /// The part that lines go to, and its text so far.
    part: usize,
    text: String,
    /// Whether that part has more than comments and empty lines.
    has_code: bool,
    /// Whether any part has been marked.
    is_marked: bool,
}

impl Reading {
    fn line(&mut self, line: &str, is_code: bool) {
        self.text.push_str(line);
        self.has_code |= is_code;
    }

    /// A comment of ours: the beginning of a part, or options.
    fn said(&mut self, at: usize, said: &str, line: &str, seen: &Seen<'_>) -> Result<(), String> {
        let Some(part) = PARTS.iter().position(|name| *name == said) else {
            if !seen.leads {
                return Err(format!(
                    "options stand in the first comment of the file, before any code; further \
                     down only these begin a part: {}",
                    PARTS.join(", ")
                ));
            }
            let Source { eid, options, .. } = &mut self.source;
            option::read(said, eid, options)?;
            self.line(line, false);
            return Ok(());
        };
        if !seen.is_whole || line.starts_with([' ', '\t']) {
            return Err(format!("the mark '{said}' is a comment of its own, not indented"));
        }
        self.keep();
        if self.source.parts[part].is_some() {
            return Err(match part {
                BODY => "there is a body already; code above it needs a mark of its own".into(),
                _ => format!("there is a part '{said}' already"),
            });
        }
        self.part = part;
        self.is_marked = true;
        self.has_code = false;
        // Empty lines in place of what the part does not have.
        self.text = "\n".repeat(at + 1);
        Ok(())
    }

    /// Keeps the part that has been read, unless it is only the comment above the first mark.
    fn keep(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.has_code {
            self.source.parts[self.part] = Some(text);
        }
    }

    /// Nothing when there are parts and none of them is the body.
    fn end(mut self) -> Option<Source> {
        // A file without code is a body all the same; the daemon says what it thinks of it.
        self.has_code |= !self.is_marked;
        self.keep();
        self.source.parts[BODY].is_some().then_some(self.source)
    }
}

impl Source {
    /// A body that is all there is.
    pub(crate) fn plain(body: String) -> Source {
        let mut source = Source::default();
        source.parts[BODY] = Some(body);
        source
    }

    /// The handler as the daemon takes it; what the file does not say is left out.
    pub(crate) fn into_handler(self, lang: Lang) -> Map<String, Value> {
        let mut handler = Map::new();
        handler.insert("lang".into(), lang.as_str().into());
        for (name, text) in PARTS.iter().zip(self.parts) {
            if let Some(text) = text {
                handler.insert((*name).into(), text.into());
            }
        }
        if let Some(eid) = self.eid {
            handler.insert("eid".into(), eid.into());
        }
        if !self.options.is_empty() {
            handler.insert("options".into(), json!(self.options));
        }
        handler
    }
}

#[cfg(test)]
mod tests;
