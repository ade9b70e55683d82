//! Parses a handler's file: its language, the options in its first comment, and the scripts besides
//! the body. Pure: text in, a handler in wire form out.
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
//! Every script keeps its line numbers from the file, so that stack traces name the lines that the
//! author sees.

mod comment;
mod option;
mod same;

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value, json};

use windlass_core::Lang;

use self::comment::{ClassifiedLine, Comments};
pub(crate) use self::option::network;
pub(crate) use self::same::is_same;

/// File extensions and their languages.
const ENDINGS: [(&str, Lang); 7] = [
    ("js", Lang::Node),
    ("cjs", Lang::Node),
    ("mjs", Lang::Node),
    ("py", Lang::Python),
    ("php", Lang::Php),
    ("sh", Lang::Sh),
    ("bash", Lang::Sh),
];

/// Programs that a `#!` line may name, without version numbers.
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

/// Prefix of our comments.
const MARK: &str = "windlass:";
/// The parts of a file, named as in a handler.
const PARTS: [&str; 4] = ["body", "before", "beforeEach", "afterEach"];
const BODY: usize = 0;
const PHP_OPEN: &str = "<?php";
const PHP_CLOSE: &str = "?>";

/// A parsed file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Source {
    /// Indexed like `PARTS`.
    parts: [Option<String>; PARTS.len()],
    eid: Option<String>,
    options: Map<String, Value>,
}

/// What is wrong with a file, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceError {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.reason)
    }
}

/// From the file extension, or else from the `#!` line.
pub(crate) fn lang(file: &Path, text: &str) -> Option<Lang> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let by_ending = ENDINGS.iter().find(|(known, _)| Some(*known) == ending);
    by_ending.map(|(_, lang)| *lang).or_else(|| by_first_line(text))
}

/// How to name the language; completes "cannot tell the language of FILE: …".
pub(crate) fn how_to_name_language() -> String {
    let endings: Vec<_> =
        ENDINGS.iter().map(|(ending, lang)| format!(".{ending} ({lang})")).collect();
    format!(
        "use one of the extensions {}, or a first line such as #!/usr/bin/env python3",
        endings.join(", ")
    )
}

fn by_first_line(text: &str) -> Option<Lang> {
    let line = text.lines().next()?.strip_prefix("#!")?;
    let mut names = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    // `env` may have flags of its own, such as -S.
    let name = match names.next()? {
        "env" => names.find(|word| !word.starts_with('-'))?,
        name => name,
    };
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PROGRAMS.iter().find(|(program, _)| *program == name).map(|(_, lang)| *lang)
}

/// Parses a file in one of the four languages.
pub(crate) fn read(lang: Lang, text: &str) -> Result<Source, SourceError> {
    let text = without_tags(lang, text);
    let mut reading = Reading::default();
    let mut comments = Comments::new(lang);
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let classified = comments.next(line);
        match classified.text.trim().strip_prefix(MARK) {
            Some(directive) => reading
                .directive(at, directive.trim(), line, &classified)
                .map_err(|reason| SourceError { line: at + 1, reason })?,
            None => reading.line(line, classified.is_code),
        }
    }
    reading.end().ok_or_else(|| SourceError {
        line: text.lines().count(),
        reason: format!("the file has no body; start it with a comment '{MARK} body'"),
    })
}

/// Removes what is not code: the `#!` line and the tags of PHP. The
/// line numbers stay the same.
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

/// The state while reading a file line by line.
#[derive(Default)]
struct Reading {
    source: Source,
    /// The current part and its text so far.
    part: usize,
    text: String,
    /// Whether the current part has anything besides comments and empty lines.
    has_code: bool,
    /// Whether any part has been marked.
    is_marked: bool,
}

impl Reading {
    fn line(&mut self, line: &str, is_code: bool) {
        self.text.push_str(line);
        self.has_code |= is_code;
    }

    /// One of our comments: the start of a part, or options.
    fn directive(
        &mut self,
        at: usize,
        text: &str,
        line: &str,
        classified: &ClassifiedLine<'_>,
    ) -> Result<(), String> {
        let Some(part) = PARTS.iter().position(|name| *name == text) else {
            if !classified.leads {
                return Err(format!(
                    "options belong in the first comment of the file, before any code; after that, \
                     only these start a part: {}",
                    PARTS.join(", ")
                ));
            }
            let Source { eid, options, .. } = &mut self.source;
            option::read(text, eid, options)?;
            self.line(line, false);
            return Ok(());
        };
        if !classified.is_whole || line.starts_with([' ', '\t']) {
            return Err(format!(
                "the mark '{text}' must be a comment on its own line, not indented"
            ));
        }
        self.keep();
        if self.source.parts[part].is_some() {
            return Err(match part {
                BODY => "the file already has a body; code above it needs a mark of its own".into(),
                _ => format!("the file already has a part '{text}'"),
            });
        }
        self.part = part;
        self.is_marked = true;
        self.has_code = false;
        // Empty lines replace the other parts, to keep line numbers.
        self.text = "\n".repeat(at + 1);
        Ok(())
    }

    /// Stores the current part, unless it is only the comment above the first mark.
    fn keep(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.has_code {
            self.source.parts[self.part] = Some(text);
        }
    }

    /// `None` if there are parts but none is the body.
    fn end(mut self) -> Option<Source> {
        // A file without code is still a body; the daemon decides whether to accept it.
        self.has_code |= !self.is_marked;
        self.keep();
        self.source.parts[BODY].is_some().then_some(self.source)
    }
}

impl Source {
    /// A handler that has only a body.
    pub(crate) fn plain(body: String) -> Source {
        let mut source = Source::default();
        source.parts[BODY] = Some(body);
        source
    }

    /// The handler in wire form; what the file does not set is omitted.
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
