//! YAML: one document that is a mapping. No anchors are made, and none is followed.

use std::str::FromStr;

use serde_json::{Map, Value};
use yaml_edit::{Document, Mapping, MappingEntry, ScalarValue, Sequence, YamlFile, YamlNode};

use super::{EditError, Step, Tree, blocked, wanted};

pub(super) struct Yaml(Document);

impl Yaml {
    pub(super) fn open(text: &str) -> Result<Yaml, EditError> {
        let invalid = |reason: String| EditError::Invalid { format: "YAML", reason };
        // What it says beyond the first sentence is advice for somebody else.
        let said = |error: yaml_edit::YamlError| {
            error.to_string().lines().next().unwrap_or_default().to_owned()
        };
        // The specification forbids it, the parser does not mind.
        let tab =
            |line: &str| line.trim_start_matches(' ').starts_with('\t') && !line.trim().is_empty();
        if let Some(n) = text.lines().position(tab) {
            return Err(invalid(format!("line {}: a tab indents it", n + 1)));
        }
        let file = YamlFile::from_str(text).map_err(|error| invalid(said(error)))?;
        if file.documents().count() > 1 {
            return Err(invalid("it holds more than one document".to_owned()));
        }
        let document = Document::from_str(text).map_err(|error| invalid(said(error)))?;
        let mapping = document.as_mapping();
        if mapping.is_none() && text.lines().any(holds_something) {
            return Err(invalid("it is no mapping".to_owned()));
        }
        let mut seen = Vec::new();
        for key in mapping.iter().flat_map(Mapping::keys) {
            let key = plain(&key);
            if seen.contains(&key) {
                return Err(invalid(format!("{key} is there twice")));
            }
            seen.push(key);
        }
        Ok(Yaml(document))
    }

    fn find(&self, at: &[Step]) -> Option<YamlNode> {
        let root = YamlNode::Mapping(self.0.as_mapping()?);
        at.iter().try_fold(root, |node, step| below(&node, step).map(|(_, node)| node))
    }
}

fn holds_something(line: &str) -> bool {
    let line = line.trim();
    !(line.is_empty() || line.starts_with('#') || line == "---" || line == "...")
}

/// Where a step leads from a node, and for an item of a list its place.
fn below(node: &YamlNode, step: &Step) -> Option<(usize, YamlNode)> {
    match step {
        Step::Key(key) => Some((0, node.as_mapping()?.get(key.as_str())?)),
        Step::Item { key, is } => {
            let has = |node: &YamlNode| {
                let value = node.as_mapping().and_then(|table| table.get(key.as_str()));
                value.is_some_and(|value| plain(&value).as_str() == Some(is))
            };
            node.as_sequence()?.values().enumerate().find(|(_, node)| has(node))
        }
    }
}

impl Tree for Yaml {
    fn get(&self, at: &[Step]) -> Option<Value> {
        self.find(at).map(|node| plain(&node))
    }

    fn set(&mut self, at: &[Step], value: &Value) -> Result<(), EditError> {
        for n in 0..at.len() {
            let (way, step, then) = (&at[..n], &at[n], at.get(n + 1));
            if then.is_some() && self.find(&at[..=n]).is_some() {
                continue;
            }
            let parent = self.find(way);
            match step {
                // A document that is empty has no mapping yet.
                Step::Key(key) if n == 0 => drop(self.0.set(key.as_str(), start(then, value))),
                Step::Key(key) => {
                    let table = parent.as_ref().and_then(YamlNode::as_mapping);
                    let table = table.ok_or_else(|| blocked(at, n, wanted(step)))?;
                    table.set(key.as_str(), start(then, value));
                }
                Step::Item { .. } => {
                    let list = parent.as_ref().and_then(YamlNode::as_sequence);
                    let list = list.ok_or_else(|| blocked(at, n, wanted(step)))?;
                    match parent.as_ref().and_then(|parent| below(parent, step)) {
                        Some((place, _)) => drop(list.set(place, start(then, value))),
                        None => list.push(start(then, value)),
                    }
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, at: &[Step]) {
        let Some((last, way)) = at.split_last() else { return };
        let Some(parent) = self.find(way) else { return };
        match last {
            Step::Key(key) => {
                if let Some(table) = parent.as_mapping() {
                    table.remove(key.as_str());
                }
            }
            Step::Item { .. } => {
                if let (Some(list), Some((place, _))) = (parent.as_sequence(), below(&parent, last))
                {
                    list.remove(place);
                }
            }
        }
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// What is new at the end of a way, or on it.
fn start(then: Option<&Step>, value: &Value) -> YamlNode {
    match then {
        None => node(value),
        Some(Step::Key(_)) => YamlNode::Mapping(Mapping::new()),
        Some(Step::Item { .. }) => YamlNode::Sequence(Sequence::new()),
    }
}

/// A value as a node. The library makes nodes of values only inside of others.
fn node(value: &Value) -> YamlNode {
    let holder = Mapping::new();
    match value {
        Value::Null => holder.set("", ScalarValue::null()),
        Value::Bool(value) => holder.set("", *value),
        Value::Number(n) => match n.as_i64() {
            Some(n) => holder.set("", n),
            None => holder.set("", n.as_f64().unwrap_or_default()),
        },
        Value::String(text) => holder.set("", text.as_str()),
        Value::Array(items) => {
            let list = Sequence::new();
            items.iter().for_each(|item| list.push(node(item)));
            return YamlNode::Sequence(list);
        }
        Value::Object(pairs) => {
            let table = Mapping::new();
            pairs.iter().for_each(|(key, value)| table.set(key.as_str(), node(value)));
            return YamlNode::Mapping(table);
        }
    }
    holder.get("").unwrap_or(YamlNode::Mapping(holder))
}

/// The value of a node. What is not a plain value is its text, so that it equals none of ours.
fn plain(node: &YamlNode) -> Value {
    match node {
        YamlNode::Scalar(scalar) if scalar.is_quoted() => Value::String(scalar.as_string()),
        YamlNode::Scalar(scalar) if scalar.is_null() => Value::Null,
        YamlNode::Scalar(scalar) => scalar
            .as_bool()
            .map(Value::from)
            .or_else(|| scalar.as_i64().map(Value::from))
            .or_else(|| scalar.as_f64().map(Value::from))
            .unwrap_or_else(|| Value::String(scalar.as_string())),
        YamlNode::Sequence(list) => list.values().map(|node| plain(&node)).collect(),
        YamlNode::Mapping(table) => {
            let pair = |entry: MappingEntry| {
                let key = plain(&entry.key_node()?);
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                Some((key, entry.value_node().map_or(Value::Null, |node| plain(&node))))
            };
            Value::Object(table.entries().filter_map(pair).collect::<Map<_, _>>())
        }
        YamlNode::Alias(_) | YamlNode::TaggedNode(_) => Value::String(node.to_string()),
    }
}
