//! Schemas at random, of everything that is enforced, and their judge, which is not ours.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A validator that asserts formats, as the grammars do.
pub fn judge(schema: &Value) -> Validator {
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options.build(schema).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

/// The same where objects have no properties but those that are named.
pub fn closed(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut closed: Map<String, Value> = Map::new();
    for (word, value) in map {
        let value = match (word.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (name.clone(), self::closed(schema))).collect()
            }
            ("anyOf", Value::Array(all)) => all.iter().map(self::closed).collect(),
            ("items", schema) => self::closed(schema),
            (_, value) => value.clone(),
        };
        closed.insert(word.clone(), value);
    }
    if map.contains_key("properties") && !map.contains_key("additionalProperties") {
        closed.insert("additionalProperties".to_owned(), json!(false));
    }
    Value::Object(closed)
}

fn texts() -> BoxedStrategy<Value> {
    let lengths = (0..3_u64, 0..6_u64).prop_map(
        |(least, more)| json!({"type": "string", "minLength": least, "maxLength": least + more}),
    );
    const PATTERNS: &[&str] =
        &["^[a-c]{2,3}-[0-9]$", "x.y", "^(yes|no)$|^maybe", "[A-Z]$", r"^\w+\d$", "^$|^a/b"];
    const FORMATS: &[&str] = &[
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
    ];
    prop_oneof![
        3 => Just(json!({"type": "string"})),
        2 => lengths,
        1 => prop::sample::select(PATTERNS).prop_map(|p| json!({"type": "string", "pattern": p})),
        1 => prop::sample::select(FORMATS).prop_map(|f| json!({"type": "string", "format": f})),
        1 => Just(json!({"type": "string", "enum": ["left", "right", "null", "[1]", "a\nb"]})),
        1 => Just(json!({"enum": ["one", "two words"]})),
        1 => Just(json!({"const": "fixed"})),
    ]
    .boxed()
}

fn numbers() -> BoxedStrategy<Value> {
    let range = (-50..50_i64, 0..200_i64);
    prop_oneof![
        Just(json!({"type": "integer"})),
        Just(json!({"type": "number"})),
        range.clone().prop_map(|(a, n)| json!({"type": "integer", "minimum": a, "maximum": a + n})),
        range.clone().prop_map(|(a, n)| {
            json!({"type": "number", "exclusiveMinimum": a, "maximum": a as f64 + n as f64 / 4.0 + 0.5})
        }),
        range.prop_map(|(a, _)| json!({"type": "number", "minimum": a})),
        (1..40_i64).prop_map(|n| json!({"type": "integer", "multipleOf": n})),
        Just(json!({"type": "number", "multipleOf": 0.25, "maximum": 10})),
        Just(json!({"enum": [1, 2.5, -7]})),
    ]
    .boxed()
}

fn leaves() -> BoxedStrategy<Value> {
    prop_oneof![
        4 => texts(),
        3 => numbers(),
        1 => Just(json!({"type": "boolean"})),
        1 => Just(json!({"type": "null"})),
        1 => Just(json!({"type": ["string", "null"]})),
        1 => Just(json!({"type": ["integer", "string"]})),
        1 => Just(json!({"type": ["array", "string", "null"]})),
        1 => Just(json!({"type": ["string", "null"], "enum": ["up", null]})),
        1 => Just(json!({"type": ["object", "string", "integer"], "minimum": 3, "maxLength": 4})),
        1 => Just(json!({"const": {"a": [1, null]}})),
        1 => Just(json!({"enum": ["auto", 3, null, [1]]})),
        1 => Just(json!({"$ref": "#/$defs/size"})),
        1 => Just(json!({"$ref": "#/$defs/tree"})),
    ]
    .boxed()
}

/// Schemas without their definitions.
fn inner() -> BoxedStrategy<Value> {
    leaves()
        .prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                (inner.clone(), 0..2_u64, 1..4_u64).prop_map(|(items, least, more)| {
                    json!({"type": "array", "items": items, "minItems": least, "maxItems": least + more})
                }),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"anyOf": [a, b]})),
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| json!({"prefixItems": [a, b], "items": false, "type": "array"})),
                objects(inner),
            ]
        })
        .boxed()
}

fn objects(value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let names = ["a", "size", "the_name", "x-y", "n.1"];
    let properties = prop::collection::vec((value, any::<bool>()), 1..=names.len());
    (properties, 0..names.len())
        .prop_map(move |(values, from)| {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for (i, (schema, is_required)) in values.into_iter().enumerate() {
                let name = names[(from + i) % names.len()];
                properties.insert(name.to_owned(), schema);
                if is_required {
                    required.push(name);
                }
            }
            json!({"type": "object", "properties": properties, "required": required})
        })
        .boxed()
}

fn with_definitions(mut schema: Value) -> Value {
    schema["$defs"] = json!({
        "size": {"enum": ["s", "m", 40]},
        "tree": {"type": "object", "properties": {"name": {"type": "string"},
                     "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
                 "required": ["name"]},
    });
    schema
}

/// Any schema.
pub fn schemas() -> impl Strategy<Value = Value> {
    prop_oneof![inner(), objects(inner())].prop_map(with_definitions)
}

/// Parameters of a tool.
pub fn parameters() -> impl Strategy<Value = Value> {
    objects(inner()).prop_map(with_definitions)
}
