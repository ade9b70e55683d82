//! The answer to a client that speaks plain HTTP where TLS is spoken, so that a wrong scheme in a
//! URL is not a riddle.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::tcp;

/// How long the client may take to read the answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// What the client has sent is discarded, up to this many bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Answers with 400 and this JSON, if the client seems to speak HTTP, and closes the connection.
pub async fn refuse_plain(mut stream: TcpStream, json: &str) {
    let mut first = [0];
    let is_http = matches!(stream.peek(&mut first).await, Ok(1) if first[0].is_ascii_uppercase());
    if !is_http {
        tracing::debug!("a connection with neither TLS nor HTTP");
        return;
    }
    let length = json.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\
         \r\nconnection: close\r\n\r\n{json}"
    );
    if tcp::write(&stream, answer.as_bytes(), WAIT_MAX).await.is_ok() {
        tcp::close(&mut stream, REQUEST_BYTES_MAX).await;
    }
}
