//! Reads one GGUF file (versions 2 and 3, little endian). The file is not trusted: whatever its
//! bytes, the answer is metadata and tensors that lie inside it, or an error that says what is
//! wrong. Nothing is allocated by a count or a length before that many bytes are seen to be there.
//!
//! It knows nothing of split files, architectures or tokenizers.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;

use super::metadata::{Array, Kind, Metadata, Value};
use crate::{Dtype, Error, Float, GgufType, Tensor};

/// Arrays inside arrays; real files have none.
const MAX_DEPTH: usize = 4;
/// Axes of a tensor in llama.cpp.
const MAX_AXES: u32 = 4;
/// Names in llama.cpp have at most 63 bytes; keys may be longer.
const MAX_NAME: usize = 1 << 16;
const DEFAULT_ALIGNMENT: u64 = 32;

/// The content of one file.
#[derive(Debug)]
pub struct File {
    /// Its key/value pairs.
    pub metadata: Metadata,
    /// Its tensors, under their names in the file, slowest axis first.
    pub tensors: Vec<Tensor>,
}

/// The content of a file whose bytes are `bytes`; `file` is only named in errors. The bytes are
/// shared, not copied.
pub fn parse(file: &Path, bytes: Bytes) -> Result<File, Error> {
    let mut cursor = Cursor { file: Arc::from(file), bytes, at: 0 };
    cursor.check_magic()?;
    let n_tensors = cursor.u64("the number of tensors")?;
    let n_values = cursor.u64("the number of metadata values")?;
    let mut values = HashMap::new();
    for _ in 0..n_values {
        let key = cursor.text("a metadata key", MAX_NAME)?;
        let value = cursor.value(&key)?;
        if values.insert(key.clone(), value).is_some() {
            return Err(cursor.bad(format!("the metadata key {key} is there twice")));
        }
    }
    let metadata = Metadata { file: cursor.file.clone(), values };
    let alignment = alignment(&metadata)?;
    let mut entries = Vec::new();
    for _ in 0..n_tensors {
        entries.push(cursor.entry()?);
    }
    let tensors = cursor.tensors(entries, alignment)?;
    Ok(File { metadata, tensors })
}

/// The header of one tensor.
struct Entry {
    name: String,
    shape: Vec<usize>,
    dtype: Dtype,
    /// From the start of the data section.
    offset: u64,
}

/// A position in the file.
struct Cursor {
    file: Arc<Path>,
    bytes: Bytes,
    at: usize,
}

impl Cursor {
    fn bad(&self, reason: String) -> Error {
        Error::BadFile { file: self.file.to_path_buf(), reason }
    }

    fn bad_tensor(&self, tensor: &str, expected: impl Into<String>, found: String) -> Error {
        let (file, tensor) = (self.file.to_path_buf(), tensor.to_owned());
        Error::BadTensor { file, tensor, expected: expected.into(), found }
    }

    fn unsupported(&self, what: String, advice: &str) -> Error {
        Error::Unsupported { file: self.file.to_path_buf(), what, advice: advice.into() }
    }

    fn check_magic(&mut self) -> Result<(), Error> {
        if self.take(4, "its first four bytes")? != b"GGUF" {
            let reason = "it does not begin with GGUF".into();
            return Err(Error::NotAModel { path: self.file.to_path_buf(), reason });
        }
        match self.u32("the version")? {
            2 | 3 => Ok(()),
            1 => Err(self.unsupported("GGUF version 1".into(), "convert the model again")),
            version if version.swap_bytes() <= 3 => Err(self.unsupported(
                "big-endian GGUF".into(),
                "use the little-endian file of the same model",
            )),
            version => Err(self.unsupported(
                format!("GGUF version {version}"),
                "versions 2 and 3 are read; update this program",
            )),
        }
    }

    /// The next `len` bytes, which `what` needs.
    fn take(&mut self, len: usize, what: &str) -> Result<&[u8], Error> {
        let left = self.bytes.len() - self.at;
        if len > left {
            return Err(self.bad(format!(
                "{what} needs {len} bytes at {}, where the file has {left}",
                self.at
            )));
        }
        let start = self.at;
        self.at += len;
        Ok(&self.bytes[start..self.at])
    }

    fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    /// A length in bytes or elements, as a machine word.
    fn length(&mut self, what: &str) -> Result<usize, Error> {
        let len = self.u64(what)?;
        usize::try_from(len).map_err(|_| self.bad(format!("{what} claims {len}")))
    }

    fn text(&mut self, what: &str, max: usize) -> Result<String, Error> {
        let len = self.length(what)?;
        if len > max {
            return Err(self.bad(format!("{what} claims {len} bytes")));
        }
        match std::str::from_utf8(self.take(len, what)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.bad(format!("{what} is not UTF-8 (at byte {})", self.at - len))),
        }
    }

    fn kind(&mut self, key: &str) -> Result<Kind, Error> {
        let code = self.u32(key)?;
        Kind::of(code).ok_or_else(|| self.bad(format!("{key} has the unknown type {code}")))
    }

    fn value(&mut self, key: &str) -> Result<Value, Error> {
        let kind = self.kind(key)?;
        match kind {
            Kind::Text => self.text(key, usize::MAX).map(Value::Text),
            Kind::Array => self.array(key, MAX_DEPTH).map(Value::Array),
            _ => {
                let bytes = self.take(kind.n_bytes().unwrap_or(0), key)?;
                let value = Value::scalar(kind, bytes);
                value.ok_or_else(|| self.bad(format!("{key} has no value")))
            }
        }
    }

    /// An array, after its elements have been walked through and found to be there.
    fn array(&mut self, key: &str, depth: usize) -> Result<Array, Error> {
        let kind = self.kind(key)?;
        let len = self.length(key)?;
        let start = self.at;
        match kind {
            Kind::Text => {
                // Whether they are UTF-8, their readers find out: vocabularies are large.
                for _ in 0..len {
                    let len = self.length(key)?;
                    self.take(len, key)?;
                }
            }
            Kind::Array => {
                if depth == 0 {
                    return Err(self.bad(format!("{key} nests arrays too deeply")));
                }
                for _ in 0..len {
                    self.array(key, depth - 1)?;
                }
            }
            _ => {
                let total = kind.n_bytes().and_then(|size| size.checked_mul(len));
                let total = total.ok_or_else(|| self.bad(format!("{key} claims {len} values")))?;
                self.take(total, key)?;
            }
        }
        Ok(Array { kind, len, bytes: self.bytes.slice(start..self.at) })
    }

    fn entry(&mut self) -> Result<Entry, Error> {
        let name = self.text("a tensor's name", MAX_NAME)?;
        let n_axes = self.u32(&name)?;
        if n_axes > MAX_AXES {
            let expected = format!("at most {MAX_AXES} axes");
            return Err(self.bad_tensor(&name, expected, n_axes.to_string()));
        }
        let mut shape = Vec::new();
        for _ in 0..n_axes {
            let size = self.u64(&name)?;
            match usize::try_from(size) {
                Ok(size) if size > 0 => shape.push(size),
                _ => return Err(self.bad_tensor(&name, "sizes above zero", size.to_string())),
            }
        }
        // The file counts axes from the fastest to the slowest.
        shape.reverse();
        let dtype = self.dtype(&name)?;
        let offset = self.u64(&name)?;
        Ok(Entry { name, shape, dtype, offset })
    }

    fn dtype(&mut self, name: &str) -> Result<Dtype, Error> {
        let code = self.u32(name)?;
        if let Some(dtype) = dtype(code) {
            return Ok(dtype);
        }
        let ty = match UNREAD.iter().find(|(unread, _)| *unread == code) {
            Some((_, ty)) => format!("type {ty}"),
            None => format!("the unknown type {code}"),
        };
        Err(self.unsupported(
            format!("{ty} of tensor {name}"),
            "use a file with Q4_K_M, Q5_K_M, Q6_K, Q8_0, MXFP4 or F16 weights",
        ))
    }

    /// The tensors behind `entries`, each checked to lie in the data section and in nobody's way.
    fn tensors(&self, entries: Vec<Entry>, alignment: u64) -> Result<Vec<Tensor>, Error> {
        let start = (self.at as u64).checked_next_multiple_of(alignment);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(usize::MAX);
        let data = self.bytes.slice(start.min(self.bytes.len())..);
        let mut names = HashSet::new();
        let mut ranges = Vec::new();
        let mut tensors = Vec::new();
        for entry in entries {
            if !names.insert(entry.name.clone()) {
                return Err(self.bad_tensor(&entry.name, "a name used once", "it twice".into()));
            }
            let range = self.range(&entry, alignment, data.len())?;
            ranges.push((range.start, range.end, tensors.len()));
            tensors.push(Tensor {
                name: entry.name,
                shape: entry.shape,
                dtype: entry.dtype,
                data: data.slice(range),
                file: self.file.clone(),
            });
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let [(_, end, first), (start, _, second)] = [pair[0], pair[1]];
            if start < end {
                let expected = format!("bytes apart from those of {}", tensors[first].name);
                let found = format!("offset {start}, below {end}");
                return Err(self.bad_tensor(&tensors[second].name, expected, found));
            }
        }
        Ok(tensors)
    }

    /// Where in a data section of `len` bytes a tensor lies.
    fn range(
        &self,
        entry: &Entry,
        alignment: u64,
        len: usize,
    ) -> Result<std::ops::Range<usize>, Error> {
        let Entry { name, shape, dtype, offset } = entry;
        let Some(n_bytes) = dtype.n_bytes(shape) else {
            let found = format!("{dtype} {shape:?}");
            return Err(self.bad_tensor(name, "rows of whole blocks", found));
        };
        if offset % alignment != 0 {
            let expected = format!("an offset that is a multiple of {alignment}");
            return Err(self.bad_tensor(name, expected, offset.to_string()));
        }
        let start = usize::try_from(*offset).ok();
        match start.and_then(|start| Some(start..start.checked_add(n_bytes)?)) {
            Some(range) if range.end <= len => Ok(range),
            _ => {
                let expected = format!("bytes within the data section's {len}");
                Err(self.bad_tensor(name, expected, format!("{n_bytes} bytes at {offset}")))
            }
        }
    }
}

/// What offsets and the start of the data section are multiples of.
fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    const KEY: &str = "general.alignment";
    match metadata.unsigned(KEY)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(n) if n.is_power_of_two() => Ok(n),
        Some(n) => Err(metadata.bad(KEY, "a power of two", n.to_string())),
    }
}

/// The type of a tensor by its code, where this program can use it or at least step over it.
fn dtype(code: u32) -> Option<Dtype> {
    Some(match code {
        0 => Dtype::Float(Float::F32),
        1 => Dtype::Float(Float::F16),
        30 => Dtype::Float(Float::Bf16),
        24 => Dtype::Other { bits: 8 },
        25 => Dtype::Other { bits: 16 },
        26 => Dtype::Other { bits: 32 },
        27 | 28 => Dtype::Other { bits: 64 },
        2 => Dtype::Gguf(GgufType::Q4_0),
        3 => Dtype::Gguf(GgufType::Q4_1),
        6 => Dtype::Gguf(GgufType::Q5_0),
        7 => Dtype::Gguf(GgufType::Q5_1),
        8 => Dtype::Gguf(GgufType::Q8_0),
        10 => Dtype::Gguf(GgufType::Q2K),
        11 => Dtype::Gguf(GgufType::Q3K),
        12 => Dtype::Gguf(GgufType::Q4K),
        13 => Dtype::Gguf(GgufType::Q5K),
        14 => Dtype::Gguf(GgufType::Q6K),
        20 => Dtype::Gguf(GgufType::Iq4Nl),
        39 => Dtype::Gguf(GgufType::Mxfp4),
        _ => return None,
    })
}

/// Types that exist and that this program does not read, by their codes.
const UNREAD: [(u32, &str); 14] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];
