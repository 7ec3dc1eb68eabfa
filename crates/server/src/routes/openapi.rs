//! `GET /openapi.json`: the routes and their fields for programs, made from the same list as the
//! router. Forms of answers are not in it; docs/api.md says those.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::describe::{Field, Rule};
use crate::endpoint;
use crate::route::{Access, Route};

pub(super) async fn document() -> Response {
    endpoint::json(StatusCode::OK, &describe(&super::all()))
}

/// An OpenAPI document of these routes.
fn describe(routes: &[Route]) -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        // The router's `{*name}` takes slashes; OpenAPI has no word for that.
        let path = route.path.replace("{*", "{");
        let method = route.method.as_str().to_lowercase();
        paths.entry(path).or_default().insert(method, operation(route));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hearth",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Language models on this machine. Fields that are not listed have no effect.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }},
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.about,
        "responses": {
            "200": {"description": "done"},
            "default": {
                "description": "refused, in the form of the API that the route belongs to",
                "content": {"application/json": {}},
            },
        },
    });
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let name = name.trim_start_matches('*');
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
    };
    let parameters: Vec<Value> = names.map(parameter).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !route.fields.is_empty() {
        let schema = body(route.fields);
        operation["requestBody"] = json!({"content": {"application/json": {"schema": schema}}});
    }
    operation["security"] = match route.access {
        Access::Keyed => json!([{"bearer": []}, {"header": []}, {}]),
        Access::Open => json!([]),
    };
    operation
}

/// The schema of a body. What is refused is no property of it, and listed under a name of its own.
fn body(groups: &[&[Field]]) -> Value {
    let (mut properties, mut refused) = (Map::new(), Map::new());
    for field in groups.iter().flat_map(|group| group.iter()) {
        match field.rule {
            Rule::Honoured(shape) => {
                let mut schema = shape.schema();
                schema["description"] = field.about.into();
                properties.insert(field.name.to_owned(), schema);
            }
            Rule::Ignored => {
                let about = format!("without effect: {}", field.about);
                properties.insert(field.name.to_owned(), json!({"description": about}));
            }
            Rule::Refused => {
                refused.insert(field.name.to_owned(), field.about.into());
            }
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !refused.is_empty() {
        schema["x-refused"] = refused.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DOCS: &str = concat!(
        include_str!("../../../../docs/api.md"),
        include_str!("../../../../docs/api/anthropic.md"),
        include_str!("../../../../docs/api/ollama.md"),
        include_str!("../../../../docs/api/responses.md"),
    );

    /// Whoever adds a field or a route without a word about it is told here.
    #[test]
    fn every_field_and_route_is_in_the_documentation() {
        for route in super::super::all() {
            let path = route.path.replace("{*", "{");
            let path = path.trim_start_matches("/v1/models/{id}");
            assert!(DOCS.contains(path), "{path} is not in docs/api.md");
            for field in route.fields.iter().flat_map(|group| group.iter()) {
                let name = format!("`{}`", field.name);
                assert!(DOCS.contains(&name), "{name} of {path} is not in docs/api.md");
            }
        }
    }

    #[test]
    fn a_field_is_described_once() {
        for route in super::super::all() {
            let fields = route.fields.iter().flat_map(|group| group.iter());
            let mut seen = BTreeSet::new();
            for field in fields {
                assert!(seen.insert(field.name), "{} of {} twice", field.name, route.path);
                assert!(!field.about.is_empty(), "{} of {}", field.name, route.path);
            }
        }
    }

    #[test]
    fn every_route_is_in_the_document() {
        let routes = super::super::all();
        let document = describe(&routes);
        let paths = document["paths"].as_object().unwrap();
        let n: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(n, routes.len(), "a method of a path is there twice");
        let chat = &document["paths"]["/v1/chat/completions"]["post"];
        let schema = &chat["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(schema["properties"]["temperature"]["type"], "number");
        assert_eq!(schema["properties"]["stop"]["type"], json!(["string", "array"]));
        assert!(schema["x-refused"]["functions"].as_str().unwrap().contains("tools"));
        let one = &document["paths"]["/v1/models/{id}"]["get"];
        assert_eq!(one["parameters"][0]["name"], "id");
        assert_eq!(document["paths"]["/livez"]["get"]["security"], json!([]));
    }
}
