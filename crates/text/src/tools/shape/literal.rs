//! Values and calls as Python spells them, to JSON: `{'a': True}`, `f(x="y", n=[1, 2])`. It evaluates nothing,
//! so that numbers keep their digits: what no number of a machine can hold is still what the model wrote.

use super::typed::{self, Types};

/// Deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// A call with named arguments.
#[derive(Debug, PartialEq)]
pub(crate) struct PythonCall {
    pub(crate) name: String,
    /// A JSON object.
    pub(crate) arguments: String,
}

/// The type of a literal, and its JSON; JSON's words are known too.
pub(crate) fn python(text: &str) -> Option<(Types, String)> {
    let mut reader = Reader { rest: text };
    let mut json = String::new();
    let types = reader.value(MAX_DEPTH, &mut json)?;
    reader.blanks();
    reader.rest.is_empty().then_some((types, json))
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
        let mut arguments = String::from("{");
        loop {
            self.blanks();
            if self.eat(')') {
                arguments.push('}');
                return Some(PythonCall { name, arguments });
            }
            typed::separate(&mut arguments);
            arguments.push_str(&typed::quoted(self.word()?));
            self.blanks();
            if !self.eat('=') {
                return None;
            }
            arguments.push(':');
            self.value(MAX_DEPTH, &mut arguments)?;
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with(')') {
                return None;
            }
        }
    }

    /// Appends a value as JSON.
    fn value(&mut self, depth: usize, out: &mut String) -> Option<Types> {
        let depth = depth.checked_sub(1)?;
        self.blanks();
        match self.rest.chars().next()? {
            '"' | '\'' => {
                out.push_str(&typed::quoted(&self.string()?));
                Some(Types::STRING)
            }
            '[' => self.list(']', depth, out),
            '(' => self.list(')', depth, out),
            '{' => self.dict(depth, out),
            c if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(out),
            _ => {
                let (types, word) = match self.word()? {
                    "True" | "true" => (Types::BOOLEAN, "true"),
                    "False" | "false" => (Types::BOOLEAN, "false"),
                    "None" | "null" => (Types::NULL, "null"),
                    _ => return None,
                };
                out.push_str(word);
                Some(types)
            }
        }
    }

    fn number(&mut self, out: &mut String) -> Option<Types> {
        let part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E' | '_');
        let n = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(n);
        self.rest = rest;
        let text = text.replace('_', "");
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => ("-", text),
            None => ("", text.strip_prefix('+').unwrap_or(&text)),
        };
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, Some(exponent)),
            None => (text, None),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (digits, None),
        };
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let power = exponent.map(|power| power.strip_prefix(['-', '+']).unwrap_or(power));
        if (whole.is_empty() && fraction.unwrap_or_default().is_empty())
            || ![Some(whole), fraction, power].into_iter().flatten().all(are_digits)
            || power == Some("")
        {
            return None;
        }
        // Of zeros in front JSON has one at most, and behind a point at least one digit.
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            whole => whole,
        };
        if fraction.is_none() && exponent.is_none() {
            out.push_str(if whole == "0" { "" } else { sign });
            out.push_str(whole);
            return Some(Types::INTEGER);
        }
        out.extend([sign, whole]);
        if let Some(fraction) = fraction {
            out.extend([".", if fraction.is_empty() { "0" } else { fraction }]);
        }
        if let Some(exponent) = exponent {
            out.extend(["e", exponent]);
        }
        Some(Types::NUMBER)
    }

    fn list(&mut self, close: char, depth: usize, out: &mut String) -> Option<Types> {
        self.rest = &self.rest[1..];
        out.push('[');
        loop {
            self.blanks();
            if self.eat(close) {
                out.push(']');
                return Some(Types::ARRAY);
            }
            typed::separate(out);
            self.value(depth, out)?;
            self.blanks();
            if !self.eat(',') && !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    fn dict(&mut self, depth: usize, out: &mut String) -> Option<Types> {
        self.rest = &self.rest[1..];
        out.push('{');
        loop {
            self.blanks();
            if self.eat('}') {
                out.push('}');
                return Some(Types::OBJECT);
            }
            typed::separate(out);
            let key = out.len();
            // A key that is no text is named by how it is written.
            if self.value(depth, out)? != Types::STRING {
                let name = out.split_off(key);
                out.push_str(&typed::quoted(&name));
            }
            self.blanks();
            if !self.eat(':') {
                return None;
            }
            out.push(':');
            self.value(depth, out)?;
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

    /// Expected values are what Python's `json.dumps(ast.literal_eval(text))` gives, blanks aside, but that
    /// floating point numbers keep their digits.
    #[test]
    fn values_are_pythons() {
        for (text, json) in [
            ("{'a': [1, -2.5, True], \"b\": None}", r#"{"a":[1,-2.5,true],"b":null}"#),
            ("('x', )", r#"["x"]"#),
            (r"'it\'s \u00e9\n'", r#""it's é\n""#),
            (r"'a\bc\f\r\t'", r#""a\bc\f\r\t""#),
            ("\"\"\"a \"b\" c\"\"\"", r#""a \"b\" c""#),
            ("''", r#""""#),
            ("1_000", "1000"),
            ("18446744073709551616", "18446744073709551616"),
            ("-1_000_000_000_000_000_000_000", "-1000000000000000000000"),
            ("+7", "7"),
            ("-0", "0"),
            ("[.5, 5., -0.25, 1e5, 2E-7]", "[0.5,5.0,-0.25,1e5,2e-7]"),
            ("0.1234567890123456789012345", "0.1234567890123456789012345"),
            ("{1: 'a', None: 'b'}", r#"{"1":"a","null":"b"}"#),
            ("[[], {}, [{}]]", "[[],{},[{}]]"),
        ] {
            assert_eq!(python(text).map(|(_, json)| json).as_deref(), Some(json), "{text}");
        }
        for bad in
            ["", "x", "[1", "{1}", "'a", "f()", "[1] x", "-", ".", "1e", "1-2", "--1", "1.2.3"]
        {
            assert_eq!(python(bad), None, "{bad}");
        }
        assert_eq!(python(&"[".repeat(100_000)), None);
    }

    #[test]
    fn calls_have_names_and_arguments() {
        let one = calls("[f(a=\"x, y)\", n=2), pack.g()]").0.unwrap();
        assert_eq!((one[0].name.as_str(), one[1].name.as_str()), ("f", "pack.g"));
        assert_eq!(one[0].arguments, r#"{"a":"x, y)","n":2}"#);
        assert_eq!(one[1].arguments, "{}");
        assert_eq!(calls("f(a=1)\ng(b=2)").0.unwrap().len(), 2);
        for bad in ["", "[]", "f", "f(1)", "f(a=x)", "[f(a=1)", "see [f(a=1)]"] {
            assert_eq!(calls(bad).0, None, "{bad}");
        }
    }
}
