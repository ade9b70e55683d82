//! Decides which part of a task's output is stored in its document, which in files, and which is
//! cut because neither is possible. Pure.

use std::borrow::Cow;

use crate::config::Gfs;

/// MongoDB's limit for a document.
const DOCUMENT_MAX: usize = 16 * 1024 * 1024;

/// Reserved for the fields that the end of a task writes besides its output.
const FIELDS: usize = 64 * 1024;

/// Disbatch's limit for inline output if `gfs` is `auto`.
const INLINE_MAX: usize = 15 * 1024 * 1024;

/// Where one of the two output texts is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placement<'a> {
    /// In the document.
    Inline(Cow<'a, str>),
    /// In a file.
    File(&'a str),
}

/// Decides for both texts. `held` is the size of the task's document without them, which may leave
/// less room than Disbatch's limit.
pub(super) fn decide<'a>(
    gfs: Gfs,
    held: usize,
    stdout: &'a str,
    stderr: &'a str,
) -> (Placement<'a>, Placement<'a>) {
    let room = room(held);
    match gfs {
        Gfs::Always => (Placement::File(stdout), Placement::File(stderr)),
        Gfs::Auto => by_size(room.min(INLINE_MAX), stdout, stderr),
        Gfs::Never => {
            let (stdout, stderr) = cut(room, stdout, stderr);
            (Placement::Inline(stdout), Placement::Inline(stderr))
        }
    }
}

/// Whether a text alone fits into the task's document.
pub(crate) fn fits(held: usize, text: &str) -> bool {
    text.len() <= room(held).min(INLINE_MAX)
}

fn room(held: usize) -> usize {
    DOCUMENT_MAX.saturating_sub(held).saturating_sub(FIELDS)
}

/// Errors are placed first, because users look for them. A text that exceeds the limit goes to a
/// file, and so does the other one unless it is empty or already placed inline.
fn by_size<'a>(max: usize, stdout: &'a str, stderr: &'a str) -> (Placement<'a>, Placement<'a>) {
    if stderr.len() + stdout.len() <= max {
        (Placement::Inline(stdout.into()), Placement::Inline(stderr.into()))
    } else if stderr.len() <= max {
        (Placement::File(stdout), Placement::Inline(stderr.into()))
    } else if stdout.is_empty() {
        (Placement::Inline(stdout.into()), Placement::File(stderr))
    } else {
        (Placement::File(stdout), Placement::File(stderr))
    }
}

/// Shortens texts longer than half of `max`, so that both together fit into `max` bytes.
fn cut<'a>(max: usize, stdout: &'a str, stderr: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    if stdout.len() + stderr.len() <= max {
        return (stdout.into(), stderr.into());
    }
    let half = max / 2;
    if stderr.len() <= half {
        let left = max - stderr.len();
        (shorten(stdout, left).into(), stderr.into())
    } else if stdout.len() <= half {
        let left = max - stdout.len();
        (stdout.into(), shorten(stderr, left).into())
    } else {
        (shorten(stdout, half).into(), shorten(stderr, half).into())
    }
}

/// The beginning and a note about the missing rest, together within `max` bytes.
fn shorten(text: &str, max: usize) -> String {
    let note = format!(
        "\n[cut: {} bytes of output do not fit into the task's document and gfs is off]\n",
        text.len()
    );
    let Some(kept) = max.checked_sub(note.len()) else { return String::new() };
    let kept = &text[..text.floor_char_boundary(kept)];
    format!("{kept}{note}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(size: usize) -> String {
        "x".repeat(size)
    }

    /// `i` (inline) or `f` (file) for each text.
    fn decided(gfs: Gfs, held: usize, stdout: usize, stderr: usize) -> String {
        let (stdout, stderr) = (text(stdout), text(stderr));
        let (stdout, stderr) = decide(gfs, held, &stdout, &stderr);
        let letter = |placement| if matches!(placement, Placement::Inline(_)) { 'i' } else { 'f' };
        [letter(stdout), letter(stderr)].iter().collect()
    }

    #[test]
    fn auto_keeps_errors_inline_as_long_as_it_can() {
        let max = INLINE_MAX;
        assert_eq!(decided(Gfs::Auto, 0, 0, 0), "ii");
        assert_eq!(decided(Gfs::Auto, 0, max - 9, 9), "ii");
        assert_eq!(decided(Gfs::Auto, 0, max - 8, 9), "fi");
        assert_eq!(decided(Gfs::Auto, 0, 1, max), "fi");
        assert_eq!(decided(Gfs::Auto, 0, 1, max + 1), "ff");
        assert_eq!(decided(Gfs::Auto, 0, 0, max + 1), "if");
        assert_eq!(decided(Gfs::Auto, 0, max + 1, 0), "fi");
    }

    #[test]
    fn auto_knows_how_large_the_document_is_without_output() {
        let held = 10 * 1024 * 1024;
        assert_eq!(decided(Gfs::Auto, held, 5 * 1024 * 1024, 0), "ii");
        assert_eq!(decided(Gfs::Auto, held, 6 * 1024 * 1024, 0), "fi");
        assert_eq!(decided(Gfs::Auto, DOCUMENT_MAX, 1, 1), "ff");
    }

    #[test]
    fn always_means_both_also_when_empty() {
        assert_eq!(decided(Gfs::Always, 0, 0, 3), "ff");
    }

    #[test]
    fn never_cuts_what_does_not_fit_and_says_so() {
        let sizes = |held, stdout, stderr| {
            let (stdout, stderr) = (text(stdout), text(stderr));
            match decide(Gfs::Never, held, &stdout, &stderr) {
                (Placement::Inline(stdout), Placement::Inline(stderr)) => {
                    let noted = |text: &str| text.ends_with("gfs is off]\n");
                    (stdout.len(), stderr.len(), (noted(&stdout), noted(&stderr)))
                }
                files => panic!("{files:?}"),
            }
        };
        let room = DOCUMENT_MAX - FIELDS;
        assert_eq!(sizes(0, room - 3, 3), (room - 3, 3, (false, false)));
        assert_eq!(sizes(0, 2 * room, 3), (room - 3, 3, (true, false)));
        assert_eq!(sizes(0, 3, room), (3, room - 3, (false, true)));
        assert_eq!(sizes(0, room, room), (room / 2, room / 2, (true, true)));
        assert_eq!(sizes(DOCUMENT_MAX, 5, 5), (0, 0, (false, false)));
    }

    #[test]
    fn a_cut_ends_between_characters() {
        let short = shorten(&"€".repeat(100), 150);
        assert!(short.len() <= 150 && short.len() > 146, "{}", short.len());
        assert!(short.starts_with("€€€") && short.contains("[cut: 300 bytes"), "{short}");
    }
}
