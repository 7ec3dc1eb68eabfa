//! Descriptions of the fields of bodies: what a dialect honours, refuses and ignores. The one place
//! for it: refusals are made from it, the OpenAPI document is, and a field that is read without
//! being described fails the tests. Reading fields is `fields.rs`.

use serde_json::{Value, json};

/// A field at the top of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    /// What becomes of it.
    pub(crate) rule: Rule,
    /// What it means, its bounds, or why it is refused or has no effect.
    pub(crate) about: &'static str,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It is read, and counts.
    Honoured(Shape),
    /// A request with it is refused, since going on without it would mislead.
    Refused,
    /// It has no effect, and none is missed.
    Ignored,
}

/// JSON types of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Switch,
    Whole,
    Number,
    List,
    Object,
    TextOrList,
    TextOrObject,
    /// Something that no short word fits.
    Mixed,
}

/// A field that counts.
pub(crate) const fn honoured(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { name, rule: Rule::Honoured(shape), about }
}

/// A field that this server cannot honour.
pub(crate) const fn refused(name: &'static str, about: &'static str) -> Field {
    Field { name, rule: Rule::Refused, about }
}

/// A field without effect.
pub(crate) const fn ignored(name: &'static str, about: &'static str) -> Field {
    Field { name, rule: Rule::Ignored, about }
}

impl Shape {
    /// The type in a JSON schema.
    pub(crate) fn schema(self) -> Value {
        match self {
            Shape::Text => json!({"type": "string"}),
            Shape::Switch => json!({"type": "boolean"}),
            Shape::Whole => json!({"type": "integer"}),
            Shape::Number => json!({"type": "number"}),
            Shape::List => json!({"type": "array", "items": {}}),
            Shape::Object => json!({"type": "object"}),
            Shape::TextOrList => json!({"type": ["string", "array"], "items": {}}),
            Shape::TextOrObject => json!({"type": ["string", "object"]}),
            Shape::Mixed => json!({}),
        }
    }
}
