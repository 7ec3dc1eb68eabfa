//! Methods of Python's `str`, `list` and `dict` that templates call and the template engine's own
//! set lacks or does otherwise. Methods that change a list are refused, as Transformers does.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

/// Looks a method up here first, then in the engine's collection.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => string_method(state, text, method, args),
        (ValueKind::Seq, _) => list_method(value, method, args),
        (ValueKind::Map, _) => dict_method(value, method, args),
        _ => Ok(None),
    };
    match own? {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// `trim(value, chars=None)`.
pub(super) fn trim_filter(value: &Value, chars: Option<&str>) -> String {
    let text = value.as_str().map_or_else(|| super::pystr::str(value), str::to_owned);
    let blank = blanks(chars);
    text.trim_matches(blank).to_owned()
}

/// What `strip` takes off: the given characters, or what Python calls a space.
fn blanks(chars: Option<&str>) -> impl Fn(char) -> bool + Copy + '_ {
    move |c| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

type Found = Result<Option<Value>, Error>;

fn string_method(state: &State, text: &str, method: &str, args: &[Value]) -> Found {
    let found = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let blank = blanks(chars);
            Value::from(match method {
                "strip" => text.trim_matches(blank),
                "lstrip" => text.trim_start_matches(blank),
                _ => text.trim_end_matches(blank),
            })
        }
        "split" | "rsplit" => split(text, method, args)?,
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(kwargs.get("keepends")?).unwrap_or(false);
            lines(text).map(|line| if keep { line } else { without_break(line) }).collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, method, separator)?
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "ljust" | "rjust" | "center" | "zfill" => pad(state, text, method, args)?,
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(text.chars().flat_map(swapped).collect::<String>())
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(what) } else { text.rfind(what) };
            let at = at.ok_or_else(|| wrong("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

fn swapped(c: char) -> Vec<char> {
    if c.is_lowercase() { c.to_uppercase().collect() } else { c.to_lowercase().collect() }
}

fn wrong(text: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

/// `split(sep=None, maxsplit=-1)` and its twin from the right.
fn split(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, max, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?);
    let max = max.or(kwargs.get("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let most = usize::try_from(max).map_or(usize::MAX, |max| max.saturating_add(1));
    if separator == Some("") {
        return Err(wrong("empty separator"));
    }
    let mut parts: Vec<&str> = match (separator, method) {
        (Some(separator), "split") => text.splitn(most, separator).collect(),
        (Some(separator), _) => text.rsplitn(most, separator).collect(),
        (None, "split") => words(text, most),
        (None, _) => words_from_right(text, most),
    };
    if method == "rsplit" {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Words between runs of blanks; the last of `most` keeps everything that follows.
fn words(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if parts.len() + 1 >= most {
            parts.push(if most == usize::MAX { rest.trim_end_matches(is_space) } else { rest });
            break;
        }
        let (word, after) = rest.split_at(rest.find(is_space).unwrap_or(rest.len()));
        parts.push(word);
        rest = after.trim_start_matches(is_space);
    }
    parts
}

fn words_from_right(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() + 1 >= most {
            parts.push(rest);
            break;
        }
        let last = rest.char_indices().rev().find(|&(_, c)| is_space(c));
        let start = last.map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    parts
}

/// Lines with their breaks, where Python breaks lines.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = rest.find(is_break).map_or(rest.len(), |at| {
            let two = if rest[at..].starts_with("\r\n") { 2 } else { 0 };
            at + rest[at..].chars().next().map_or(0, char::len_utf8).max(two)
        });
        let (line, after) = rest.split_at(at);
        rest = after;
        Some(line)
    })
}

fn is_break(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn without_break(line: &str) -> &str {
    line.strip_suffix("\r\n").or_else(|| line.strip_suffix(is_break)).unwrap_or(line)
}

fn partition(text: &str, method: &str, separator: &str) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(wrong("empty separator"));
    }
    let at = if method == "partition" { text.find(separator) } else { text.rfind(separator) };
    let parts = match at {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if method == "partition" => [text, "", ""],
        None => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// `ljust`, `rjust`, `center` and `zfill`. Blanks are paid for before they are made.
fn pad(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64 / 64)?;
    let fill = if method == "zfill" { "0" } else { fill.unwrap_or(" ") };
    let blanks = |n: usize| fill.repeat(n);
    let sign = text.starts_with(['+', '-']);
    Ok(Value::from(match method {
        "ljust" => text.to_owned() + &blanks(missing),
        "rjust" => blanks(missing) + text,
        "zfill" if sign => format!("{}{}{}", &text[..1], blanks(missing), &text[1..]),
        "zfill" => blanks(missing) + text,
        _ => {
            // Python puts the odd blank left where the width is odd too.
            let left = missing / 2 + (missing & width & 1);
            blanks(left) + text + &blanks(missing - left)
        }
    }))
}

fn list_method(list: &Value, method: &str, args: &[Value]) -> Found {
    match method {
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = list.try_iter()?.position(|item| item == *what);
            let at = at.ok_or_else(|| wrong("the value is not in the list"))?;
            Ok(Some(Value::from(at)))
        }
        "copy" => Ok(Some(list.try_iter()?.collect())),
        _ => Ok(None),
    }
}

fn dict_method(dict: &Value, method: &str, args: &[Value]) -> Found {
    match method {
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(dict.clone()))
        }
        _ => Ok(None),
    }
}
