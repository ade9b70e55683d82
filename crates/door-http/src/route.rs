//! The table of routes, from which both the router and the OpenAPI document are generated, so that
//! they always agree.

use std::time::Duration;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

use crate::door::Door;
use crate::query::Parameter;

pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Longest time that a request may wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(300);

pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) method: HttpMethod,
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
        crate::operate::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// A router with every route, grouped by path.
pub(crate) fn router() -> Router<Door> {
    all().into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}

impl Route {
    pub(crate) fn get<H: Handler<T, Door>, T: 'static>(path: &'static str, handler: H) -> Route {
        Route::new(HttpMethod::Get, path, on(MethodFilter::GET, handler))
    }

    pub(crate) fn post<H: Handler<T, Door>, T: 'static>(path: &'static str, handler: H) -> Route {
        Route::new(HttpMethod::Post, path, on(MethodFilter::POST, handler))
    }

    pub(crate) fn put<H: Handler<T, Door>, T: 'static>(path: &'static str, handler: H) -> Route {
        Route::new(HttpMethod::Put, path, on(MethodFilter::PUT, handler))
    }

    pub(crate) fn delete<H: Handler<T, Door>, T: 'static>(path: &'static str, handler: H) -> Route {
        Route::new(HttpMethod::Delete, path, on(MethodFilter::DELETE, handler))
    }

    fn new(method: HttpMethod, path: &'static str, handler: MethodRouter<Door>) -> Route {
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
        Route { path, method, operation, schemas: Schemas::new(), handler }
    }

    /// `id` is unique among all routes.
    pub(crate) fn about(mut self, tag: &str, id: &str, summary: &str) -> Route {
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

    pub(crate) fn answers<T: ToSchema>(mut self, status: &str, what: &str) -> Route {
        let content = ContentBuilder::new().schema(Some(self.reference::<T>())).build();
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
