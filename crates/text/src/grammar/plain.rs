//! Texts that a schema allows, as they are and not as JSON; and what it allows besides texts. For calls
//! whose arguments are texts between tags.

use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Map, Value, json};

use super::{GrammarError, lark};

/// Deepest chain of references and alternatives.
const MAX_DEPTH: usize = 16;

/// Most alternatives that a pattern is spread into.
const MAX_ALTERNATIVES: usize = 64;

/// Texts of the formats that are enforced. Some say less than their standard allows, none more.
const FORMATS: [(&str, &str); 10] = [
    (
        "date-time",
        r"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    ),
    (
        "time",
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    ),
    (
        "date",
        r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29",
    ),
    (
        "duration",
        r"P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}H)?|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?)|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))",
    ),
    (
        "email",
        r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}){0,2}@([a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?\.){1,4}[a-zA-Z]{2,30}",
    ),
    (
        "hostname",
        r"([a-zA-Z0-9]([a-zA-Z0-9-]?[a-zA-Z0-9]){0,20}\.){0,4}[a-zA-Z]([a-zA-Z0-9]){0,30}",
    ),
    (
        "ipv4",
        r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
    ),
    (
        "ipv6",
        r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,3}|::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,5})?|([0-9a-fA-F]{1,4}:){1,6}:",
    ),
    ("uuid", r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"),
    (
        "uri",
        r"[a-zA-Z][a-zA-Z0-9+.-]{0,20}:(//([a-zA-Z0-9._~!$&'()*+,;=:-]{1,60}@)?[a-zA-Z0-9]([a-zA-Z0-9.-]{0,200}[a-zA-Z0-9])?(:[0-9]{1,5})?(/([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2}){0,200}){0,40}|[a-zA-Z0-9._~!$&'()*+,;=:@-]{1,200})(\?([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2}){0,500})?(#([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2}){0,200})?",
    ),
];

/// The pattern of a format that the library takes less strictly: it knows no leap years, and not how long
/// an address may be.
pub(super) fn stricter(format: &str) -> Option<String> {
    let (_, pattern) = FORMATS.iter().find(|(name, _)| {
        *name == format && matches!(format, "date" | "time" | "date-time" | "email")
    })?;
    Some(format!("^(?:{pattern})$"))
}

/// The texts that a lowered schema allows, as part of a terminal in Lark's notation; `None`: no text.
pub(super) fn text(schema: &Value, definitions: &Value) -> Result<Option<String>, GrammarError> {
    text_of(schema, definitions, MAX_DEPTH)
}

fn text_of(
    schema: &Value,
    definitions: &Value,
    depth: usize,
) -> Result<Option<String>, GrammarError> {
    let fault = |word: &str, problem: &str| {
        Err(GrammarError { path: format!(".{word}"), problem: problem.to_owned() })
    };
    let map = match schema {
        Value::Object(map) => map,
        Value::Bool(false) => return Ok(None),
        _ => return Ok(Some(r"/(?s:.*)/".to_owned())),
    };
    let Some(depth) = depth.checked_sub(1) else {
        return fault("$ref", "it leads too far for the arguments of this model's calls");
    };
    let mut parts = Vec::new();
    for (word, value) in map {
        let list = || value.as_array().map(Vec::as_slice).unwrap_or_default();
        let alternatives = |texts: Vec<String>| match texts.is_empty() {
            true => None,
            false => Some(format!("({})", texts.join(" | "))),
        };
        let part = match word.as_str() {
            "type" if *value == "string" || list().iter().any(|name| name == "string") => continue,
            "type" => None,
            "const" => value.as_str().map(lark::literal),
            "enum" => {
                alternatives(list().iter().filter_map(Value::as_str).map(lark::literal).collect())
            }
            "anyOf" | "oneOf" => {
                let all = list().iter().map(|schema| text_of(schema, definitions, depth));
                alternatives(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            }
            "allOf" => {
                let all = list().iter().map(|schema| text_of(schema, definitions, depth));
                let all: Option<Vec<String>> =
                    all.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
                all.map(|all| format!("({})", all.join(" & ")))
            }
            "$ref" => {
                let name = value.as_str().and_then(|name| name.strip_prefix("#/$defs/"));
                let target =
                    name.and_then(|name| definitions.get(name)).unwrap_or(&Value::Bool(true));
                text_of(target, definitions, depth)?
            }
            "minLength" | "maxLength" => {
                let count = value.as_u64().unwrap_or_default();
                Some(match word.as_str() {
                    "minLength" => format!("/(?s:.{{{count},}})/"),
                    _ => format!("/(?s:.{{0,{count}}})/"),
                })
            }
            "pattern" => match found(value.as_str().unwrap_or_default()) {
                Some(pattern) => Some(pattern),
                None => {
                    let problem = "`^` and `$` stand at the ends of a pattern or of its alternatives in \
                                   the arguments of this model's calls";
                    return fault(word, problem);
                }
            },
            "format" => {
                let known = FORMATS.iter().find(|(name, _)| value == name);
                known.map(|(_, pattern)| lark_pattern(pattern))
            }
            _ => continue,
        };
        match part {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    Ok(Some(match parts.is_empty() {
        true => r"/(?s:.*)/".to_owned(),
        false => format!("({})", parts.join(" & ")),
    }))
}

fn lark_pattern(pattern: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(pattern, ""))
}

/// A pattern as part of a terminal: texts in which it is found. `None` where it has an anchor in its
/// middle.
fn found(pattern: &str) -> Option<String> {
    let parsed =
        regex_syntax::Parser::new().parse(&llguidance::regex_to_lark(pattern, "dw")).ok()?;
    let all: Option<Vec<String>> = spread(&parsed)?.into_iter().map(anchored).collect();
    Some(lark_pattern(&all?.join("|")))
}

/// An expression as alternatives that are sequences, such that anchors are parts of these.
fn spread(hir: &Hir) -> Option<Vec<Vec<Hir>>> {
    if hir.properties().look_set().is_empty() {
        return Some(vec![vec![hir.clone()]]);
    }
    match hir.kind() {
        HirKind::Look(_) => Some(vec![vec![hir.clone()]]),
        HirKind::Capture(capture) => spread(&capture.sub),
        HirKind::Alternation(all) => {
            let all: Option<Vec<_>> = all.iter().map(spread).collect();
            Some(all?.concat())
        }
        HirKind::Concat(parts) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                let ways = spread(part)?;
                if all.len() * ways.len() > MAX_ALTERNATIVES {
                    return None;
                }
                let longer = |before: &Vec<Hir>| {
                    let after = |way: &Vec<Hir>| [before.as_slice(), way].concat();
                    ways.iter().map(after).collect::<Vec<_>>()
                };
                all = all.iter().flat_map(longer).collect();
            }
            Some(all)
        }
        _ => None,
    }
}

/// One alternative, matching a text from its beginning to its end.
fn anchored(mut parts: Vec<Hir>) -> Option<String> {
    let is =
        |part: Option<&Hir>, look| part.is_some_and(|part| *part.kind() == HirKind::Look(look));
    let (mut starts, mut ends) = (false, false);
    while is(parts.first(), Look::Start) {
        (starts, parts) = (true, parts.split_off(1));
    }
    while is(parts.last(), Look::End) {
        ends = parts.pop().is_some();
    }
    let inner = Hir::concat(parts);
    if !inner.properties().look_set().is_empty() {
        return None;
    }
    let any = |is_anchored| if is_anchored { "" } else { "(?s:.*)" };
    Some(format!("{}(?:{inner}){}", any(starts), any(ends)))
}

/// A lowered schema of which only values of these types are left; `None`: none is.
pub(super) fn restricted(schema: &Value, kinds: &[&str], definitions: &Value) -> Option<Value> {
    restrict(schema, kinds, definitions, MAX_DEPTH)
}

fn restrict(schema: &Value, kinds: &[&str], definitions: &Value, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let empty = Map::new();
    let map = match schema {
        Value::Object(map) => map,
        Value::Bool(false) => return None,
        _ => &empty,
    };
    if kinds.is_empty() {
        return None;
    }
    let is_kind = |value: &Value| {
        kinds.contains(&match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })
    };
    let mut left = map.clone();
    if map.get("const").is_some_and(|value| !is_kind(value)) {
        return None;
    }
    if let Some(values) = map.get("enum").and_then(Value::as_array) {
        let values: Vec<Value> = values.iter().filter(|value| is_kind(value)).cloned().collect();
        (!values.is_empty()).then(|| left.insert("enum".to_owned(), Value::Array(values)))?;
    }
    let types: Vec<Value> = match map.get("type") {
        None => kinds.iter().map(|kind| json!(kind)).collect(),
        Some(Value::Array(names)) => names.clone(),
        Some(name) => vec![name.clone()],
    };
    let stays = |name: &Value| {
        kinds.iter().any(|kind| name == kind) || (*name == "integer" && kinds.contains(&"number"))
    };
    let types: Vec<Value> = types.into_iter().filter(stays).collect();
    if types.is_empty() {
        return None;
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(all) = map.get(word).and_then(Value::as_array) {
            let all = all.iter().filter_map(|schema| restrict(schema, kinds, definitions, depth));
            let all: Vec<Value> = all.collect();
            (!all.is_empty()).then(|| left.insert(word.to_owned(), Value::Array(all)))?;
        }
    }
    if let Some(all) = map.get("allOf").and_then(Value::as_array) {
        let all = all.iter().map(|schema| restrict(schema, kinds, definitions, depth));
        left.insert("allOf".to_owned(), Value::Array(all.collect::<Option<Vec<_>>>()?));
    }
    if let Some(name) = map.get("$ref").and_then(Value::as_str) {
        let target = name.strip_prefix("#/$defs/").and_then(|name| definitions.get(name))?;
        let target = restrict(target, kinds, definitions, depth)?;
        left.remove("$ref");
        if left.is_empty() {
            return Some(target);
        }
        let all = left.entry("allOf").or_insert(json!([]));
        all.as_array_mut()?.push(target);
    }
    let joins = ["anyOf", "oneOf", "enum", "const"].iter().any(|word| left.contains_key(*word));
    if !joins {
        left.insert("type".to_owned(), Value::Array(types));
    }
    Some(Value::Object(left))
}
