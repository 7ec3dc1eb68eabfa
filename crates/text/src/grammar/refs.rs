//! Where a `$ref` points: fragments of the same document, as JSON pointers. Nothing is fetched.

use std::borrow::Cow;

use serde_json::Value;

/// The part of `root` that `reference` names, with the pointer to it; or what is wrong.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Result<(String, &'a Value), String> {
    let own = ["$id", "id"].iter().find_map(|name| root.get(name)?.as_str());
    let own = own.map(|id| id.trim_end_matches('#')).filter(|id| !id.is_empty());
    let fragment = own.and_then(|id| reference.strip_prefix(id)).unwrap_or(reference);
    let remote = || format!("`{reference}` is not in this schema, and nothing is fetched");
    let pointer = match fragment {
        "" => "",
        other => other.strip_prefix('#').ok_or_else(remote)?,
    };
    let pointer = percent_decoded(pointer).ok_or_else(|| format!("`{reference}` is no pointer"))?;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(format!(
            "`{reference}` is an anchor; pointers such as `#/$defs/name` would do"
        ));
    }
    match root.pointer(&pointer) {
        Some(target) => Ok((pointer.into_owned(), target)),
        None => Err(format!("`{reference}` points to nothing")),
    }
}

fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (hex, after) = after.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
