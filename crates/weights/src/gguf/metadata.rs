//! The key/value metadata of a GGUF file. Large arrays (vocabularies, merges) stay where they are in
//! the mapped file and are read as they are asked for.
//!
//! Parsing the file is not here: these values have been checked by [`super::reader`].

use std::{collections::HashMap, path::Path, sync::Arc};

use bytes::Bytes;

use crate::Error;

/// The metadata of one file.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The file it comes from, for messages.
    pub file: Arc<Path>,
    pub(super) values: HashMap<String, Value>,
}

/// One value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A string, known to be UTF-8.
    Text(String),
    /// Any number of values of one type.
    Array(Array),
}

/// An array whose elements still lie in the file.
#[derive(Clone, Debug)]
pub struct Array {
    /// The type of its elements.
    pub kind: Kind,
    /// How many there are.
    pub len: usize,
    /// Their bytes, exactly as many as there are elements.
    pub(super) bytes: Bytes,
}

/// The type of a value.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    /// The type of this code in a file.
    pub(super) fn of(code: u32) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64];
        ALL.get(code as usize).copied()
    }

    /// Bytes of a value, where they do not depend on the value.
    pub(super) fn n_bytes(self) -> Option<usize> {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => Some(1),
            Kind::U16 | Kind::I16 => Some(2),
            Kind::U32 | Kind::I32 | Kind::F32 => Some(4),
            Kind::U64 | Kind::I64 | Kind::F64 => Some(8),
            Kind::Text | Kind::Array => None,
        }
    }
}

impl Value {
    /// The number, truth value or none of both that `bytes` hold.
    pub(super) fn scalar(kind: Kind, bytes: &[u8]) -> Option<Value> {
        Some(match kind {
            Kind::U8 => Value::Unsigned(u64::from(*bytes.first()?)),
            Kind::I8 => Value::Signed(i64::from(*bytes.first()? as i8)),
            Kind::Bool => Value::Bool(*bytes.first()? != 0),
            Kind::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(*bytes.first_chunk()?))),
            Kind::I16 => Value::Signed(i64::from(i16::from_le_bytes(*bytes.first_chunk()?))),
            Kind::U32 => Value::Unsigned(u64::from(u32::from_le_bytes(*bytes.first_chunk()?))),
            Kind::I32 => Value::Signed(i64::from(i32::from_le_bytes(*bytes.first_chunk()?))),
            Kind::U64 => Value::Unsigned(u64::from_le_bytes(*bytes.first_chunk()?)),
            Kind::I64 => Value::Signed(i64::from_le_bytes(*bytes.first_chunk()?)),
            Kind::F32 => Value::F32(f32::from_le_bytes(*bytes.first_chunk()?)),
            Kind::F64 => Value::F64(f64::from_le_bytes(*bytes.first_chunk()?)),
            Kind::Text | Kind::Array => return None,
        })
    }

    /// A whole number that is not negative.
    pub fn as_unsigned(&self) -> Option<u64> {
        match *self {
            Value::Unsigned(n) => Some(n),
            Value::Signed(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    /// Any number.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            Value::Unsigned(n) => Some(n as f32),
            Value::Signed(n) => Some(n as f32),
            _ => None,
        }
    }

    /// A short form for messages.
    fn describe(&self) -> String {
        match self {
            Value::Unsigned(n) => n.to_string(),
            Value::Signed(n) => n.to_string(),
            Value::F32(x) => x.to_string(),
            Value::F64(x) => x.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Text(text) => {
                let shown: String = text.chars().take(40).collect();
                format!("{shown:?}")
            }
            Value::Array(array) => format!("an array of {} x {:?}", array.len, array.kind),
        }
    }
}

impl Array {
    /// The elements of an array of numbers or truth values; empty for other kinds.
    pub fn numbers(&self) -> impl Iterator<Item = Value> + '_ {
        let size = self.kind.n_bytes().unwrap_or(usize::MAX);
        self.bytes.chunks_exact(size).filter_map(|bytes| Value::scalar(self.kind, bytes))
    }

    /// The elements of an array of strings, not yet known to be UTF-8; empty for other kinds.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut rest: &[u8] = if self.kind == Kind::Text { &self.bytes } else { &[] };
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<8>()?;
            let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
            let (string, after) = after.split_at_checked(len)?;
            rest = after;
            Some(string)
        })
    }
}

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// A whole number that is not negative, or `None` where the key is absent.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.take(key, "a whole number", Value::as_unsigned)
    }

    /// Any number, or `None` where the key is absent.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.take(key, "a finite number", |value| value.as_f32().filter(|x| x.is_finite()))
    }

    /// A truth value, or `None` where the key is absent.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.take(key, "true or false", |value| match *value {
            Value::Bool(b) => Some(b),
            _ => None,
        })
    }

    /// A string, or `None` where the key is absent.
    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.take(key, "a string", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An array of strings, or `None` where the key is absent.
    pub fn texts(&self, key: &str) -> Result<Option<&Array>, Error> {
        self.take(key, "an array of strings", |value| match value {
            Value::Array(array) if array.kind == Kind::Text => Some(array),
            _ => None,
        })
    }

    /// An array of numbers, or `None` where the key is absent.
    pub fn numbers(&self, key: &str) -> Result<Option<&Array>, Error> {
        self.take(key, "an array of numbers", |value| match value {
            Value::Array(array) if array.kind.n_bytes().is_some() => Some(array),
            _ => None,
        })
    }

    fn take<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        get: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match get(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.bad(key, expected, value.describe())),
        }
    }

    /// That `key` is not what it has to be.
    pub(super) fn bad(&self, key: &str, expected: &str, found: String) -> Error {
        let (file, key, expected) = (self.file.to_path_buf(), key.to_owned(), expected.to_owned());
        Error::BadConfig { file, key, expected, found }
    }

    /// That a key the model cannot do without is not there.
    pub(super) fn missing(&self, key: &str, expected: &str) -> Error {
        self.bad(key, expected, "nothing".into())
    }
}
