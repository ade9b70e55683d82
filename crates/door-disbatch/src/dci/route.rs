//! The table of routes, from which both the router and the list in `GET /info` are made.

use std::collections::BTreeMap;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, delete, get, post};
use serde_json::{Value, json};

use super::Dci;

/// A builder for routes. Paths use axum's syntax, `/nodes/{node}`.
///
/// Parameters at the same position of two paths need the same name: `/tasks/{id}` serves both ids
/// and, in an older form, names of queues.
#[derive(Default)]
pub(crate) struct Routes {
    router: Router<Dci>,
    listed: BTreeMap<&'static str, Vec<String>>,
}

impl Routes {
    pub(crate) fn get<H: Handler<T, Dci>, T: 'static>(self, path: &str, handler: H) -> Routes {
        self.add("GET", path, get(handler))
    }

    pub(crate) fn post<H: Handler<T, Dci>, T: 'static>(self, path: &str, handler: H) -> Routes {
        self.add("POST", path, post(handler))
    }

    pub(crate) fn delete<H: Handler<T, Dci>, T: 'static>(self, path: &str, handler: H) -> Routes {
        self.add("DELETE", path, delete(handler))
    }

    fn add(mut self, verb: &'static str, path: &str, handler: MethodRouter<Dci>) -> Routes {
        self.listed.entry(verb).or_default().push(shown(path));
        Routes { router: self.router.route(path, handler), ..self }
    }

    /// The router, and the list of routes for `/info`.
    pub(crate) fn finish(self) -> (Router<Dci>, Value) {
        (self.router, json!(self.listed))
    }
}

/// Converts `/nodes/{*node}` to the form in Disbatch's documentation: `/nodes/:node`.
fn shown(path: &str) -> String {
    path.replace("{*", ":").replace('{', ":").replace('}', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_in_the_words_of_the_original() {
        assert_eq!(shown("/nodes"), "/nodes");
        assert_eq!(shown("/nodes/{*node}"), "/nodes/:node");
        assert_eq!(shown("/tasks/{id}/cancel"), "/tasks/:id/cancel");
    }
}
