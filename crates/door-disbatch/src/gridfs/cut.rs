//! How a text becomes chunks, in Disbatch's own form and in the standard one.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson};

use crate::dialect::Dialect;

/// The chunk size in both forms: characters in Disbatch's own form, bytes in the standard one. A
/// character has at most four bytes, so a chunk has at most 1,044,480 bytes, far below the 16 MiB
/// limit of a document.
pub(crate) const CHUNK_SIZE: usize = 255 * 1024;

/// The type of a chunk's `data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkForm {
    /// A string, split by characters: written by Disbatch until 4.3 and expected by its readers.
    Text,
    /// Bytes, as in every driver's GridFS: written by Disbatch 4.4.
    Binary,
}

impl ChunkForm {
    /// The form for this dialect.
    pub(crate) fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Seed => Self::Text,
            Dialect::Released => Self::Binary,
        }
    }

    /// The `data` of each chunk, in order. An empty text has no chunks.
    pub(super) fn chunks(self, text: &str) -> Box<dyn Iterator<Item = Bson> + Send + '_> {
        let string = |part: &str| Bson::String(part.to_owned());
        match self {
            Self::Text => Box::new(by_characters(text, CHUNK_SIZE).map(string)),
            Self::Binary => Box::new(text.as_bytes().chunks(CHUNK_SIZE).map(binary)),
        }
    }
}

fn binary(bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

/// Pieces of `size` characters; the last may be shorter.
fn by_characters(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_not_bytes() {
        let parts = |text, size| by_characters(text, size).collect::<Vec<_>>();
        assert_eq!(parts("", 3), Vec::<&str>::new());
        assert_eq!(parts("abc", 3), ["abc"]);
        assert_eq!(parts("abcd", 3), ["abc", "d"]);
        assert_eq!(parts("äöü€𝄞x", 2), ["äö", "ü€", "𝄞x"]);
        assert_eq!(parts("e\u{301}e\u{301}", 1), ["e", "\u{301}", "e", "\u{301}"]);
    }

    #[test]
    fn the_largest_chunk_is_far_below_a_documents_limit() {
        let text = "𝄞".repeat(CHUNK_SIZE + 1);
        let chunks = ChunkForm::Text.chunks(&text);
        let sizes: Vec<usize> = chunks.map(|chunk| chunk.as_str().unwrap().len()).collect();
        assert_eq!(sizes, [1_044_480, 4]);
    }

    #[test]
    fn the_standard_form_is_cut_by_bytes_even_within_a_character() {
        let text = format!("a{}", "€".repeat(CHUNK_SIZE / 3));
        let bytes = |chunk: Bson| match chunk {
            Bson::Binary(binary) => binary.bytes,
            other => panic!("{other}"),
        };
        let parts: Vec<Vec<u8>> = ChunkForm::Binary.chunks(&text).map(bytes).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_SIZE, 1]);
        assert!(String::from_utf8(parts[0].clone()).is_err());
        assert_eq!(parts.concat(), text.as_bytes());
    }

    #[test]
    fn an_empty_text_has_no_chunks() {
        assert_eq!(ChunkForm::Text.chunks("").count(), 0);
        assert_eq!(ChunkForm::Binary.chunks("").count(), 0);
    }
}
