//! A parsed request: a method line and headers. Its body is discarded, since no command uses it.

/// One request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    verb: String,
    method_line: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// `headers` have distinct names, ignoring case.
    pub(crate) fn new(method_line: String, headers: Vec<(String, String)>) -> Request {
        let verb = method_line.split(' ').next().unwrap_or_default().to_owned();
        Request { verb, method_line, headers }
    }

    /// The method line up to its first space, as the client wrote it: compare it without case.
    pub(crate) fn verb(&self) -> &str {
        &self.verb
    }

    /// The whole method line, without the spaces around it.
    pub(crate) fn method_line(&self) -> &str {
        &self.method_line
    }

    /// The unescaped value of a header; `name` in any case. A header that is present
    /// without a value is `Some("")`.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All headers, in the order of their first occurrence.
    #[cfg(test)]
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn is(&self, verb: &str) -> bool {
        self.verb.eq_ignore_ascii_case(verb)
    }

    /// Its approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.method_line.len() + headers
    }

    /// Whether the `Connection` header has this value, in any case.
    pub(crate) fn connection_is(&self, value: &str) -> bool {
        self.header("Connection").is_some_and(|given| given.eq_ignore_ascii_case(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verb_ends_at_the_first_space() {
        let verb = |line: &str| Request::new(line.to_owned(), Vec::new()).verb().to_owned();
        assert_eq!(verb("CreateJob / HTTP/1.1"), "CreateJob");
        assert_eq!(verb("createjob"), "createjob");
        assert_eq!(verb("Query: SELECT 1;"), "Query:");
        assert!(Request::new("pInG x".to_owned(), Vec::new()).is("Ping"));
    }
}
