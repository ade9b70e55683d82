//! Replies, as bytes: the first line, sorted headers, `Content-Length` last, the body.

use std::borrow::Cow;

use super::escape::escape;
use super::json::Object;

/// One reply to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    code: u16,
    text: Cow<'static, str>,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    /// `200 OK` without a body.
    pub(crate) fn ok() -> Response {
        Response::error(200, "OK")
    }

    /// `200 OK` with this body.
    pub(crate) fn text(body: String) -> Response {
        Response { body, ..Response::ok() }
    }

    /// `200 OK` with a JSON object.
    pub(crate) fn json(object: Object) -> Response {
        Response::text(object.compose())
    }

    /// Any other first line; an error reply has nothing else.
    pub(crate) fn error(code: u16, text: impl Into<Cow<'static, str>>) -> Response {
        Response { code, text: text.into(), headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn with_body(self, body: String) -> Response {
        Response { body, ..self }
    }

    /// The bytes that go to the client.
    pub(crate) fn compose(mut self) -> Vec<u8> {
        self.headers.sort_by_cached_key(|(name, _)| name.to_ascii_lowercase());
        let mut out = format!("{} ", self.code);
        escape(&self.text, &mut out);
        out.push_str("\r\n");
        for (name, value) in &self.headers {
            out.push_str(name);
            out.push_str(": ");
            escape(value, &mut out);
            out.push_str("\r\n");
        }
        out.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        out.push_str(&self.body);
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(response: Response) -> String {
        String::from_utf8(response.compose()).unwrap()
    }

    #[test]
    fn the_first_line_has_no_protocol_and_the_length_is_always_there() {
        assert_eq!(composed(Response::ok()), "200 OK\r\nContent-Length: 0\r\n\r\n");
        let error = Response::error(402, "Missing name");
        assert_eq!(composed(error), "402 Missing name\r\nContent-Length: 0\r\n\r\n");
        let body = Response::text("é".to_owned());
        assert_eq!(composed(body), "200 OK\r\nContent-Length: 2\r\n\r\né");
    }

    #[test]
    fn headers_are_sorted_without_case_and_the_length_is_last() {
        let response = Response::ok()
            .with_header("nodeName", "n")
            .with_header("Zulu", "z")
            .with_header("error", "e")
            .with_header("Connection", "close")
            .with_body("{}".to_owned());
        let expected = "200 OK\r\nConnection: close\r\nerror: e\r\nnodeName: n\r\nZulu: z\r\n\
                        Content-Length: 2\r\n\r\n{}";
        assert_eq!(composed(response), expected);
    }

    #[test]
    fn no_value_breaks_a_line() {
        let response = Response::error(402, "Bad\r\nquery").with_header("error", "a\r\nb\tc\\d");
        let expected = "402 Bad\\r\\nquery\r\nerror: a\\r\\nb\\tc\\\\d\r\n\
                        Content-Length: 0\r\n\r\n";
        assert_eq!(composed(response), expected);
    }
}
