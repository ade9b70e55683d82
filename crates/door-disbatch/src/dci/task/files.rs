//! Writes output files into JSON. A file may be very long, so it is never in memory as a whole: a
//! task is serialized with marks in place of its files, and split there.

use std::collections::VecDeque;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};

use super::show::OUTPUT;
use crate::database::Database;
use crate::gridfs::{self, LoadError, Reader};

/// Text escaped at once; it may become six times as long.
const PIECE_BYTES: usize = 64 * 1024;

/// A part of a task's JSON.
#[derive(Debug, PartialEq)]
pub(crate) enum JsonPart {
    Text(String),
    /// The escaped content of this file.
    File(ObjectId),
}

/// The position of a file in the JSON.
pub(crate) struct FileMark {
    /// An unpredictable text that needs no escaping in JSON.
    text: String,
    file: ObjectId,
}

/// Replaces file ids by marks. Incomplete files keep their id, because once a part is sent an error
/// could not be reported.
pub(crate) async fn mark(database: &Database, task: &mut Document) -> Vec<FileMark> {
    let mut marks = Vec::new();
    for name in OUTPUT {
        let Some(Bson::ObjectId(file)) = task.get(name) else { continue };
        let file = *file;
        match gridfs::verify(database, file).await {
            Ok(()) => {
                let text = format!("{:032x}", fastrand::u128(..));
                task.insert(name, text.as_str());
                marks.push(FileMark { text, file });
            }
            Err(error) => {
                let id = task.get("_id").map(ToString::to_string).unwrap_or_default();
                tracing::warn!("Could not get task {id} {name}: {error}");
            }
        }
    }
    marks
}

/// Splits the JSON of a task at its marks.
pub(crate) fn cut(json: String, marks: &[FileMark]) -> VecDeque<JsonPart> {
    let mut found: Vec<(usize, &FileMark)> =
        marks.iter().filter_map(|mark| Some((json.find(&mark.text)?, mark))).collect();
    found.sort_unstable_by_key(|(at, _)| *at);
    let (mut parts, mut from) = (VecDeque::new(), 0);
    for (at, mark) in found {
        parts.push_back(JsonPart::Text(json[from..at].to_owned()));
        parts.push_back(JsonPart::File(mark.file));
        from = at + mark.text.len();
    }
    let rest = if from == 0 { json } else { json[from..].to_owned() };
    parts.push_back(JsonPart::Text(rest));
    parts
}

/// The escaped text of a file, piece by piece.
pub(crate) struct EscapedFile {
    reader: Reader,
    text: String,
    /// How much of it has been written.
    written: usize,
}

impl EscapedFile {
    pub(crate) async fn open(
        database: &Database,
        file: ObjectId,
    ) -> Result<EscapedFile, LoadError> {
        let reader = Reader::open(database, file).await?;
        Ok(EscapedFile { reader, text: String::new(), written: 0 })
    }

    pub(crate) async fn piece(&mut self) -> Result<Option<String>, LoadError> {
        while self.written == self.text.len() {
            match self.reader.text().await? {
                Some(text) => (self.text, self.written) = (text, 0),
                None => return Ok(None),
            }
        }
        let end = self.text.floor_char_boundary(self.written + PIECE_BYTES);
        let piece = escaped(&self.text[self.written..end]);
        self.written = end;
        Ok(Some(piece))
    }
}

fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_cut_at_its_marks_in_their_order() {
        let mark = |text: &str| FileMark { text: text.to_owned(), file: ObjectId::new() };
        let text = |text: &str| JsonPart::Text(text.to_owned());
        let json = r#"{"stderr":"bb","stdout":"aa"}"#.to_owned();
        let marks = [mark("aa"), mark("bb")];
        let expected = [
            text(r#"{"stderr":""#),
            JsonPart::File(marks[1].file),
            text(r#"","stdout":""#),
            JsonPart::File(marks[0].file),
            text(r#""}"#),
        ];
        assert_eq!(cut(json.clone(), &marks), expected);
        assert_eq!(cut(json.clone(), &[]), [text(&json)]);
        // Fields that were not requested are omitted.
        assert_eq!(cut(json.clone(), &[mark("cc")]), [text(&json)]);
    }

    #[test]
    fn text_is_escaped_as_in_json() {
        assert_eq!(escaped("a\"\\\n\u{1}ä"), "a\\\"\\\\\\n\\u0001ä");
        assert_eq!(escaped(""), "");
    }
}
