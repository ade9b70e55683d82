//! A list of tasks as an answer, written while it is read: however many there are, only a few are
//! in memory.

use std::io;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use mongodb::Cursor;
use mongodb::action::Find;
use mongodb::bson::{Bson, Document, RawDocumentBuf};
use serde_json::Value;

use super::files::{self, Leave};
use super::show;
use crate::database::DbError;
use crate::dci::Dci;
use crate::dci::error::Failure;
use crate::doc::{Times, json_shown};

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
    /// One task alone.
    pub(crate) async fn response(&self, dci: &Dci, task: Document) -> Result<Response, Failure> {
        let mut leave = None;
        let text = self.text(dci, task, &mut leave).await?;
        Ok(response(Body::from(files::sent(text, leave))))
    }

    async fn text(
        &self,
        dci: &Dci,
        mut task: Document,
        leave: &mut Option<Leave>,
    ) -> Result<String, Failure> {
        match self.output {
            Output::Stored => {}
            Output::Full => files::fill(dci, &mut task, leave).await?,
            Output::Terse => show::shorten(&mut task),
            Output::TerseAlways => show::shorten_all(&mut task),
        }
        let value = self.shown(task);
        let text = if self.pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        };
        text.map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    fn shown(&self, task: Document) -> Value {
        let task = Bson::Document(task);
        let mut shown = json_shown(&task, self.times);
        if let (true, Bson::Document(task), Value::Object(shown)) =
            (self.stamped, &task, &mut shown)
        {
            show::stamp(task, shown);
        }
        shown
    }
}

fn response(body: Body) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
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
        response(Body::from_stream(pieces))
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
        let (mut text, mut leave) = (String::new(), None);
        if !self.begun {
            text.push('[');
        }
        while text.len() < PIECE_BYTES {
            let Some(task) = self.next().await.map_err(broken)? else {
                text.push(']');
                return Ok((files::sent(text, leave), None));
            };
            if self.begun {
                text.push(',');
            }
            self.begun = true;
            let shown = self.shape.text(&self.dci, task, &mut leave).await;
            let refused = |failure: Failure| broken(&failure.body["error"]);
            text.push_str(&shown.map_err(refused)?);
        }
        Ok((files::sent(text, leave), Some(self)))
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
