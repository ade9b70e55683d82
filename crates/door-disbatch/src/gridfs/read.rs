//! Reading output back, in either form.

use futures_util::TryStreamExt;
use md5::{Digest, Md5};
use mongodb::Cursor;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::write::hex;
use super::{chunks, files};
use crate::database::{Database, DbError, stored};
use crate::doc::whole;

/// Chunks per batch from the server.
const READ_BATCH: u32 = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("there is no output file {0}")]
    Absent(ObjectId),
    #[error("the output file {id} is broken: {why}")]
    Broken { id: ObjectId, why: String },
    #[error(transparent)]
    Database(#[from] DbError),
}

/// Whether a file is complete: all chunks exist, and its length and digest, if any, are right.
///
/// # Errors
///
/// If it is not, or the database is unavailable.
pub(crate) async fn verify(database: &Database, id: ObjectId) -> Result<(), LoadError> {
    let mut reader = Reader::open(database, id).await?;
    while reader.text().await?.is_some() {}
    Ok(())
}

/// Reads a file chunk by chunk, so that little of it is in memory.
pub(crate) struct Reader {
    database: Database,
    id: ObjectId,
    file: Document,
    parts: Cursor<RawDocumentBuf>,
    /// The number of the next chunk.
    next: i64,
    sum: ReadTotal,
    /// The beginning of a character that continues in the next chunk.
    tail: Vec<u8>,
}

/// Totals over the chunks read so far.
#[derive(Default)]
struct ReadTotal {
    bytes: u64,
    md5: Md5,
}

impl Reader {
    /// # Errors
    ///
    /// If it does not exist, or the database is unavailable.
    pub(crate) async fn open(database: &Database, id: ObjectId) -> Result<Reader, LoadError> {
        let files = files(database).clone_with_type();
        let file = database.one(files.find_one(doc! { "_id": id })).await?;
        let file = file.ok_or(LoadError::Absent(id))?;
        let chunks = chunks(database).clone_with_type::<RawDocumentBuf>();
        let in_order = chunks.find(doc! { "files_id": id }).sort(doc! { "n": 1 });
        let parts = database.ask(in_order.batch_size(READ_BATCH)).await?;
        let (database, sum, tail) = (database.clone(), ReadTotal::default(), Vec::new());
        Ok(Reader { database, id, file, parts, next: 0, sum, tail })
    }

    /// The next piece of text, possibly empty; `None` at the end. Invalid bytes become replacement
    /// characters.
    ///
    /// # Errors
    ///
    /// If a chunk is missing or the database is unavailable, and at the end if length or digest are
    /// wrong.
    pub(crate) async fn text(&mut self) -> Result<Option<String>, LoadError> {
        let broken = |why| LoadError::Broken { id: self.id, why };
        let Some(part) = self.database.ask(self.parts.try_next()).await? else {
            check(&self.file, &self.sum).map_err(broken)?;
            let rest = std::mem::take(&mut self.tail);
            return Ok((!rest.is_empty()).then(|| char::REPLACEMENT_CHARACTER.into()));
        };
        let part = stored(&part)?;
        let bytes = content(&part, self.next).map_err(broken)?;
        self.next += 1;
        self.sum.bytes += bytes.len() as u64;
        self.sum.md5.update(bytes);
        Ok(Some(decode(&mut self.tail, bytes)))
    }
}

/// Decodes `tail` followed by `bytes`. An incomplete character at the end becomes the new tail.
fn decode(tail: &mut Vec<u8>, bytes: &[u8]) -> String {
    let joined = [std::mem::take(tail).as_slice(), bytes].concat();
    let mut text = String::with_capacity(joined.len());
    let mut left = joined.len();
    for piece in joined.utf8_chunks() {
        text.push_str(piece.valid());
        left -= piece.valid().len() + piece.invalid().len();
        let begun = |bytes| str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
        if left == 0 && begun(piece.invalid()) {
            tail.extend_from_slice(piece.invalid());
        } else if !piece.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

/// The bytes of chunk number `wanted`.
fn content(part: &Document, wanted: i64) -> Result<&[u8], String> {
    match part.get("n").and_then(whole) {
        Some(n) if n == wanted => {}
        Some(n) if n < wanted => return Err(format!("chunk {n} is there twice")),
        Some(_) => return Err(format!("chunk {wanted} is missing")),
        None => return Err(format!("chunk {wanted} has no number")),
    }
    match part.get("data") {
        Some(Bson::String(text)) => Ok(text.as_bytes()),
        Some(Bson::Binary(binary)) => Ok(&binary.bytes),
        _ => Err(format!("chunk {wanted} holds neither a string nor bytes")),
    }
}

fn check(file: &Document, found: &ReadTotal) -> Result<(), String> {
    let bytes = found.bytes;
    let length = file.get("length").and_then(whole).ok_or("it does not say its length")?;
    if u64::try_from(length) != Ok(bytes) {
        return Err(format!("it should have {length} bytes, its chunks have {bytes}"));
    }
    match file.get("md5") {
        Some(Bson::String(md5)) if !md5.eq_ignore_ascii_case(&hex(found.md5.clone())) => {
            Err("its MD5 digest is not that of its chunks".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_told() {
        let file = doc! { "length": 3.0, "md5": "900150983CD24FB0D6963F7D28E17F72" };
        let check = |file: &Document, bytes: &[u8]| {
            let sum = ReadTotal { bytes: bytes.len() as u64, md5: Md5::new_with_prefix(bytes) };
            check(file, &sum)
        };
        assert_eq!(check(&file, b"abc"), Ok(()));
        assert_eq!(check(&doc! { "length": 3_i64 }, b"abc"), Ok(()));
        let short = check(&file, b"ab").unwrap_err();
        assert_eq!(short, "it should have 3 bytes, its chunks have 2");
        let other = check(&file, b"abd").unwrap_err();
        assert_eq!(other, "its MD5 digest is not that of its chunks");
        assert!(check(&doc! { "length": "x" }, b"abc").is_err());
        assert!(check(&doc! { "length": -1 }, b"").is_err());
    }

    #[test]
    fn letters_go_over_the_ends_of_chunks() {
        let read = |chunks: &[&[u8]]| {
            let mut tail = Vec::new();
            let text: String = chunks.iter().map(|bytes| decode(&mut tail, bytes)).collect();
            (text, tail)
        };
        let whole = "aä€𝄞b";
        for at in 0..=whole.len() {
            let (one, other) = whole.as_bytes().split_at(at);
            assert_eq!(read(&[one, other]), (whole.to_owned(), Vec::new()), "{at}");
        }
        let single: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
        assert_eq!(read(&single), (whole.to_owned(), Vec::new()));
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let odd = b"a\xffb\xe2\x82c\xf0\x9d";
        for at in 0..=odd.len() {
            let (one, other) = odd.split_at(at);
            let (text, tail) = read(&[one, other]);
            assert_eq!(text + &lossy(&tail), lossy(odd), "{at}");
        }
    }

    #[test]
    fn chunks_are_counted() {
        let part = |n: Bson| doc! { "n": n, "data": "x" };
        assert_eq!(content(&part(4.into()), 4), Ok(&b"x"[..]));
        assert_eq!(content(&part(5.into()), 4), Err("chunk 4 is missing".into()));
        assert_eq!(content(&part(3.into()), 4), Err("chunk 3 is there twice".into()));
        assert_eq!(content(&part("x".into()), 4), Err("chunk 4 has no number".into()));
        let odd = content(&doc! { "n": 0, "data": 5 }, 0).unwrap_err();
        assert_eq!(odd, "chunk 0 holds neither a string nor bytes");
    }
}
