//! Decides which part of a task's output is stored in its document, which in files, and which is
//! cut because neither is possible. Pure.

use std::borrow::Cow;

use crate::config::Gfs;

/// What a document may have.
const DOCUMENT_MAX: usize = 16 * 1024 * 1024;

/// Kept free for the fields that the end of a task writes beside its output.
const FIELDS: usize = 64 * 1024;

/// Disbatch's own limit of what stands in a task's document when `gfs` is `auto`.
const INLINE_MAX: usize = 15 * 1024 * 1024;

/// Where one of the two texts goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// Into the document as it is.
    Inline(Cow<'a, str>),
    /// Into a file.
    File(&'a str),
}

/// Decides for both. `held` is the size of the task's document without them, which may leave less
/// room than Disbatch's limit.
pub(super) fn place<'a>(
    gfs: Gfs,
    held: usize,
    stdout: &'a str,
    stderr: &'a str,
) -> (Place<'a>, Place<'a>) {
    let room = room(held);
    match gfs {
        Gfs::Always => (Place::File(stdout), Place::File(stderr)),
        Gfs::Auto => by_size(room.min(INLINE_MAX), stdout, stderr),
        Gfs::Never => {
            let (stdout, stderr) = cut(room, stdout, stderr);
            (Place::Inline(stdout), Place::Inline(stderr))
        }
    }
}

/// Whether a text alone may stand in the task's document.
pub(crate) fn fits(held: usize, text: &str) -> bool {
    text.len() <= room(held).min(INLINE_MAX)
}

fn room(held: usize) -> usize {
    DOCUMENT_MAX.saturating_sub(held).saturating_sub(FIELDS)
}

/// Errors first, because they are what is looked for. The text that passes the limit goes to a
/// file, and so does the other one if it is not empty and was not yet inside.
fn by_size<'a>(max: usize, stdout: &'a str, stderr: &'a str) -> (Place<'a>, Place<'a>) {
    if stderr.len() + stdout.len() <= max {
        (Place::Inline(stdout.into()), Place::Inline(stderr.into()))
    } else if stderr.len() <= max {
        (Place::File(stdout), Place::Inline(stderr.into()))
    } else if stdout.is_empty() {
        (Place::Inline(stdout.into()), Place::File(stderr))
    } else {
        (Place::File(stdout), Place::File(stderr))
    }
}

/// Shortens what is longer than half, so that both together have `max` bytes at most.
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

/// The beginning, and a note that says what is missing; both within `max` bytes.
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

    /// `i` or `f` for each text.
    fn placed(gfs: Gfs, held: usize, stdout: usize, stderr: usize) -> String {
        let (stdout, stderr) = (text(stdout), text(stderr));
        let (stdout, stderr) = place(gfs, held, &stdout, &stderr);
        let letter = |place| if matches!(place, Place::Inline(_)) { 'i' } else { 'f' };
        [letter(stdout), letter(stderr)].iter().collect()
    }

    #[test]
    fn auto_keeps_errors_inline_as_long_as_it_can() {
        let max = INLINE_MAX;
        assert_eq!(placed(Gfs::Auto, 0, 0, 0), "ii");
        assert_eq!(placed(Gfs::Auto, 0, max - 9, 9), "ii");
        assert_eq!(placed(Gfs::Auto, 0, max - 8, 9), "fi");
        assert_eq!(placed(Gfs::Auto, 0, 1, max), "fi");
        assert_eq!(placed(Gfs::Auto, 0, 1, max + 1), "ff");
        assert_eq!(placed(Gfs::Auto, 0, 0, max + 1), "if");
        assert_eq!(placed(Gfs::Auto, 0, max + 1, 0), "fi");
    }

    #[test]
    fn auto_knows_how_large_the_document_is_without_output() {
        let held = 10 * 1024 * 1024;
        assert_eq!(placed(Gfs::Auto, held, 5 * 1024 * 1024, 0), "ii");
        assert_eq!(placed(Gfs::Auto, held, 6 * 1024 * 1024, 0), "fi");
        assert_eq!(placed(Gfs::Auto, DOCUMENT_MAX, 1, 1), "ff");
    }

    #[test]
    fn always_means_both_also_when_empty() {
        assert_eq!(placed(Gfs::Always, 0, 0, 3), "ff");
    }

    #[test]
    fn never_cuts_what_does_not_fit_and_says_so() {
        let sizes = |held, stdout, stderr| {
            let (stdout, stderr) = (text(stdout), text(stderr));
            match place(Gfs::Never, held, &stdout, &stderr) {
                (Place::Inline(stdout), Place::Inline(stderr)) => {
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
