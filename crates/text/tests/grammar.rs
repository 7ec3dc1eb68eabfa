//! What formats let through: all of it is right, judged by a validator that is not ours, and what is
//! not enforced is refused by its name.

mod common;
mod speaking;

use hearth_text::grammar::{Asked, Duty, Format, Run, Strictness};
use hearth_text::{Opening, Syntax};
use serde_json::{Value, json};
use speaking::{Speaker, schema};

/// A recursive schema with an `enum` behind a reference and a schema that is `true`.
fn node() -> Value {
    json!({"$defs": {"Unit": {"enum": ["g", "ml"]},
                     "Node": {"type": "object",
                              "properties": {"name": {"type": "string"},
                                             "unit": {"$ref": "#/$defs/Unit"},
                                             "kids": {"type": "array", "items": {"anyOf": [
                                                 {"type": "string"}, {"$ref": "#/$defs/Node"}]}},
                                             "extra": true},
                              "required": ["name", "unit"],
                              "additionalProperties": false}},
           "$ref": "#/$defs/Node"})
}

/// Case S01.
#[test]
fn s01_references_recur_and_restrict() {
    let speaker = Speaker::letters();
    let check = |text: &str, expected: bool| {
        assert_eq!(speaker.accepts(&schema(node()), text), expected, "{text}");
    };
    check(
        r#"{"name":"dough","unit":"g","kids":["salt",{"name":"milk","unit":"ml","kids":[]}],"extra":[1,{"a":null}]}"#,
        true,
    );
    check(r#"{"name":"dough","unit":"g"}"#, true);
    check("{\n  \"name\": \"dough\",\n  \"unit\": \"g\"\n}", true);
    check(r#"{"name":"dough","unit":"kg"}"#, false);
    check(r#"{"name":"dough","unit":{"x":1}}"#, false);
    check(r#"{"name":"dough","unit":"g","kids":[7]}"#, false);
    check(r#"{"name":"dough","unit":"g","size":1}"#, false);
    check(r#"{"unit":"g"}"#, false);
    check(r#"{"name":"dough","unit":"g"}}"#, false);
    check(r#"{"name":"dough","unit":"g""#, false);
}

#[test]
fn white_space_is_bounded() {
    let speaker = Speaker::letters();
    let format = schema(json!({"type": "array", "items": {"type": "integer"}}));
    let check = |text: &str, expected: bool| {
        assert_eq!(speaker.accepts(&format, text), expected, "{text:?}");
        // The same inside of what any JSON may be.
        let text = format!("{{\"a\":{text}}}");
        assert_eq!(speaker.accepts(&Format::JsonObject, &text), expected, "{text:?}");
    };
    check("[1,2]", true);
    check("[ 1, 2 ]", true);
    check(&format!("[\n{}1\n]", " ".repeat(32)), true);
    check(&format!("[{}1]", " ".repeat(5)), false);
    check("[\n\n1]", false);
    check(&format!("[\n{}1]", " ".repeat(33)), false);
    for text in [" [1]", "\n[1]", "[1] ", "[1]\n"] {
        assert!(!speaker.accepts(&format, text), "{text:?}");
    }
}

/// What programs read exactly can be said, in the ways that are usual; what goes on without an end cannot.
#[test]
fn numbers_come_to_an_end() {
    let speaker = Speaker::letters();
    let long = "1234567890".repeat(3);
    let tiny = "0.".to_owned() + &"0".repeat(30) + "1";
    let endless = [long.as_str(), &tiny, "1e1000000", "1e289", "-1.5E+00000001"];
    let number = [
        "0",
        "-0.5",
        "3.141592653589793",
        "6.02214076e23",
        "1e-10",
        "-1.5E+10",
        "9223372036854775807",
        "5e-324",
        "1e288",
        "0.1000",
        "2.0",
    ];
    let id = ["0", "-7", "1729382256910270464", "9223372036854775807", "-9223372036854774784"];
    let bad_id =
        [long.as_str(), "9223372036854775808", "-10000000000000000000", "1.5", "1e3", "01"];
    let ranged = ["0", "1", "0.12345678", "12345678901234567", "1.50"];
    let bad_ranged = [long.as_str(), &tiny, "-1", "1.00000000000000000000"];
    let check = |asked: Value, good: &[&str], bad: &[&str]| {
        // Alone, beside texts, behind a reference, in a list, and where two schemas meet.
        let also = match asked["type"].clone() {
            Value::String(name) => {
                let mut both = asked.clone();
                both["type"] = json!([name, "string"]);
                both
            }
            _ => asked.clone(),
        };
        let places = [
            (asked.clone(), ["", ""]),
            (also, ["", ""]),
            (json!({"anyOf": [{"type": "null"}, asked]}), ["", ""]),
            (
                json!({"$defs": {"n": asked}, "items": {"$ref": "#/$defs/n"}, "type": "array"}),
                ["[", "]"],
            ),
            (json!({"type": "object", "additionalProperties": asked}), ["{\"a\":", "}"]),
            (json!({"allOf": [asked, {"title": "n"}]}), ["", ""]),
        ];
        for (place, [before, after]) in places {
            let accepts = |text: &str| {
                speaker.accepts(&schema(place.clone()), &format!("{before}{text}{after}"))
            };
            assert!(good.iter().all(|text| accepts(text)), "{place} {good:?}");
            assert!(!bad.iter().any(|text| accepts(text)), "{place} {bad:?}");
        }
    };
    check(json!({"type": "number"}), &number, &endless);
    check(json!({"type": ["number", "integer"]}), &number, &endless);
    check(json!({"type": "integer"}), &id, &bad_id);
    check(
        json!({"type": "integer", "multipleOf": 3}),
        &["-9", "9223372036854775806"],
        &[&long, "4"],
    );
    check(json!({"type": "integer", "minimum": 0}), &["0", "9223372036854775807"], &[&long, "-1"]);
    check(
        json!({"type": "integer", "exclusiveMaximum": 5}),
        &["4", "-9000000000000000000"],
        &["5"],
    );
    check(json!({"type": "number", "minimum": 0}), &ranged, &bad_ranged);
    check(json!({"type": "number", "minimum": 0, "maximum": 1e15}), &ranged[..3], &bad_ranged);
    check(json!({"type": "number", "multipleOf": 0.01}), &["-0.07", "12.5"], &[&long, "0.001"]);
    check(json!({"minimum": 3}), &["3", "3.25", "\"x\"", "null"], &[&long, "2"]);
    check(json!({"minLength": 3}), &["3e5", "\"xyz\"", "{\"a\":[1.5]}"], &[&long, &tiny, "\"xy\""]);
    // Spelled out it may be anything.
    check(json!({"enum": [0.123456789012345, 5]}), &["0.123456789012345", "5"], &["0.1", "50"]);
    for any in [json!({}), json!(true), json!({"$defs": {}})] {
        let accepts = |text: &str| speaker.accepts(&schema(any.clone()), text);
        assert!(
            number.iter().all(|text| accepts(text)) && !endless.iter().any(|text| accepts(text))
        );
    }
    for text in number {
        assert!(speaker.accepts(&Format::JsonObject, &format!("{{\"a\":[{text}]}}")), "{text}");
    }
    for text in endless {
        assert!(!speaker.accepts(&Format::JsonObject, &format!("{{\"a\":[{text}]}}")), "{text}");
    }
    // Numbers in a text are a text.
    assert!(speaker.accepts(&schema(json!({"type": "string"})), &format!("\"{long}{long}\"")));
    assert!(speaker.accepts(&Format::Regex("[0-9]+".into()), &long.repeat(4)));
}

#[test]
fn every_format_is_held_to_the_letter() {
    let speaker = Speaker::letters();
    let check = |format: &Format, good: &[&str], bad: &[&str]| {
        for text in good {
            assert!(speaker.accepts(format, text), "{format:?} {text:?}");
        }
        for text in bad {
            assert!(!speaker.accepts(format, text), "{format:?} {text:?}");
        }
    };
    check(
        &Format::JsonObject,
        &["{}", r#"{"a":[1,-2.5e3,true,null,"é\n"]}"#],
        &["[]", "1", "", "{"],
    );
    let regex = |text: &str| Format::Regex(text.to_owned());
    check(&regex(r"^\d{3}-(ab|c)/?$"), &["123-ab", "123-c/"], &["12-ab", "123-abc", "x123-ab"]);
    check(&regex(r"a\$"), &["a$"], &["a"]);
    check(&regex("(?i)yes|no"), &["YES", "no"], &["yesno", ""]);
    let choice = Format::Choice(vec!["no".into(), "north".into(), "\"quoted\"\n".into()]);
    check(&choice, &["no", "north", "\"quoted\"\n"], &["nort", "", "quoted"]);
    let lark = Format::Lark("start: \"(\" start? \")\"".into());
    check(&lark, &["()", "((()))"], &["(", "())"]);
}

#[test]
fn strict_schemas_have_no_further_properties() {
    let speaker = Speaker::letters();
    let with = |schema: Value, strictness| Format::JsonSchema { schema, strictness };
    let check = |schema: Value, text: &str, standard: bool, closed: bool| {
        let says = |strictness| speaker.accepts(&with(schema.clone(), strictness), text);
        let said = (says(Strictness::Standard), says(Strictness::Closed));
        assert_eq!(said, (standard, closed), "{schema} {text}");
    };
    let a = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    check(a.clone(), r#"{"a":1}"#, true, true);
    check(a.clone(), r#"{"a":1,"b":2}"#, true, false);
    check(json!({"type": "object"}), r#"{"b":2}"#, true, true);
    check(json!({"type": "array", "items": a}), r#"[{"b":2}]"#, true, false);
    let open = json!({"properties": {"a": true}, "additionalProperties": {"type": "null"},
                      "type": "object"});
    check(open, r#"{"b":null}"#, true, true);
    // What is added from beside is not shut out.
    let both = json!({"type": "object", "allOf": [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]});
    check(both, r#"{"a":1,"b":2}"#, true, true);
    let mixed = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                       "anyOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]},
                                 {"properties": {"c": {"type": "integer"}}, "required": ["c"]}]});
    check(mixed, r#"{"a":1,"c":2}"#, true, true);
    let shared = json!({"$defs": {"a": a_object()}, "type": "object",
                        "properties": {"x": {"$ref": "#/$defs/a"}}});
    check(shared, r#"{"x":{"a":1,"b":1}}"#, true, false);
}

fn a_object() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "integer"}}})
}

#[test]
fn what_is_not_enforced_is_named() {
    let speaker = Speaker::letters();
    let check = |schema: Value, path: &str| {
        for strictness in [Strictness::Standard, Strictness::Closed] {
            let format = Format::JsonSchema { schema: schema.clone(), strictness };
            match speaker.run(&format) {
                Ok(_) => panic!("{schema} is accepted"),
                Err(error) => assert_eq!(error.path, path, "{schema}: {error}"),
            }
        }
    };
    let inside = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    for (schema, path) in [
        (json!({"type": "string", "pattern": "^(ok$"}), ".pattern"),
        (json!({"type": "string", "pattern": "(?=a)b"}), ".pattern"),
        (json!({"type": "string", "pattern": r"(a)\1"}), ".pattern"),
        (json!({"type": "array", "uniqueItems": true}), ".uniqueItems"),
        (json!({"$ref": "other.json#/x"}), ".$ref"),
        (json!({"$ref": "https://example.com/s"}), ".$ref"),
        (json!({"$ref": "#/$defs/none"}), ".$ref"),
        (json!({"$ref": "#name"}), ".$ref"),
        (json!({"not": {"type": "null"}}), ".not"),
        (json!({"if": true, "then": false}), ".if"),
        (json!({"type": "object", "propertyNames": {"pattern": "a"}}), ".propertyNames"),
        (json!({"type": "array", "contains": true}), ".contains"),
        (json!({"unevaluatedProperties": false}), ".unevaluatedProperties"),
        (json!({"dependentRequired": {}}), ".dependentRequired"),
        (json!({"$dynamicRef": "#x"}), ".$dynamicRef"),
        (json!({"type": "text"}), ".type"),
        (json!({"type": []}), ".type"),
        (json!({"enum": []}), ".enum"),
        (json!({"enum": "a"}), ".enum"),
        (json!({"enum": ["a", "b\u{0}"]}), ".enum"),
        (json!({"const": {"a": ["\u{7f}"]}}), ".const"),
        (json!({"required": "a"}), ".required"),
        (json!({"required": [1]}), ".required"),
        (json!({"minLength": -1}), ".minLength"),
        (json!({"minItems": 1e9}), ".minItems"),
        (json!({"minimum": "1"}), ".minimum"),
        (json!({"minimum": 1e17}), ".minimum"),
        (json!({"const": 9_007_199_254_740_993_i64}), ".const"),
        (json!({"multipleOf": 0}), ".multipleOf"),
        (json!({"multipleOf": 1e-9}), ".multipleOf"),
        (json!({"multipleOf": 5e8}), ".multipleOf"),
        (json!({"format": "regex"}), ".format"),
        (json!({"type": "object", "minProperties": 2}), ".minProperties"),
        (json!({"anyOf": []}), ".anyOf"),
        (json!({"items": 7}), ".items"),
        (json!({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 2}]}), ".oneOf"),
    ] {
        check(schema.clone(), path);
        check(inside(schema.clone()), &format!(".properties.a{path}"));
        let shared =
            json!({"$defs": {"x": schema}, "type": "array", "items": {"$ref": "#/$defs/x"}});
        // Where the reference itself is broken, or where it leads to.
        if !path.contains("$ref") {
            check(shared, &format!(".$defs.x{path}"));
        }
    }
    check(json!({"type": "string", "minLength": 5, "maxLength": 2}), ".minLength");
    check(json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}), ".$ref");
}

/// R05: while a model thinks it may say anything but the end; what it thinks is not in the format.
#[test]
fn r05_a_format_begins_where_thoughts_end() {
    let speaker = Speaker::letters_and(&["</think>"]);
    let format = schema(json!({"type": "object", "properties": {"hue": {"type": "string"}},
                               "required": ["hue"], "additionalProperties": false}));
    let (template, opening) = ("<think>", Opening::Thoughts);
    let voice = Some((Syntax::of(template), &opening));
    let asked = Asked { format: &format, calls: Duty::Never, voice, template };
    let grammar = speaker.grammars.of_answer(&asked).unwrap().unwrap();
    let mut run = grammar.start();
    let everything: Vec<u32> = (0..speaker.tokenizer.vocab_size() as u32).collect();
    let only = |run: &mut Run, expected: &[&str]| {
        let allowed = run.allowed().unwrap();
        let all: Vec<u32> = everything.iter().copied().filter(|id| allowed.contains(*id)).collect();
        let mut expected: Vec<u32> = expected.iter().flat_map(|text| speaker.spell(text)).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    };
    let push = |run: &mut Run, text: &str| {
        for id in speaker.spell(text) {
            assert!(run.allowed().unwrap().contains(id), "{text}");
            run.push(id);
        }
    };
    push(&mut run, "Blue.");
    let allowed = run.allowed().unwrap();
    assert!(
        ["B", ".", "\n", "{", "}", "</think>"]
            .iter()
            .all(|t| allowed.contains(speaker.spell(t)[0]))
    );
    assert!(!allowed.contains(speaker.stops[0]));
    push(&mut run, "{\"hue\":1}</think>");
    only(&mut run, &["\n", "{"]);
    push(&mut run, "\n");
    only(&mut run, &["\n", "{"]);
    push(&mut run, "{\"hue\":\"red\"}");
    let allowed = run.allowed().unwrap();
    assert!(allowed.contains(speaker.stops[0]));
    assert!(everything.iter().all(|id| *id == speaker.stops[0] || !allowed.contains(*id)));
    // Another answer under the same grammar that has not come so far is held to its own place.
    let mut other = grammar.start();
    push(&mut other, "}");
}

/// Schemas, and what is true of everything they allow.
type Judge = fn(&Value) -> bool;

fn judged() -> Vec<(Value, Judge)> {
    fn keys(value: &Value, known: &[&str]) -> bool {
        value.as_object().is_some_and(|map| map.keys().all(|key| known.contains(&key.as_str())))
    }
    fn is_node(value: &Value) -> bool {
        let kids =
            value.get("kids").map_or(Some(&[][..]), |kids| kids.as_array().map(Vec::as_slice));
        keys(value, &["name", "unit", "kids", "extra"])
            && value["name"].is_string()
            && (value["unit"] == "g" || value["unit"] == "ml")
            && kids.is_some_and(|kids| kids.iter().all(|kid| kid.is_string() || is_node(kid)))
    }
    let closed = |properties: Value, required: Value| {
        json!({"type": "object", "properties": properties, "required": required,
               "additionalProperties": false})
    };
    vec![
        (node(), is_node),
        (json!({"type": "integer", "minimum": -7, "exclusiveMaximum": 12}), |value| {
            value.as_i64().is_some_and(|n| (-7..12).contains(&n))
        }),
        (json!({"type": "number", "multipleOf": 0.25, "minimum": 0}), |value| {
            value.as_f64().is_some_and(|n| n >= 0.0 && (n * 4.0).fract() == 0.0)
        }),
        (
            json!({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}),
            |v| {
                v.as_array()
                    .is_some_and(|a| (2..=3).contains(&a.len()) && a.iter().all(Value::is_boolean))
            },
        ),
        (
            json!({"prefixItems": [{"const": "a"}, {"type": "null"}], "items": false, "minItems": 1,
                "type": "array"}),
            |value| *value == json!(["a"]) || *value == json!(["a", null]),
        ),
        (json!({"type": "string", "minLength": 2, "maxLength": 5}), |value| {
            value.as_str().is_some_and(|text| (2..=5).contains(&text.chars().count()))
        }),
        (json!({"type": "string", "pattern": "^[a-c]{2,3}-[0-9]$"}), |value| {
            let text = value.as_str().unwrap_or_default();
            let Some((head, tail)) = text.split_once('-') else { return false };
            (2..=3).contains(&head.len())
                && head.bytes().all(|b| (b'a'..=b'c').contains(&b))
                && tail.len() == 1
                && tail.bytes().all(|b| b.is_ascii_digit())
        }),
        (
            closed(
                json!({"a": {"enum": [1, "x", null]}, "b": {"type": ["string", "null"]}}),
                json!(["b"]),
            ),
            |value| {
                let a =
                    value.get("a").is_none_or(|a| [json!(1), json!("x"), json!(null)].contains(a));
                keys(value, &["a", "b"])
                    && a
                    && (value["b"].is_string() || value["b"].is_null())
                    && value.get("b").is_some()
            },
        ),
        (
            json!({"oneOf": [closed(json!({"kind": {"const": "cat"}, "n": {"type": "integer"}}),
                                 json!(["kind", "n"])),
                          closed(json!({"kind": {"const": "dog"}}), json!(["kind"]))]}),
            |value| {
                (value["kind"] == "cat" && value["n"].is_number() && keys(value, &["kind", "n"]))
                    || *value == json!({"kind": "dog"})
            },
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}},
                "additionalProperties": {"type": "boolean"}, "maxProperties": 3}),
            |value| {
                let right = |(key, value): (&String, &Value)| match key.starts_with('x') {
                    true => value.is_i64() || value.is_u64() || value.is_f64(),
                    false => value.is_boolean(),
                };
                value.as_object().is_some_and(|map| map.len() <= 3 && map.iter().all(right))
            },
        ),
    ]
}

#[test]
fn whatever_is_said_is_right() {
    for name in ["bytelevel", "sentencepiece"] {
        let speaker = Speaker::new(name);
        for (asked, judge) in judged() {
            let mut n_said = 0;
            for seed in 0..30 {
                let Some(tokens) = speaker.say(&schema(asked.clone()), seed) else { continue };
                let text = speaker.text(&tokens);
                let value: Value = serde_json::from_str(&text)
                    .unwrap_or_else(|error| panic!("{name} {asked}: {error} in {text:?}"));
                assert!(judge(&value), "{name} {asked}: {text}");
                n_said += 1;
            }
            assert!(n_said > 15, "{name} {asked}: only {n_said} answers came to an end");
        }
    }
}
