//! How a text becomes chunks, in Disbatch's own form and in the standard one.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson};

use crate::dialect::Dialect;

/// The size of a chunk that both forms name: characters in Disbatch's own, bytes in the standard
/// one. A character has at most four bytes, so that no chunk passes 1,044,480 bytes, far below the
/// 16 MiB that a document may have; the cut needs no other rule.
pub(crate) const CHUNK_SIZE: usize = 255 * 1024;

/// What a chunk's `data` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string, cut by characters: what Disbatch wrote until 4.3, and what its readers expect.
    Text,
    /// Bytes, as every driver's GridFS has them: what Disbatch 4.4 writes.
    Binary,
}

impl Form {
    /// The form that is written in a database of this dialect.
    pub(crate) fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Seed => Self::Text,
            Dialect::Released => Self::Binary,
        }
    }

    /// The `data` of each chunk, in order. An empty text has none.
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

/// Parts of `size` characters; the last may have fewer.
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
        let chunks = Form::Text.chunks(&text);
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
        let parts: Vec<Vec<u8>> = Form::Binary.chunks(&text).map(bytes).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [CHUNK_SIZE, 1]);
        assert!(String::from_utf8(parts[0].clone()).is_err());
        assert_eq!(parts.concat(), text.as_bytes());
    }

    #[test]
    fn an_empty_text_has_no_chunks() {
        assert_eq!(Form::Text.chunks("").count(), 0);
        assert_eq!(Form::Binary.chunks("").count(), 0);
    }
}
