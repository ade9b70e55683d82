//! Finds the comments of a file, as far as possible without parsing the language:
//! whole lines anywhere, and blocks above the first code.

use windlass_core::Lang;

const BLOCK_OPEN: &str = "/*";
const BLOCK_CLOSE: &str = "*/";

/// A classified line.
pub(super) struct ClassifiedLine<'a> {
    /// The text of a comment without its markers; empty if it is not a comment.
    pub(super) text: &'a str,
    /// Whether it is a comment that starts and ends on this line.
    pub(super) is_whole: bool,
    pub(super) is_code: bool,
    /// Whether there has been no code yet.
    pub(super) leads: bool,
}

pub(super) struct Comments {
    /// Prefixes of line comments.
    signs: &'static [&'static str],
    has_blocks: bool,
    in_block: bool,
    leads: bool,
}

impl Comments {
    pub(super) fn new(lang: Lang) -> Comments {
        let (signs, has_blocks): (&[&str], _) = match lang {
            Lang::Node => (&["//"], true),
            Lang::Php => (&["//", "#"], true),
            Lang::Python | Lang::Sh => (&["#"], false),
            Lang::Exec | Lang::Http => (&[], false),
        };
        Comments { signs, has_blocks, in_block: false, leads: true }
    }

    /// Classifies the next line.
    pub(super) fn next<'a>(&mut self, line: &'a str) -> ClassifiedLine<'a> {
        let line = line.trim();
        let opens = self.has_blocks && self.leads && line.starts_with(BLOCK_OPEN);
        if self.in_block || opens {
            return self.block(line);
        }
        let comment = self.signs.iter().find_map(|sign| line.strip_prefix(sign));
        let is_code = comment.is_none() && !line.is_empty();
        self.leads &= !is_code;
        let text = comment.unwrap_or_default();
        ClassifiedLine { text, is_whole: comment.is_some(), is_code, leads: self.leads }
    }

    fn block<'a>(&mut self, line: &'a str) -> ClassifiedLine<'a> {
        let opened = line.strip_prefix(BLOCK_OPEN).filter(|_| !self.in_block);
        let inside = opened.unwrap_or(line);
        let (text, behind) = match inside.split_once(BLOCK_CLOSE) {
            Some((text, behind)) => (text, Some(behind)),
            None => (inside, None),
        };
        self.in_block = behind.is_none();
        let is_code = behind.is_some_and(|code| !code.trim().is_empty());
        let leads = self.leads;
        self.leads &= !is_code;
        let text = text.trim_start_matches(['*', ' ', '\t']);
        ClassifiedLine {
            text,
            is_whole: opened.is_some() && !self.in_block && !is_code,
            is_code,
            leads,
        }
    }
}
