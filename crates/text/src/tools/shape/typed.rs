//! The JSON that a text stands for, by the schema of the parameter it is meant for. Formats that write
//! values as plain text need it. It converts and does not validate.

use serde_json::Value;

use super::literal;

/// What a value is where the schema does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Untyped {
    /// The text.
    Text,
    /// JSON if it is any.
    Json,
}

/// Types that a schema allows, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const STRING: Types = Types(1);
    const INTEGER: Types = Types(2);
    const NUMBER: Types = Types(4);
    const BOOLEAN: Types = Types(8);
    pub(crate) const NULL: Types = Types(16);
    pub(crate) const ARRAY: Types = Types(32);
    pub(crate) const OBJECT: Types = Types(64);

    /// Whether one of these is among them.
    pub(crate) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    fn named(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "null" => Types::NULL,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => Types::default(),
        }
    }

    fn of(value: &Value) -> Types {
        match value {
            Value::String(_) => Types::STRING,
            Value::Number(number) if number.is_f64() => Types::NUMBER,
            Value::Number(_) => Types::INTEGER,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Null => Types::NULL,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(crate) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

/// Deepest chain of references and alternatives in a schema.
const MAX_DEPTH: usize = 16;

/// What the schema of an object allows for one of its properties; nothing where it does not say.
pub(crate) fn types(schema: Option<&Value>, property: &str) -> Types {
    let Some(schema) = schema else { return Types::default() };
    let named = schema.get("properties").and_then(|properties| properties.get(property));
    let found = named.or_else(|| schema.get("additionalProperties"));
    found.map_or(Types::default(), |property| allowed(schema, property, MAX_DEPTH))
}

fn allowed(root: &Value, schema: &Value, depth: usize) -> Types {
    let Some(depth) = depth.checked_sub(1) else { return Types::default() };
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(Types::default(), |schema| allowed(root, schema, depth));
    }
    match schema.get("type") {
        Some(Value::String(name)) => return Types::named(name),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).map(Types::named);
            return names.fold(Types::default(), Types::or);
        }
        _ => {}
    }
    if let Some(value) = schema.get("const") {
        return Types::of(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Types::of).fold(Types::default(), Types::or);
    }
    let alternatives =
        ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key).and_then(Value::as_array));
    let all = alternatives.into_iter().flatten().flatten();
    let any = all.map(|schema| allowed(root, schema, depth)).fold(Types::default(), Types::or);
    match any {
        Types(0) if schema.get("properties").is_some() => Types::OBJECT,
        Types(0) if schema.get("items").is_some() => Types::ARRAY,
        any => any,
    }
}

/// The value is the text itself, so that it may go on to the client while it arrives.
pub(crate) fn is_text(types: Types, untyped: Untyped) -> bool {
    types == Types::STRING || (types == Types::default() && untyped == Untyped::Text)
}

/// The JSON text of a value.
pub(crate) fn json(text: &str, types: Types, untyped: Untyped) -> String {
    let trimmed = text.trim();
    if is_text(types, untyped) {
        return quoted(text);
    }
    let parsed = serde_json::from_str::<Value>(trimmed).ok();
    let fits = |value: &Value| {
        let own = Types::of(value);
        // A text where a text is allowed is taken as it is: `5` for `["integer", "string"]` is one.
        match types {
            Types(0) => true,
            _ if own == Types::STRING => false,
            _ if own.has(Types::INTEGER.or(Types::NUMBER).or(Types::BOOLEAN)) => {
                !types.has(Types::STRING) && (types.has(own) || types.has(Types::NUMBER))
            }
            _ => types.has(own),
        }
    };
    if let Some(value) = &parsed {
        if fits(value) {
            return trimmed.to_owned();
        }
        // 6.0 for an integer.
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
        if let Some(whole) =
            whole.filter(|_| types.has(Types::INTEGER) && !types.has(Types::STRING))
        {
            return format!("{whole:.0}");
        }
        // The model has put a string into quotes.
        if let (Value::String(_), false) = (value, types.has(Types::STRING)) {
            return trimmed.to_owned();
        }
    }
    let word = match trimmed {
        "True" | "TRUE" => Some((Types::BOOLEAN, "true")),
        "False" | "FALSE" => Some((Types::BOOLEAN, "false")),
        "None" => Some((Types::NULL, "null")),
        _ => None,
    };
    if let Some((_, word)) = word.filter(|&(own, _)| types.has(own) && !types.has(Types::STRING)) {
        return word.to_owned();
    }
    if types.has(Types::ARRAY.or(Types::OBJECT))
        && let Some(value) = literal::python(trimmed)
        && types.has(Types::of(&value))
    {
        return value.to_string();
    }
    quoted(text)
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: Value, text: &str, expected: &str) {
        let schema = json!({"properties": {"p": schema}, "$defs": {"n": {"type": "integer"}}});
        let types = types(Some(&schema), "p");
        assert_eq!(super::json(text, types, Untyped::Text), expected, "{schema} {text}");
    }

    #[test]
    fn texts_become_what_the_schema_wants() {
        check(json!({"type": "string"}), "007", "\"007\"");
        check(json!({"type": "integer"}), "6", "6");
        check(json!({"type": "integer"}), "6.0", "6");
        check(json!({"type": "integer"}), "six", "\"six\"");
        check(json!({"type": "number"}), "1", "1");
        check(json!({"type": "boolean"}), "True", "true");
        check(json!({"type": "boolean"}), "false", "false");
        check(json!({"type": "array"}), "[\"mon\", \"thu\"]", "[\"mon\", \"thu\"]");
        check(json!({"type": "array"}), "['mon', True]", "[\"mon\",true]");
        check(json!({"type": "object"}), "{\"a\": 1}", "{\"a\": 1}");
        check(json!({"type": ["string", "null"]}), "null", "null");
        check(json!({"type": ["string", "integer"]}), "5", "\"5\"");
        check(json!({"anyOf": [{"type": "array"}, {"type": "string"}]}), "[1]", "[1]");
        check(json!({"$ref": "#/$defs/n"}), "3", "3");
        check(json!({"enum": [1, 2]}), "2", "2");
        check(json!({}), "12", "\"12\"");
        check(json!(true), "12", "\"12\"");
        assert_eq!(super::json("12", Types::default(), Untyped::Json), "12");
        assert_eq!(super::json("a b", Types::default(), Untyped::Json), "\"a b\"");
    }
}
