//! The one validator: typed reading of JSON fields for every dialect, with the path of the field
//! in each error. It knows types and ranges, not which fields exist.

use std::fmt::Write as _;
use std::ops::{Bound, RangeBounds, RangeInclusive};

use serde_json::{Map, Value};
use text::digits;

use crate::describe::{Field, Rule};
use crate::error::ApiError;

/// A JSON object and its place in the body. A `null` field is the same as an absent one.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    /// What may be read from it; `None` where nobody described that.
    known: Option<&'static [&'static [Field]]>,
}

impl<'a> Fields<'a> {
    /// The whole body.
    ///
    /// # Errors
    /// When it is not an object.
    pub(crate) fn body(value: &'a Value) -> Result<Fields<'a>, ApiError> {
        match digits::as_object(value) {
            Some(map) => Ok(Fields { map, path: String::new(), known: None }),
            None => Err(ApiError::new(
                crate::ErrorKind::Invalid,
                "invalid_request",
                format!("the body must be a JSON object, not {}", kind(value)),
            )),
        }
    }

    /// An object that is nowhere in the body.
    pub(crate) fn of(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { map, path: String::new(), known: None }
    }

    /// The whole body of an endpoint that knows these fields. Those that it refuses are refused here;
    /// unknown ones have no effect.
    ///
    /// # Errors
    /// When it is not an object, or has a field that is refused.
    pub(crate) fn described(
        value: &'a Value,
        known: &'static [&'static [Field]],
    ) -> Result<Fields<'a>, ApiError> {
        let fields = Fields { known: Some(known), ..Fields::body(value)? };
        for (name, value) in fields.map.iter().filter(|(_, value)| !value.is_null()) {
            match fields.description(name) {
                Some(Field { rule: Rule::Refused, about, .. }) if !is_empty(value) => {
                    return Err(unsupported(name.clone(), about));
                }
                Some(_) => {}
                None => tracing::debug!(field = name, "unknown, without effect"),
            }
        }
        Ok(fields)
    }

    fn description(&self, name: &str) -> Option<&'static Field> {
        self.known?.iter().flat_map(|group| group.iter()).find(|field| field.name == name)
    }

    /// A value at a path, which must be an object.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn at(value: &'a Value, path: String) -> Result<Fields<'a>, ApiError> {
        match digits::as_object(value) {
            Some(map) => Ok(Fields { map, path, known: None }),
            None => Err(wrong_type(path, "an object", value)),
        }
    }

    /// Path of a field, as errors name it.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The object itself.
    pub(crate) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// Any value that is not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        debug_assert!(
            self.known.is_none() || self.description(name).is_some(),
            "`{name}` is read and not described: add it to the endpoint's FIELDS"
        );
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// `Some` of what `read` makes of the field, or the complaint that it must be `wanted`.
    fn typed<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(wrong_type(self.path(name), wanted, value)),
        }
    }

    /// true or false, and nothing that merely looks like it.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// A string.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(name, "a string", Value::as_str)
    }

    /// A string that must be there and hold something.
    pub(crate) fn required_text(&self, name: &str) -> Result<&'a str, ApiError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => {
                Err(ApiError::field(self.path(name), format!("{} is empty", self.path(name))))
            }
            None => Err(self.missing(name)),
        }
    }

    /// The complaint that a field is not there.
    pub(crate) fn missing(&self, name: &str) -> ApiError {
        ApiError::field(self.path(name), format!("{} is required", self.path(name)))
    }

    /// A list.
    pub(crate) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        self.typed(name, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// An object.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, ApiError> {
        let path = self.path(name);
        self.typed(name, "an object", |value| {
            digits::as_object(value).map(|map| Fields { map, path, known: None })
        })
    }

    /// A finite number inside a range.
    pub(crate) fn number(
        &self,
        name: &str,
        range: impl RangeBounds<f64>,
    ) -> Result<Option<f32>, ApiError> {
        let Some(number) = self.typed(name, "a number", digits::as_f64)? else { return Ok(None) };
        if number.is_finite() && range.contains(&number) {
            return Ok(Some(number as f32));
        }
        Err(ApiError::field(
            self.path(name),
            format!("{} must be {}, not {number}", self.path(name), bounds(&range)),
        ))
    }

    /// A whole number inside a range.
    pub(crate) fn integer(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let read = |value: &Value| {
            let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9e15;
            value.as_i64().or_else(|| value.as_f64().filter(|n| whole(*n)).map(|n| n as i64))
        };
        let Some(number) = self.typed(name, "a whole number", read)? else { return Ok(None) };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let (from, to) = (range.start(), range.end());
        Err(ApiError::field(
            self.path(name),
            format!("{} must be from {from} to {to}, not {number}", self.path(name)),
        ))
    }

    /// A whole number that counts something.
    pub(crate) fn count(
        &self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, ApiError> {
        let wide = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let range = wide(*range.start())..=wide(*range.end());
        let number = self.integer(name, range)?;
        Ok(number.and_then(|number| usize::try_from(number).ok()))
    }

    /// A string or a list of strings.
    pub(crate) fn texts(&self, name: &str, most: usize) -> Result<Vec<String>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        if let Some(text) = value.as_str() {
            return Ok(vec![text.to_owned()]);
        }
        let wanted = "a string or a list of strings";
        let Some(list) = value.as_array() else {
            return Err(wrong_type(self.path(name), wanted, value));
        };
        if list.len() > most {
            let message = format!("{} may have {most} entries, not {}", name, list.len());
            return Err(ApiError::field(self.path(name), message));
        }
        let entry = |(i, value): (usize, &Value)| match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(wrong_type(format!("{}[{i}]", self.path(name)), "a string", value)),
        };
        list.iter().enumerate().map(entry).collect()
    }

    /// Refuses a field that the server knows and cannot honour, if it is there.
    pub(crate) fn refuse(&self, name: &str, why: &str) -> Result<(), ApiError> {
        if self.get(name).is_none() {
            return Ok(());
        }
        Err(unsupported(self.path(name), why))
    }
}

fn unsupported(path: String, why: &str) -> ApiError {
    let message = format!("{path} is not supported: {why}");
    ApiError::refused("unsupported_parameter", path, message)
}

/// Nothing is asked for with it: some clients send every field they know.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The complaint about a value of the wrong JSON type.
pub(crate) fn wrong_type(path: impl Into<String>, wanted: &str, value: &Value) -> ApiError {
    let path = path.into();
    let message = format!("{path} must be {wanted}, not {}", kind(value));
    ApiError::field(path, message)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) if digits::of(value).is_some() => "a number",
        Value::Object(_) => "an object",
    }
}

fn bounds(range: &impl RangeBounds<f64>) -> String {
    let mut words = String::new();
    let _ = match range.start_bound() {
        Bound::Included(from) => write!(words, "at least {from}"),
        Bound::Excluded(from) => write!(words, "greater than {from}"),
        Bound::Unbounded => Ok(()),
    };
    let _ = match range.end_bound() {
        Bound::Included(to) => write!(words, " and at most {to}"),
        Bound::Excluded(to) => write!(words, " and less than {to}"),
        Bound::Unbounded => Ok(()),
    };
    words
}
