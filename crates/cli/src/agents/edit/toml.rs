//! TOML. Lists of tables are not walked into: no agent asks for it.

use serde_json::Value;
use toml_edit::{DocumentMut, InlineTable, Item, TableLike};

use super::{EditError, Step, Tree, blocked, shown, wanted};

pub(super) struct Toml(DocumentMut);

impl Toml {
    pub(super) fn open(text: &str) -> Result<Toml, EditError> {
        let reason = |error: toml_edit::TomlError| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let message = error.message().replace('\n', ", ");
            line.map_or(message.clone(), |line| format!("line {line}: {message}"))
        };
        let invalid = |error| EditError::Invalid { format: "TOML", reason: reason(error) };
        text.parse().map(Toml).map_err(invalid)
    }

    fn find(&self, at: &[Step]) -> Option<&Item> {
        at.iter().try_fold(self.0.as_item(), |item, step| match step {
            Step::Key(key) => item.as_table_like()?.get(key),
            Step::Item { .. } => None,
        })
    }
}

impl Tree for Toml {
    fn get(&self, at: &[Step]) -> Option<Value> {
        plain(self.find(at)?)
    }

    fn set(&mut self, at: &[Step], value: &Value) -> Result<(), EditError> {
        let Some((Step::Key(last), way)) = at.split_last() else {
            return Err(blocked(at, at.len(), "table"));
        };
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for (n, step) in way.iter().enumerate() {
            let Step::Key(key) = step else { return Err(blocked(at, n, wanted(step))) };
            let item = table.entry(key).or_insert_with(|| {
                let mut table = toml_edit::Table::new();
                // Its own header only shows if it holds something itself.
                table.set_implicit(true);
                Item::Table(table)
            });
            table = item.as_table_like_mut().ok_or_else(|| blocked(at, n + 1, "table"))?;
        }
        let new = toml_value(value).ok_or_else(|| EditError::Unsafe(shown(at)))?;
        match table.get_mut(last).and_then(Item::as_value_mut) {
            Some(old) => {
                let decor = old.decor().clone();
                *old = new;
                *old.decor_mut() = decor;
            }
            None => drop(table.insert(last, Item::Value(new))),
        }
        Ok(())
    }

    fn remove(&mut self, at: &[Step]) {
        let Some((Step::Key(last), way)) = at.split_last() else { return };
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for step in way {
            let Step::Key(key) = step else { return };
            let Some(next) = table.get_mut(key).and_then(Item::as_table_like_mut) else { return };
            table = next;
        }
        table.remove(last);
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

fn toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => (*value).into(),
        Value::Number(n) => match n.as_i64() {
            Some(n) => n.into(),
            None => n.as_f64()?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => {
            let items = items.iter().map(toml_value).collect::<Option<toml_edit::Array>>()?;
            items.into()
        }
        Value::Object(table) => {
            let pair = |(key, value)| Some((key, toml_value(value)?));
            let pairs: Option<Vec<(&String, toml_edit::Value)>> = table.iter().map(pair).collect();
            pairs?.into_iter().collect::<InlineTable>().into()
        }
    })
}

fn plain(item: &Item) -> Option<Value> {
    if let Some(table) = item.as_table_like() {
        let pair = |(key, item): (&str, &Item)| Some((key.to_owned(), plain(item)?));
        return table.iter().map(pair).collect::<Option<_>>().map(Value::Object);
    }
    if let Some(tables) = item.as_array_of_tables() {
        let table = |table: &toml_edit::Table| plain(&Item::Table(table.clone()));
        return tables.iter().map(table).collect::<Option<_>>().map(Value::Array);
    }
    Some(match item.as_value()? {
        toml_edit::Value::String(text) => Value::String(text.value().clone()),
        toml_edit::Value::Integer(n) => Value::from(*n.value()),
        toml_edit::Value::Float(n) => Value::from(*n.value()),
        toml_edit::Value::Boolean(value) => Value::Bool(*value.value()),
        toml_edit::Value::Datetime(time) => Value::String(time.value().to_string()),
        toml_edit::Value::Array(items) => {
            let item = |value: &toml_edit::Value| plain(&Item::Value(value.clone()));
            Value::Array(items.iter().map(item).collect::<Option<_>>()?)
        }
        toml_edit::Value::InlineTable(_) => return None,
    })
}
