//! Arguments that a model writes one by one, each as its family does: texts as they are, between tags or
//! quotes, and all else as JSON. What the reader makes of them is what the schema allows.

use serde_json::{Map, Value};

use super::schema::Lowered;
use super::{GrammarError, lark, plain};
use crate::Tokenizer;
use crate::tools::shape::typed::{self, Types};
use crate::tools::spelling::{Each, ToldBy};

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
}

/// An argument as part of a rule, and whether it must be there.
type Item = (String, bool);

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
        let named = map.get("properties").and_then(Value::as_object).unwrap_or(&empty).clone();
        let rest = map.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
        let required = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let also =
            required.iter().filter_map(Value::as_str).filter(|name| !named.contains_key(*name));
        let also: Vec<(String, Value)> = also.map(|name| (name.to_owned(), rest.clone())).collect();
        let mut items = Vec::new();
        for (name, schema) in named.iter().chain(also.iter().map(|(name, schema)| (name, schema))) {
            let is_required = required.iter().any(|other| other == name);
            match self.argument(name, schema)? {
                Some(item) => items.push((item, is_required)),
                None if is_required => {
                    let problem = "it must be there, and no value would do".to_owned();
                    return Err(GrammarError { path: format!(".properties.{name}"), problem });
                }
                None => {}
            }
        }
        let names: Vec<&String> = named.keys().chain(also.iter().map(|(name, _)| name)).collect();
        let other = self.other(&names, &rest)?;
        Ok(self.sequence(&items, other))
    }

    fn define(&mut self, rule: &str, body: &str) -> String {
        let name = format!("{}{rule}", self.prefix);
        self.rules += &format!("{name}: {body}\n");
        name
    }

    fn literal(&self, text: &str) -> String {
        lark::with_control_tokens(text, self.tokenizer)
    }

    /// A rule for these in their order, and any number of `other` after them.
    fn sequence(&mut self, items: &[Item], other: Option<String>) -> String {
        let separator = self.literal(self.each.separator);
        let (mut first, mut more) = match other {
            Some(other) => (
                self.define("_first", &format!("({other} ({separator} {other})*)?")),
                self.define("_more", &format!("({separator} {other})*")),
            ),
            None => (self.define("_first", "\"\""), self.define("_more", "\"\"")),
        };
        for (i, (item, is_required)) in items.iter().enumerate().rev() {
            let (begin, go_on) = match is_required {
                true => (format!("{item} {more}"), format!("{separator} {item} {more}")),
                false => {
                    (format!("{item} {more} | {first}"), format!("({separator} {item})? {more}"))
                }
            };
            first = self.define(&format!("_first{i}"), &begin);
            more = self.define(&format!("_more{i}"), &go_on);
        }
        first
    }

    /// An argument as part of a rule; `None` if no value would do.
    fn argument(&mut self, name: &str, schema: &Value) -> Result<Option<String>, GrammarError> {
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty() || !name.chars().all(is_plain) {
            let problem =
                "names of arguments are letters, digits, `_`, `.` and `-` in this model's calls";
            let path = format!(".properties.{name}");
            return Err(GrammarError { path, problem: problem.to_owned() });
        }
        let types = typed::types(Some(self.parameters), name);
        let forms = self.forms(name, schema, types)?;
        let heads = forms.iter().map(|(open, value)| {
            format!("{} {value}", self.literal(&format!("{}{name}{open}", self.each.key)))
        });
        Ok(one_of(heads.collect()))
    }

    /// Arguments that the schema does not name.
    fn other(&mut self, names: &[&String], schema: &Value) -> Result<Option<String>, GrammarError> {
        if *schema == Value::Bool(false) {
            return Ok(None);
        }
        let taken: Vec<String> = names.iter().map(|name| lark::literal(name)).collect();
        let body = match taken.is_empty() {
            true => OTHER_NAME.to_owned(),
            false => format!("{OTHER_NAME} & ~({})", taken.join(" | ")),
        };
        let key = format!("{}_NAME", self.prefix.to_uppercase());
        // Every name that is not given has the same schema.
        let types = typed::types(Some(self.parameters), "\u{0}");
        let forms = self.forms("_other", schema, types)?;
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
        types: Types,
    ) -> Result<Vec<(&'static str, String)>, GrammarError> {
        let path = |error: GrammarError| GrammarError {
            path: format!(".properties.{name}{}", error.path),
            ..error
        };
        let [open, close] = self.each.other;
        let definitions = self.lowered.schema.get("$defs").cloned().unwrap_or_default();
        let json = |tool: &Self, schema: &Value| {
            let mut schema = schema.clone();
            if let (Value::Object(schema), Value::Object(definitions)) = (&mut schema, &definitions)
            {
                schema.insert("$defs".to_owned(), Value::Object(definitions.clone()));
            }
            (open, format!("{} {}", lark::json(&schema), tool.literal(close)))
        };
        let Some([text_open, text_close]) = self.each.text else {
            return Ok(vec![json(self, schema)]);
        };
        let allows = |kind: &str| plain::restricted(schema, &[kind], &definitions).is_some();
        let mut texts: Vec<String> = Vec::new();
        let mut not: Vec<&str> = Vec::new();
        let kinds: &[&str] = match self.each.told_by {
            ToldBy::Form => &["null", "boolean", "number", "array", "object"],
            ToldBy::Schema(untyped) if typed::is_text(types, untyped) => &[],
            ToldBy::Schema(_) if !types.has(Types::STRING) => return Ok(vec![json(self, schema)]),
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
        texts.extend(plain::text(schema, &definitions).map_err(path)?);
        let mut forms = Vec::new();
        if !texts.is_empty() {
            forms.push((text_open, self.text(&texts, text_close, &not)));
        }
        let other = plain::restricted(schema, kinds, &definitions);
        forms.extend(other.map(|other| json(self, &other)));
        Ok(forms)
    }

    /// A text of these, up to what closes it.
    fn text(&mut self, texts: &[String], close: &str, not: &[&str]) -> String {
        self.n_texts += 1;
        let name = format!("{}_text{}", self.prefix, self.n_texts);
        let end = self.each.ends_text;
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

fn one_of(all: Vec<String>) -> Option<String> {
    match all.is_empty() {
        true => None,
        false => Some(format!("({})", all.join(" | "))),
    }
}
