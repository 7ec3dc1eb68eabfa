//! How long a number may get where a schema leaves that open: a model in a corner may write digits to the
//! end of its context. Bounds are such that no number is lost that a program reads exactly.
//!
//! Ranges of a schema's own are not widened, and numbers that it spells out stay as they are.

use llguidance::derivre::RegexAst;
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use serde_json::{Map, Value, json};

use super::GrammarError;
use super::schema::TYPES;

/// How the library writes a number of which a schema says nothing.
const ANY_LENGTH: &str = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?";

/// What is put in its place: all that a double tells apart, in the ways that are usual, up to where 19
/// digits are still a double.
const BOUNDED: &str = r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,17})?([eE](\+?([0-9]{1,2}|1[0-9]{2}|2[0-7][0-9]|28[0-8])|-[0-9]{1,3}))?";

/// Whole numbers are those of 64 bits, but for the last thousand below zero, where the library would
/// overflow.
const LEAST: i64 = -9_223_372_036_854_774_784;
const MOST: i64 = i64::MAX;

/// Numbers with a range have no exponent in the library's grammars; this is where theirs ends if it is
/// open.
const FAR: i64 = 1_000_000_000_000_000_000;
/// And this is their last digit: the smallest step that the library counts in.
const STEP: f64 = 1e-8;

/// Name of the definition of numbers that the schema says nothing of.
const ANY_NUMBER: &str = "number";

const RANGE: [&str; 5] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const MIXES: [&str; 6] = ["$ref", "allOf", "anyOf", "oneOf", "enum", "const"];

/// A lowered schema whose numbers come to an end.
pub(super) fn bounded(schema: &Value) -> Value {
    let steps = match mentions(schema, &["multipleOf"]) && mentions(schema, &MIXES) {
        // Where schemas meet, two steps become one that both divide, which may be too large for the library.
        true => Steps::Own,
        false => Steps::Small,
    };
    let mut bounded = schema_of(schema, steps);
    if mentions(&bounded, &["$ref"]) {
        bounded["$defs"][ANY_NUMBER] = json!({"type": "number"});
    }
    bounded
}

/// Whether the library can count in a step: it does so in 32 bits, in units of the step's last digit.
pub(super) fn counts_in(step: f64) -> bool {
    let (mut units, mut one) = (step, 1.0);
    while units.fract() != 0.0 && one <= f64::from(u32::MAX) {
        (units, one) = (units * 10.0, one * 10.0);
    }
    units * 10.0 + one * 9.0 <= f64::from(u32::MAX)
}

/// Which steps numbers have.
#[derive(Clone, Copy, PartialEq)]
enum Steps {
    /// Those of the schema.
    Own,
    /// Small ones where the schema gives none.
    Small,
}

fn mentions(schema: &Value, words: &[&str]) -> bool {
    match schema {
        Value::Object(map) => {
            map.iter().any(|(key, value)| words.contains(&key.as_str()) || mentions(value, words))
        }
        Value::Array(list) => list.iter().any(|value| mentions(value, words)),
        _ => false,
    }
}

fn schema_of(schema: &Value, steps: Steps) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let inside = |(word, value): (&String, &Value)| {
        let named = |(name, schema): (&String, &Value)| (name.clone(), schema_of(schema, steps));
        let value = match (word.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(map)) => {
                map.iter().map(named).collect()
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                list.iter().map(|schema| schema_of(schema, steps)).collect()
            }
            ("items" | "additionalProperties", schema) => schema_of(schema, steps),
            (_, value) => value.clone(),
        };
        (word.clone(), value)
    };
    let mut map: Map<String, Value> = map.iter().map(inside).collect();
    let definitions = map.remove("$defs");
    let mut schema = numbers_of(map, steps);
    if let Some(definitions) = definitions {
        schema["$defs"] = definitions;
    }
    schema
}

/// What a schema allows, with an end to the numbers among it.
fn numbers_of(mut map: Map<String, Value>, steps: Steps) -> Value {
    let has = |words: &[&str]| words.iter().any(|word| map.contains_key(*word));
    let types: Vec<Value> = match map.get("type") {
        Some(Value::Array(types)) => types.clone(),
        Some(one) => vec![one.clone()],
        None => TYPES.map(Value::from).to_vec(),
    };
    let is_some_number = types.contains(&json!("number"));
    match (has(&RANGE), has(&MIXES)) {
        _ if map.is_empty() || has(&["enum", "const"]) => {}
        (true, is_mixed) if is_some_number => {
            ends(&mut map, -FAR, FAR);
            if steps == Steps::Small && !is_mixed {
                map.entry("multipleOf").or_insert(json!(STEP));
            }
        }
        (false, false) if is_some_number => {
            // By itself, so that its pattern is the one that is looked for.
            let number = json!({"$ref": format!("#/$defs/{ANY_NUMBER}")});
            let is_other = |one: &Value| *one != "number" && *one != "integer";
            let others: Vec<Value> = types.into_iter().filter(is_other).collect();
            if others.is_empty() {
                return number;
            }
            map.insert("type".to_owned(), Value::Array(others));
            return json!({"anyOf": [map, number]});
        }
        _ if has(&["type"]) && types.contains(&json!("integer")) && !is_some_number => {
            ends(&mut map, LEAST, MOST)
        }
        _ => {}
    }
    Value::Object(map)
}

/// Adds the ends that a range lacks.
fn ends(map: &mut Map<String, Value>, least: i64, most: i64) {
    // In old schemas the exclusive ones say how the others are meant.
    let lacks = |map: &Map<String, Value>, words: [&str; 2]| {
        !words.iter().any(|word| map.get(*word).is_some_and(Value::is_number))
    };
    if lacks(map, ["minimum", "exclusiveMinimum"]) {
        map.insert("minimum".to_owned(), json!(least));
    }
    if lacks(map, ["maximum", "exclusiveMaximum"]) {
        map.insert("maximum".to_owned(), json!(most));
    }
}

/// Puts an end to the numbers that no schema says anything of, in what the library has made.
pub(super) fn bound_lexemes(lexer: &mut LexerSpec) -> Result<(), GrammarError> {
    let add = |lexer: &mut LexerSpec, pattern: &str| {
        let pattern = RegexAst::Regex(pattern.to_owned());
        let added =
            lexer.add_greedy_lexeme(ANY_NUMBER.to_owned(), pattern, false, None, usize::MAX);
        added.map_err(|error| GrammarError::whole(super::run::short(&error)))
    };
    let current = lexer.current_class;
    for class in 0..lexer.skip_by_class.len() {
        lexer.current_class = LexemeClass::new(class);
        // What is there already is found and not added.
        let n_before = lexer.lexemes.len();
        let at = add(lexer, ANY_LENGTH)?.as_usize();
        if at == n_before {
            lexer.lexemes.pop();
            continue;
        }
        // A lexeme's number is its place, so the new one is made where the old one was.
        let after = lexer.lexemes.split_off(at + 1);
        lexer.lexemes.pop();
        add(lexer, BOUNDED)?;
        lexer.lexemes.extend(after);
    }
    lexer.current_class = current;
    Ok(())
}
