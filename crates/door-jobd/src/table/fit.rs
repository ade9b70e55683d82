//! Makes the output of a program fit into the columns of a table. Pure. Any output can be written;
//! the row says what was removed.

use windlass_core::launch::Output;

/// A statement is a little larger than the texts in it.
const PACKET_SPARE: usize = 16 * 1024;

/// Replaces characters that a column cannot store.
const REPLACEMENT: char = '\u{FFFD}';

/// The limits of the table's columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableLimits {
    pub target: ColumnLimits,
    pub stdout: ColumnLimits,
    pub stderr: ColumnLimits,
    pub signal: ColumnLimits,
    /// The smallest and largest return code.
    pub code: Option<(i64, i64)>,
    /// Maximum size of one statement.
    pub packet_bytes_max: Option<usize>,
    /// Ends a SELECT that locks rows and skips those which others have locked.
    pub skip: &'static str,
}

/// The limits of one column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ColumnLimits {
    pub bytes_max: Option<usize>,
    pub chars_max: Option<usize>,
    pub alphabet: Alphabet,
}

/// The characters that a column can store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Alphabet {
    #[default]
    All,
    /// MySQL's old `utf8`: at most three bytes each.
    ThreeBytes,
    /// PostgreSQL: all but NUL.
    NoNul,
    /// Western European characters, common to all such character sets.
    Latin,
    Ascii,
}

impl Alphabet {
    fn has(self, c: char) -> bool {
        match self {
            Self::All => true,
            Self::ThreeBytes => c.len_utf8() <= 3,
            Self::NoNul => c != '\0',
            Self::Latin => c.is_ascii() || ('\u{A0}'..='\u{FF}').contains(&c),
            Self::Ascii => c.is_ascii() && c != '\0',
        }
    }

    fn replacement(self) -> char {
        if matches!(self, Self::Ascii | Self::Latin) { '?' } else { REPLACEMENT }
    }
}

impl ColumnLimits {
    /// Whether a row can contain this text at all.
    pub(super) fn can_have(&self, text: &str) -> bool {
        text.chars().all(|c| self.alphabet.has(c))
    }

    /// How many leading bytes of `text` fit.
    fn fitting(&self, text: &str, bytes_max: usize) -> usize {
        let mut end = text.len().min(bytes_max);
        if let Some(chars) = self.chars_max {
            end = text.char_indices().nth(chars).map_or(end, |(at, _)| end.min(at));
        }
        text.floor_char_boundary(end)
    }

    fn read(&self, text: &str) -> String {
        if self.can_have(text) {
            return text.to_owned();
        }
        let replacement = self.alphabet.replacement();
        text.chars().map(|c| if self.alphabet.has(c) { c } else { replacement }).collect()
    }
}

/// Both streams as text that fits, with `note` as the last line of the second.
pub(super) fn outputs(
    limits: &TableLimits,
    stdout: &Output,
    stderr: &Output,
    note: Option<&str>,
) -> (String, String) {
    let out = text_of(&limits.stdout, stdout);
    let err = text_of(&limits.stderr, stderr);
    let note = note.map(|note| limits.stderr.read(note)).unwrap_or_default();
    let (out_max, err_max) = shares(limits, out.len(), err.len() + note.len() + 1);
    (
        cut(&limits.stdout, out, stdout.dropped, "", out_max),
        cut(&limits.stderr, err, stderr.dropped, &note, err_max),
    )
}

/// A name, cut to its column.
pub(super) fn name(column_limits: &ColumnLimits, text: &str) -> String {
    let text = column_limits.read(text);
    let end = column_limits.fitting(&text, column_limits.bytes_max.unwrap_or(usize::MAX));
    text[..end].to_owned()
}

pub(super) fn code(limits: &TableLimits, code: Option<i32>) -> Option<i64> {
    let code = code.map(i64::from)?;
    Some(limits.code.map_or(code, |(least, greatest)| code.clamp(least, greatest)))
}

/// Both share one packet: each gets half of it, plus what the other leaves.
fn shares(limits: &TableLimits, out: usize, err: usize) -> (usize, usize) {
    let Some(packet) = limits.packet_bytes_max else { return (usize::MAX, usize::MAX) };
    let all = packet.saturating_sub(PACKET_SPARE);
    let half = all / 2;
    (all - err.min(half), all - out.min(half))
}

/// A character that was split where the output was cut is dropped, not replaced.
fn text_of(column_limits: &ColumnLimits, output: &Output) -> String {
    let mut bytes = output.bytes.as_slice();
    if output.dropped > 0 {
        let last = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        let split = last > 0 && {
            let tail = &bytes[bytes.len() - last..];
            std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none())
        };
        bytes = &bytes[..bytes.len() - if split { last } else { 0 }];
    }
    column_limits.read(&String::from_utf8_lossy(bytes))
}

/// The text, a note about the cut, and `note`, in this order.
fn cut(
    column_limits: &ColumnLimits,
    mut text: String,
    dropped: u64,
    note: &str,
    bytes_max: usize,
) -> String {
    let bytes_max = bytes_max.min(column_limits.bytes_max.unwrap_or(usize::MAX));
    let all = text.len() as u64 + dropped;
    let whole = tail(&text, dropped, note);
    let chars = || text.chars().count() + whole.chars().count();
    let fits = text.len() + whole.len() <= bytes_max;
    if fits && column_limits.chars_max.is_none_or(|max| chars() <= max) {
        return text + &whole;
    }
    let longest = tail("x", all, note);
    let bytes = bytes_max.saturating_sub(longest.len());
    let chars = column_limits.chars_max.map(|max| max.saturating_sub(longest.chars().count()));
    text.truncate(ColumnLimits { chars_max: chars, ..column_limits.clone() }.fitting(&text, bytes));
    let rest = tail(&text, all - text.len() as u64, note);
    text.push_str(&rest);
    text.truncate(column_limits.fitting(&text, bytes_max));
    text
}

fn tail(text: &str, cut: u64, note: &str) -> String {
    let mut tail = String::new();
    if cut > 0 {
        tail = format!("\n[cut: {cut} bytes]");
    }
    if !note.is_empty() {
        let apart =
            if tail.is_empty() && (text.is_empty() || text.ends_with('\n')) { "" } else { "\n" };
        tail = format!("{tail}{apart}{note}");
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: &[u8], dropped: u64) -> Output {
        Output { bytes: bytes.to_vec(), dropped }
    }

    fn fitted(
        column_limits: &ColumnLimits,
        bytes: &[u8],
        dropped: u64,
        note: Option<&str>,
    ) -> String {
        let limits = TableLimits { stderr: column_limits.clone(), ..TableLimits::default() };
        outputs(&limits, &Output::default(), &output(bytes, dropped), note).1
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let column_limits = ColumnLimits { bytes_max: Some(5), ..ColumnLimits::default() };
        assert_eq!(fitted(&column_limits, b"a\0b\nc", 0, None), "a\0b\nc");
        assert_eq!(fitted(&ColumnLimits::default(), b"", 0, None), "");
    }

    #[test]
    fn what_does_not_fit_is_cut_between_characters_and_counted() {
        let column_limits = ColumnLimits { bytes_max: Some(20), ..ColumnLimits::default() };
        let text = "äääääääääääääääääääää";
        let cut = fitted(&column_limits, text.as_bytes(), 0, None);
        assert_eq!(cut, "ää\n[cut: 38 bytes]");
        let column_limits = ColumnLimits { chars_max: Some(18), ..ColumnLimits::default() };
        assert_eq!(fitted(&column_limits, text.as_bytes(), 0, None), "ää\n[cut: 38 bytes]");
        let tiny = ColumnLimits { bytes_max: Some(3), ..ColumnLimits::default() };
        assert_eq!(fitted(&tiny, b"abcdefgh", 0, None).len(), 3);
    }

    #[test]
    fn what_was_dropped_before_is_counted_and_split_characters_go() {
        let split = &"xä".as_bytes()[..2];
        assert_eq!(fitted(&ColumnLimits::default(), split, 9, None), "x\n[cut: 9 bytes]");
        assert_eq!(fitted(&ColumnLimits::default(), split, 0, None), "x\u{FFFD}");
        assert_eq!(
            fitted(&ColumnLimits::default(), b"x\xff", 9, None),
            "x\u{FFFD}\n[cut: 9 bytes]"
        );
    }

    #[test]
    fn a_note_is_the_last_line_and_survives_a_cut() {
        assert_eq!(fitted(&ColumnLimits::default(), b"x", 0, Some("why")), "x\nwhy");
        assert_eq!(fitted(&ColumnLimits::default(), b"x\n", 0, Some("why")), "x\nwhy");
        assert_eq!(fitted(&ColumnLimits::default(), b"", 0, Some("why")), "why");
        let column_limits = ColumnLimits { bytes_max: Some(22), ..ColumnLimits::default() };
        let cut = fitted(&column_limits, &[b'x'; 100], 0, Some("why"));
        assert!(cut.ends_with(" bytes]\nwhy") && cut.len() <= 22, "{cut}");
    }

    #[test]
    fn characters_that_a_column_cannot_have_are_replaced() {
        let cases = [
            (Alphabet::All, "a\0\u{1F600}ü"),
            (Alphabet::ThreeBytes, "a\0\u{FFFD}ü"),
            (Alphabet::NoNul, "a\u{FFFD}\u{1F600}ü"),
            (Alphabet::Latin, "a\0?ü"),
            (Alphabet::Ascii, "a???"),
        ];
        for (alphabet, wanted) in cases {
            let column_limits = ColumnLimits { alphabet, ..ColumnLimits::default() };
            assert_eq!(fitted(&column_limits, "a\0\u{1F600}ü".as_bytes(), 0, None), wanted);
        }
    }

    #[test]
    fn both_outputs_share_one_packet() {
        let limits =
            TableLimits { packet_bytes_max: Some(PACKET_SPARE + 1000), ..TableLimits::default() };
        let lengths = |out: usize, err: usize| {
            let made = |bytes: usize| output(&vec![b'x'; bytes], 0);
            let (out, err) = outputs(&limits, &made(out), &made(err), None);
            (out.len(), err.len())
        };
        assert_eq!(lengths(100, 800), (100, 800));
        assert_eq!(lengths(5000, 10), (989, 10));
        let (out, err) = lengths(5000, 5000);
        assert!(out + err <= 1000 && out == err, "{out} {err}");
    }

    #[test]
    fn codes_and_names_are_brought_into_range() {
        let limits = TableLimits { code: Some((0, 255)), ..TableLimits::default() };
        assert_eq!(code(&limits, Some(256)), Some(255));
        assert_eq!(code(&limits, Some(-1)), Some(0));
        assert_eq!(code(&limits, None), None);
        let column_limits = ColumnLimits { chars_max: Some(10), ..ColumnLimits::default() };
        assert_eq!(name(&column_limits, "SIGRTMIN+12"), "SIGRTMIN+1");
    }
}
