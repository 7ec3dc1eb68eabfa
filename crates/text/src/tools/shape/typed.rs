//! The JSON that a text stands for, by the schema of the parameter it is meant for. Formats that write
//! values as plain text need it. It converts and does not validate.

use serde_json::Value;

use super::literal;
use crate::digits;

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
    pub(crate) const INTEGER: Types = Types(2);
    pub(crate) const NUMBER: Types = Types(4);
    pub(crate) const BOOLEAN: Types = Types(8);
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
            whole if digits::of(whole).is_some() => Types::INTEGER,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(crate) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

/// Deepest chain of references and alternatives in a schema.
const MAX_DEPTH: usize = 16;
/// Most schemas that are looked at for one question: alternatives that refer to each other may be very many.
const MAX_LOOKS: usize = 512;

/// What the schema of an object allows for one of its properties; nothing where it does not say.
pub(crate) fn types(schema: Option<&Value>, property: &str) -> Types {
    let place = schema.and_then(|schema| Place::of(schema).property(property));
    place.map_or(Types::default(), Place::types)
}

/// A schema in the one of all arguments, which holds what it refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    root: &'a Value,
    schema: &'a Value,
}

impl<'a> Place<'a> {
    /// The schema of all arguments itself.
    pub(crate) fn of(root: &'a Value) -> Place<'a> {
        Place { root, schema: root }
    }

    /// What it allows.
    pub(crate) fn types(self) -> Types {
        self.allowed(MAX_DEPTH, &mut { MAX_LOOKS })
    }

    /// The schema of a property.
    pub(crate) fn property(self, name: &str) -> Option<Place<'a>> {
        let named = |schema: &'a Value| schema.get("properties")?.get(name);
        let found = self.find(MAX_DEPTH, &mut { MAX_LOOKS }, &named);
        let other = |schema: &'a Value| schema.get("additionalProperties");
        found.or_else(|| self.find(MAX_DEPTH, &mut { MAX_LOOKS }, &other))
    }

    /// The schema of the item of this number.
    pub(crate) fn item(self, number: usize) -> Option<Place<'a>> {
        let of = |schema: &'a Value| {
            let first = schema.get("prefixItems").and_then(|first| first.get(number));
            first.or_else(|| schema.get("items"))
        };
        self.find(MAX_DEPTH, &mut { MAX_LOOKS }, &of)
    }

    fn at(self, schema: &'a Value) -> Place<'a> {
        Place { schema, ..self }
    }

    /// Where a reference leads; the inner `None` where it leads nowhere.
    fn target(self) -> Option<Option<Place<'a>>> {
        let target = self.schema.get("$ref")?.as_str()?;
        let target = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        Some(target.map(|schema| self.at(schema)))
    }

    fn alternatives(self) -> impl Iterator<Item = Place<'a>> {
        let all =
            ["anyOf", "oneOf", "allOf"].map(|word| self.schema.get(word).and_then(Value::as_array));
        all.into_iter().flatten().flatten().map(move |schema| self.at(schema))
    }

    /// The first schema that is found in this one, or in what it refers to.
    fn find(
        self,
        depth: usize,
        looks: &mut usize,
        of: &impl Fn(&'a Value) -> Option<&'a Value>,
    ) -> Option<Place<'a>> {
        let depth = depth.checked_sub(1)?;
        *looks = looks.checked_sub(1)?;
        if let Some(target) = self.target() {
            return target?.find(depth, looks, of);
        }
        let found = of(self.schema).map(|schema| self.at(schema));
        found.or_else(|| self.alternatives().find_map(|place| place.find(depth, looks, of)))
    }

    fn allowed(self, depth: usize, looks: &mut usize) -> Types {
        let (Some(depth), Some(left)) = (depth.checked_sub(1), looks.checked_sub(1)) else {
            return Types::default();
        };
        *looks = left;
        if let Some(target) = self.target() {
            return target.map_or(Types::default(), |place| place.allowed(depth, looks));
        }
        match self.schema.get("type") {
            Some(Value::String(name)) => return Types::named(name),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str).map(Types::named);
                return names.fold(Types::default(), Types::or);
            }
            _ => {}
        }
        if let Some(value) = self.schema.get("const") {
            return Types::of(value);
        }
        if let Some(values) = self.schema.get("enum").and_then(Value::as_array) {
            return values.iter().map(Types::of).fold(Types::default(), Types::or);
        }
        let all = self.alternatives().map(|place| place.allowed(depth, looks));
        match all.fold(Types::default(), Types::or) {
            Types(0) if self.schema.get("properties").is_some() => Types::OBJECT,
            Types(0) if self.schema.get("items").is_some() => Types::ARRAY,
            any => any,
        }
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
    let parsed = digits::read(trimmed).ok();
    let fits = |value: &Value| {
        let own = match value {
            value if digits::as_f64(value).is_some() => of_number(trimmed),
            value => Types::of(value),
        };
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
        if types.has(Types::INTEGER)
            && !types.has(Types::STRING)
            && let Some(whole) = whole(trimmed, value)
        {
            return whole;
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
        && let Some((own, json)) = literal::python(trimmed)
        && types.has(own)
    {
        return json;
    }
    quoted(text)
}

/// The type of a number by how it is written, which says it also of one that no number of a machine can hold.
fn of_number(text: &str) -> Types {
    match text.contains(['.', 'e', 'E']) {
        true => Types::NUMBER,
        false => Types::INTEGER,
    }
}

/// The integer that a number is in other words, as 6.0 and 6e2.
fn whole(text: &str, value: &Value) -> Option<String> {
    if let Some((whole, fraction)) = text.split_once('.')
        && fraction.bytes().all(|digit| digit == b'0')
    {
        return Some(whole.to_owned());
    }
    let number =
        digits::as_f64(value).filter(|number| number.fract() == 0.0 && number.abs() < 9e15)?;
    Some(format!("{number:.0}"))
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// What stands before one more value in a list or an object that is open.
pub(crate) fn separate(out: &mut String) {
    if !out.ends_with(['[', '{']) {
        out.push(',');
    }
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
        check(json!({"type": "integer"}), "6e2", "600");
        let digits = "123456789012345678901234567890";
        check(json!({"type": "integer"}), digits, digits);
        let many = "7".repeat(700);
        check(json!({"type": "integer"}), &many, &many);
        check(json!({"type": "integer"}), &format!("{digits}.0"), digits);
        check(json!({"type": "integer"}), &format!("-{digits}"), &format!("-{digits}"));
        check(json!({"type": "number"}), digits, digits);
        check(json!({"type": "array"}), &format!("['a', {digits}]"), &format!("[\"a\",{digits}]"));
        check(json!({"type": "number"}), "0.12345678901234567890", "0.12345678901234567890");
        check(json!({"type": "number"}), "1", "1");
        check(json!({"type": "boolean"}), "True", "true");
        check(json!({"type": "boolean"}), "false", "false");
        check(json!({"type": "array"}), "[\"mon\", \"thu\"]", "[\"mon\", \"thu\"]");
        check(json!({"type": "array"}), "['mon', True]", "[\"mon\",true]");
        check(json!({"type": "object"}), "{\"a\": 1}", "{\"a\": 1}");
        check(json!({"type": ["string", "null"]}), "null", "null");
        check(json!({"type": ["string", "integer"]}), "5", "\"5\"");
        // Where a text is allowed, words and quotes are its own; where none is, quotes are JSON's.
        check(json!({"type": ["string", "null"]}), "\"a\"", "\"\\\"a\\\"\"");
        check(json!({"type": ["boolean", "string"]}), "True", "\"True\"");
        check(json!({"type": "integer"}), "\"six\"", "\"six\"");
        check(json!({"items": {}}), "['a']", "[\"a\"]");
        let others = json!({"additionalProperties": {"type": "integer"}});
        assert_eq!(types(Some(&others), "p"), Types::INTEGER);
        check(json!({"anyOf": [{"type": "array"}, {"type": "string"}]}), "[1]", "[1]");
        check(json!({"$ref": "#/$defs/n"}), "3", "3");
        check(json!({"enum": [1, 2]}), "2", "2");
        check(json!({}), "12", "\"12\"");
        check(json!(true), "12", "\"12\"");
        assert_eq!(super::json("12", Types::default(), Untyped::Json), "12");
        assert_eq!(super::json("a b", Types::default(), Untyped::Json), "\"a b\"");
    }

    /// Alternatives that refer to each other are more than could ever be looked at.
    #[test]
    fn hostile_schemas_are_left_at_some_point() {
        let all: Vec<Value> = (0..50).map(|_| json!({"$ref": "#/$defs/a"})).collect();
        let schema = json!({"$defs": {"a": {"anyOf": all}}, "properties": {"p": {"anyOf": all}}});
        assert_eq!(types(Some(&schema), "p"), Types::default());
        assert_eq!(
            types(Some(&json!({"anyOf": all, "$defs": schema["$defs"]})), "q"),
            Types::default()
        );
    }
}
