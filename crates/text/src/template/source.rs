//! Rewrites of a template's source for what the template engine does not parse, or reads otherwise than
//! Python's: `generation` blocks, which mark assistant text for training and print their body, and sums
//! with safe text. It renders nothing.

use super::markup;

/// `{% generation %}…{% endgeneration %}` as `{% with %}…{% endwith %}`: the same scope, the same
/// control of blanks, no other effect. Sums as [`markup`] has them.
pub(super) fn rewritten(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = tag_len(rest);
        let (tag, after) = rest.split_at(len);
        match (keyword(tag), raw) {
            ("generation", false) => out.push_str(&tag.replacen("generation", "with", 1)),
            ("endgeneration", false) => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            (word, _) => {
                raw = (raw || word == "raw") && word != "endraw";
                let sum = if raw { None } else { markup::rewritten(tag) };
                out.push_str(sum.as_deref().unwrap_or(tag));
            }
        }
        rest = after;
    }
    out + rest
}

/// Length of the tag or comment that `text` begins with, or of its brace if it begins with none.
fn tag_len(text: &str) -> usize {
    let close = match text.as_bytes().get(1) {
        Some(b'%') => "%}",
        Some(b'{') => "}}",
        Some(b'#') => return text.find("#}").map_or(text.len(), |at| at + 2),
        _ => return 1,
    };
    let mut quote = None;
    let mut bytes = text.bytes().enumerate().skip(2);
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => {
                bytes.next();
            }
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, _) if text.as_bytes()[at..].starts_with(close.as_bytes()) => return at + 2,
            (None, _) => {}
        }
    }
    text.len()
}

/// First word of a `{% … %}` tag.
fn keyword(tag: &str) -> &str {
    let Some(inner) = tag.strip_prefix("{%") else { return "" };
    let inner = inner.trim_start_matches(['-', '+']).trim_start();
    inner.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}
