//! Query parameters: each route declares its parameters, and any other is an error.

use std::borrow::Cow;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;

use windlass_core::time::parse_duration;

use crate::error::Failure;

/// A parameter of a route; the OpenAPI document is generated from the same list.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
}

/// For routes without parameters.
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<NoQuery, Failure> {
        Query::read(&parts.uri, &[]).map(|_| NoQuery)
    }
}

/// The parameters of one request: known to the route, each given once.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    pub(crate) fn read(uri: &Uri, taken: &[Parameter]) -> Result<Query, Failure> {
        match uri.query() {
            None | Some("") => Ok(Query::default()),
            Some(text) => Query::parse(text, taken),
        }
    }

    /// The loop is bounded by the number of the route's parameters, since none may repeat.
    fn parse(text: &str, taken: &[Parameter]) -> Result<Query, Failure> {
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).map_err(|()| not_utf8(name))?;
            let Some(parameter) = taken.iter().find(|parameter| parameter.name == name) else {
                return Err(unknown(&name, taken));
            };
            if pairs.iter().any(|(seen, _)| *seen == parameter.name) {
                let message = format!("the query parameter '{name}' is given twice");
                return Err(Failure::invalid(name, message));
            }
            let value = decode(value).map_err(|()| not_utf8(parameter.name))?;
            pairs.push((parameter.name, value.into_owned()));
        }
        Ok(Query(pairs))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(seen, _)| *seen == name);
        pair.map(|(_, value)| value.as_str())
    }

    pub(crate) fn duration(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let parse = |text| parse_duration(text).map_err(|reason| Failure::invalid(name, reason));
        self.get(name).map(parse).transpose()
    }

    /// A whole number within bounds.
    pub(crate) fn number(&self, name: &str, min: i64, max: i64) -> Result<Option<i64>, Failure> {
        let parse = |text: &str| match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => {
                let message = format!("'{text}' is not a whole number from {min} to {max}");
                Err(Failure::invalid(name, message))
            }
        };
        self.get(name).map(parse).transpose()
    }

    /// Sorted by name.
    pub(crate) fn sorted(&self) -> Vec<(&str, &str)> {
        let mut pairs: Vec<_> =
            self.0.iter().map(|(name, value)| (*name, value.as_str())).collect();
        pairs.sort_unstable();
        pairs
    }
}

/// Decodes like a form, as client libraries encode it: a `+` is a space.
fn decode(text: &str) -> Result<Cow<'_, str>, ()> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| ())?;
        return Ok(Cow::Owned(decoded.into_owned()));
    }
    percent_decode_str(text).decode_utf8().map_err(|_| ())
}

fn not_utf8(name: &str) -> Failure {
    Failure::invalid(name, format!("the query parameter '{name}' is not UTF-8"))
}

fn unknown(name: &str, taken: &[Parameter]) -> Failure {
    let names: Vec<_> = taken.iter().map(|parameter| parameter.name).collect();
    let accepted = match names.is_empty() {
        true => "this route has none".to_owned(),
        false => format!("this route has {}", names.join(", ")),
    };
    Failure {
        // The name comes from the client, so it must not affect the code.
        code: "invalid_value",
        ..Failure::invalid(name, format!("there is no query parameter '{name}'; {accepted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: &[Parameter] =
        &[Parameter { name: "type", what: "" }, Parameter { name: "limit", what: "" }];

    fn read(text: &str) -> Result<Query, Failure> {
        Query::read(&format!("/p?{text}").parse().unwrap(), TAKEN)
    }

    fn refused(text: &str) -> (&'static str, String) {
        let failure = read(text).unwrap_err();
        (failure.code, failure.field.unwrap())
    }

    #[test]
    fn values_are_decoded() {
        assert_eq!(read("type=www%2FFoo&limit=5").unwrap().get("type"), Some("www/Foo"));
        assert_eq!(read("type=a+b%2Bc").unwrap().get("type"), Some("a b+c"));
        assert_eq!(read("type").unwrap().get("type"), Some(""));
        assert_eq!(read("&&").unwrap(), Query::default());
        assert_eq!(Query::read(&"/p".parse().unwrap(), TAKEN).unwrap(), Query::default());
    }

    #[test]
    fn unknown_repeated_and_unreadable_ones_are_named() {
        assert_eq!(refused("limits=1"), ("invalid_value", "limits".into()));
        assert_eq!(refused("tenant=1"), ("invalid_value", "tenant".into()));
        assert_eq!(refused("limit=1&limit=1"), ("invalid_value", "limit".into()));
        assert_eq!(refused("limit=%ff"), ("invalid_value", "limit".into()));
        assert!(read("x").unwrap_err().message.contains("type, limit"));
    }

    #[test]
    fn numbers_and_durations_keep_their_bounds() {
        let number = |text| read(text).unwrap().number("limit", 1, 10);
        assert_eq!(number("limit=10").unwrap(), Some(10));
        assert_eq!(number("").unwrap(), None);
        for text in ["limit=0", "limit=11", "limit=", "limit=1.0", "limit=9999999999999999999999"] {
            assert_eq!(number(text).unwrap_err().field.as_deref(), Some("limit"), "{text}");
        }
        assert_eq!(
            read("limit=5m").unwrap().duration("limit").unwrap(),
            Some(Duration::from_secs(300))
        );
        assert!(read("limit=5").unwrap().duration("limit").is_err());
    }

    #[test]
    fn the_order_of_parameters_can_be_taken_away() {
        let one = read("type=a&limit=1").unwrap();
        let other = read("limit=1&type=a").unwrap();
        assert_eq!(one.sorted(), other.sorted());
    }
}
