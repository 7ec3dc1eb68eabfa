//! Values that are spelled as elements in elements, to JSON by the schema of the parameter. Which text is a
//! tag is the parser's business.

use std::collections::HashMap;
use std::ops::Range;

use super::typed::{self, Place, Types, Untyped};

/// What the elements of a list are called.
pub(crate) const ITEM: &str = "item";

/// An element as it was read.
#[derive(Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    /// Where what it holds stands in the text, tags included.
    pub(crate) inner: Range<usize>,
    pub(crate) children: Vec<Element>,
    /// There is more than blanks beside its children.
    pub(crate) has_text: bool,
}

/// Appends the value of an element of `text`. What a schema does not say is JSON if it is any.
pub(crate) fn json(element: &Element, text: &str, place: Option<Place<'_>>, out: &mut String) {
    let types = place.map_or(Types::default(), Place::types);
    let inner = &text[element.inner.clone()];
    match element.children.is_empty() {
        true => out.push_str(&leaf(inner, types)),
        // Text among elements is neither a list nor an object, nor is what may only be a text.
        false if element.has_text || is_text(types) => out.push_str(&typed::quoted(inner)),
        false if is_list(element, types) => {
            list(element.children.iter().map(|child| (child, text)), place, out);
        }
        false => object(element, text, place, out),
    }
}

/// Appends what an argument is that was given several times: a list. Every time has its own text.
pub(crate) fn list<'a>(
    items: impl Iterator<Item = (&'a Element, &'a str)>,
    place: Option<Place<'_>>,
    out: &mut String,
) {
    let is_array = place.is_some_and(|place| place.types().has(Types::ARRAY));
    out.push('[');
    for (number, (item, text)) in items.enumerate() {
        typed::separate(out);
        let place = match is_array {
            true => place.and_then(|place| place.item(number)),
            false => place,
        };
        json(item, text, place, out);
    }
    out.push(']');
}

fn object(element: &Element, text: &str, place: Option<Place<'_>>, out: &mut String) {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut named: Vec<(&str, Vec<&Element>)> = Vec::new();
    for child in &element.children {
        let at = *places.entry(&child.name).or_insert(named.len());
        if at == named.len() {
            named.push((&child.name, Vec::new()));
        }
        named[at].1.push(child);
    }
    out.push('{');
    for (name, children) in named {
        typed::separate(out);
        out.push_str(&typed::quoted(name));
        out.push(':');
        let place = place.and_then(|place| place.property(name));
        match children.as_slice() {
            [child] => json(child, text, place, out),
            children => list(children.iter().map(|child| (*child, text)), place, out),
        }
    }
    out.push('}');
}

fn leaf(text: &str, types: Types) -> String {
    let is_empty = text.trim().is_empty() && !types.has(Types::STRING);
    match is_empty {
        true if types.has(Types::OBJECT) => "{}".to_owned(),
        true if types.has(Types::ARRAY) => "[]".to_owned(),
        _ => typed::json(text, types, Untyped::Json),
    }
}

fn is_text(types: Types) -> bool {
    types.has(Types::STRING) && !types.has(Types::ARRAY.or(Types::OBJECT))
}

fn is_list(element: &Element, types: Types) -> bool {
    let [may_be_list, may_be_object] = [Types::ARRAY, Types::OBJECT].map(|kind| types.has(kind));
    match (may_be_list, may_be_object) {
        (true, false) => true,
        (false, true) => false,
        _ => element.children.iter().all(|child| child.name == ITEM),
    }
}
