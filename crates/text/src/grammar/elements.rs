//! Values that are no texts, in calls whose arguments stand one by one: JSON, or elements in elements where
//! the model writes so and the schema says what is in them.

use serde_json::{Map, Value};

use super::arguments::{Tool, is_plain};
use super::{GrammarError, lark};
use crate::tools::shape::typed::{Place, Types};
use crate::tools::spelling::Nested;

/// Words of objects and of lists that elements say all of.
const OBJECT: [&str; 4] = ["type", "properties", "required", "additionalProperties"];
const LIST: [&str; 4] = ["type", "items", "minItems", "maxItems"];
/// Most items that are counted.
const MAX_ITEMS: u64 = 64;

/// What can be spelled as elements.
enum Kind<'a> {
    Object(&'a Map<String, Value>),
    /// Of such items, so many at least and so many at most.
    List(&'a Value, [Option<u64>; 2]),
}

impl Tool<'_> {
    /// A value as part of a rule.
    pub(super) fn value(
        &mut self,
        schema: &Value,
        place: Option<Place<'_>>,
    ) -> Result<String, GrammarError> {
        if let (Nested::Elements { item }, Some(place)) = (self.each.nested, place)
            && let Some(elements) = self.elements(schema, place, item)?
        {
            return Ok(elements);
        }
        let mut schema = schema.clone();
        if let (Value::Object(schema), Value::Object(all)) = (&mut schema, self.definitions()) {
            schema.insert("$defs".to_owned(), Value::Object(all));
        }
        Ok(lark::json(&schema))
    }

    /// A value as elements; `None` if it cannot be spelled so.
    fn elements(
        &mut self,
        schema: &Value,
        place: Place<'_>,
        item: &str,
    ) -> Result<Option<String>, GrammarError> {
        let Some(name) = reference(schema) else {
            let Some(kind) = kind(schema, place) else { return Ok(None) };
            return self.body(&kind, place, item).map(Some);
        };
        let definitions = self.definitions();
        let Some(kind) = definitions.get(name).and_then(|target| kind(target, place)) else {
            return Ok(None);
        };
        let rule = format!("_{name}");
        // It may be part of itself.
        if self.defined.insert(name.to_owned()) {
            let body = self.body(&kind, place, item)?;
            self.define(&rule, &body);
        }
        Ok(Some(format!("{}{rule}", self.prefix)))
    }

    fn body(
        &mut self,
        kind: &Kind<'_>,
        place: Place<'_>,
        item: &str,
    ) -> Result<String, GrammarError> {
        match kind {
            Kind::Object(map) => {
                let items = self.items(map, Some(place))?;
                Ok(self.sequence(&items, None))
            }
            Kind::List(items, [least, most]) => {
                let path = |error: GrammarError| GrammarError {
                    path: format!(".items{}", error.path),
                    ..error
                };
                let least = least.unwrap_or(0);
                match self.element(item, items, place.item(0)).map_err(path)? {
                    Some(one) => {
                        let most = most.map(|most| most.to_string()).unwrap_or_default();
                        Ok(format!("{one}{{{least},{most}}}"))
                    }
                    None if least == 0 => Ok("\"\"".to_owned()),
                    None => {
                        let problem = "there must be items, and no value would do".to_owned();
                        Err(GrammarError { path: ".items".to_owned(), problem })
                    }
                }
            }
        }
    }
}

/// The definition that a lowered schema is.
fn reference(schema: &Value) -> Option<&str> {
    let map = schema.as_object().filter(|map| map.len() == 1)?;
    map.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// What a lowered schema is, if a reader takes its elements for that.
fn kind<'a>(schema: &'a Value, place: Place<'_>) -> Option<Kind<'a>> {
    let map = schema.as_object()?;
    let has_only = |words: &[&str]| map.keys().all(|word| words.contains(&word.as_str()));
    let types = place.types();
    if types == Types::OBJECT && map.get("type")? == "object" && has_only(&OBJECT) {
        let named = map.get("properties")?.as_object().filter(|named| !named.is_empty())?;
        let required = map.get("required").and_then(Value::as_array);
        let mut names = named
            .keys()
            .map(String::as_str)
            .chain(required.into_iter().flatten().filter_map(Value::as_str));
        return names.all(is_plain).then_some(Kind::Object(map));
    }
    if types == Types::ARRAY && map.get("type")? == "array" && has_only(&LIST) {
        let counts = ["minItems", "maxItems"].map(|word| map.get(word).and_then(Value::as_u64));
        let are_few = counts.into_iter().flatten().all(|count| count <= MAX_ITEMS);
        let items = map.get("items").filter(|items| items.is_object())?;
        return (are_few && counts[1] != Some(0)).then_some(Kind::List(items, counts));
    }
    None
}
