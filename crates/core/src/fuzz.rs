//! The rules that every text keeps, for the fuzzer and the tests. Each target panics if a rule is
//! broken, and says whether it accepts the input.

use std::fmt::Debug;

use crate::add::AddOptions;
use crate::calendar::{Civil, Modifiers};
use crate::glob::{self, Pattern};
use crate::id::JobId;
use crate::limit::DURATION_MAX;
use crate::record;
use crate::repeat::{Bases, REPEAT_BYTES_MAX, Repeat};
use crate::size::{format_size, parse_size};
use crate::time::{Timestamp, format_duration, format_time, parse_duration, parse_time};

/// Unless the input has one.
const NOW: Timestamp = Timestamp(1_800_000_000_123);
/// Times that follow each other.
const TIMES: usize = 3;
/// The reference for patterns takes exponential time.
const PATTERN_CHARS_MAX: usize = 12;
const TEXT_CHARS_MAX: usize = 16;

/// Lengths of pieces, repeated as often as needed.
const PIECES: [usize; 5] = [1, 2, 7, 64, 3];

/// What a parser finds in bytes that arrive in pieces of different lengths, which must be the same
/// as in all of them at once. `add` gives a piece to the parser; `next` returns what it finds, and
/// `None` if it needs more.
///
/// # Panics
/// If it is not the same.
pub fn however_it_arrives<P: Default, T: PartialEq + Debug, E: PartialEq + Debug>(
    bytes: &[u8],
    add: impl Fn(&mut P, &[u8]),
    next: impl Fn(&mut P) -> Result<Option<T>, E>,
) -> (Vec<T>, Result<(), E>) {
    let parse = |pieces: &[&[u8]]| {
        let (mut parser, mut found) = (P::default(), Vec::new());
        for piece in pieces {
            add(&mut parser, piece);
            loop {
                match next(&mut parser) {
                    Ok(Some(part)) => found.push(part),
                    Ok(None) => break,
                    Err(error) => return (found, Err(error)),
                }
            }
        }
        (found, Ok(()))
    };
    let at_once = parse(&[bytes]);
    assert_eq!(parse(&pieces(bytes)), at_once, "in pieces");
    at_once
}

/// The same bytes, in pieces of different lengths.
pub fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for length in PIECES.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at(rest.len().min(*length));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Three lines: a repeat; what time it is, in milliseconds; when the job was due.
pub fn repeat(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let mut lines = text.splitn(3, '\n');
    let repeat = Repeat::parse(lines.next().unwrap_or_default());
    let now = lines.next().and_then(|line| line.parse().ok()).map_or(NOW, Timestamp);
    let scheduled = lines.next().and_then(Civil::parse);
    let Ok(repeat) = repeat else { return false };
    assert!(repeat.as_str().len() <= REPEAT_BYTES_MAX, "{repeat} is too long");
    assert_eq!(Repeat::parse(repeat.as_str()), Ok(repeat.clone()), "the stored form");
    let bases = Bases { scheduled, started: Some(now), now };
    let next = repeat.next(&bases);
    if repeat.as_str().starts_with("cron:") {
        assert_eq!(repeat.first(now), next, "{repeat}: the first time is any next time");
        check_cron(&repeat, bases);
    } else {
        assert_eq!(Repeat::parse_bedrock(repeat.as_str()), Ok(repeat.clone()));
        assert_eq!(repeat.first(now), None, "{repeat} begins at once");
        assert!(next.is_none_or(|next| next < Timestamp::NEVER), "{repeat}: {next:?}");
    }
    true
}

/// Every time is after the one before it, and a whole second.
fn check_cron(repeat: &Repeat, mut bases: Bases) {
    for _ in 0..TIMES {
        let Some(next) = repeat.next(&bases) else { return };
        assert!(next > bases.now, "{repeat}: {next:?} is not after {:?}", bases.now);
        assert_eq!(next.ms() % 1000, 0, "{repeat}: {next:?}");
        bases.now = next;
    }
}

/// A text that may be a duration, a size, a time, a date, modifiers, an id, or JSON that a store
/// keeps. What is read is written so that it is read back.
pub fn text(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let mut accepted = false;
    if let Ok(duration) = parse_duration(text) {
        assert!(duration <= DURATION_MAX);
        assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        accepted = true;
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&format_size(size)), Ok(size));
        accepted = true;
    }
    if let Ok(time) = parse_time(text) {
        assert_eq!(parse_time(&format_time(time)), Ok(time));
        accepted = true;
    }
    if let Some(date) = Civil::parse(text) {
        assert_eq!(Civil::parse(&date.to_string()), Some(date), "{date}");
        let at = date.timestamp();
        assert_eq!(Civil::from_timestamp(at).timestamp(), at, "{date}");
        accepted = true;
    }
    if let Ok(modifiers) = Modifiers::parse("after", text) {
        let end = modifiers.apply(Civil::from_timestamp(NOW));
        assert!(end.is_none_or(|end| Civil::parse(&end.to_string()) == Some(end)), "{text}");
        accepted = true;
    }
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
        accepted = true;
    }
    accepted | stored(text)
}

/// JSON of handlers' options, types' settings and emitted jobs' options.
fn stored(text: &str) -> bool {
    let mut accepted = false;
    if let Ok(options) = record::options_from_text(text) {
        assert_eq!(record::options_from_text(&record::options_to_text(&options)), Ok(options));
        accepted = true;
    }
    if let Ok(settings) = record::settings_from_text(text) {
        assert_eq!(record::settings_from_text(&record::settings_to_text(&settings)), Ok(settings));
        accepted = true;
    }
    if let Ok(value) = serde_json::from_str(text)
        && let Ok(options) = AddOptions::parse(&value, NOW)
    {
        assert!(options.timeout.is_none_or(|timeout| !timeout.is_zero()));
        accepted = true;
    }
    accepted
}

/// Two lines: a pattern, and a text that it may match.
pub fn pattern(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let (pattern, text) = text.split_once('\n').unwrap_or((text, ""));
    let parsed = Pattern::new(pattern);
    let matches = parsed.matches(text);
    assert_eq!(glob::matches(pattern, text), matches);
    assert!(!matches || text.starts_with(&parsed.prefix()), "{:?}", parsed.prefix());
    assert_eq!(parsed.is_literal(), glob::is_literal(pattern), "{pattern}");
    if parsed.is_literal() {
        assert_eq!(matches, pattern == text);
    }
    if pattern.chars().count() <= PATTERN_CHARS_MAX && text.chars().count() <= TEXT_CHARS_MAX {
        let pattern: Vec<char> = pattern.chars().collect();
        let text: Vec<char> = text.chars().collect();
        assert_eq!(matches, reference(&pattern, &text), "{pattern:?} and {text:?}");
    }
    matches
}

/// SQLite's `patternCompare`, without its shortcuts.
fn reference(pattern: &[char], text: &[char]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    if *first == '*' {
        return (0..=text.len()).any(|skipped| reference(rest, &text[skipped..]));
    }
    let Some((c, text)) = text.split_first() else { return false };
    match first {
        '?' => reference(rest, text),
        '[' => in_set(rest, *c).is_some_and(|behind| reference(behind, text)),
        first => first == c && reference(rest, text),
    }
}

/// The pattern behind a set that has the character; `None` if it does not, or has no end.
fn in_set(set: &[char], c: char) -> Option<&[char]> {
    let (inverted, mut set) = match set {
        ['^', rest @ ..] => (true, rest),
        set => (false, set),
    };
    let (mut seen, mut last) = (false, None);
    if let [']', rest @ ..] = set {
        (seen, set) = (c == ']', rest);
    }
    loop {
        match set {
            [] => return None,
            [']', behind @ ..] => return (seen != inverted).then_some(behind),
            ['-', to, rest @ ..] if *to != ']' && last.is_some() => {
                seen |= last.is_some_and(|from| from <= c) && c <= *to;
                (last, set) = (None, rest);
            }
            [one, rest @ ..] => {
                seen |= *one == c;
                (last, set) = (Some(*one), rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn repeats() {
        corpus::check("repeat", 3000, super::repeat);
    }

    #[test]
    fn texts() {
        corpus::check("text", 20_000, super::text);
    }

    #[test]
    fn patterns() {
        corpus::check("pattern", 20_000, super::pattern);
    }
}
