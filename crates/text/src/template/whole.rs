//! Whole numbers of any length for templates: what Python's `int` holds and the template engine's numbers
//! do not. They can be printed and told from other values; templates do not reckon with them here.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Object, ObjectRepr, Serde};

use crate::digits::Spelt;

/// A value as templates see it.
pub(super) fn value(json: &serde_json::Value) -> Value {
    let spell = |digits: &str| Value::from_object(Whole(digits.to_owned()));
    Value::from(Serde(Spelt { value: json, spell }))
}

/// It is a number that is longer than those of the engine.
pub(super) fn is_one(value: &Value) -> bool {
    value.downcast_object_ref::<Whole>().is_some()
}

#[derive(Debug)]
struct Whole(String);

impl Object for Whole {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
