//! `json.dumps` of Python, which Transformers puts in place of Jinja's `tojson`: Python's spaces,
//! insertion order, no HTML escaping. It reads no JSON.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::{origin, pystr, whole};

/// Deepest nesting; Python's own stack gives up near 1000.
const DEPTH: usize = 200;

/// Widest indentation; anybody's is 2 or 4.
const MAX_INDENT: i64 = 64;

/// `json.dumps(value, ensure_ascii=False)`.
pub fn dumps(value: &serde_json::Value) -> String {
    let style = Style::default();
    let value = whole::value(value);
    // The only failures are values that JSON cannot hold and absurd depth; these came as JSON.
    style.dumps(&value).unwrap_or_default()
}

/// The filter: `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ascii: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let mut style = Style::default();
    if options.get::<Option<bool>>("ensure_ascii")?.or(ascii).unwrap_or(false) {
        style.escape = Escape::NonAscii;
    }
    if let Some(indent) = options.get::<Option<Value>>("indent")?.filter(|v| !v.is_none()) {
        style.indent = Some(indentation(&indent)?);
        style.between_items = ",".into();
    }
    if let Some(pair) = options.get::<Option<Value>>("separators")?.filter(|v| !v.is_none()) {
        style.between_items = separator(&pair, 0)?;
        style.after_key = separator(&pair, 1)?;
    }
    if options.get::<Option<bool>>("sort_keys")?.unwrap_or(false) {
        style.order = Order::Sorted;
    }
    options.assert_all_used()?;
    let text = style.dumps(value)?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(text)
}

fn indentation(indent: &Value) -> Result<String, Error> {
    match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) if text.len() as i64 <= MAX_INDENT => Ok(text.to_owned()),
        (None, Some(n)) if n <= MAX_INDENT => Ok(" ".repeat(usize::try_from(n).unwrap_or(0))),
        _ => {
            Err(wrong(format!("tojson: indent {indent} is neither text nor at most {MAX_INDENT}")))
        }
    }
}

fn separator(pair: &Value, at: usize) -> Result<String, Error> {
    let text = pair.get_item_by_index(at)?;
    let text = text.as_str().ok_or_else(|| wrong("tojson: separators are two strings".into()))?;
    Ok(text.to_owned())
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

enum Escape {
    Controls,
    NonAscii,
}

enum Order {
    AsInserted,
    Sorted,
}

struct Style {
    escape: Escape,
    order: Order,
    indent: Option<String>,
    between_items: String,
    after_key: String,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            escape: Escape::Controls,
            order: Order::AsInserted,
            indent: None,
            between_items: ", ".into(),
            after_key: ": ".into(),
        }
    }
}

impl Style {
    fn dumps(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, 0, &mut out)?;
        Ok(out)
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(wrong(format!("tojson: deeper than {DEPTH} levels")));
        }
        match value.kind() {
            ValueKind::String => self.write_str(value.as_str().unwrap_or_default(), out),
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::Seq | ValueKind::Iterable => return self.write_list(value, depth, out),
            ValueKind::Map => return self.write_dict(value, depth, out),
            ValueKind::Plain if whole::is_one(value) => out.push_str(&value.to_string()),
            kind => return Err(wrong(format!("tojson: a value of kind {kind} is not JSON"))),
        }
        Ok(())
    }

    fn write_list(&self, list: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in list.try_iter()? {
            self.next_item(empty, depth + 1, out);
            empty = false;
            self.write(&item, depth + 1, out)?;
        }
        self.close(empty, depth, out);
        out.push(']');
        Ok(())
    }

    fn write_dict(&self, dict: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('{');
        let mut keys: Vec<Value> = dict.try_iter()?.collect();
        if matches!(self.order, Order::Sorted) {
            keys.sort();
        }
        for (at, key) in keys.iter().enumerate() {
            self.next_item(at == 0, depth + 1, out);
            self.write_str(&key_text(key), out);
            out.push_str(&self.after_key);
            self.write(&dict.get_item(key)?, depth + 1, out)?;
        }
        self.close(keys.is_empty(), depth, out);
        out.push('}');
        Ok(())
    }

    fn next_item(&self, first: bool, depth: usize, out: &mut String) {
        if !first {
            out.push_str(&self.between_items);
        }
        self.new_line(depth, out);
    }

    fn close(&self, empty: bool, depth: usize, out: &mut String) {
        if !empty {
            self.new_line(depth, out);
        }
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_str(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                ' '..='~' => out.push(c),
                c if matches!(self.escape, Escape::NonAscii) && !origin::may_be_mark(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) if x.is_nan() => "NaN".into(),
        Ok(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Ok(x) => pystr::float(x),
        Err(_) => value.to_string(),
    }
}

fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number(key),
        _ => pystr::str(key),
    }
}
