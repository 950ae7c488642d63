//! The `OpenAPI` document gives fields the bounds and defaults of the table. That it has every route stands in
//! `src/server/http/routes.rs`; that it describes every answer, schemathesis checks (`tests/clients`).

use corq::api::commands::{
    BACKOFF_FIELDS, BULK_FILTER_FIELDS, CRON_JOB_FIELDS, CommandSpec, DEDUP_FIELDS,
    DLQ_CONFIG_FIELDS, DLQ_FILTER_FIELDS, FieldSpec, GROUP_PULL_FIELDS, GROUP_RATE_FIELDS,
    JOB_FIELDS, Kind, Preset, REPEAT_FIELDS, STALL_CONFIG_FIELDS,
};
use corq::api::error::Code;
use corq::api::limits::{GROUP_PRIORITY_MAX, PRIORITY_MAX};
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../../docs/openapi.yaml");

fn document() -> Value {
    serde_saphyr::from_str(DOCUMENT).unwrap()
}

/// The schema that a reference stands for.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => document.pointer(path.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

fn default(preset: Preset) -> Value {
    match preset {
        Preset::Nothing => Value::Null,
        Preset::Integer(value) => value.into(),
        Preset::Text(text) => text.into(),
        Preset::Off => false.into(),
        Preset::Empty => json!([]),
    }
}

/// That a schema is that of a field. Where null counts as absent, it says so.
fn agrees(document: &Value, field: &FieldSpec, schema: &Value, nullable: bool) {
    let name = field.name;
    let schema = resolved(document, schema);
    let kind = |name: &str| if nullable { json!([name, "null"]) } else { json!(name) };
    let has = |place: &str, value: Value| {
        assert_eq!(*schema.pointer(place).unwrap_or(&Value::Null), value, "{name}{place}");
    };
    has("/default", default(field.default));
    match field.kind {
        Kind::Integer { min, max } => {
            has("/type", kind("integer"));
            has("/minimum", min.into());
            has("/maximum", max.into());
        }
        Kind::Text { chars_min, chars_max } => {
            has("/type", kind("string"));
            has("/minLength", chars_min.into());
            has("/maxLength", chars_max.into());
        }
        Kind::Tracestate => {
            has("/type", kind("string"));
            has("/maxLength", 512.into());
        }
        // Of both pairs of bounds the wider: JSON Schema has no short way to say which counts.
        Kind::Priority => {
            has("/type", kind("integer"));
            has("/minimum", (-PRIORITY_MAX).into());
            has("/maximum", GROUP_PRIORITY_MAX.into());
        }
        Kind::Texts { items_max, chars_max } => {
            has("/type", kind("array"));
            has("/maxItems", items_max.into());
            has("/items/type", "string".into());
            has("/items/minLength", 1.into());
            has("/items/maxLength", chars_max.into());
        }
        // Outcomes are taken in any form.
        Kind::Stack { .. } | Kind::LongText { .. } => {
            has("/type", Value::Null);
            let words = schema["description"].as_str().unwrap();
            assert!(
                words.contains("What is no string is kept as its JSON text"),
                "{name}: {words}"
            );
        }
        Kind::Queues { items_max } => {
            has("/type", kind("array"));
            has("/maxItems", items_max.into());
            has("/items/$ref", "#/components/schemas/Queue".into());
        }
        Kind::Number { min, max } => {
            has("/type", kind("number"));
            has("/minimum", min.into());
            has("/maximum", max.into());
        }
        Kind::TextsOf(choices) | Kind::Choices(choices) => {
            has("/type", kind("array"));
            has("/items/enum", json!(choices));
        }
        Kind::Integers { min, max } => {
            has("/type", kind("array"));
            has("/items/minimum", min.into());
            has("/items/maximum", max.into());
        }
        Kind::JobIds => {
            has("/type", kind("array"));
            has("/items/$ref", "#/components/schemas/JobId".into());
        }
        Kind::Jobs => {
            has("/type", kind("array"));
            has("/items/$ref", "#/components/schemas/PushedJob".into());
        }
        Kind::Tokens | Kind::Results | Kind::Flags | Kind::Flow => has("/type", kind("array")),
        Kind::CronJob => object_agrees(document, CRON_JOB_FIELDS, schema),
        Kind::DlqConfig => object_agrees(document, DLQ_CONFIG_FIELDS, schema),
        Kind::StallConfig => object_agrees(document, STALL_CONFIG_FIELDS, schema),
        Kind::DlqFilter => object_agrees(document, DLQ_FILTER_FIELDS, schema),
        Kind::BulkFilter => {
            has("/additionalProperties", false.into());
            object_agrees_as(document, BULK_FILTER_FIELDS, schema, false);
        }
        Kind::GroupPull => object_agrees(document, GROUP_PULL_FIELDS, schema),
        Kind::GroupRate => object_agrees(document, GROUP_RATE_FIELDS, schema),
        Kind::Flag => has("/type", kind("boolean")),
        Kind::Traceparent | Kind::Token => has("/type", kind("string")),
        Kind::JobId => {
            has("/minLength", 1.into());
            has("/maxLength", 256.into());
        }
        Kind::Queue => {
            has("/pattern", "^[A-Za-z0-9_.:-]+$".into());
            has("/maxLength", 256.into());
        }
        Kind::Payload { bytes_max } => {
            let words = schema["description"].as_str().unwrap();
            let bound = match bytes_max >> 20 {
                0 => format!("{bytes_max} bytes"),
                megabytes => format!("{megabytes} MB"),
            };
            assert!(words.contains(&bound), "{name}: {words}");
        }
        Kind::Backoff => {
            has("/oneOf/0/type", kind("integer"));
            has("/oneOf/0/maximum", json!(86_400_000));
            object_agrees(document, BACKOFF_FIELDS, &schema["oneOf"][1]);
        }
        Kind::Repeat => object_agrees(document, REPEAT_FIELDS, schema),
        Kind::Dedup => object_agrees(document, DEDUP_FIELDS, schema),
        Kind::Choice(choices) => {
            let mut named: Vec<Value> = choices.iter().map(|&choice| choice.into()).collect();
            named.extend(nullable.then_some(Value::Null));
            has("/enum", named.into());
        }
        other @ Kind::FlowJob => panic!("{name}: no rule for {other:?}"),
    }
}

/// That an object has exactly these fields, which count as absent where they are null.
fn object_agrees(document: &Value, fields: &[FieldSpec], schema: &Value) {
    object_agrees_as(document, fields, schema, true);
}

/// That an object has exactly these fields; null is refused where it does not count as absent.
fn object_agrees_as(document: &Value, fields: &[FieldSpec], schema: &Value, nullable: bool) {
    let properties = schema["properties"].as_object().unwrap();
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    assert!(properties.keys().all(|key| names.contains(&key.as_str())), "{names:?}: {schema}");
    for field in fields {
        let property = properties.get(field.name);
        let property = property.unwrap_or_else(|| panic!("no {}", field.name));
        agrees(document, field, property, nullable && !field.required);
    }
    let required: Vec<&str> =
        fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let written = schema.get("required").cloned().unwrap_or_else(|| json!([]));
    assert_eq!(written, json!(required));
}

fn field(spec: &CommandSpec, name: &str) -> FieldSpec {
    *spec.fields.iter().find(|field| field.name == name).unwrap()
}

#[test]
fn the_openapi_document_gives_the_fields_of_a_job_the_bounds_of_the_table() {
    let document = document();
    object_agrees(&document, JOB_FIELDS, &document["components"]["schemas"]["PushedJob"]);
}

#[test]
fn the_openapi_document_gives_other_requests_the_bounds_of_the_table() {
    let document = document();
    for (name, path) in [("ACK", "/jobs/{id}/ack"), ("FAIL", "/jobs/{id}/fail")] {
        let spec = CommandSpec::find(name.as_bytes()).unwrap();
        let fields: Vec<FieldSpec> =
            spec.fields.iter().filter(|field| field.name != "id").copied().collect();
        let body = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        object_agrees(&document, &fields, &body["schema"]);
    }
    let pull = CommandSpec::find(b"PULL").unwrap();
    let parameters = document["paths"]["/queues/{queue}/jobs"]["get"]["parameters"].as_array();
    let parameters = parameters.unwrap();
    assert_eq!(parameters.len(), 2);
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap();
        agrees(&document, &field(pull, name), &parameter["schema"], false);
    }
    let schemas = &document["components"]["schemas"];
    agrees(&document, &field(pull, "queue"), &schemas["Queue"], false);
    let get = CommandSpec::find(b"GetJob").unwrap();
    agrees(&document, &field(get, "id"), &schemas["JobId"], false);
}

/// That an alias has no other fields and which command it is stands in `src/server/http/routes.rs`.
#[test]
fn the_openapi_document_gives_the_fields_of_aliases_the_bounds_of_the_table() {
    let document = document();
    let mut seen = 0;
    let items = document["paths"].as_object().unwrap().values();
    for operation in items.filter_map(Value::as_object).flat_map(|item| item.values()) {
        let Some(command) = operation["x-command"].as_str() else { continue };
        let spec = CommandSpec::find(command.as_bytes()).unwrap();
        let filter = spec.fields.iter().filter(|field| field.kind == Kind::DlqFilter);
        let inner = filter.flat_map(|_| DLQ_FILTER_FIELDS);
        let fields: Vec<&FieldSpec> = spec.fields.iter().chain(inner).collect();
        let find = |name: &str| **fields.iter().find(|field| field.name == name).unwrap();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert_eq!(parameter["in"], "query");
            let field = find(parameter["name"].as_str().unwrap());
            agrees(&document, &field, &parameter["schema"], false);
            seen += 1;
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let required = schema["required"].as_array();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.contains(&name.as_str().into()));
            // Null does not count as absent for an action on many jobs.
            agrees(&document, &find(name), property, !is_required && spec.name != "Bulk");
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} fields are looked at");
}

#[test]
fn the_schema_of_errors_has_every_code() {
    let document = document();
    let codes = document.pointer("/components/schemas/Code/enum").unwrap();
    assert_eq!(*codes, json!(Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>()));
    let error = document.pointer("/components/schemas/Error").unwrap();
    assert_eq!(error["properties"]["code"]["$ref"], "#/components/schemas/Code");
    assert_eq!(error["required"], json!(["ok", "error", "code"]));
}
