//! A model's tokenizer: vocabulary, special tokens, beginning of sequence. Prompts with text of
//! foreign origin are encoded in `encode.rs`, streams decoded in `detokenize.rs`.

pub(crate) mod decoder;

use std::collections::HashMap;

use crate::Error;
use crate::encode::PromptEncoder;
use crate::model::{self, Inner, Vocabulary};
use decoder::Decoder;
use serde_json::Value;

/// The files a tokenizer is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenizerFiles<'a> {
    /// tokenizer.json.
    pub tokenizer_json: &'a [u8],
    /// tokenizer_config.json.
    pub config: Option<&'a Value>,
    /// special_tokens_map.json; what tokenizer_config.json says counts more.
    pub special_tokens_map: Option<&'a Value>,
}

/// A token that is found in text before the model's own splitting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// Its string.
    pub content: String,
    /// It is a control token, not text.
    pub special: bool,
    pub(crate) trims_before: bool,
    pub(crate) trims_after: bool,
}

/// A loaded tokenizer. Cheap to share, never changes.
pub struct Tokenizer {
    inner: Inner,
    decoder: Decoder,
    /// Ascending ids.
    added: Vec<AddedToken>,
    /// `bos_token`, `eos_token` … to their strings, in the order of the files.
    named: Vec<(String, String)>,
    bos: Option<u32>,
    /// Every sequence begins with `bos`.
    adds_bos: bool,
    n_vocab: usize,
    prompts: PromptEncoder,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("n_vocab", &self.n_vocab)
            .field("decoder", &self.decoder)
            .field("named", &self.named)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads the files. Errors when tokenizer.json is no tokenizer or has a decoder that cannot be
    /// streamed.
    pub fn from_files(files: TokenizerFiles<'_>) -> Result<Tokenizer, Error> {
        let wrong = |error: tokenizers::Error| Error::Tokenizer(error.to_string());
        let mut inner = Inner::from_bytes(files.tokenizer_json).map_err(wrong)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(wrong)?;
        Tokenizer::around(inner, files)
    }

    /// The same where `tokenizer_json` lacks the model's `vocab` and `merges`, and the vocabulary lies
    /// elsewhere.
    pub fn from_vocabulary(
        files: TokenizerFiles<'_>,
        vocabulary: Vocabulary<'_>,
    ) -> Result<Tokenizer, Error> {
        let inner = model::assemble(files.tokenizer_json, vocabulary);
        Tokenizer::around(inner.map_err(|error| Error::Tokenizer(error.to_string()))?, files)
    }

    fn around(inner: Inner, files: TokenizerFiles<'_>) -> Result<Tokenizer, Error> {
        let decoder = serde_json::to_value(inner.get_decoder())
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        let decoder = Decoder::parse(&decoder)?;
        let added = added_tokens(&inner);
        let n_added = added.last().map_or(0, |token| token.id as usize + 1);
        let n_vocab = inner.get_vocab_size(false).max(n_added);
        let named = named_tokens(&files);
        let (bos, adds_bos) = beginning(&inner, &files, &named)?;
        let prompts = PromptEncoder::new(&added)?;
        Ok(Tokenizer { inner, decoder, added, named, bos, adds_bos, n_vocab, prompts })
    }

    /// Ids of a raw text, as for completions. Special tokens spelled in it count as such; what the
    /// tokenizer adds to every sequence is added, the beginning once.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = encode(&self.inner, text, Additions::OfTokenizer)?;
        match (self.bos, ids.as_slice()) {
            (Some(bos), [first, second, ..])
                if self.adds_bos && *first == bos && *second == bos =>
            {
                ids.remove(0);
            }
            (Some(bos), [first, ..])
                if !self.adds_bos && *first == bos && !self.spells_bos(text) =>
            {
                ids.remove(0);
            }
            _ => self.put_bos(&mut ids),
        }
        Ok(ids)
    }

    /// Ids of a rendered prompt. The template's special tokens become control tokens, those that
    /// users spelled do not; the beginning of sequence is there exactly once.
    pub fn encode_prompt(&self, prompt: &crate::Prompt) -> Result<Vec<u32>, Error> {
        let mut ids = self.prompts.encode(self, prompt)?;
        self.put_bos(&mut ids);
        Ok(ids)
    }

    fn put_bos(&self, ids: &mut Vec<u32>) {
        if let Some(bos) = self.bos.filter(|bos| self.adds_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
    }

    fn spells_bos(&self, text: &str) -> bool {
        let spelling = self.bos.and_then(|bos| self.token(bos));
        spelling.is_some_and(|spelling| text.starts_with(&spelling))
    }

    /// Number of ids: one more than the highest.
    pub fn vocab_size(&self) -> usize {
        self.n_vocab
    }

    /// How the vocabulary spells a token.
    pub fn token(&self, id: u32) -> Option<String> {
        let added = self.added.binary_search_by_key(&id, |token| token.id).ok();
        match added.and_then(|at| self.added.get(at)) {
            Some(token) => Some(token.content.clone()),
            None => self.inner.id_to_token(id),
        }
    }

    /// The bytes a token stands for in the middle of a text; maybe not whole characters.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.token(id).map(|token| self.decoder.bytes(&token))
    }

    /// It is one byte, spelled out, as in `<0x0A>`.
    pub(crate) fn is_byte(&self, token: &str) -> bool {
        self.decoder.is_byte(token)
    }

    /// Ids of a text to which nothing is added. Control tokens that are spelled in it count as such.
    pub(crate) fn encode_plain(&self, text: &str) -> Option<Vec<u32>> {
        encode(&self.inner, text, Additions::None).ok()
    }

    /// It is a control token, not text.
    pub fn is_special(&self, id: u32) -> bool {
        let at = self.added.binary_search_by_key(&id, |token| token.id);
        at.is_ok_and(|at| self.added[at].special)
    }

    /// The id of a token as the vocabulary spells it.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The beginning of sequence, whether or not it is added by itself.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The tokenizer's own end of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.named("eos_token").and_then(|token| self.id_of(token))
    }

    /// A named special token: `bos_token`, `eos_token`, `pad_token`, `unk_token` …
    pub fn named(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(key, _)| key == name).map(|(_, token)| token.as_str())
    }

    /// All named special tokens: templates see them as variables.
    pub fn named_tokens(&self) -> &[(String, String)] {
        &self.named
    }

    /// The tokens that are found in text before it is split, by ascending id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

/// Whether the tokenizer puts its own tokens around a text.
#[derive(Clone, Copy)]
pub(crate) enum Additions {
    None,
    OfTokenizer,
}

pub(crate) fn encode(inner: &Inner, text: &str, additions: Additions) -> Result<Vec<u32>, Error> {
    let adds = matches!(additions, Additions::OfTokenizer);
    let encoding = inner.encode_fast(text, adds);
    let encoding = encoding.map_err(|error| Error::Encode(error.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}

fn added_tokens(inner: &Inner) -> Vec<AddedToken> {
    let tokens = inner.get_added_tokens_decoder();
    let mut added: Vec<AddedToken> = tokens
        .into_iter()
        .map(|(id, token)| AddedToken {
            id,
            content: token.content,
            special: token.special,
            trims_before: token.lstrip,
            trims_after: token.rstrip,
        })
        .collect();
    added.sort_by_key(|token| token.id);
    added
}

/// Named tokens of both files; a token is a string or a dict with `content`.
fn named_tokens(files: &TokenizerFiles<'_>) -> Vec<(String, String)> {
    const NAMES: [&str; 7] = [
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
    ];
    let spelled = |name: &str, file: Option<&Value>| {
        let token = file?.get(name)?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some((name.to_owned(), text.to_owned()))
    };
    let one = |name: &&str| {
        spelled(name, files.config).or_else(|| spelled(name, files.special_tokens_map))
    };
    NAMES.iter().filter_map(one).collect()
}

/// The beginning of sequence, and whether every sequence gets it: tokenizer_config.json decides
/// where it says so, else the post-processor.
fn beginning(
    inner: &Inner,
    files: &TokenizerFiles<'_>,
    named: &[(String, String)],
) -> Result<(Option<u32>, bool), Error> {
    let around = encode(inner, "a", Additions::OfTokenizer)?;
    let bare = encode(inner, "a", Additions::None)?;
    let before = around.windows(bare.len().max(1)).position(|ids| ids == bare).unwrap_or(0);
    let by_processor = around.first().copied().filter(|_| before > 0);
    let by_name = named.iter().find(|(name, _)| name == "bos_token");
    let by_name = by_name.and_then(|(_, token)| inner.token_to_id(token));
    let bos = by_processor.or(by_name);
    let said = files.config.and_then(|config| config.get("add_bos_token")).and_then(Value::as_bool);
    Ok((bos, bos.is_some() && said.unwrap_or(by_processor.is_some())))
}

impl Tokenizer {
    /// Ids by the strings of added tokens, for mapping ids of a twin tokenizer.
    pub(crate) fn added_ids(&self) -> HashMap<&str, u32> {
        self.added.iter().map(|token| (token.content.as_str(), token.id)).collect()
    }
}
