//! The built-in page, and files from the directory `web_root`. The page's own files need no login,
//! because the login page is one of them. They hold no data.
//!
//! Nothing outside of the directory is ever sent: no `..`, no hidden files, no symbolic links that
//! lead out of it, only regular files.

use std::io;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use percent_encoding::percent_decode_str;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncReadExt;

/// Larger files are not sent.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Files are read in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// The page loads only its own files, and cannot be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// The page's own files: path, content type, content.
const OWN: [(&str, &str, &str); 4] = [
    ("/", HTML, include_str!("../web/index.html")),
    ("/index.html", HTML, include_str!("../web/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../web/app.js")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../web/style.css")),
];

/// One of the page's own files.
pub(crate) fn own(path: &str) -> Option<Response> {
    let (_, kind, text) = OWN.into_iter().find(|(name, _, _)| *name == path)?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        // Another version of the program has different files.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer")),
    ];
    Some((headers, text).into_response())
}

/// A file below `root`, if the path names one.
pub(crate) async fn file(root: &Path, path: &str) -> Option<Response> {
    let below = below(path)?;
    match open(root, &below).await {
        Ok(Some((file, bytes))) => Some(send(file, bytes, kind(&below))),
        Ok(None) => None,
        Err(error) => {
            let usual = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            if !usual.contains(&error.kind()) {
                tracing::warn!(%error, "cannot send a file of web_root: {}", below.display());
            }
            None
        }
    }
}

/// Converts a request path to a relative path that stays below a directory.
fn below(path: &str) -> Option<PathBuf> {
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    let mut below = PathBuf::new();
    for segment in decoded.strip_prefix('/')?.split('/') {
        // `.` and `..` begin with a dot like other hidden files.
        if segment.is_empty() || segment.starts_with('.') || segment.contains(['\0', '\\']) {
            return None;
        }
        below.push(segment);
    }
    Some(below)
}

/// Opens a regular file and returns its length; `None` if it must not be sent.
async fn open(root: &Path, below: &Path) -> io::Result<Option<(File, u64)>> {
    let root = tokio::fs::canonicalize(root).await?;
    let path = tokio::fs::canonicalize(root.join(below)).await?;
    if !path.starts_with(&root) {
        tracing::warn!("a link in web_root leads out of it: {}", below.display());
        return Ok(None);
    }
    // All links have been resolved. Opening a pipe must not block.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > FILE_BYTES_MAX {
        let message = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(Some((file, metadata.len())))
}

fn send(file: File, bytes: u64, kind: &'static str) -> Response {
    let pieces = stream::try_unfold((file, bytes), async |(mut file, left)| {
        // A growing file is cut at its announced length.
        let want = left.min(PIECE_BYTES as u64) as usize;
        if want == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; want];
        let read = file.read(&mut piece).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        piece.truncate(read);
        Ok(Some((Bytes::from(piece), (file, left - read as u64))))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

fn kind(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => HTML,
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_stay_below() {
        let cases = [
            ("/a.js", Some("a.js")),
            ("/img/a%20b.png", Some("img/a b.png")),
            ("/..", None),
            ("/../etc/passwd", None),
            ("/a/../../b", None),
            ("/%2e%2e/etc/passwd", None),
            ("/a/%2e%2e%2fb", None),
            ("/..%2f..%2fetc/passwd", None),
            ("/a%2f..%2f..%2fb", None),
            ("/.git/config", None),
            ("/a/.hidden", None),
            ("//etc/passwd", None),
            ("/a//b", None),
            ("/a/", None),
            ("/a%00b", None),
            ("/a%5cb", None),
            ("/%ff", None),
            ("*", None),
        ];
        for (path, expected) in cases {
            assert_eq!(below(path), expected.map(PathBuf::from), "{path}");
        }
        // An encoded slash is a slash and leads nowhere else.
        assert_eq!(below("/%2fetc/passwd"), None);
    }

    #[tokio::test]
    async fn only_regular_files_below_the_root_are_sent() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(place.path().join("secret.txt"), "secret").unwrap();
        std::fs::write(root.join("sub/a.CSS"), "x".repeat(PIECE_BYTES + 1)).unwrap();
        symlink("sub/a.CSS", root.join("inside.css")).unwrap();
        symlink("../secret.txt", root.join("out.txt")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("itself", root.join("itself")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), 0o600.into()).unwrap();

        for path in ["/sub/a.CSS", "/inside.css"] {
            let sent = file(&root, path).await.unwrap();
            assert_eq!(sent.headers()[header::CONTENT_TYPE], "text/css; charset=utf-8", "{path}");
            let body = sent.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), PIECE_BYTES + 1, "{path}");
        }
        let none =
            ["/out.txt", "/up/secret.txt", "/sub", "/itself", "/pipe", "/x", "/inside.css/x"];
        for path in none {
            assert!(file(&root, path).await.is_none(), "{path}");
        }
        assert!(file(&place.path().join("gone"), "/a").await.is_none());
    }

    #[test]
    fn the_page_has_its_files() {
        for path in ["/", "/app.js", "/style.css"] {
            assert!(own(path).is_some(), "{path}");
        }
        assert!(own("/info").is_none());
    }
}
