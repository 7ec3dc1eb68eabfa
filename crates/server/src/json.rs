//! Reads a body into a JSON value, strictly: valid UTF-8, bounded depth, no field twice. Not a
//! check of meaning; that is `fields.rs`. Whole numbers keep their digits, as `text::digits` has them.
//!
//! Depth is measured by a loop over the bytes before anything recursive sees the value, so a small
//! body of brackets cannot exhaust the stack of the parser, a template or a schema walker.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::ApiError;

/// Most arrays and objects inside each other. A tool schema of 40 nested objects needs 85.
pub(crate) const MAX_DEPTH: usize = 120;

/// Parses a whole body.
///
/// # Errors
/// `invalid_json` with the path of the field in which reading stopped.
pub(crate) fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        invalid(body, at, format!("byte {at} of the body is not valid UTF-8"))
    })?;
    let mut walk = Walk::default();
    for (at, &byte) in body.iter().enumerate() {
        walk.step(byte, at);
        if walk.levels.len() > MAX_DEPTH {
            let message = format!(
                "the body nests arrays and objects more than {MAX_DEPTH} deep (at byte {at})"
            );
            return Err(invalid(body, at, message));
        }
    }
    let kept = text::digits::kept(text);
    // An error has the place in what was sent.
    let read = serde_json::from_str(&kept).or_else(|_| serde_json::from_str(text));
    let Strict(value) = read.map_err(|error: serde_json::Error| {
        let at = offset(body, error.line(), error.column());
        let message = format!(
            "the body is not valid JSON: {error} (NaN and Infinity are not JSON; a field may \
             appear once)"
        );
        invalid(body, at, message)
    })?;
    Ok(value)
}

fn invalid(body: &[u8], at: usize, message: String) -> ApiError {
    let param = path_at(body, at);
    if param.is_empty() {
        return ApiError::new(crate::ErrorKind::Invalid, "invalid_json", message);
    }
    ApiError::refused("invalid_json", param, message)
}

/// Byte offset of a position as the parser gives it: both numbers from 1.
fn offset(body: &[u8], line: usize, column: usize) -> usize {
    let before = body.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1));
    let start: usize = before.map(<[u8]>::len).sum();
    (start + column.saturating_sub(1)).min(body.len())
}

/// Path of the innermost named field around a byte: `messages[1].content`, empty at the top.
fn path_at(body: &[u8], end: usize) -> String {
    let mut walk = Walk::default();
    for (at, &byte) in body.iter().enumerate() {
        // A key is only known with its closing quote, at which the parser stops for one given twice.
        let closes_string = byte == b'"' && walk.string.is_some();
        if at > end || (at == end && !closes_string) || walk.levels.len() > MAX_DEPTH {
            break;
        }
        walk.step(byte, at);
    }
    let mut path = String::new();
    // Deep paths of brackets help nobody; the head names the field.
    for level in walk.levels.iter().take(8) {
        match level {
            Level::Array { index } => path += &format!("[{index}]"),
            Level::Object { key: (from, to), .. } if to > from => {
                if !path.is_empty() {
                    path.push('.');
                }
                path += &String::from_utf8_lossy(&body[*from..*to]);
            }
            Level::Object { .. } => {}
        }
    }
    path
}

/// Where a scan over the bytes is.
#[derive(Default)]
struct Walk {
    levels: Vec<Level>,
    /// Start of the string being read, if inside one.
    string: Option<usize>,
    escaped: bool,
}

enum Level {
    Array { index: usize },
    Object { key: (usize, usize), wants_key: bool },
}

impl Walk {
    fn step(&mut self, byte: u8, at: usize) {
        if let Some(from) = self.string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.string = None;
                    if let Some(Level::Object { key, wants_key: true }) = self.levels.last_mut() {
                        *key = (from, at);
                    }
                }
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.string = Some(at + 1),
            b'{' => self.levels.push(Level::Object { key: (0, 0), wants_key: true }),
            b'[' => self.levels.push(Level::Array { index: 0 }),
            b'}' | b']' => drop(self.levels.pop()),
            b':' => {
                if let Some(Level::Object { wants_key, .. }) = self.levels.last_mut() {
                    *wants_key = false;
                }
            }
            b',' => match self.levels.last_mut() {
                Some(Level::Array { index }) => *index += 1,
                Some(Level::Object { key, wants_key }) => {
                    (*key, *wants_key) = ((0, 0), true);
                }
                None => {}
            },
            _ => {}
        }
    }
}

/// A value in which no object has a field twice: which of two `temperature`s counts must not
/// depend on the parser.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("field `{key}` appears twice")));
            }
            let Strict(value) = access.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(body: impl AsRef<[u8]>) -> (String, String) {
        let error = parse(body.as_ref()).unwrap_err();
        assert_eq!(error.code, "invalid_json");
        (error.param.unwrap_or_default(), error.message)
    }

    #[test]
    fn the_path_of_the_fault_is_named() {
        assert_eq!(refused(r#"{"a":1,"temperature":NaN}"#).0, "temperature");
        assert_eq!(refused(r#"{"a":{"b":[1,{"c":Infinity}]}}"#).0, "a.b[1].c");
        assert_eq!(refused(r#"{"a\"b,":[{}],"t":-Infinity}"#).0, "t");
        assert_eq!(refused("{\n\"x\": 1,\n\"y\": 1e999\n}").0, "y");
        assert_eq!(refused(r#"{"x":"\ud800"}"#).0, "x");
        assert_eq!(refused(b"{\"x\":\"\xff\"}").0, "x");
        assert_eq!(refused("").0, "");
        assert_eq!(refused("{} {}").0, "");
    }

    #[test]
    fn a_field_given_twice_is_refused() {
        let (param, message) = refused(r#"{"n":1,"n":2}"#);
        assert_eq!(param, "n");
        assert!(message.contains("`n` appears twice"), "{message}");
        assert!(parse(br#"{"a":{"n":1},"b":{"n":1}}"#).is_ok());
    }

    #[test]
    fn depth_is_bounded_before_parsing() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(deep(MAX_DEPTH).as_bytes()).is_ok());
        assert!(refused(deep(MAX_DEPTH + 1)).1.contains("120 deep"));
        // Not even closed, and far more than any stack holds.
        refused("[".repeat(4_000_000));
        // Brackets in strings are no depth.
        assert!(parse(format!("[\"{}\"]", "[\\\"".repeat(500)).as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_parser(text in r#"[\[\]{}",:0-9a\\n. -]{0,40}"#) {
            let plain: Result<Value, _> = serde_json::from_str(&text);
            match parse(text.as_bytes()) {
                Ok(value) => prop_assert_eq!(value, plain.unwrap()),
                Err(error) => prop_assert!(plain.is_err() || error.message.contains("twice")),
            }
        }
    }
}
