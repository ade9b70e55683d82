//! A batch as a request: as many jobs as fit, large payloads in files next to it.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;
use windlass_core::runner::{Assignment, Pieces};
use windlass_core::time::format_time;
use windlass_core::{AttemptId, Payload};

use super::frame::encode;
use super::message::{Request, RunJob, RunPayload};
use super::nonce::Nonce;
use crate::payload::PayloadReader;
use crate::scratch::FILE_MODE;

/// Total size of the payloads of one request; the rest of the batch goes into another one.
const PAYLOAD_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The jobs of one request.
pub(super) struct BatchRequest {
    pub(super) assignments: Vec<Assignment>,
    /// One for each assignment.
    pub(super) nonces: Vec<Nonce>,
    pub(super) frame: Vec<u8>,
    /// Large payloads, to be removed after the request.
    pub(super) files: Vec<PathBuf>,
    /// Jobs whose payload cannot be read, and why.
    pub(super) unreadable: Vec<(AttemptId, String)>,
}

/// The directory of large payloads: its path here, and inside the context.
pub(super) struct Inbox {
    pub(super) here: PathBuf,
    pub(super) there: PathBuf,
}

/// A payload in a file.
struct PayloadFile {
    path: PathBuf,
    /// Its name inside the context.
    seen_as: String,
    is_text: bool,
}

impl BatchRequest {
    /// Takes jobs from the front.
    pub(super) async fn take(
        waiting: &mut VecDeque<Assignment>,
        jobs_max: usize,
        handler: u32,
        mark: bool,
        pieces: &Arc<dyn Pieces>,
        inbox: &Inbox,
    ) -> BatchRequest {
        let mut taken: Vec<(Assignment, Option<PayloadFile>)> = Vec::new();
        let mut unreadable = Vec::new();
        let mut bytes = 0;
        while let Some(next) = waiting.front().filter(|_| taken.len() < jobs_max) {
            if let Payload::Inline(payload) = &next.payload {
                bytes += payload.len() as u64;
            }
            if bytes > PAYLOAD_BYTES_MAX && !taken.is_empty() {
                break;
            }
            let Some(assignment) = waiting.pop_front() else { break };
            match spill(&assignment, pieces, inbox).await {
                Ok(spilled) => taken.push((assignment, spilled)),
                Err(reason) => unreadable.push((assignment.id, reason)),
            }
        }
        let nonces = Nonce::several(taken.len()).unwrap_or_else(|error| {
            let reason = format!("no random bytes: {error}");
            unreadable.extend(taken.drain(..).map(|(job, _)| (job.id, reason.clone())));
            Vec::new()
        });
        let jobs = taken.iter().zip(&nonces);
        let jobs = jobs.map(|((job, spilled), nonce)| run_job(job, *nonce, spilled.as_ref()));
        let request = Request::Run { handler, mark, jobs: jobs.collect() };
        // Payloads are bounded above, and escaping makes them at most six times longer.
        let frame = encode(&request).unwrap_or_default();
        let files = taken.iter().filter_map(|(_, spilled)| Some(spilled.as_ref()?.path.clone()));
        let files = files.collect();
        let assignments = taken.into_iter().map(|(assignment, _)| assignment).collect();
        BatchRequest { assignments, nonces, frame, files, unreadable }
    }
}

fn run_job<'a>(
    assignment: &'a Assignment,
    nonce: Nonce,
    spilled: Option<&'a PayloadFile>,
) -> RunJob<'a> {
    let payload = match (&assignment.payload, spilled) {
        (_, Some(PayloadFile { seen_as, is_text, .. })) => {
            RunPayload::File { payload_file: seen_as, payload_text: *is_text }
        }
        (Payload::Inline(bytes), None) => match str::from_utf8(bytes) {
            Ok(payload) => RunPayload::Text { payload },
            Err(_) => RunPayload::Bytes { payload_base64: BASE64_STANDARD.encode(bytes) },
        },
        (Payload::Pieces { .. }, None) => RunPayload::Text { payload: "" },
    };
    let job = &assignment.job;
    RunJob {
        id: job.id.to_string(),
        nonce,
        attempt: job.attempt,
        priority: job.priority.get(),
        created_at: format_time(job.created_at),
        children: job.children,
        payload,
    }
}

/// Writes a large payload to a file, piece by piece.
async fn spill(
    assignment: &Assignment,
    pieces: &Arc<dyn Pieces>,
    inbox: &Inbox,
) -> Result<Option<PayloadFile>, String> {
    if let Payload::Inline(_) = assignment.payload {
        return Ok(None);
    }
    let id = assignment.job.id;
    let failed = |reason: std::io::Error| reason.to_string();
    let mut payload = PayloadReader::open(id, &assignment.payload, pieces).await?;
    let name = format!("payload-{id}-{:016x}", fastrand::u64(..));
    let path = inbox.here.join(&name);
    let mut file = create(&path).await.map_err(failed)?;
    let mut text = TextCheck::default();
    while let Some(piece) = payload.next().await? {
        text.push(&piece);
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let seen_as = inbox.there.join(name).to_string_lossy().into_owned();
    Ok(Some(PayloadFile { path, seen_as, is_text: text.is_text() }))
}

/// A new file in a directory that handlers cannot write to, readable whatever the umask is.
async fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).await?;
    file.set_permissions(Permissions::from_mode(FILE_MODE)).await?;
    Ok(file)
}

/// Checks whether bytes that arrive in pieces are UTF-8. A character may be split between pieces.
#[derive(Default)]
struct TextCheck {
    /// The beginning of a character that continues in the next piece.
    cut: Vec<u8>,
    broken: bool,
}

impl TextCheck {
    fn push(&mut self, piece: &[u8]) {
        let joined;
        let bytes = if self.cut.is_empty() {
            piece
        } else {
            joined = [&self.cut[..], piece].concat();
            &joined[..]
        };
        let cut = match str::from_utf8(bytes) {
            Ok(_) => &[],
            Err(error) if error.error_len().is_none() => &bytes[error.valid_up_to()..],
            Err(_) => {
                self.broken = true;
                &[]
            }
        };
        self.cut = cut.to_vec();
    }

    fn is_text(&self) -> bool {
        !self.broken && self.cut.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_core::JobId;

    use super::super::fuzz::assignment;
    use super::*;

    /// Zeros.
    struct Zeros(u64);

    #[async_trait::async_trait]
    impl Pieces for Zeros {
        async fn piece(&self, _: JobId, index: u32) -> Result<Option<Bytes>, String> {
            Ok((index == 0).then(|| vec![0; self.0 as usize].into()))
        }
    }

    /// A handler knows the id of its next job. It cannot write to this directory; if it could:
    #[tokio::test]
    async fn a_payload_is_written_to_nothing_that_a_handler_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "as it was").unwrap();
        let mut assignment = assignment();
        assignment.payload = Payload::Pieces { bytes: 100 };
        let place = dir.path().join(format!("payload-{}", assignment.job.id));
        std::os::unix::fs::symlink(&victim, &place).unwrap();
        let pieces: Arc<dyn Pieces> = Arc::new(Zeros(100));
        let inbox = Inbox { here: dir.path().to_owned(), there: "/job/in".into() };
        let spilled = spill(&assignment, &pieces, &inbox).await.unwrap().unwrap();
        assert!(spilled.seen_as.starts_with("/job/in/payload-"), "{}", spilled.seen_as);
        assert_eq!(std::fs::read(&victim).unwrap(), b"as it was");
        assert_eq!(std::fs::read(&spilled.path).unwrap(), [0; 100]);
        for plant in [&place, &victim] {
            assert!(create(plant).await.is_err(), "{}", plant.display());
        }
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success() && create(&pipe).await.is_err());
    }

    #[test]
    fn text_is_known_however_it_is_cut() {
        let is_text = |bytes: &[u8], size: usize| {
            let mut check = TextCheck::default();
            bytes.chunks(size).for_each(|piece| check.push(piece));
            check.is_text()
        };
        for size in 1..6 {
            assert!(is_text("aä€😀z".as_bytes(), size), "{size}");
            assert!(!is_text(b"a\xff", size) && !is_text("€".as_bytes().split_at(2).0, size));
        }
    }
}
