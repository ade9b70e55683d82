//! Reading output back, in whichever form it was written.

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::write::digest;
use super::{chunks, files};
use crate::database::{Database, DbError, stored};

/// A larger file is not taken into memory.
const READ_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("there is no output file {0}")]
    Absent(ObjectId),
    #[error("the output file {id} is broken: {why}")]
    Broken { id: ObjectId, why: String },
    #[error(
        "the output file {id} has more than {} bytes, which is more than is read at once",
        READ_MAX
    )]
    Large { id: ObjectId },
    #[error(transparent)]
    Database(#[from] DbError),
}

/// The text of a file. Its length and, where it has one, its digest are checked.
///
/// # Errors
///
/// When it is not there, not whole, too large, or the database is away.
pub async fn load(database: &Database, id: ObjectId) -> Result<String, LoadError> {
    let files = files(database).clone_with_type();
    let file = database.one(files.find_one(doc! { "_id": id })).await?;
    let file = file.ok_or(LoadError::Absent(id))?;
    let mut bytes = Vec::new();
    let mut next = 0;
    let chunks = chunks(database).clone_with_type::<RawDocumentBuf>();
    let in_order = chunks.find(doc! { "files_id": id }).sort(doc! { "n": 1 });
    let mut parts = database.ask(in_order).await?;
    while let Some(part) = database.ask(parts.try_next()).await? {
        let broken = |why| LoadError::Broken { id, why };
        bytes.extend_from_slice(content(&stored(&part)?, next).map_err(broken)?);
        if bytes.len() > READ_MAX {
            return Err(LoadError::Large { id });
        }
        next += 1;
    }
    check(&file, &bytes).map_err(|why| LoadError::Broken { id, why })?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
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

fn check(file: &Document, bytes: &[u8]) -> Result<(), String> {
    let found = bytes.len();
    let length = file.get("length").and_then(whole).ok_or("it does not say its length")?;
    if usize::try_from(length) != Ok(found) {
        return Err(format!("it should have {length} bytes, its chunks have {found}"));
    }
    match file.get("md5") {
        Some(Bson::String(md5)) if !md5.eq_ignore_ascii_case(&digest(bytes)) => {
            Err("its MD5 digest is not that of its chunks".into())
        }
        _ => Ok(()),
    }
}

/// A whole number of any of the types that drivers write.
fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        #[expect(clippy::cast_possible_truncation, reason = "only whole numbers get here")]
        Bson::Double(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_told() {
        let file = doc! { "length": 3.0, "md5": "900150983CD24FB0D6963F7D28E17F72" };
        assert_eq!(check(&file, b"abc"), Ok(()));
        assert_eq!(check(&doc! { "length": 3_i64 }, b"abc"), Ok(()));
        let short = check(&file, b"ab").unwrap_err();
        assert_eq!(short, "it should have 3 bytes, its chunks have 2");
        let other = check(&file, b"abd").unwrap_err();
        assert_eq!(other, "its MD5 digest is not that of its chunks");
        assert!(check(&doc! { "length": "3" }, b"abc").is_err());
        assert!(check(&doc! { "length": -1 }, b"").is_err());
    }

    #[test]
    fn chunks_are_counted() {
        let part = |n: Bson| doc! { "n": n, "data": "x" };
        assert_eq!(content(&part(4.into()), 4), Ok(&b"x"[..]));
        assert_eq!(content(&part(5.into()), 4), Err("chunk 4 is missing".into()));
        assert_eq!(content(&part(3.into()), 4), Err("chunk 3 is there twice".into()));
        assert_eq!(content(&part("4".into()), 4), Err("chunk 4 has no number".into()));
        let odd = content(&doc! { "n": 0, "data": 5 }, 0).unwrap_err();
        assert_eq!(odd, "chunk 0 holds neither a string nor bytes");
    }
}
