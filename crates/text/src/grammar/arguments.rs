//! Arguments that a model writes one by one, each as its family does: texts as they are, between tags or
//! quotes, and all else as JSON. What the reader makes of them is what the schema allows.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::schema::Lowered;
use super::{GrammarError, lark, plain};
use crate::Tokenizer;
use crate::tools::shape::typed::{self, Place, Types};
use crate::tools::spelling::{Each, NAME, ToldBy};

/// Names of parameters that the schema does not give.
const OTHER_NAME: &str = r"/[a-zA-Z_][a-zA-Z0-9_]{0,63}/";
/// Words of a schema of arguments that are understood here.
const WORDS: [&str; 5] = ["type", "properties", "required", "additionalProperties", "$defs"];

/// What a reader takes for null where a text may stand.
const NULL: &str = r"\s*(null|None)\s*";
/// And what it may take for a list, an object, or something in Python's words.
const STRUCTURES: [&str; 3] =
    [r"\s*[\[{(\x27\x22](?s:.*)", r"\s*[+.-]?[0-9](?s:.*)", r"\s*([Tt]rue|[Ff]alse)\s*"];

/// One tool, and how its calls are written.
pub(super) struct Tool<'a> {
    pub(super) each: &'a Each,
    /// The parameters as the reader sees them.
    pub(super) parameters: &'a Value,
    pub(super) lowered: &'a Lowered,
    pub(super) tokenizer: &'a Tokenizer,
    /// What its rules begin with, in lower case.
    pub(super) prefix: String,
    /// Rules that were made.
    pub(super) rules: String,
    /// Texts among them.
    pub(super) n_texts: usize,
    /// Sequences among them.
    pub(super) n_sequences: usize,
    /// Definitions of the schema that have a rule.
    pub(super) defined: HashSet<String>,
}

/// An argument as part of a rule, and whether it must be there.
pub(super) type Item = (String, bool);

impl Tool<'_> {
    /// The name of a rule for all arguments. The rules it needs are in `rules` then.
    pub(super) fn rule(&mut self) -> Result<String, GrammarError> {
        let empty = Map::new();
        let map = self.lowered.schema.as_object().unwrap_or(&empty);
        if let Some(word) = map.keys().find(|word| !WORDS.contains(&word.as_str())) {
            let problem = "the arguments of this model's calls stand one by one, so their schema is an \
                           object with properties and nothing besides";
            return Err(GrammarError { path: format!(".{word}"), problem: problem.to_owned() });
        }
        let place = Some(Place::of(self.parameters));
        let items = self.items(map, place)?;
        let rest = map.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        let named = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = map.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = named.keys().map(String::as_str).chain(required).collect();
        let other = self.other(&names, &rest)?;
        Ok(self.sequence(&items, other))
    }

    /// The properties of an object, in the order of the schema, and those that must be there besides.
    pub(super) fn items(
        &mut self,
        map: &Map<String, Value>,
        place: Option<Place<'_>>,
    ) -> Result<Vec<Item>, GrammarError> {
        let empty = Map::new();
        let named = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let rest = map.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let required = map.get("required").and_then(Value::as_array);
        let required: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        let also = required.iter().filter(|name| !named.contains_key(**name));
        let named = named.iter().map(|(name, schema)| (name.as_str(), schema));
        let mut items = Vec::new();
        for (name, schema) in named.chain(also.map(|name| (*name, rest))) {
            let is_required = required.contains(&name);
            match self.argument(name, schema, place)? {
                Some(item) => items.push((item, is_required)),
                None if is_required => {
                    let problem = "it must be there, and no value would do".to_owned();
                    return Err(GrammarError { path: format!(".properties.{name}"), problem });
                }
                None => {}
            }
        }
        Ok(items)
    }

    pub(super) fn define(&mut self, rule: &str, body: &str) -> String {
        let name = format!("{}{rule}", self.prefix);
        self.rules += &format!("{name}: {body}\n");
        name
    }

    pub(super) fn literal(&self, text: &str) -> String {
        lark::with_control_tokens(text, self.tokenizer)
    }

    /// A rule for these in their order, and any number of `other` after them.
    pub(super) fn sequence(&mut self, items: &[Item], other: Option<String>) -> String {
        self.n_sequences += 1;
        let [firsts, mores] =
            ["_first", "_more"].map(|name| format!("{name}{}_", self.n_sequences));
        let separator = self.literal(self.each.separator);
        let (mut first, mut more) = match other {
            Some(other) => (
                self.define(&firsts, &format!("({other} ({separator} {other})*)?")),
                self.define(&mores, &format!("({separator} {other})*")),
            ),
            None => (self.define(&firsts, "\"\""), self.define(&mores, "\"\"")),
        };
        for (i, (item, is_required)) in items.iter().enumerate().rev() {
            let (begin, go_on) = match is_required {
                true => (format!("{item} {more}"), format!("{separator} {item} {more}")),
                false => {
                    (format!("{item} {more} | {first}"), format!("({separator} {item})? {more}"))
                }
            };
            first = self.define(&format!("{firsts}{i}"), &begin);
            more = self.define(&format!("{mores}{i}"), &go_on);
        }
        first
    }

    /// An argument as part of a rule; `None` if no value would do.
    fn argument(
        &mut self,
        name: &str,
        schema: &Value,
        place: Option<Place<'_>>,
    ) -> Result<Option<String>, GrammarError> {
        if !is_plain(name) {
            let problem =
                "names of arguments are letters, digits, `_`, `.` and `-` in this model's calls";
            let path = format!(".properties.{name}");
            return Err(GrammarError { path, problem: problem.to_owned() });
        }
        let place = place.and_then(|place| place.property(name));
        let path = |error: GrammarError| GrammarError {
            path: format!(".properties.{name}{}", error.path),
            ..error
        };
        self.element(name, schema, place).map_err(path)
    }

    /// A value between what begins and what ends it under this name; `None` if no value would do.
    pub(super) fn element(
        &mut self,
        name: &str,
        schema: &Value,
        place: Option<Place<'_>>,
    ) -> Result<Option<String>, GrammarError> {
        let forms = self.forms(name, schema, place)?;
        let heads = forms.iter().map(|(open, value)| {
            format!("{} {value}", self.literal(&format!("{}{name}{open}", self.each.key)))
        });
        Ok(one_of(heads.collect()))
    }

    /// Arguments that the schema does not name.
    fn other(&mut self, names: &[&str], schema: &Value) -> Result<Option<String>, GrammarError> {
        // No grammar says that two names are the same, unless they are known.
        if *schema == Value::Bool(false) || self.each.other[1].contains(NAME) {
            return Ok(None);
        }
        let taken: Vec<String> = names.iter().map(|name| lark::literal(name)).collect();
        let body = match taken.is_empty() {
            true => OTHER_NAME.to_owned(),
            false => format!("{OTHER_NAME} & ~({})", taken.join(" | ")),
        };
        let key = format!("{}_NAME", self.prefix.to_uppercase());
        // Every name that is not given has the same schema.
        let place = Place::of(self.parameters).property("\u{0}");
        let path = |error: GrammarError| GrammarError {
            path: format!(".properties._other{}", error.path),
            ..error
        };
        let forms = self.forms("_other", schema, place).map_err(path)?;
        let heads = forms.iter().map(|(open, value)| {
            format!("{} {key} {} {value}", self.literal(self.each.key), self.literal(open))
        });
        let all = one_of(heads.collect());
        self.rules += &format!("{key}: {body}\n");
        Ok(all)
    }

    /// The ways to write a value: what opens it, and the rest as part of a rule.
    fn forms(
        &mut self,
        name: &str,
        schema: &Value,
        place: Option<Place<'_>>,
    ) -> Result<Vec<(&'static str, String)>, GrammarError> {
        let types = place.map_or(Types::default(), Place::types);
        let [open, close] = self.each.other;
        let close = close.replace(NAME, name);
        let definitions = self.definitions();
        let json = |tool: &mut Self, schema: &Value| {
            let value = tool.value(schema, place)?;
            Ok::<_, GrammarError>((open, format!("{value} {}", tool.literal(&close))))
        };
        let Some([text_open, text_close]) = self.each.text else {
            return Ok(vec![json(self, schema)?]);
        };
        let allows = |kind: &str| plain::restricted(schema, &[kind], &definitions).is_some();
        let mut texts: Vec<String> = Vec::new();
        let mut not: Vec<&str> = Vec::new();
        let kinds: &[&str] = match self.each.told_by {
            ToldBy::Form => &["null", "boolean", "number", "array", "object"],
            ToldBy::Schema(untyped) if typed::is_text(types, untyped) => &[],
            ToldBy::Schema(_) if !types.has(Types::STRING) => return Ok(vec![json(self, schema)?]),
            // A reader takes for a text what is neither null, nor a list, nor an object.
            ToldBy::Schema(_) => {
                match types.has(Types::NULL) {
                    true if allows("null") => texts.push(lark::literal("null")),
                    true => not.push(NULL),
                    false => {}
                }
                if types.has(Types::ARRAY.or(Types::OBJECT)) {
                    not.extend(STRUCTURES);
                }
                match (types.has(Types::ARRAY), types.has(Types::OBJECT)) {
                    (true, true) => &["array", "object"],
                    (true, false) => &["array"],
                    (false, true) => &["object"],
                    (false, false) => &[],
                }
            }
        };
        texts.extend(plain::text(schema, &definitions)?);
        let mut forms = Vec::new();
        if !texts.is_empty() {
            forms.push((text_open, self.text(&texts, name, (text_close, not.as_slice()))));
        }
        if let Some(other) = plain::restricted(schema, kinds, &definitions) {
            forms.push(json(self, &other)?);
        }
        Ok(forms)
    }

    /// The definitions that the schema refers to.
    pub(super) fn definitions(&self) -> Value {
        self.lowered.schema.get("$defs").cloned().unwrap_or_default()
    }

    /// A text of these, up to what closes the argument.
    fn text(&mut self, texts: &[String], argument: &str, (close, not): (&str, &[&str])) -> String {
        self.n_texts += 1;
        let name = format!("{}_text{}", self.prefix, self.n_texts);
        let [close, end] = [close, self.each.ends_text].map(|text| text.replace(NAME, argument));
        let (close, end) = (close.as_str(), end.as_str());
        let mut parts = vec![format!("({})", texts.join(" | "))];
        parts.extend(self.each.no_text.iter().chain(not).map(|pattern| format!("~/{pattern}/")));
        let (letters, token) = lark::before_control_token(close, self.tokenizer);
        let written = lark::literal(letters);
        match letters.contains(end) {
            // Lazy: with the first of these it is over, and a control token may follow.
            true => {
                parts.push(format!("~/(?s:.*){}(?s:.*)/", lark::pattern(end)));
                self.rules += &format!("{name}[lazy]: ({}) {written}\n", parts.join(" & "));
                format!("{name} {token}")
            }
            // A control token ends it, which is nothing that a text could hold.
            false => {
                let name = name.to_uppercase();
                let written = if letters.is_empty() { "" } else { &written };
                self.rules += &format!("{name}: ({}) {written}\n", parts.join(" & "));
                format!("{name} {token}")
            }
        }
    }
}

/// A name that can be an argument's, however these are spelled.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && name.chars().all(is_plain)
}

fn one_of(all: Vec<String>) -> Option<String> {
    match all.is_empty() {
        true => None,
        false => Some(format!("({})", all.join(" | "))),
    }
}
