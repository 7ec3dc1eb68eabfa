//! The vocabulary of a GGUF file as it lies there: tokens and how they join, read as they are asked
//! for. Whoever builds a tokenizer of it checks it; here it is checked only when it is written as
//! JSON.

use std::{borrow::Cow, collections::HashMap, path::Path, sync::Arc};

use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::vocab::empty;
use crate::{
    Error,
    gguf::metadata::{Array, Metadata},
};

/// Bytes of a token; listing the ways to make it takes the square of its length.
const MAX_TOKEN: usize = 1024;
/// Ways to make a token, on average over the vocabulary; real ones have two or three. Without a limit,
/// a small file of tokens that are all parts of each other becomes a large tokenizer.json.
const MAX_WAYS: usize = 32;

/// Tokens of a GGUF file and how they join.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    file: Arc<Path>,
    tokens: Array,
    joining: Joining,
}

/// How tokens join, as it is kept.
#[derive(Clone, Debug)]
pub(super) enum Joining {
    /// Pairs with a space between, the first joins first.
    Ranked(Array),
    /// Ids of the tokens that join, best score first.
    Scored(Vec<u32>),
}

/// How tokens join, as it is used.
pub enum Joins<'a> {
    /// Pairs of tokens; the first joins first. A pair that is none has an empty second half.
    Ranked(Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>),
    /// Any two that spell a third, best first: ids of the tokens that may join or come out of a join.
    Scored(&'a [u32]),
}

type Ids<'a> = HashMap<&'a str, u32, foldhash::fast::RandomState>;

impl Vocabulary {
    pub(super) fn new(metadata: &Metadata, joining: Joining) -> Result<Vocabulary, Error> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = metadata.texts(TOKENS)?;
        let tokens = tokens.ok_or_else(|| metadata.missing(TOKENS, "an array of strings"))?;
        Ok(Vocabulary { file: metadata.file.clone(), tokens: tokens.clone(), joining })
    }

    /// The spellings of the tokens, by ascending id. They need not be UTF-8, nor differ.
    pub fn tokens(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        self.tokens.strings().enumerate().map(|(id, token)| match token {
            [] => Cow::Owned(empty(id).into_bytes()),
            token => Cow::Borrowed(token),
        })
    }

    /// How they join.
    pub fn joins(&self) -> Joins<'_> {
        match &self.joining {
            Joining::Ranked(merges) => Joins::Ranked(Box::new(merges.strings().map(halves))),
            Joining::Scored(best_first) => Joins::Scored(best_first),
        }
    }

    /// Bytes in the file.
    pub(crate) fn n_bytes(&self) -> usize {
        let joining = match &self.joining {
            Joining::Ranked(merges) => merges.bytes.len(),
            Joining::Scored(best_first) => best_first.len() * size_of::<f32>(),
        };
        self.tokens.bytes.len() + joining
    }

    /// The tokenizer.json `frame` with the `vocab` and `merges` it lacks.
    pub(crate) fn complete(&self, frame: &[u8]) -> Result<Bytes, Error> {
        let wrong = |error: serde_json::Error| self.bad(error.to_string());
        let mut json: Json = serde_json::from_slice(frame).map_err(wrong)?;
        let tokens = self.tokens().enumerate().map(|(id, token)| {
            let text = String::from_utf8(token.into_owned());
            text.map_err(|_| self.bad(format!("token {id} is not UTF-8")))
        });
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        let ids = self.ids(&tokens)?;
        let merges = match self.joins() {
            Joins::Ranked(pairs) => self.ranked(&ids, pairs)?,
            Joins::Scored(best_first) => self.scored(&tokens, &ids, best_first)?,
        };
        json["model"]["vocab"] = tokens.iter().zip(0u32..).map(|(t, id)| (t, json!(id))).collect();
        json["model"]["merges"] = Json::Array(merges);
        serde_json::to_vec(&json).map(Bytes::from).map_err(wrong)
    }

    fn ids<'a>(&self, tokens: &'a [String]) -> Result<Ids<'a>, Error> {
        let mut ids = Ids::default();
        for (id, token) in (0..).zip(tokens) {
            if let Some(other) = ids.insert(token, id) {
                return Err(self.bad(format!("tokens {other} and {id} are both {token:?}")));
            }
        }
        Ok(ids)
    }

    fn ranked<'a>(
        &self,
        ids: &Ids<'_>,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Vec<Json>, Error> {
        let mut merges = Vec::new();
        for (left, right) in pairs {
            let [left, right] = [left, right].map(String::from_utf8_lossy);
            let all = [left.as_ref(), &right, &format!("{left}{right}")];
            if !all.iter().all(|&text| ids.contains_key(text)) {
                let place = merges.len();
                return Err(self.bad(format!(
                    "merge {place} ({left:?} and {right:?}) does not join two tokens"
                )));
            }
            merges.push(json!([left, right]));
        }
        Ok(merges)
    }

    /// Every way to make a token out of two others, best score first, then shorter left halves.
    fn scored(
        &self,
        tokens: &[String],
        ids: &Ids<'_>,
        best_first: &[u32],
    ) -> Result<Vec<Json>, Error> {
        let mut joins = vec![false; tokens.len()];
        best_first.iter().for_each(|&id| joins[id as usize] = true);
        let is_text = |half: &str| ids.get(half).is_some_and(|&id| joins[id as usize]);
        let mut merges = Vec::new();
        for &id in best_first {
            let token = tokens[id as usize].as_str();
            if token.len() > MAX_TOKEN {
                return Err(self.bad(format!("token {id} has {} bytes", token.len())));
            }
            for (at, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(at);
                if is_text(left) && is_text(right) {
                    merges.push(json!([left, right]));
                }
            }
            if merges.len() > MAX_WAYS * tokens.len() {
                let most = MAX_WAYS * tokens.len();
                return Err(self.bad(format!("its tokens can be made in over {most} ways")));
            }
        }
        Ok(merges)
    }

    fn bad(&self, reason: String) -> Error {
        Error::BadFile { file: self.file.to_path_buf(), reason }
    }
}

/// The two halves of a merge. The left one may begin with a space of its own, but it is never empty.
fn halves(merge: &[u8]) -> (&[u8], &[u8]) {
    match merge.iter().skip(1).position(|&byte| byte == b' ') {
        Some(before) => (&merge[..before + 1], &merge[before + 2..]),
        None => (merge, &[]),
    }
}
