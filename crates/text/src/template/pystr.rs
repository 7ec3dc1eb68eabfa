//! How Python prints values: `str` and `repr`. JSON is in `pyjson.rs`.

use minijinja::value::{Value, ValueKind};

/// `str(value)`.
pub(super) fn str(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => repr(value),
    }
}

/// Deepest nesting that is printed; Python's own stack gives up near 1000.
const DEPTH: usize = 200;

/// `repr(value)`.
pub(super) fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, DEPTH, &mut out);
    out
}

/// Prints at most `depth` levels and an ellipsis for what is below.
fn write_repr(value: &Value, depth: usize, out: &mut String) {
    let Some(depth) = depth.checked_sub(1) else {
        out.push_str("...");
        return;
    };
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
        }
        ValueKind::Seq if value.is_tuple() => {
            let n = write_items(value, depth, out, ["(", ""]);
            out.push_str(if n == 1 { ",)" } else { ")" });
        }
        ValueKind::Seq | ValueKind::Iterable => {
            write_items(value, depth, out, ["[", "]"]);
        }
        ValueKind::Map => write_dict(value, depth, out),
        ValueKind::String => write_text(value.as_str().unwrap_or_default(), out),
        _ => out.push_str(&value.to_string()),
    }
}

fn write_items(value: &Value, depth: usize, out: &mut String, [open, close]: [&str; 2]) -> usize {
    out.push_str(open);
    let mut n = 0;
    for item in value.try_iter().into_iter().flatten() {
        out.push_str(if n == 0 { "" } else { ", " });
        write_repr(&item, depth, out);
        n += 1;
    }
    out.push_str(close);
    n
}

fn write_dict(value: &Value, depth: usize, out: &mut String) {
    out.push('{');
    for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        write_repr(&key, depth, out);
        out.push_str(": ");
        write_repr(&value.get_item(&key).unwrap_or_default(), depth, out);
    }
    out.push('}');
}

/// `repr` of a string: single quotes unless only those are inside.
fn write_text(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match (c, u32::from(c)) {
            ('\\', _) => out.push_str("\\\\"),
            ('\n', _) => out.push_str("\\n"),
            ('\r', _) => out.push_str("\\r"),
            ('\t', _) => out.push_str("\\t"),
            (c, _) if c == quote => out.extend(['\\', c]),
            (c, _) if is_printable(c) => out.push(c),
            (_, code @ 0..=0xFF) => out.push_str(&format!("\\x{code:02x}")),
            (_, code @ 0x100..=0xFFFF) => out.push_str(&format!("\\u{code:04x}")),
            (_, code) => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out.push(quote);
}

/// Python's notion, but for code points that Unicode has not given out: those are printed. So are
/// the marks of `origin.rs`.
fn is_printable(c: char) -> bool {
    let format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}');
    let private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || format || private)
}

/// `repr` of a float: the shortest digits that read back as the same number, with an exponent
/// outside 1e-4 ≤ |x| < 1e16.
pub(super) fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{x}");
    if plain.contains('.') { plain } else { plain + ".0" }
}
