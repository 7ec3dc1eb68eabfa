//! JSON, with the comments and trailing commas that people put into it.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

use super::{EditError, Step, Tree, blocked, wanted};

pub(super) struct Json(CstRootNode);

/// Comments and trailing commas, nothing else that strict readers refuse.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

impl Json {
    pub(super) fn open(text: &str) -> Result<Json, EditError> {
        let invalid = |reason| EditError::Invalid { format: "JSON", reason };
        let text = if text.trim().is_empty() { "{}\n" } else { text };
        let root =
            CstRootNode::parse(text, &OPTIONS).map_err(|error| invalid(error.to_string()))?;
        match root.object_value() {
            Some(_) => Ok(Json(root)),
            None => Err(invalid("it is no object".to_owned())),
        }
    }

    fn root(&self) -> Option<CstNode> {
        self.0.value()
    }

    fn find(&self, at: &[Step]) -> Option<CstNode> {
        at.iter().try_fold(self.root()?, |node, step| below(&node, step))
    }
}

/// Where a step leads from a node.
fn below(node: &CstNode, step: &Step) -> Option<CstNode> {
    match step {
        Step::Key(key) => node.as_object()?.get(key)?.value(),
        Step::Item { key, is } => item(&node.as_array()?, key, is),
    }
}

fn item(list: &CstArray, key: &str, is: &str) -> Option<CstNode> {
    let has = |node: &CstNode| {
        let value = node.to_serde_value();
        value.is_some_and(|value| value.get(key).and_then(Value::as_str) == Some(is))
    };
    list.elements().into_iter().find(has)
}

impl Tree for Json {
    fn get(&self, at: &[Step]) -> Option<Value> {
        self.find(at)?.to_serde_value()
    }

    fn set(&mut self, at: &[Step], value: &Value) -> Result<(), EditError> {
        let mut node = self.root();
        for (n, step) in at.iter().enumerate() {
            let here = node.as_ref().ok_or_else(|| blocked(at, n, wanted(step)))?;
            let then = at.get(n + 1);
            node = match step {
                Step::Key(key) => {
                    let table = here.as_object().ok_or_else(|| blocked(at, n, "table"))?;
                    enter(&table, key, then, value)
                }
                Step::Item { .. } => {
                    let list = here.as_array().ok_or_else(|| blocked(at, n, "list"))?;
                    match below(here, step) {
                        Some(old) if then.is_none() => replace(old, value),
                        Some(old) => Some(old),
                        None => Some(list.append(start(then, value))),
                    }
                }
            };
        }
        Ok(())
    }

    fn remove(&mut self, at: &[Step]) {
        let Some((last, way)) = at.split_last() else { return };
        let Some(parent) = self.find(way) else { return };
        match last {
            Step::Key(key) => {
                if let Some(property) = parent.as_object().and_then(|table| table.get(key)) {
                    property.remove();
                }
            }
            Step::Item { .. } => {
                if let Some(item) = below(&parent, last) {
                    item.remove();
                }
            }
        }
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The value at a key, made or replaced as what comes next needs it.
fn enter(table: &CstObject, key: &str, then: Option<&Step>, value: &Value) -> Option<CstNode> {
    match (table.get(key), then) {
        (Some(old), None) => {
            old.set_value(input(value));
            old.value()
        }
        (Some(old), Some(_)) => old.value(),
        (None, _) => table.append(key, start(then, value)).value(),
    }
}

/// What is new at the end of a way, or on it.
fn start(then: Option<&Step>, value: &Value) -> CstInputValue {
    match then {
        None => input(value),
        Some(Step::Key(_)) => CstInputValue::Object(Vec::new()),
        Some(Step::Item { .. }) => CstInputValue::Array(Vec::new()),
    }
}

fn replace(old: CstNode, value: &Value) -> Option<CstNode> {
    old.as_object()?.replace_with(input(value))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(n) => CstInputValue::Number(n.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(table) => {
            let pair = |(key, value): (&String, &Value)| (key.clone(), input(value));
            CstInputValue::Object(table.iter().map(pair).collect())
        }
    }
}
