//! A list of tasks as an answer, written while it is read: however many there are, only a few are
//! in memory.

use std::io;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use mongodb::Cursor;
use mongodb::action::Find;
use mongodb::bson::{Bson, Document, RawDocumentBuf};
use serde_json::Value;

use super::show;
use crate::database::DbError;
use crate::dci::Dci;
use crate::doc::{Times, json_shown};
use crate::gridfs;

/// What is sent at once; one task may be longer.
const PIECE_BYTES: usize = 64 * 1024;

/// Documents that the database sends at once. Its own bound is a size that is large for memory.
pub(crate) const READ_BATCH: u32 = 100;

/// What of the output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// As it stands in the task: text, or the id of a file.
    Stored,
    /// Text of files too.
    Full,
    /// That there is some.
    Terse,
    /// Nothing, as version 3 had it.
    TerseAlways,
}

/// How each task is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) output: Output,
    pub(crate) times: Times,
    /// Times twice, as version 3 showed them.
    pub(crate) stamped: bool,
    pub(crate) pretty: bool,
}

impl Shape {
    pub(crate) async fn show(&self, dci: &Dci, mut task: Document) -> Value {
        match self.output {
            Output::Stored => {}
            Output::Full => fill(dci, &mut task).await,
            Output::Terse => show::shorten(&mut task),
            Output::TerseAlways => show::shorten_all(&mut task),
        }
        let task = Bson::Document(task);
        let mut shown = json_shown(&task, self.times);
        if let (true, Bson::Document(task), Value::Object(shown)) =
            (self.stamped, &task, &mut shown)
        {
            show::stamp(task, shown);
        }
        shown
    }

    async fn text(&self, dci: &Dci, task: Document) -> Result<String, serde_json::Error> {
        let value = self.show(dci, task).await;
        if self.pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        }
    }
}

/// Puts the text of files in the place of their ids; what cannot be read keeps its id.
async fn fill(dci: &Dci, task: &mut Document) {
    for name in show::OUTPUT {
        let Some(Bson::ObjectId(file)) = task.get(name) else { continue };
        match gridfs::load(dci.database(), *file).await {
            Ok(text) => drop(task.insert(name, text)),
            Err(error) => {
                let id = task.get("_id").map(ToString::to_string).unwrap_or_default();
                tracing::warn!("Could not get task {id} {name}: {error}");
            }
        }
    }
}

/// Tasks that were asked for, the first of them looked at already.
pub(crate) struct Found {
    first: Option<Document>,
    cursor: Cursor<RawDocumentBuf>,
}

impl Found {
    pub(crate) async fn ask(dci: &Dci, find: Find<'_, RawDocumentBuf>) -> Result<Found, DbError> {
        let mut cursor = dci.database().ask(find.batch_size(READ_BATCH)).await?;
        let first = dci.database().one(cursor.try_next()).await?;
        Ok(Found { first, cursor })
    }

    /// The first one alone.
    pub(crate) fn first(self) -> Option<Document> {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// All of them as a JSON array.
    pub(crate) fn into_response(self, dci: &Dci, shape: Shape) -> Response {
        let writing = Writing { dci: dci.clone(), found: self, shape, begun: false };
        let pieces = stream::try_unfold(Some(writing), |writing| async {
            match writing {
                Some(writing) => writing.piece().await.map(Some),
                None => Ok(None),
            }
        });
        let json = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, json)], Body::from_stream(pieces)).into_response()
    }
}

/// An array of which some is written.
struct Writing {
    dci: Dci,
    found: Found,
    shape: Shape,
    begun: bool,
}

impl Writing {
    /// The next piece, and what is left to write.
    async fn piece(mut self) -> io::Result<(Bytes, Option<Writing>)> {
        let mut text = String::new();
        if !self.begun {
            text.push('[');
        }
        while text.len() < PIECE_BYTES {
            let Some(task) = self.next().await.map_err(broken)? else {
                text.push(']');
                return Ok((text.into(), None));
            };
            if self.begun {
                text.push(',');
            }
            self.begun = true;
            text.push_str(&self.shape.text(&self.dci, task).await.map_err(broken)?);
        }
        Ok((text.into(), Some(self)))
    }

    async fn next(&mut self) -> Result<Option<Document>, DbError> {
        match self.found.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.dci.database().one(self.found.cursor.try_next()).await,
        }
    }
}

/// The status is sent already, so that all that is left is to break off where it shows.
fn broken(error: impl std::fmt::Display) -> io::Error {
    tracing::warn!("a list of tasks was broken off: {error}");
    io::Error::other(error.to_string())
}
