//! How Python prints values: `str` and `repr`. JSON is in `pyjson.rs`.

use minijinja::value::{Value, ValueKind};

/// `str(value)`.
pub(super) fn str(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => repr(value),
    }
}

/// `repr(value)`.
pub(super) fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(value, &mut out);
    out
}

fn write_repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
        }
        ValueKind::Seq if value.is_tuple() => {
            let n = write_items(value, out, ["(", ""]);
            out.push_str(if n == 1 { ",)" } else { ")" });
        }
        ValueKind::Seq | ValueKind::Iterable => {
            write_items(value, out, ["[", "]"]);
        }
        ValueKind::Map => write_dict(value, out),
        ValueKind::String => out.push_str(&format!("{value:?}")),
        _ => out.push_str(&value.to_string()),
    }
}

fn write_items(value: &Value, out: &mut String, [open, close]: [&str; 2]) -> usize {
    out.push_str(open);
    let mut n = 0;
    for item in value.try_iter().into_iter().flatten() {
        out.push_str(if n == 0 { "" } else { ", " });
        write_repr(&item, out);
        n += 1;
    }
    out.push_str(close);
    n
}

fn write_dict(value: &Value, out: &mut String) {
    out.push('{');
    for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        write_repr(&key, out);
        out.push_str(": ");
        write_repr(&value.get_item(&key).unwrap_or_default(), out);
    }
    out.push('}');
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
