//! Values and calls as Python spells them: `{'a': True}`, `f(x="y", n=[1, 2])`. It evaluates nothing.

use serde_json::{Map, Number, Value};

/// Deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// A call with named arguments.
#[derive(Debug, PartialEq)]
pub(crate) struct PythonCall {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

/// The value of a literal; JSON's words are known too.
pub(crate) fn python(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text };
    let value = reader.value(MAX_DEPTH)?;
    reader.blanks();
    reader.rest.is_empty().then_some(value)
}

/// Calls in a row, in a list, or one to a line; and how many bytes were read to tell.
pub(crate) fn calls(text: &str) -> (Option<Vec<PythonCall>>, usize) {
    let mut reader = Reader { rest: text };
    let calls = reader.calls();
    (calls, text.len() - reader.rest.len())
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn calls(&mut self) -> Option<Vec<PythonCall>> {
        self.blanks();
        let in_list = self.eat('[');
        let mut calls = Vec::new();
        loop {
            self.blanks();
            let ends = if in_list { self.eat(']') } else { self.rest.is_empty() };
            if ends {
                break;
            }
            calls.push(self.call()?);
            self.blanks();
            if self.eat(',') || self.eat(';') {
                continue;
            }
        }
        self.blanks();
        (self.rest.is_empty() && !calls.is_empty()).then_some(calls)
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, character: char) -> bool {
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> Option<&str> {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        let n = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(n);
        self.rest = rest;
        (n > 0).then_some(word)
    }

    fn call(&mut self) -> Option<PythonCall> {
        let name = self.word()?.to_owned();
        self.blanks();
        if !self.eat('(') {
            return None;
        }
        let mut arguments = Map::new();
        loop {
            self.blanks();
            if self.eat(')') {
                return Some(PythonCall { name, arguments });
            }
            let key = self.word()?.to_owned();
            self.blanks();
            if !self.eat('=') {
                return None;
            }
            arguments.insert(key, self.value(MAX_DEPTH)?);
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with(')') {
                return None;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.blanks();
        match self.rest.chars().next()? {
            '"' | '\'' => self.string().map(Value::String),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.dict(depth),
            c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(),
            _ => match self.word()? {
                "True" | "true" => Some(Value::Bool(true)),
                "False" | "false" => Some(Value::Bool(false)),
                "None" | "null" => Some(Value::Null),
                _ => None,
            },
        }
    }

    fn number(&mut self) -> Option<Value> {
        let part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E' | '_');
        let n = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(n);
        self.rest = rest;
        let text = text.trim_start_matches('+').replace('_', "");
        let exact = text.parse::<i64>().map(Number::from).ok();
        exact.or_else(|| Number::from_f64(text.parse().ok()?)).map(Value::Number)
    }

    fn list(&mut self, close: char, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut list = Vec::new();
        loop {
            self.blanks();
            if self.eat(close) {
                return Some(Value::Array(list));
            }
            list.push(self.value(depth)?);
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut map = Map::new();
        loop {
            self.blanks();
            if self.eat('}') {
                return Some(Value::Object(map));
            }
            let key = match self.value(depth)? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            self.blanks();
            if !self.eat(':') {
                return None;
            }
            map.insert(key, self.value(depth)?);
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let triple = [quote; 3].iter().collect::<String>();
        let close = match self.rest.starts_with(&triple) {
            true if self.rest[3..].contains(&triple) => triple,
            _ => quote.to_string(),
        };
        self.rest = &self.rest[close.len()..];
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(&close) {
                self.rest = rest;
                return Some(text);
            }
            let mut chars = self.rest.chars();
            match chars.next()? {
                '\\' => {
                    self.rest = chars.as_str();
                    self.escape(&mut text)?;
                }
                other => {
                    self.rest = chars.as_str();
                    text.push(other);
                }
            }
        }
    }

    /// What a backslash stands before.
    fn escape(&mut self, text: &mut String) -> Option<()> {
        let mut chars = self.rest.chars();
        let letter = chars.next()?;
        self.rest = chars.as_str();
        let digits = match letter {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        match letter {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '\n' => {}
            '\\' | '\'' | '"' => text.push(letter),
            _ if digits > 0 => {
                let code = u32::from_str_radix(self.rest.get(..digits)?, 16).ok()?;
                text.push(char::from_u32(code)?);
                self.rest = &self.rest[digits..];
            }
            other => text.extend(['\\', other]),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Expected values are what Python's `ast.literal_eval` gives.
    #[test]
    fn values_are_pythons() {
        for (text, value) in [
            ("{'a': [1, -2.5, True], \"b\": None}", json!({"a": [1, -2.5, true], "b": null})),
            ("('x', )", json!(["x"])),
            (r"'it\'s \u00e9\n'", json!("it's é\n")),
            (r"'a\bc\f\r\t'", json!("a\u{8}c\u{c}\r\t")),
            ("\"\"\"a \"b\" c\"\"\"", json!("a \"b\" c")),
            ("''", json!("")),
            ("1_000", json!(1000)),
        ] {
            assert_eq!(python(text), Some(value), "{text}");
        }
        for bad in ["", "x", "[1", "{1}", "'a", "f()", "[1] x"] {
            assert_eq!(python(bad), None, "{bad}");
        }
        assert_eq!(python(&"[".repeat(100_000)), None);
    }

    #[test]
    fn calls_have_names_and_arguments() {
        let one = calls("[f(a=\"x, y)\", n=2), pack.g()]").0.unwrap();
        assert_eq!((one[0].name.as_str(), one[1].name.as_str()), ("f", "pack.g"));
        assert_eq!(json!(one[0].arguments), json!({"a": "x, y)", "n": 2}));
        assert_eq!(calls("f(a=1)\ng(b=2)").0.unwrap().len(), 2);
        for bad in ["", "[]", "f", "f(1)", "f(a=x)", "[f(a=1)", "see [f(a=1)]"] {
            assert_eq!(calls(bad).0, None, "{bad}");
        }
    }
}
