//! Sums with text that is marked as safe. Python's Jinja escapes for HTML whatever is added to such a
//! text, also where nothing else is escaped, and models were trained on what came out. The template
//! engine does so only where all that is printed is escaped.
//!
//! Sums of printed expressions alone, as `{{ 'a'|safe + b }}`; no other operators beside them.

use minijinja::value::{Rest, Value};
use minijinja::{Error, ErrorKind, State};

/// What such a sum is called in rewritten sources.
pub(super) const SUM: &str = "__sum_with_markup";

/// The tag `{{ … }}` with its sum as a call of [`SUM`], if a term of it is safe.
pub(super) fn rewritten(tag: &str) -> Option<String> {
    let inner = tag.strip_prefix("{{")?.strip_suffix("}}")?;
    let (open, inner) = match inner.strip_prefix(['-', '+']) {
        Some(rest) => (&inner[..1], rest),
        None => ("", inner),
    };
    let (close, inner) = match inner.strip_suffix(['-', '+']) {
        Some(rest) => (&inner[inner.len() - 1..], rest),
        None => ("", inner),
    };
    let terms = terms(inner)?;
    let is_safe = |term: &&str| {
        let filter = term.rsplit('|').next().filter(|_| term.contains('|')).map(str::trim);
        matches!(filter, Some("safe" | "safe()"))
    };
    if terms.len() < 2 || !terms.iter().any(is_safe) {
        return None;
    }
    Some(format!("{{{{{open} {SUM}({}) {close}}}}}", terms.join(",")))
}

/// The terms of a sum; `None` where something binds less than a sum, or might.
fn terms(text: &str) -> Option<Vec<&str>> {
    let (mut terms, mut start, mut depth) = (Vec::new(), 0, 0usize);
    let mut quote = None;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.checked_sub(1)?,
            (None, b'+') if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            (None, b'~' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b',' | b':')
                if depth == 0 =>
            {
                return None;
            }
            (None, _) => {}
        }
    }
    terms.push(&text[start..]);
    let is_word = |term: &&str| is_operator_in(term);
    let is_whole = depth == 0 && quote.is_none() && terms.iter().all(|t| !t.trim().is_empty());
    (is_whole && !terms.iter().any(is_word)).then_some(terms)
}

/// Whether a term holds a word that may be an operator, also where it is only text.
fn is_operator_in(term: &str) -> bool {
    let outside = term.split(['"', '\'']).step_by(2);
    let mut words = outside.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| matches!(word, "if" | "else" | "and" | "or" | "not" | "in" | "is"))
}

/// The sum of texts, from left to right: of one that is safe and one that is not, the latter is escaped
/// and the sum is safe.
pub(super) fn sum(state: &State, terms: Rest<Value>) -> Result<Value, Error> {
    let mut sum: Option<(String, bool)> = None;
    for term in terms.iter() {
        let wrong = || Error::new(ErrorKind::InvalidOperation, "can only add text to safe text");
        let (text, is_safe) = (term.as_str().ok_or_else(wrong)?, term.is_safe());
        state.consume_fuel(text.len() as u64 / 64)?;
        sum = Some(match sum {
            None => (text.to_owned(), is_safe),
            Some((before, true)) if !is_safe => (before + &escaped(text), true),
            Some((before, false)) if is_safe => (escaped(&before) + text, true),
            Some((before, both)) => (before + text, both),
        });
    }
    Ok(match sum.unwrap_or_default() {
        (text, true) => Value::from_safe_string(text),
        (text, false) => Value::from(text),
    })
}

/// As Python's `markupsafe` escapes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            other => out.push(other),
        }
    }
    out
}
