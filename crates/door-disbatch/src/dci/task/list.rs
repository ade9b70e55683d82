//! Tasks as an answer, written while they are read: however many there are and however long their
//! output is, only a little of it is in memory.

use std::collections::VecDeque;
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

use super::files::{self, Escaped, Part};
use super::place::Place;
use super::show;
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
    async fn parts(&self, dci: &Dci, mut task: Document) -> Result<VecDeque<Part>, Failure> {
        let mut marks = Vec::new();
        match self.output {
            Output::Stored => {}
            Output::Full => marks = files::mark(dci.database(), &mut task).await,
            Output::Terse => show::shorten(&mut task),
            Output::TerseAlways => show::shorten_all(&mut task),
        }
        let value = self.shown(task);
        let text = if self.pretty {
            serde_json::to_string_pretty(&value)
        } else {
            serde_json::to_string(&value)
        };
        let odd = |error: serde_json::Error| {
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        };
        Ok(files::cut(text.map_err(odd)?, &marks))
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

/// Tasks that were asked for, the first of them looked at already.
pub(crate) struct Found {
    first: Option<Document>,
    /// `None` if there is one task alone.
    cursor: Option<Cursor<RawDocumentBuf>>,
    place: Place,
}

impl Found {
    pub(crate) async fn ask(dci: &Dci, find: Find<'_, RawDocumentBuf>) -> Result<Found, Failure> {
        let place = dci.places().take().await?;
        let mut cursor = dci.database().ask(find.batch_size(READ_BATCH)).await?;
        let first = dci.database().one(cursor.try_next()).await?;
        Ok(Found { first, cursor: Some(cursor), place })
    }

    /// At most one.
    pub(crate) async fn one(
        dci: &Dci,
        find: impl IntoFuture<Output = mongodb::error::Result<Option<RawDocumentBuf>>>,
    ) -> Result<Found, Failure> {
        let place = dci.places().take().await?;
        Ok(Found { first: dci.database().one(find).await?, cursor: None, place })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first one as a JSON object.
    pub(crate) async fn into_object(self, dci: &Dci, shape: Shape) -> Result<Response, Failure> {
        let parts = shape.parts(dci, self.first.unwrap_or_default()).await?;
        let found = Found { first: None, cursor: None, place: self.place };
        Ok(Writing { dci: dci.clone(), found, shape, parts, file: None, next: Next::End }
            .response())
    }

    /// All of them as a JSON array.
    pub(crate) fn into_array(self, dci: &Dci, shape: Shape) -> Response {
        let (parts, next) = (VecDeque::new(), Next::First);
        Writing { dci: dci.clone(), found: self, shape, parts, file: None, next }.response()
    }
}

/// An answer of which some is written.
struct Writing {
    dci: Dci,
    found: Found,
    shape: Shape,
    /// What is left of a task.
    parts: VecDeque<Part>,
    /// A file in the middle of it.
    file: Option<Escaped>,
    next: Next,
}

/// What comes behind that.
#[derive(Clone, Copy)]
enum Next {
    First,
    Another,
    End,
}

impl Writing {
    fn response(self) -> Response {
        let pieces = stream::try_unfold(Some(self), |writing| async {
            match writing {
                Some(writing) => writing.piece().await.map(Some),
                None => Ok(None),
            }
        });
        let json = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, json)], Body::from_stream(pieces)).into_response()
    }

    /// The next piece, and what is left to write.
    async fn piece(mut self) -> io::Result<(Bytes, Option<Writing>)> {
        let mut text = String::new();
        while text.len() < PIECE_BYTES {
            match self.step().await? {
                Some(more) => text.push_str(&more),
                None => return Ok((self.found.place.keep(text), None)),
            }
        }
        Ok((self.found.place.keep(text), Some(self)))
    }

    /// What is written next; none at the end.
    async fn step(&mut self) -> io::Result<Option<String>> {
        if let Some(file) = &mut self.file {
            let more = file.piece().await.map_err(broken)?;
            if more.is_none() {
                self.file = None;
            }
            return Ok(Some(more.unwrap_or_default()));
        }
        match self.parts.pop_front() {
            Some(Part::Text(text)) => return Ok(Some(text)),
            Some(Part::File(file)) => {
                let file = Escaped::open(self.dci.database(), file).await.map_err(broken)?;
                self.file = Some(file);
                return Ok(Some(String::new()));
            }
            None => {}
        }
        let before = match self.next {
            Next::First => "[",
            Next::Another => ",",
            Next::End => return Ok(None),
        };
        let task = match self.found.first.take() {
            Some(first) => Some(first),
            None => self.more().await?,
        };
        let Some(task) = task else {
            let none = matches!(self.next, Next::First);
            self.next = Next::End;
            return Ok(Some(if none { "[]" } else { "]" }.to_owned()));
        };
        let parts = self.shape.parts(&self.dci, task).await;
        self.parts = parts.map_err(|failure| broken(&failure.body["error"]))?;
        self.next = Next::Another;
        Ok(Some(before.to_owned()))
    }

    async fn more(&mut self) -> io::Result<Option<Document>> {
        let Some(cursor) = &mut self.found.cursor else { return Ok(None) };
        self.dci.database().one(cursor.try_next()).await.map_err(broken)
    }
}

/// The status is sent already, so that all that is left is to break off where it shows.
fn broken(error: impl std::fmt::Display) -> io::Error {
    tracing::warn!("tasks were broken off: {error}");
    io::Error::other(error.to_string())
}
