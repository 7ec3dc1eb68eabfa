//! Reads the `model` of a tokenizer.json. The BPE that language models use goes straight from the
//! bytes of the file into packed tables; every other model is left to the `tokenizers` crate.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use tokenizers::models::ModelWrapper;

use super::Model;
use super::bpe::Options;
use super::vocab::{Spellings, Vocab};

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Model, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a tokenizer's model")
    }

    /// `type` comes first in every file of the last years; where it does not, the crate reads it.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
        let mut rest = Map::new();
        if let Some((key, value)) = map.next_entry::<String, Value>()? {
            if key == "type" && value == "BPE" {
                return BpeParts::read(map)?.build().map_err(A::Error::custom);
            }
            rest.insert(key, value);
        }
        while let Some((key, value)) = map.next_entry()? {
            rest.insert(key, value);
        }
        let model = ModelWrapper::deserialize(Value::Object(rest)).map_err(A::Error::custom)?;
        Ok(Model::Other(Arc::new(model)))
    }
}

/// Everything a BPE model may have.
#[derive(Default)]
struct BpeParts {
    options: Options,
    dropout: Option<f32>,
    prefix: Option<String>,
    suffix: Option<String>,
    vocab: Option<VocabList>,
    merges: Option<MergeList>,
}

impl BpeParts {
    /// The rest of the map.
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<BpeParts, A::Error> {
        let mut parts = BpeParts::default();
        let options = &mut parts.options;
        while let Some(key) = map.next_key::<Cow<str>>()? {
            match key.as_ref() {
                "dropout" => parts.dropout = map.next_value()?,
                "unk_token" => options.unk_token = map.next_value()?,
                "continuing_subword_prefix" => parts.prefix = map.next_value()?,
                "end_of_word_suffix" => parts.suffix = map.next_value()?,
                "fuse_unk" => options.fuse_unk = said(&mut map)?,
                "byte_fallback" => options.byte_fallback = said(&mut map)?,
                "ignore_merges" => options.ignore_merges = said(&mut map)?,
                "vocab" => parts.vocab = Some(map.next_value()?),
                "merges" => parts.merges = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(parts)
    }

    fn build(self) -> Result<Model, String> {
        let (Some(vocab), Some(merges)) = (self.vocab, self.merges) else {
            return Err("the model has no vocab or no merges".into());
        };
        let VocabList { spellings, ids } = vocab;
        let has = |affix: &Option<String>| affix.as_deref().is_some_and(|text| !text.is_empty());
        let odd = has(&self.prefix) || has(&self.suffix) || self.dropout.unwrap_or(0.0) != 0.0;
        let spellings = match odd {
            true => spellings,
            false => match Vocab::new(spellings, ids.iter().copied()) {
                Ok(vocab) => return Model::ranked(vocab, merges.iter(), self.options),
                // Ids far apart, or one with two spellings.
                Err((_, spellings)) => spellings,
            },
        };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let vocab: Map<_, _> =
            spellings.iter().map(text).zip(ids.into_iter().map(Value::from)).collect();
        let merges: Vec<_> = merges.iter().map(|(l, r)| json!([text(l), text(r)])).collect();
        let Options { unk_token, fuse_unk, byte_fallback, ignore_merges } = self.options;
        let model = ModelWrapper::deserialize(json!({
            "type": "BPE", "dropout": self.dropout, "unk_token": unk_token,
            "continuing_subword_prefix": self.prefix, "end_of_word_suffix": self.suffix,
            "fuse_unk": fuse_unk, "byte_fallback": byte_fallback, "ignore_merges": ignore_merges,
            "vocab": vocab, "merges": merges,
        }));
        model.map(|model| Model::Other(Arc::new(model))).map_err(|error| error.to_string())
    }
}

/// A truth value; null is false.
fn said<'de, A: MapAccess<'de>>(map: &mut A) -> Result<bool, A::Error> {
    map.next_value::<Option<bool>>().map(|said| said.unwrap_or(false))
}

/// A map from spelling to id, in the order of the file.
#[derive(Default)]
struct VocabList {
    spellings: Spellings,
    ids: Vec<u32>,
}

impl<'de> Deserialize<'de> for VocabList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VocabList, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = VocabList;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map from tokens to ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabList, A::Error> {
                let mut list = VocabList::default();
                while map.next_key_seed(Append(&mut list.spellings))?.is_some() {
                    list.ids.push(map.next_value()?);
                }
                Ok(list)
            }
        }
        deserializer.deserialize_map(List)
    }
}

/// Appends a string of the file to a list, without an allocation of its own.
struct Append<'a>(&'a mut Spellings);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.push(text.as_bytes());
        Ok(())
    }
}

/// The merges in their order: `["a", "b"]` each, or `"a b"` in older files.
#[derive(Default)]
struct MergeList {
    /// Left and right halves in turn.
    halves: Spellings,
}

impl MergeList {
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.halves.len() / 2)
            .map(|nth| (self.halves.get(2 * nth), self.halves.get(2 * nth + 1)))
    }
}

impl<'de> Deserialize<'de> for MergeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MergeList, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = MergeList;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MergeList, A::Error> {
                let mut list = MergeList::default();
                while seq.next_element_seed(AppendMerge(&mut list.halves))?.is_some() {}
                Ok(list)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

struct AppendMerge<'a>(&'a mut Spellings);

impl<'de> DeserializeSeed<'de> for AppendMerge<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AppendMerge<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge of two tokens")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // The version line of merges.txt got into some files.
        if text.starts_with("#version") {
            return Ok(());
        }
        match text.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => {
                self.0.push(left.as_bytes());
                self.0.push(right.as_bytes());
                Ok(())
            }
            _ => Err(E::custom(format_args!("the merge {text:?} has not two halves"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for nth in 0..2 {
            let half = seq.next_element_seed(Append(self.0))?;
            half.ok_or_else(|| A::Error::invalid_length(nth, &"two halves of a merge"))?;
        }
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::invalid_length(3, &"two halves of a merge")),
        }
    }
}
