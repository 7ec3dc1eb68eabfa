//! From a JSON schema to one of which every word is enforced: references are resolved, annotations and
//! unknown words left out, and what could not be held to is refused with its place.
//!
//! The subset is listed in the API's documentation. How schemas become grammars is the library's work.

use serde_json::{Map, Value, json};

use super::bounds::{
    MAX_COUNT, MAX_DEPTH, MAX_SCHEMA_TEXT, MAX_SCHEMAS, MAX_VALUES, check_expression,
};
use super::numbers::counts_in;
use super::plain::stricter;
use super::{GrammarError, Strictness, refs};
use crate::digits;

/// Words that restrict nothing, and those that only hold what others refer to.
const SILENT: [&str; 20] = [
    "$schema",
    "$comment",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$vocabulary",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "readOnly",
    "writeOnly",
    "deprecated",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "discriminator",
];

/// Words that restrict, and that no grammar here holds a model to.
const REFUSED: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
];

pub(super) const TYPES: [&str; 7] =
    ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Formats that are enforced.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Formats of the standard that are not. Others are annotations, as the standard has it.
const UNKNOWN_FORMATS: [&str; 9] = [
    "idn-email",
    "idn-hostname",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// Whole numbers up to here are what they are as a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A schema that a grammar can be made of.
pub(super) struct Lowered {
    pub(super) schema: Value,
    /// Where the definitions stood, by number.
    pub(super) places: Vec<String>,
}

/// How a definition is named.
pub(super) fn definition(number: usize) -> String {
    format!("d{number}")
}

/// Lowers a schema.
///
/// # Errors
/// What is no schema, what cannot be enforced, and what is too large.
pub(super) fn lower(root: &Value, strictness: Strictness) -> Result<Lowered, GrammarError> {
    let root = &digits::rounded(root);
    let mut lowering = Lowering {
        root,
        closes: strictness == Strictness::Closed,
        closes_shared: strictness == Strictness::Closed && !mentions(root, "allOf"),
        targets: Vec::new(),
        n_schemas: 0,
        n_values: 0,
        n_bytes: 0,
    };
    let main = Place { path: String::new(), depth: 0, closes: lowering.closes };
    let mut schema = lowering.schema(root, &main)?;
    let mut definitions = Map::new();
    while let Some(pointer) = lowering.targets.get(definitions.len()).cloned() {
        let place =
            Place { path: pointer.replace('/', "."), depth: 0, closes: lowering.closes_shared };
        let target = root.pointer(&pointer).unwrap_or(&Value::Bool(true));
        let lowered = lowering.schema(target, &place)?;
        definitions.insert(definition(definitions.len()), lowered);
    }
    if let Value::Object(schema) = &mut schema
        && !definitions.is_empty()
    {
        schema.insert("$defs".to_owned(), Value::Object(definitions));
    }
    let places = lowering.targets.iter().map(|pointer| pointer.replace('/', ".")).collect();
    Ok(Lowered { schema, places })
}

/// Whether a word stands anywhere in a schema. Its depth is bounded by whoever reads JSON.
fn mentions(schema: &Value, word: &str) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| key == word || mentions(value, word)),
        Value::Array(list) => list.iter().any(|value| mentions(value, word)),
        _ => false,
    }
}

struct Lowering<'a> {
    root: &'a Value,
    /// Objects with named properties have no others.
    closes: bool,
    /// Those that are referred to, too.
    closes_shared: bool,
    /// Pointers that were referred to, by the number of their definition.
    targets: Vec<String>,
    n_schemas: usize,
    n_values: usize,
    n_bytes: usize,
}

/// Where a schema stands.
struct Place {
    path: String,
    depth: usize,
    /// Nothing beside it adds properties, so it may be closed.
    closes: bool,
}

impl Place {
    fn inside(&self, word: &str) -> Place {
        Place { path: format!("{}.{word}", self.path), depth: self.depth + 1, closes: self.closes }
    }

    fn at(&self, i: usize) -> Place {
        Place { path: format!("{}[{i}]", self.path), depth: self.depth, closes: self.closes }
    }

    fn fault(&self, problem: impl Into<String>) -> GrammarError {
        GrammarError { path: self.path.clone(), problem: problem.into() }
    }
}

impl Lowering<'_> {
    fn schema(&mut self, schema: &Value, place: &Place) -> Result<Value, GrammarError> {
        self.n_schemas += 1;
        if self.n_schemas > MAX_SCHEMAS {
            return Err(place.fault(format!("a schema may have {MAX_SCHEMAS} parts")));
        }
        if place.depth > MAX_DEPTH {
            return Err(place.fault(format!("a schema may be {MAX_DEPTH} deep")));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return Err(place.fault("a schema is an object, true or false")),
        };
        // What is closed by itself cannot be added to from beside.
        let joins = ["allOf", "anyOf", "oneOf", "$ref"].iter().any(|word| map.contains_key(*word));
        let is_mixed = joins && map.contains_key("properties");
        let inner = Place { closes: place.closes && !is_mixed, ..place.inside("") };
        let mut lowered = Map::new();
        for (word, value) in map {
            let place = Place { path: format!("{}.{word}", place.path), ..inner };
            if let Some((word, value)) = self.word((word, value), map, &place)? {
                lowered.insert(word.to_owned(), value);
            }
        }
        check_min_properties(&mut lowered, place)?;
        let is_named =
            map.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        let says =
            ["additionalProperties", "patternProperties"].iter().any(|w| map.contains_key(*w));
        if place.closes && is_named && !says && !joins {
            lowered.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        Ok(Value::Object(lowered))
    }

    /// One word of a schema as the grammar wants it, `None` if it restricts nothing.
    fn word<'w>(
        &mut self,
        (word, value): (&'w str, &Value),
        beside: &Map<String, Value>,
        place: &Place,
    ) -> Result<Option<(&'w str, Value)>, GrammarError> {
        let kept = |value: Value| Ok(Some((word, value)));
        match word {
            "allOf" => kept(self.list(value, &Place { closes: false, ..place.again() })?),
            "anyOf" | "oneOf" => kept(self.list(value, place)?),
            "$ref" => kept(self.reference(value, place)?),
            "properties" => kept(self.named(value, place)?),
            "patternProperties" => {
                let names = value.as_object().into_iter().flat_map(Map::keys);
                names.into_iter().try_for_each(|name| self.pattern(name, &place.named(name)))?;
                kept(self.named(value, place)?)
            }
            "additionalProperties" => kept(self.schema(value, &place.fresh(self.closes))?),
            "prefixItems" => kept(self.list(value, &place.fresh(self.closes))?),
            "items" | "additionalItems" => self.items((word, value), beside, place),
            "type" => kept(types(value, place)?),
            "enum" => {
                let list = value.as_array().filter(|list| !list.is_empty());
                let list = list.ok_or_else(|| place.fault("enum is a list of values"))?;
                list.iter().try_for_each(|value| self.value(value, place))?;
                kept(value.clone())
            }
            "const" => {
                self.value(value, place)?;
                kept(value.clone())
            }
            "required" => {
                let names = value.as_array().filter(|list| list.iter().all(Value::is_string));
                names.ok_or_else(|| place.fault("required is a list of names"))?;
                self.text(value, place)?;
                kept(value.clone())
            }
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties" => kept(count(value, place)?),
            "minimum" | "maximum" => kept(number(value, place)?),
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => kept(value.clone()),
            "exclusiveMinimum" | "exclusiveMaximum" => kept(number(value, place)?),
            "multipleOf" => match number(value, place)?.as_f64() {
                Some(step) if step > 0.0 && counts_in(step) => kept(value.clone()),
                Some(step) if step > 0.0 => {
                    Err(place.fault("multipleOf has at most 8 decimals and is below 400,000,000"))
                }
                _ => Err(place.fault("multipleOf is above 0")),
            },
            "pattern" => {
                let pattern = value.as_str().ok_or_else(|| place.fault("a pattern is a string"))?;
                self.pattern(pattern, place)?;
                kept(value.clone())
            }
            "format" => {
                let known = format(value, place)?;
                let stricter = value.as_str().and_then(stricter);
                Ok(match stricter.filter(|_| !beside.contains_key("pattern")) {
                    Some(pattern) => Some(("pattern", pattern.into())),
                    None => known.map(|format| (word, format)),
                })
            }
            "uniqueItems" if *value == Value::Bool(false) => Ok(None),
            "uniqueItems" => Err(place.fault(unenforced(word))),
            // A schema's own name is no matter at the top; further in it would change what references
            // mean. A property of this name is not meant here.
            "$id" | "id" if place.depth > 1 && value.is_string() => {
                Err(place.fault(unenforced(word)))
            }
            "unevaluatedItems" | "unevaluatedProperties" if *value == Value::Bool(true) => Ok(None),
            _ if REFUSED.contains(&word) => Err(place.fault(unenforced(word))),
            _ if SILENT.contains(&word) => Ok(None),
            // The standard has unknown words ignored.
            _ => Ok(None),
        }
    }

    fn list(&mut self, value: &Value, place: &Place) -> Result<Value, GrammarError> {
        let list = value.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| place.fault("it is a list of schemas, at least one"))?;
        let lowered = list.iter().enumerate().map(|(i, schema)| self.schema(schema, &place.at(i)));
        lowered.collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn named(&mut self, value: &Value, place: &Place) -> Result<Value, GrammarError> {
        let map = value.as_object().ok_or_else(|| place.fault("it maps names to schemas"))?;
        let mut lowered = Map::new();
        for (name, schema) in map {
            let place = place.fresh(self.closes).named(name);
            self.charge(name.len(), &place)?;
            lowered.insert(name.clone(), self.schema(schema, &place)?);
        }
        Ok(Value::Object(lowered))
    }

    /// Older schemas have a list in `items` where newer ones have `prefixItems`, and then
    /// `additionalItems` where these have `items`.
    fn items<'w>(
        &mut self,
        (word, value): (&'w str, &Value),
        beside: &Map<String, Value>,
        place: &Place,
    ) -> Result<Option<(&'w str, Value)>, GrammarError> {
        let is_old = beside.get("items").is_some_and(Value::is_array);
        let fresh = place.fresh(self.closes);
        match (word, is_old) {
            ("items", true) if value.as_array().is_some_and(Vec::is_empty) => Ok(None),
            ("items", true) => Ok(Some(("prefixItems", self.list(value, &fresh)?))),
            ("additionalItems", true) | ("items", false) => {
                Ok(Some(("items", self.schema(value, &fresh)?)))
            }
            // Without a list before them there are no additional ones.
            _ => Ok(None),
        }
    }

    fn reference(&mut self, value: &Value, place: &Place) -> Result<Value, GrammarError> {
        let reference = value.as_str().ok_or_else(|| place.fault("a $ref is a string"))?;
        let (pointer, target) =
            refs::resolve(self.root, reference).map_err(|problem| place.fault(problem))?;
        if target.get("$ref").and_then(Value::as_str) == Some(reference) {
            return Err(place.fault("it refers to itself and nothing else"));
        }
        let known = self.targets.iter().position(|known| *known == pointer);
        let number = known.unwrap_or_else(|| {
            self.targets.push(pointer);
            self.targets.len() - 1
        });
        Ok(format!("#/$defs/{}", definition(number)).into())
    }

    /// A value that is spelled out.
    fn value(&mut self, value: &Value, place: &Place) -> Result<(), GrammarError> {
        self.n_values += 1;
        if self.n_values > MAX_VALUES {
            return Err(place.fault(format!("a schema may spell out {MAX_VALUES} values")));
        }
        match value {
            Value::Null | Value::Bool(_) => Ok(()),
            Value::Number(_) => number(value, place).map(|_| ()),
            Value::String(text) => {
                let short = ['\n', '\r', '\t', '\u{8}', '\u{c}'];
                if text.chars().any(|c| c.is_ascii_control() && !short.contains(&c)) {
                    let problem =
                        "control characters but \\n, \\r, \\t, \\b and \\f cannot be written";
                    return Err(place.fault(problem));
                }
                self.charge(text.len(), place)
            }
            Value::Array(list) => list.iter().try_for_each(|value| self.value(value, place)),
            Value::Object(map) => map.iter().try_for_each(|(name, value)| {
                self.charge(name.len(), place)?;
                self.value(value, place)
            }),
        }
    }

    /// A pattern, or what names match.
    fn pattern(&mut self, pattern: &str, place: &Place) -> Result<(), GrammarError> {
        self.charge(pattern.len(), place)?;
        // Digits and letters are ASCII's, as in ECMAScript.
        let read = check_expression(&llguidance::regex_to_lark(pattern, "dw"));
        read.map_err(|error| place.fault(error.problem))
    }

    fn text(&mut self, value: &Value, place: &Place) -> Result<(), GrammarError> {
        match value {
            Value::String(text) => self.charge(text.len(), place),
            Value::Array(list) => list.iter().try_for_each(|value| self.text(value, place)),
            _ => Ok(()),
        }
    }

    fn charge(&mut self, n_bytes: usize, place: &Place) -> Result<(), GrammarError> {
        self.n_bytes += n_bytes;
        match self.n_bytes > MAX_SCHEMA_TEXT {
            true => Err(place.fault(format!(
                "a schema's names, values and patterns may have {MAX_SCHEMA_TEXT} bytes"
            ))),
            false => Ok(()),
        }
    }
}

impl Place {
    fn again(&self) -> Place {
        Place { path: self.path.clone(), ..*self }
    }

    /// For schemas of parts, to which nothing beside this adds.
    fn fresh(&self, closes: bool) -> Place {
        Place { closes, ..self.again() }
    }

    fn named(&self, name: &str) -> Place {
        Place { path: format!("{}.{name}", self.path), ..*self }
    }
}

fn unenforced(word: &str) -> String {
    format!("`{word}` is not enforced here, so it is not accepted either")
}

fn types(value: &Value, place: &Place) -> Result<Value, GrammarError> {
    let known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let good = match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(known),
        value => known(value),
    };
    match good {
        true => Ok(value.clone()),
        false => Err(place.fault(format!("a type is one of {}", TYPES.join(", ")))),
    }
}

fn count(value: &Value, place: &Place) -> Result<Value, GrammarError> {
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..EXACT).contains(n))?;
        Some(number as u64)
    });
    match whole {
        Some(count) if count <= MAX_COUNT => Ok(count.into()),
        // No model writes so much: the same as no limit.
        Some(_) if place.path.contains(".max") => Ok(MAX_COUNT.into()),
        Some(_) => Err(place.fault(format!("it may be at most {MAX_COUNT}"))),
        None => Err(place.fault("it is a whole number from 0")),
    }
}

fn number(value: &Value, place: &Place) -> Result<Value, GrammarError> {
    let number = value.as_f64().filter(|number| number.is_finite());
    let number = number.ok_or_else(|| place.fault("it is a number"))?;
    match number.abs() >= EXACT {
        true => Err(place.fault("numbers from 2^53 on are not exact here")),
        false => Ok(value.clone()),
    }
}

fn format(value: &Value, place: &Place) -> Result<Option<Value>, GrammarError> {
    let name = value.as_str().ok_or_else(|| place.fault("a format is a string"))?;
    if UNKNOWN_FORMATS.contains(&name) {
        let problem = format!("format `{name}` is not enforced here; {} are", FORMATS.join(", "));
        return Err(place.fault(problem));
    }
    Ok(FORMATS.contains(&name).then(|| value.clone()))
}

/// Names that are not fixed may come twice, and two of the same are one property. So beyond the
/// required ones no more than one can be demanded.
fn check_min_properties(
    lowered: &mut Map<String, Value>,
    place: &Place,
) -> Result<(), GrammarError> {
    let Some(least) = lowered.get("minProperties").and_then(Value::as_u64) else { return Ok(()) };
    let required = lowered.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if least <= required {
        lowered.remove("minProperties");
        return Ok(());
    }
    let is_closed = lowered.get("additionalProperties") == Some(&json!(false))
        && !lowered.contains_key("patternProperties");
    match is_closed || least == required + 1 {
        true => Ok(()),
        false => {
            let place = place.named("minProperties");
            let problem = "it is enforced up to one more than there are required properties";
            Err(place.fault(problem))
        }
    }
}
