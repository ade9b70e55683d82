//! The table of routes, from which the router, the check of keys and the OpenAPI document are all
//! generated, so that they always agree. A route cannot be written without what it needs, and that
//! decides whether its uses are audited: a change is, if its right is an audited one.

use std::time::Duration;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

use windlass_core::key::{Right, Role};

use crate::access::{self, Entrance};
use crate::door::Door;
use crate::query::Parameter;
use crate::record::Record;

pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Longest time that a request may wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(300);

/// The name of the keys in the document.
pub(crate) const KEY_SCHEME: &str = "key";
const NO_SCOPES: [&str; 0] = [];

pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) method: HttpMethod,
    /// What a request needs to use it.
    pub(crate) needs: Right,
    /// A request may wait for long, and ends when its key does.
    waits: bool,
    /// The id of its operation.
    id: &'static str,
    pub(crate) operation: OperationBuilder,
    pub(crate) schemas: Schemas,
    handler: MethodRouter<Door>,
}

/// All routes.
pub(crate) fn all() -> Vec<Route> {
    let groups = [
        crate::seed::routes(),
        crate::add::routes(),
        crate::jobs::routes(),
        crate::log::routes(),
        crate::handlers::routes(),
        crate::types::routes(),
        crate::pull::routes(),
        crate::secrets::routes(),
        crate::keys::routes(),
        crate::tenants::routes(),
        crate::audit::routes(),
        crate::operate::routes(),
        crate::daemons::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// A router with every route, grouped by path, each behind the check of what it needs.
pub(crate) fn router(door: &Door) -> Router<Door> {
    all().into_iter().fold(Router::new(), |router, route| {
        let is_audited = route.is_audited();
        let Route { path, needs, waits, id, handler, .. } = route;
        let record = Record::of(path, id);
        let entrance = Entrance { needs, waits, is_audited, record };
        router.route(path, access::guard(handler, entrance, door))
    })
}

impl Route {
    pub(crate) fn get<H: Handler<T, Door>, T: 'static>(
        path: &'static str,
        needs: Right,
        handler: H,
    ) -> Route {
        Route::new(HttpMethod::Get, path, needs, on(MethodFilter::GET, handler))
    }

    pub(crate) fn post<H: Handler<T, Door>, T: 'static>(
        path: &'static str,
        needs: Right,
        handler: H,
    ) -> Route {
        Route::new(HttpMethod::Post, path, needs, on(MethodFilter::POST, handler))
    }

    pub(crate) fn put<H: Handler<T, Door>, T: 'static>(
        path: &'static str,
        needs: Right,
        handler: H,
    ) -> Route {
        Route::new(HttpMethod::Put, path, needs, on(MethodFilter::PUT, handler))
    }

    pub(crate) fn delete<H: Handler<T, Door>, T: 'static>(
        path: &'static str,
        needs: Right,
        handler: H,
    ) -> Route {
        Route::new(HttpMethod::Delete, path, needs, on(MethodFilter::DELETE, handler))
    }

    fn new(
        method: HttpMethod,
        path: &'static str,
        needs: Right,
        handler: MethodRouter<Door>,
    ) -> Route {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let operation = names.fold(OperationBuilder::new(), |operation, name| {
            operation.parameter(
                ParameterBuilder::new()
                    .name(name)
                    .parameter_in(ParameterIn::Path)
                    .required(Required::True)
                    .schema(Some(text_schema())),
            )
        });
        let roles: Vec<_> =
            Role::ALL.iter().filter(|role| role.may(needs)).map(|r| r.as_str()).collect();
        let operation = match needs {
            Right::Open => operation.description(Some("Needs no key.")),
            _ => operation
                .description(Some(format!(
                    "Needs a key of one of the roles: {}.{}",
                    roles.join(", "),
                    if is_audited(&method, needs) { " Audited." } else { "" },
                )))
                .security(SecurityRequirement::new(KEY_SCHEME, NO_SCOPES)),
        };
        let (waits, schemas) = (false, Schemas::new());
        Route { path, method, needs, waits, id: "", operation, schemas, handler }
    }

    /// Whether every use of it has an entry in the audit. Refusals always have.
    pub(crate) fn is_audited(&self) -> bool {
        is_audited(&self.method, self.needs)
    }

    /// For a route that waits for an event.
    pub(crate) fn waits(mut self) -> Route {
        self.waits = true;
        self
    }

    /// `id` is unique among all routes.
    pub(crate) fn about(mut self, tag: &str, id: &'static str, summary: &str) -> Route {
        self.id = id;
        self.operation = self.operation.tag(tag).operation_id(Some(id)).summary(Some(summary));
        self
    }

    pub(crate) fn query(mut self, parameters: &[Parameter]) -> Route {
        for parameter in parameters {
            self.operation = self.operation.parameter(
                ParameterBuilder::new()
                    .name(parameter.name)
                    .parameter_in(ParameterIn::Query)
                    .required(Required::False)
                    .description(Some(parameter.what))
                    .schema(Some(text_schema())),
            );
        }
        self
    }

    pub(crate) fn header(mut self, name: &str, what: &str) -> Route {
        self.operation = self.operation.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(what))
                .schema(Some(text_schema())),
        );
        self
    }

    pub(crate) fn takes<T: ToSchema>(mut self) -> Route {
        let content = ContentBuilder::new().schema(Some(self.reference::<T>())).build();
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", content);
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// The body is JSON or one of these other content types.
    pub(crate) fn takes_also<T: ToSchema>(mut self, content_types: &[&str]) -> Route {
        let json = ContentBuilder::new().schema(Some(self.reference::<T>())).build();
        let mut body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", json);
        for content_type in content_types {
            let content = ContentBuilder::new().schema(Some(text_schema())).build();
            body = body.content(*content_type, content);
        }
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// The body is text of this content type.
    pub(crate) fn takes_text(mut self, content_type: &str) -> Route {
        let content = ContentBuilder::new().schema(Some(text_schema())).build();
        let body = RequestBodyBuilder::new().required(Some(Required::True));
        let body = body.content(content_type, content);
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    pub(crate) fn answers<T: ToSchema>(mut self, status: &str, what: &str) -> Route {
        let content = ContentBuilder::new().schema(Some(self.reference::<T>())).build();
        let response =
            ResponseBuilder::new().description(what).content("application/json", content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// The answer has one of two forms.
    pub(crate) fn answers_either<T: ToSchema, U: ToSchema>(
        mut self,
        status: &str,
        what: &str,
    ) -> Route {
        let forms = OneOfBuilder::new().item(self.reference::<T>()).item(self.reference::<U>());
        let content = ContentBuilder::new().schema(Some(Schema::OneOf(forms.build()))).build();
        let response =
            ResponseBuilder::new().description(what).content("application/json", content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// The answer is text, or JSON on request.
    pub(crate) fn answers_text_or<T: ToSchema>(mut self, status: &str, what: &str) -> Route {
        let json = ContentBuilder::new().schema(Some(self.reference::<T>())).build();
        let text = ContentBuilder::new().schema(Some(text_schema())).build();
        let response = ResponseBuilder::new().description(what).content("text/plain", text);
        let response = response.content("application/json", json).build();
        self.operation = self.operation.response(status, response);
        self
    }

    /// The answer is not JSON.
    pub(crate) fn answers_as(mut self, status: &str, content_type: &str, what: &str) -> Route {
        let content = ContentBuilder::new().schema(Some(text_schema())).build();
        let response = ResponseBuilder::new().description(what).content(content_type, content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// Registers the schema and everything it refers to. Lists are inlined.
    fn reference<T: ToSchema>(&mut self) -> RefOr<Schema> {
        T::schemas(&mut self.schemas);
        let schema = T::schema();
        if matches!(schema, RefOr::T(Schema::Array(_))) {
            return schema;
        }
        self.schemas.push((T::name().into_owned(), schema));
        RefOr::Ref(Ref::from_schema_name(T::name()))
    }
}

fn is_audited(method: &HttpMethod, needs: Right) -> bool {
    *method != HttpMethod::Get && needs.is_audited()
}

fn text_schema() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}

/// The schema of every refusal.
pub(crate) fn error_schema() -> (Schemas, RefOr<Schema>) {
    type ErrorBody = crate::error::ErrorBody<'static>;
    let mut schemas = Schemas::new();
    ErrorBody::schemas(&mut schemas);
    schemas.push((ErrorBody::name().into_owned(), ErrorBody::schema()));
    (schemas, RefOr::Ref(Ref::from_schema_name(ErrorBody::name())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const GUIDE: &str = include_str!("../../../docs/guide/keys.md");

    /// The table of the guide: every route, and a mark for each role that may use it.
    fn table() -> String {
        let names = Role::ALL.map(Role::as_str);
        let mut table = format!("| route | {} |\n|---|", names.join(" | "));
        table.push_str(&":-:|".repeat(names.len()));
        table.push('\n');
        for Route { path, method, needs, .. } in all() {
            let method = serde_json::to_value(method).unwrap();
            let method = method.as_str().unwrap().to_uppercase();
            write!(table, "| `{method} {path}` |").unwrap();
            for role in Role::ALL {
                table.push_str(match (needs, role.may(needs)) {
                    (Right::Open, _) => " open |",
                    (_, true) => " × |",
                    (_, false) => "  |",
                });
            }
            table.push('\n');
        }
        table
    }

    /// Written down a second time: the ordinary traffic of the queue. Everything else that is no
    /// read is audited.
    const TRAFFIC: [&str; 7] = [
        "seed_job_add",
        "job_add",
        "claim",
        "job_renew",
        "job_finish",
        "job_release",
        "job_progress",
    ];

    #[test]
    fn every_change_but_the_ordinary_traffic_is_audited() {
        for route in all() {
            assert!(!route.id.is_empty(), "{} has no id", route.path);
            let is_change = route.method != HttpMethod::Get && !TRAFFIC.contains(&route.id);
            assert_eq!(route.is_audited(), is_change, "{}", route.id);
        }
    }

    #[test]
    fn the_guide_has_the_table_of_roles() {
        let table = table();
        assert!(GUIDE.contains(&table), "docs/guide/keys.md needs this table:\n\n{table}");
    }
}
