//! The OpenAPI 3.1 document, generated from the table of routes.

use utoipa::openapi::path::{PathItem, PathsBuilder};
use utoipa::openapi::schema::ComponentsBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApiBuilder, Paths, RefOr, Response, ResponseBuilder, Schema,
};

use crate::route;

/// The document as JSON text.
pub fn openapi() -> String {
    let (error_schemas, error) = route::error_schema();
    let mut components = ComponentsBuilder::new().schemas_from_iter(error_schemas);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components = components.security_scheme(route::KEY_SCHEME, SecurityScheme::Http(bearer));
    let mut paths: Paths = PathsBuilder::new().build();
    for route in route::all() {
        components = components.schemas_from_iter(route.schemas);
        let operation = route.operation.response("default", refusal(error.clone())).build();
        let item = PathItem::new(route.method, operation);
        match paths.paths.get_mut(route.path) {
            Some(known) => known.merge_operations(item),
            None => {
                paths.paths.insert(route.path.to_owned(), item);
            }
        }
    }
    let info = InfoBuilder::new()
        .title("Windlass")
        .version("v1")
        .description(Some("A durable, fair job queue."))
        .build();
    let document =
        OpenApiBuilder::new().info(info).paths(paths).components(Some(components.build()));
    document.build().to_json().expect("the document is made of text keys and plain values")
}

fn refusal(error: RefOr<Schema>) -> Response {
    let content = ContentBuilder::new().schema(Some(error)).build();
    ResponseBuilder::new()
        .description("Refused; the code says why.")
        .content("application/json", content)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::from_str(&openapi()).unwrap()
    }

    #[test]
    fn every_route_is_in_the_document_and_says_what_it_is() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let mut ids = BTreeSet::new();
        for route in route::all() {
            let method = serde_json::to_value(&route.method).unwrap();
            let operation = &document["paths"][route.path][method.as_str().unwrap()];
            let id = operation["operationId"].as_str();
            assert!(ids.insert(id.expect(route.path).to_owned()), "{id:?} is there twice");
            assert!(operation["summary"].is_string() && operation["tags"].is_array(), "{id:?}");
            assert!(operation["responses"].as_object().unwrap().len() >= 2, "{id:?}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    map.values().for_each(|value| walk(value, document));
                }
                Value::Array(list) => list.iter().for_each(|value| walk(value, document)),
                _ => {}
            }
        }
        walk(&document(), &document());
    }
}
