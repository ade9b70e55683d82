//! Streams tasks as an answer while they are read: however many there are and however long their
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

use super::files::{self, EscapedFile, JsonPart};
use super::show;
use super::slot::AnswerSlot;
use crate::dci::Dci;
use crate::dci::error::Failure;
use crate::doc::{DateFormat, json_shown};

/// Bytes per piece; a single task may be longer.
const PIECE_BYTES: usize = 64 * 1024;

/// Documents per batch from the database, whose own limit is too large for our memory.
pub(crate) const READ_BATCH: u32 = 100;

/// Which output to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// As stored: text, or the id of a file.
    Stored,
    /// Including the text of files.
    Full,
    /// Only whether there is any.
    Terse,
    /// None, as in version 3.
    TerseAlways,
}

/// How to show each task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskFormat {
    pub(crate) output: Output,
    pub(crate) times: DateFormat,
    /// Show times twice, as version 3 did.
    pub(crate) stamped: bool,
    pub(crate) pretty: bool,
}

impl TaskFormat {
    async fn parts(&self, dci: &Dci, mut task: Document) -> Result<VecDeque<JsonPart>, Failure> {
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

/// The result of a search; the first task has already been read.
pub(crate) struct FoundTasks {
    first: Option<Document>,
    /// `None` for a single task.
    cursor: Option<Cursor<RawDocumentBuf>>,
    slot: AnswerSlot,
}

impl FoundTasks {
    pub(crate) async fn search(
        dci: &Dci,
        find: Find<'_, RawDocumentBuf>,
    ) -> Result<FoundTasks, Failure> {
        let slot = dci.slots().take().await?;
        let mut cursor = dci.database().ask(find.batch_size(READ_BATCH)).await?;
        let first = dci.database().one(cursor.try_next()).await?;
        Ok(FoundTasks { first, cursor: Some(cursor), slot })
    }

    /// Finds at most one task.
    pub(crate) async fn one(
        dci: &Dci,
        find: impl IntoFuture<Output = mongodb::error::Result<Option<RawDocumentBuf>>>,
    ) -> Result<FoundTasks, Failure> {
        let slot = dci.slots().take().await?;
        Ok(FoundTasks { first: dci.database().one(find).await?, cursor: None, slot })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first task as a JSON object.
    pub(crate) async fn into_object(
        self,
        dci: &Dci,
        format: TaskFormat,
    ) -> Result<Response, Failure> {
        let parts = format.parts(dci, self.first.unwrap_or_default()).await?;
        let found = FoundTasks { first: None, cursor: None, slot: self.slot };
        Ok(ListWriter { dci: dci.clone(), found, format, parts, file: None, next: NextTask::End }
            .response())
    }

    /// All tasks as a JSON array.
    pub(crate) fn into_array(self, dci: &Dci, format: TaskFormat) -> Response {
        let (parts, next) = (VecDeque::new(), NextTask::First);
        ListWriter { dci: dci.clone(), found: self, format, parts, file: None, next }.response()
    }
}

/// Writes an answer piece by piece.
struct ListWriter {
    dci: Dci,
    found: FoundTasks,
    format: TaskFormat,
    /// The rest of the current task.
    parts: VecDeque<JsonPart>,
    /// The file being written.
    file: Option<EscapedFile>,
    next: NextTask,
}

/// What follows the current task.
#[derive(Clone, Copy)]
enum NextTask {
    First,
    Another,
    End,
}

impl ListWriter {
    fn response(self) -> Response {
        let pieces = stream::try_unfold(Some(self), |writer| async {
            match writer {
                Some(writer) => writer.piece().await.map(Some),
                None => Ok(None),
            }
        });
        let json = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, json)], Body::from_stream(pieces)).into_response()
    }

    /// The next piece, and the writer if there is more.
    async fn piece(mut self) -> io::Result<(Bytes, Option<ListWriter>)> {
        let mut text = String::new();
        while text.len() < PIECE_BYTES {
            match self.step().await? {
                Some(more) => text.push_str(&more),
                None => return Ok((self.found.slot.keep(text), None)),
            }
        }
        Ok((self.found.slot.keep(text), Some(self)))
    }

    /// The next text; `None` at the end.
    async fn step(&mut self) -> io::Result<Option<String>> {
        if let Some(file) = &mut self.file {
            let more = file.piece().await.map_err(broken)?;
            if more.is_none() {
                self.file = None;
            }
            return Ok(Some(more.unwrap_or_default()));
        }
        match self.parts.pop_front() {
            Some(JsonPart::Text(text)) => return Ok(Some(text)),
            Some(JsonPart::File(file)) => {
                let file = EscapedFile::open(self.dci.database(), file).await.map_err(broken)?;
                self.file = Some(file);
                return Ok(Some(String::new()));
            }
            None => {}
        }
        let before = match self.next {
            NextTask::First => "[",
            NextTask::Another => ",",
            NextTask::End => return Ok(None),
        };
        let task = match self.found.first.take() {
            Some(first) => Some(first),
            None => self.more().await?,
        };
        let Some(task) = task else {
            let none = matches!(self.next, NextTask::First);
            self.next = NextTask::End;
            return Ok(Some(if none { "[]" } else { "]" }.to_owned()));
        };
        let parts = self.format.parts(&self.dci, task).await;
        self.parts = parts.map_err(|failure| broken(&failure.body["error"]))?;
        self.next = NextTask::Another;
        Ok(Some(before.to_owned()))
    }

    async fn more(&mut self) -> io::Result<Option<Document>> {
        let Some(cursor) = &mut self.found.cursor else { return Ok(None) };
        self.dci.database().one(cursor.try_next()).await.map_err(broken)
    }
}

/// The status has already been sent, so all we can do is break off visibly.
fn broken(error: impl std::fmt::Display) -> io::Error {
    tracing::warn!("tasks were broken off: {error}");
    io::Error::other(error.to_string())
}
