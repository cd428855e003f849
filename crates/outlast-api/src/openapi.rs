//! The OpenAPI 3.1 document, made from the route and field tables that also serve the requests.

mod schemas;
mod webhooks;

use axum::response::Response;
use http::StatusCode;
use outlast_engine::keys::scope::Word;
use serde_json::{Map, Value, json};

use crate::error::{Code, Problem};
use crate::fields::{ID_PATTERN, LINK_PATTERN, NAME_PATTERN, NUMBER_PATTERN, SECTION_PATTERN};
use crate::request::RequestContext;
use crate::routes::{Need, ROUTES, Raw, Route, Shape};
use crate::schema::messages::wants;
use crate::schema::{Field, Kind, Object};
use crate::wire;

pub(crate) async fn show(_: RequestContext) -> Result<Response, Problem> {
    Ok(wire::json_ok(StatusCode::OK, &document()))
}

/// The whole document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut schemas = schemas::schemas();
    for route in ROUTES {
        if let Some(object) = route.body {
            add_schema(&mut schemas, object);
        }
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            item.insert(route.method.as_str().to_lowercase(), operation(route));
        }
    }
    schemas.insert("Problem".to_owned(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Outlast",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Jobs that outlast the request.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "webhooks": webhooks::webhooks(),
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "a key like ol_…"},
                "token": {"type": "http", "scheme": "bearer", "description": "a token to one job, like olt_…"},
                "tokenInUrl": {"type": "apiKey", "in": "query", "name": "token", "description": "the same in the URL"},
            },
            "schemas": schemas,
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.operation,
        "tags": [tag(route)],
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    let Value::Object(map) = &mut operation else {
        return operation;
    };
    match route.need {
        Need::Nothing => map.insert("security".to_owned(), json!([])),
        Need::Scope(word) => map.insert("x-outlast-scope".to_owned(), json!(word.as_str())),
    };
    if let Some(can) = route.token {
        map.insert("security".to_owned(), json!([{"key": []}, {"token": []}, {"tokenInUrl": []}]));
        map.insert("x-outlast-token".to_owned(), json!(can.as_str()));
    }
    if let Some(object) = route.body {
        let required = object.fields.iter().any(|field| field.required);
        let schema = json!({"$ref": format!("#/components/schemas/{}", object.name)});
        map.insert(
            "requestBody".to_owned(),
            json!({"required": required, "content": {"application/json": {"schema": schema}}}),
        );
    }
    if let Some(raw) = route.raw {
        let content = match raw {
            Raw::Json => json!({"application/json": {"schema": {}}}),
            Raw::Bytes => json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
        };
        map.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters: Vec<Value> = Vec::new();
    for name in route.path.split(['{', '}']).skip(1).step_by(2) {
        let pattern = match name {
            "queue" => NAME_PATTERN,
            "name" => SECTION_PATTERN,
            "link" => LINK_PATTERN,
            "source" => "^[a-z0-9][a-z0-9_-]{0,62}$",
            "type" => "^[^/\\x00-\\x1f\\x7f]{1,255}$",
            _ if route.path.starts_with("/v1/jobs/") || route.path.starts_with("/v1/events/") => ID_PATTERN,
            _ => NUMBER_PATTERN,
        };
        let schema = json!({"type": "string", "pattern": pattern});
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }
    parameters.extend(route.query.iter().map(|field| parameter(field, "query")));
    parameters.extend(route.headers.iter().map(|field| parameter(field, "header")));
    parameters
}

fn responses(route: &Route) -> Map<String, Value> {
    let mut responses = Map::new();
    for (status, meaning, shape) in [route.answer].iter().chain(route.also) {
        let content = match shape {
            Shape::Nothing => json!({}),
            Shape::Anything => json!({"application/json": {}}),
            Shape::Named(name) => {
                json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}})
            }
            Shape::Bytes => json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
            Shape::Stream => json!({"text/event-stream": {"schema": {"type": "string"}}}),
            Shape::Page => json!({
                "text/html": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}},
            }),
            Shape::Metrics => json!({
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            }),
        };
        let mut response = json!({"description": meaning});
        if let (false, Value::Object(map)) = (*shape == Shape::Nothing, &mut response) {
            map.insert("content".to_owned(), content);
        }
        responses.insert(status.to_string(), response);
    }
    let problem = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    responses.insert("default".to_owned(), json!({"description": "a problem", "content": problem}));
    responses
}

/// The group of a route in generated documents.
fn tag(route: &Route) -> &'static str {
    let (first, work) = (route.path.split('/').find(|part| !matches!(*part, "" | "v1")), Need::Scope(Word::Consume));
    match first {
        Some("api") => "Simple form",
        Some("queues") if route.path.contains("/dead") => "Dead letters",
        Some("queues") if route.need != work && !route.path.contains("/jobs") => "Queues",
        Some("jobs" | "queues" | "objects" | "outcomes" | "heartbeats" | "progress" | "receive" | "workers") => {
            if route.need == work || route.also_by == Some(Word::Consume) { "Work" } else { "Jobs" }
        }
        Some("events") => "Events",
        Some("operations") => "Operations",
        Some("keys") => "Keys",
        _ => "Server",
    }
}

fn parameter(field: &Field, place: &str) -> Value {
    // `tag.colour=red`: any number of parameters with one beginning, which OpenAPI can say only as an object.
    if let Some(start) = field.name.strip_suffix(".*") {
        return json!({
            "name": start, "in": place, "description": format!("{}, written as {start}.NAME=VALUE", field.about),
            "style": "form", "explode": true,
            "schema": {"type": "object", "propertyNames": {"pattern": format!("^{start}\\.[A-Za-z0-9_-]+$")},
                "additionalProperties": schema_of(&field.kind)},
        });
    }
    json!({"name": field.name, "in": place, "description": field.about, "schema": schema_of(&field.kind)})
}

/// The object, and the objects it is a list of.
fn add_schema(schemas: &mut Map<String, Value>, object: &'static Object) {
    schemas.insert(object.name.to_owned(), object_schema(object));
    for field in object.fields {
        if let Kind::List { of: Kind::Entry(entry), .. } = &field.kind {
            add_schema(schemas, entry);
        }
    }
}

fn object_schema(object: &Object) -> Value {
    let properties: Map<String, Value> =
        object.fields.iter().map(|field| (field.name.to_owned(), field_schema(field))).collect();
    let required: Vec<&str> = object.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema =
        json!({"type": "object", "description": object.about, "additionalProperties": false, "properties": properties});
    if let (false, Value::Object(map)) = (required.is_empty(), &mut schema) {
        map.insert("required".to_owned(), json!(required));
    }
    schema
}

fn field_schema(field: &Field) -> Value {
    let mut schema = schema_of(&field.kind);
    if field.nullable {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(format!("{}; {}", field.about, wants(&field.kind))));
    }
    schema
}

fn schema_of(kind: &Kind) -> Value {
    match kind {
        Kind::Any => json!({}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Text { min, max, pattern, .. } => {
            let mut schema = json!({"type": "string", "minLength": min, "maxLength": max});
            if let (false, Value::Object(map)) = (pattern.is_empty(), &mut schema) {
                map.insert("pattern".to_owned(), json!(pattern));
            }
            schema
        }
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Duration { min, max } => json!({"anyOf": [
            {"type": "number", "minimum": min.as_secs_f64(), "maximum": max.as_secs_f64()},
            {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(ms|s|m|h|d)?$"},
        ]}),
        Kind::Time => json!({"type": "string", "format": "date-time"}),
        Kind::Object(object) => object_schema(object),
        Kind::Entry(object) => json!({"$ref": format!("#/components/schemas/{}", object.name)}),
        Kind::Map { entries, value_bytes, .. } => {
            json!({"type": "object", "maxProperties": entries, "additionalProperties": {"type": "string", "maxLength": value_bytes}})
        }
        Kind::Amounts { entries, max, .. } => {
            json!({"type": "object", "maxProperties": entries, "additionalProperties": {"type": "number", "minimum": 0, "maximum": max}})
        }
        Kind::List { of, max } => {
            let mut schema = json!({"type": "array", "items": schema_of(of)});
            if let (true, Value::Object(map)) = (*max < usize::MAX, &mut schema) {
                map.insert("maxItems".to_owned(), json!(max));
            }
            schema
        }
    }
}

fn problem_schema() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    json!({
        "type": "object",
        "required": ["title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "what to do about it"},
            "code": {"type": "string", "enum": codes},
            "errors": {"type": "array", "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            }},
        },
    })
}
