//! Reads one safetensors file, and writes the header of one. A file is not trusted: whatever its
//! bytes, the answer is tensors that lie inside it, or an error that names the file and the tensor.
//!
//! It knows nothing of shards, packings or models.

use std::{collections::HashSet, path::Path, sync::Arc};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json};

use crate::{Dtype, Error, Float, Tensor};

/// Bytes of a header that the format's own library accepts; real ones have a few hundred KB.
const MAX_HEADER: u64 = 100_000_000;

/// The tensors of a file whose content is `bytes`; `file` is only named in errors. The bytes are
/// shared, not copied.
pub fn parse(file: &Path, bytes: Bytes) -> Result<Vec<Tensor>, Error> {
    let bad = |reason: String| Error::BadFile { file: file.to_owned(), reason };
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(bad(format!("{} bytes are too few for a safetensors header", bytes.len())));
    };
    let len = u64::from_le_bytes(*len);
    if len > MAX_HEADER || len > rest.len() as u64 {
        return Err(bad(format!(
            "its header claims {len} bytes where the file has {}",
            rest.len()
        )));
    }
    let (header, _) = rest.split_at(len as usize);
    let header: Header = serde_json::from_slice(header)
        .map_err(|e| bad(format!("its header cannot be understood ({e})")))?;
    let data = bytes.slice(8 + len as usize..);
    let reader = Reader { file: Arc::from(file), data };
    let mut names = HashSet::new();
    for (name, entry) in &header.0 {
        if !names.insert(name.as_str()) {
            return Err(reader.bad(name, "a name used once", format!("it twice, as {entry}")));
        }
    }
    reader.refuse_overlaps(&header)?;
    header.0.into_iter().map(|(name, entry)| reader.tensor(name, &entry)).collect()
}

struct Reader {
    file: Arc<Path>,
    /// What follows the header.
    data: Bytes,
}

impl Reader {
    fn bad(&self, tensor: &str, expected: impl Into<String>, found: String) -> Error {
        let (file, tensor) = (self.file.to_path_buf(), tensor.to_owned());
        Error::BadTensor { file, tensor, expected: expected.into(), found }
    }

    fn tensor(&self, name: String, entry: &Entry) -> Result<Tensor, Error> {
        let [begin, end] = entry.data_offsets;
        if begin > end || end > self.data.len() as u64 {
            let expected = format!("offsets within the file's {} bytes", self.data.len());
            return Err(self.bad(&name, expected, format!("{begin}..{end}")));
        }
        let Some(dtype) = dtype(&entry.dtype) else {
            return Err(self.bad(&name, "a known element type", entry.dtype.clone()));
        };
        let shape: Option<Vec<usize>> =
            entry.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let needed = shape.as_deref().and_then(|shape| dtype.n_bytes(shape));
        let (Some(shape), Some(needed)) = (shape, needed) else {
            return Err(self.bad(&name, "a shape of whole bytes", entry.to_string()));
        };
        if needed as u64 != end - begin {
            let expected = format!("{needed} bytes for {entry}");
            return Err(self.bad(&name, expected, format!("{} bytes", end - begin)));
        }
        // Both fit: they are at most the length of a slice.
        let data = self.data.slice(begin as usize..end as usize);
        Ok(Tensor { name, shape, dtype, data, file: self.file.clone() })
    }

    fn refuse_overlaps(&self, header: &Header) -> Result<(), Error> {
        let mut order: Vec<&(String, Entry)> = header
            .0
            .iter()
            .filter(|(_, entry)| entry.data_offsets[0] < entry.data_offsets[1])
            .collect();
        order.sort_by_key(|(_, entry)| entry.data_offsets);
        for pair in order.windows(2) {
            let ((first, before), (name, after)) = (pair[0], pair[1]);
            if after.data_offsets[0] < before.data_offsets[1] {
                let expected = format!("bytes behind those of {first} ({before})");
                return Err(self.bad(name, expected, after.to_string()));
            }
        }
        Ok(())
    }
}

/// The header in file order, duplicates included, so that they can be refused.
struct Header(Vec<(String, Entry)>);

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [begin, end] = self.data_offsets;
        write!(f, "{} {:?} at {begin}..{end}", self.dtype, self.shape)
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// An array of a file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Its type, one that the format has.
    pub dtype: Dtype,
    /// Its sizes, slowest axis first.
    pub shape: Vec<usize>,
}

impl Slot {
    /// Bytes of the array.
    pub fn n_bytes(&self) -> usize {
        self.dtype.n_bytes(&self.shape).expect("a slot describes an array that exists")
    }
}

/// What a file of these arrays starts with; their bytes follow in the same order.
pub fn header(slots: &[Slot]) -> Vec<u8> {
    const ALIGN: usize = 8;
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({"format": "mlx"}));
    let mut end = 0;
    for slot in slots {
        let begin = end;
        end += slot.n_bytes();
        let dtype = match slot.dtype {
            Dtype::Gguf(_) | Dtype::Other { .. } => panic!("{} has no safetensors type", slot.name),
            dtype => dtype.to_string(),
        };
        let entry = json!({"dtype": dtype, "shape": slot.shape, "data_offsets": [begin, end]});
        map.insert(slot.name.clone(), entry);
    }
    let mut json = Value::Object(map).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(ALIGN), b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json].concat()
}

fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "F32" => Dtype::Float(Float::F32),
        "F16" => Dtype::Float(Float::F16),
        "BF16" => Dtype::Float(Float::Bf16),
        "F8_E4M3" => Dtype::F8E4m3,
        "F8_E8M0" => Dtype::F8E8m0,
        "U8" => Dtype::U8,
        "I8" => Dtype::I8,
        "I32" => Dtype::I32,
        "I64" => Dtype::I64,
        "U32" => Dtype::U32,
        "F4" => Dtype::Other { bits: 4 },
        "F6_E2M3" | "F6_E3M2" => Dtype::Other { bits: 6 },
        "BOOL" | "F8_E5M2" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => Dtype::Other { bits: 8 },
        "I16" | "U16" => Dtype::Other { bits: 16 },
        "U64" | "F64" | "C64" => Dtype::Other { bits: 64 },
        _ => return None,
    })
}
