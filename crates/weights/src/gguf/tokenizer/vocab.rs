//! The tokens of a GGUF file, what each is for, and which of them have a special meaning.
//!
//! How texts are split into them is not here.

use std::{borrow::Cow, path::Path};

use crate::{Error, gguf::metadata::Metadata};

/// The vocabulary. A token's place is its id.
pub(super) struct Vocab<'a> {
    /// The spellings of the tokens as the file has them; [`Vocab::text`] is what they mean.
    pub(super) tokens: Vec<&'a [u8]>,
    /// What they are for.
    pub(super) roles: Vec<Role>,
    file: &'a Path,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Text.
    Normal,
    /// Stands for what has no token.
    Unknown,
    /// Never text, always a signal.
    Control,
    /// Text that is found before the rest is split.
    UserDefined,
    /// Nothing.
    Unused,
    /// One byte of text that has no other token.
    Byte,
}

impl Role {
    fn of(code: Option<u64>) -> Role {
        match code {
            Some(2) => Role::Unknown,
            Some(3) => Role::Control,
            Some(4) => Role::UserDefined,
            Some(5) => Role::Unused,
            Some(6) => Role::Byte,
            _ => Role::Normal,
        }
    }
}

impl<'a> Vocab<'a> {
    pub(super) fn read(metadata: &'a Metadata) -> Result<Vocab<'a>, Error> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const ROLES: &str = "tokenizer.ggml.token_type";
        let tokens = metadata.texts(TOKENS)?;
        let tokens = tokens.ok_or_else(|| metadata.missing(TOKENS, "an array of strings"))?;
        let mut vocab =
            Vocab { tokens: tokens.strings().collect(), roles: Vec::new(), file: &metadata.file };
        match metadata.numbers(ROLES)? {
            Some(roles) if roles.len < vocab.tokens.len() => {
                let expected = format!("one type for each of {} tokens", vocab.tokens.len());
                return Err(metadata.bad(ROLES, &expected, roles.len.to_string()));
            }
            Some(roles) => {
                vocab.roles.extend(roles.numbers().map(|role| Role::of(role.as_unsigned())));
                vocab.roles.truncate(vocab.tokens.len());
            }
            None => vocab.roles.resize(vocab.tokens.len(), Role::Normal),
        }
        Ok(vocab)
    }

    /// The text of a token. The few that are empty get a name.
    pub(super) fn text(&self, id: usize) -> Result<Cow<'a, str>, Error> {
        match std::str::from_utf8(self.tokens[id]) {
            Ok("") => Ok(Cow::Owned(empty(id))),
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => Err(self.bad(format!("token {id} is not UTF-8"))),
        }
    }

    /// That the vocabulary cannot be.
    pub(super) fn bad(&self, reason: String) -> Error {
        Error::BadFile { file: self.file.to_owned(), reason }
    }
}

/// What an empty token is called.
pub(super) fn empty(id: usize) -> String {
    format!("[EMPTY_{id}]")
}

/// Ids with a special meaning, each within the vocabulary.
#[derive(Debug, Default)]
pub(super) struct Specials {
    pub(super) bos: Option<usize>,
    pub(super) eos: Option<usize>,
    /// End of turn.
    pub(super) eot: Option<usize>,
    /// End of message.
    pub(super) eom: Option<usize>,
    pub(super) unk: Option<usize>,
    pub(super) sep: Option<usize>,
    pub(super) pad: Option<usize>,
    pub(super) cls: Option<usize>,
    pub(super) mask: Option<usize>,
}

impl Specials {
    pub(super) fn read(
        metadata: &Metadata,
        kind: &str,
        n_tokens: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Specials, Error> {
        let mut id = |key: &str, default: Option<usize>| -> Result<Option<usize>, Error> {
            let key = format!("tokenizer.ggml.{key}_token_id");
            let Some(id) = metadata.unsigned(&key)? else {
                return Ok(default.filter(|&id| id < n_tokens));
            };
            match usize::try_from(id).ok().filter(|&id| id < n_tokens) {
                Some(id) => Ok(Some(id)),
                None => {
                    warnings.push(format!("{key} is {id}, beyond the {n_tokens} tokens; ignored"));
                    Ok(None)
                }
            }
        };
        // What llama.cpp assumes where a file says nothing.
        let [bos, eos, unk, sep, pad, mask] = match kind {
            "llama" => [Some(1), Some(2), Some(0), None, None, None],
            "bert" => [Some(101), None, Some(100), Some(102), Some(0), Some(103)],
            _ => [None; 6],
        };
        let mut specials = Specials {
            bos: id("bos", bos)?,
            eos: id("eos", eos)?,
            eot: id("eot", None)?,
            eom: id("eom", None)?,
            unk: id("unknown", unk)?,
            // The format's own spelling.
            sep: id("seperator", sep)?,
            pad: id("padding", pad)?,
            cls: id("cls", None)?,
            mask: id("mask", mask)?,
        };
        if kind == "bert" {
            specials.cls = specials.cls.or(specials.bos);
            specials.bos = specials.cls;
        }
        Ok(specials)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        let Specials { bos, eos, eot, eom, unk, sep, pad, cls, mask } = *self;
        [bos, eos, eot, eom, unk, sep, pad, cls, mask].into_iter().flatten()
    }
}
