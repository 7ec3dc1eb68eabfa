//! Typed, bounded access to `config.json`, with errors that name the key.
//!
//! Not a struct per family: families share most keys, wrappers nest them, and old and new spellings
//! of the same thing live side by side, so a family asks for what it needs by name.

use serde_json::Value;

use crate::Error;

/// Upper bound of every size a config may name. Products of three of them still fit 64 bits beside
/// the bounds on layers and experts, so that no later arithmetic can overflow.
const MAX_SIZE: usize = 1 << 20;
/// Upper bound of positions, which only ever meet small numbers.
const MAX_POSITIONS: usize = 1 << 40;
/// Upper bound of layers, experts and list entries.
const MAX_COUNT: usize = 1 << 12;

/// A config as a family sees it: the text model's own keys first, then the wrapper's, then what the
/// family takes for granted. The first layer that has a key decides, also when it says null.
#[derive(Clone)]
pub(crate) struct Config<'a> {
    text: &'a Value,
    wrapper: &'a Value,
    defaults: Value,
}

impl<'a> Config<'a> {
    /// Looks into `text_config` where there is one.
    pub(crate) fn new(config: &'a Value) -> Config<'a> {
        let text = config.get("text_config").filter(|text| text.is_object()).unwrap_or(config);
        Config { text, wrapper: config, defaults: Value::Null }
    }

    /// The same config for a family that knows values for some absent keys. Those it has got already
    /// stay what they are.
    pub(crate) fn with_defaults(&self, mut defaults: Value) -> Config<'a> {
        if let (Some(all), Some(known)) = (defaults.as_object_mut(), self.defaults.as_object()) {
            all.extend(known.clone());
        }
        Config { defaults, ..self.clone() }
    }

    /// The value of `key`; null counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        [self.text, self.wrapper, &self.defaults]
            .into_iter()
            .find_map(|layer| layer.get(key))
            .filter(|value| !value.is_null())
    }

    /// The `model_type` of the text model.
    pub(crate) fn model_type(&self) -> Result<&str, Error> {
        self.text("model_type")?.ok_or_else(|| missing("model_type"))
    }

    /// A string.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| wrong(key, "a string", value)))
            .transpose()
    }

    /// A width or length, at least 1.
    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>, Error> {
        self.bounded(key, 1, MAX_SIZE)
    }

    /// A width or length that must be there.
    pub(crate) fn need_size(&self, key: &str) -> Result<usize, Error> {
        self.size(key)?.ok_or_else(|| missing(key))
    }

    /// A number of layers or experts, which may be 0.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        self.bounded(key, 0, MAX_COUNT)
    }

    /// A number of layers or experts that must be there.
    pub(crate) fn need_count(&self, key: &str) -> Result<usize, Error> {
        self.bounded(key, 1, MAX_COUNT)?.ok_or_else(|| missing(key))
    }

    /// A number of positions.
    pub(crate) fn positions(&self, key: &str) -> Result<Option<usize>, Error> {
        self.bounded(key, 1, MAX_POSITIONS)
    }

    fn bounded(&self, key: &str, min: usize, max: usize) -> Result<Option<usize>, Error> {
        self.get(key).map(|value| whole(key, value, min, max)).transpose()
    }

    /// A number above zero that single precision can hold.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f32>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = finite(key, value)? as f32;
        if number > 0.0 && number.is_finite() {
            return Ok(Some(number));
        }
        Err(wrong(key, "a number above 0 in single precision", value))
    }

    /// A switch; absent means off.
    pub(crate) fn is_on(&self, key: &str) -> Result<bool, Error> {
        let value = self.get(key);
        value.map_or(Ok(false), |v| v.as_bool().ok_or_else(|| wrong(key, "true or false", v)))
    }

    /// A list of whole numbers; absent means empty.
    pub(crate) fn counts(&self, key: &str) -> Result<Vec<usize>, Error> {
        self.list(key, |value| whole(key, value, 0, MAX_COUNT))
    }

    /// A list of numbers, which may be infinite in the ways that Python programs write that; absent
    /// means empty.
    pub(crate) fn numbers(&self, key: &str) -> Result<Vec<f64>, Error> {
        let word = |value: &Value| match value.get("__float__").unwrap_or(value).as_str() {
            Some("Infinity") => Some(f64::INFINITY),
            Some("-Infinity") => Some(f64::NEG_INFINITY),
            _ => None,
        };
        self.list(key, |value| word(value).map_or_else(|| finite(key, value), Ok))
    }

    /// A number above zero that may be left out; 1 then.
    pub(crate) fn factor(&self, key: &str) -> Result<f32, Error> {
        Ok(self.positive(key)?.unwrap_or(1.0))
    }

    /// A list of widths; absent means empty.
    pub(crate) fn sizes(&self, key: &str) -> Result<Vec<usize>, Error> {
        self.list(key, |value| whole(key, value, 1, MAX_SIZE))
    }

    /// One string per layer, if there is such a list.
    pub(crate) fn per_layer(&self, key: &str, n: usize) -> Result<Option<Vec<String>>, Error> {
        if self.get(key).is_none() {
            return Ok(None);
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let list = self.list(key, |v| text(v).ok_or_else(|| wrong(key, "strings", v)))?;
        if list.len() < n {
            let problem = format!("has {} entries for {n} layers", list.len());
            return Err(Error::config(key, problem));
        }
        Ok(Some(list))
    }

    fn list<T>(
        &self,
        key: &str,
        entry: impl FnMut(&Value) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values.iter().map(entry).collect(),
            Some(other) => Err(wrong(key, "a list", other)),
        }
    }
}

/// The error for an absent key.
pub(crate) fn missing(key: &str) -> Error {
    Error::config(key, "is missing")
}

/// The error for a value of the wrong type.
pub(crate) fn wrong(key: &str, expected: &str, found: &Value) -> Error {
    let mut found = found.to_string();
    if found.len() > 60 {
        found = format!("{}…", found.chars().take(60).collect::<String>());
    }
    Error::config(key, format!("should be {expected}, found {found}"))
}

/// A whole number between `min` and `max`. Converters sometimes write `4.0` for `4`.
pub(crate) fn whole(key: &str, value: &Value, min: usize, max: usize) -> Result<usize, Error> {
    let exact = value.as_u64().or_else(|| {
        value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..9e15).contains(v)).map(|v| v as u64)
    });
    exact
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| wrong(key, &format!("a whole number from {min} to {max}"), value))
}

/// A number that is neither infinite nor not a number.
pub(crate) fn finite(key: &str, value: &Value) -> Result<f64, Error> {
    value.as_f64().filter(|v| v.is_finite()).ok_or_else(|| wrong(key, "a finite number", value))
}
