//! Builds tokenizer.json, but for its vocabulary, and tokenizer_config.json out of the metadata of a
//! GGUF file.
//!
//! Three kinds are known: byte-level BPE ([`bpe`]), SentencePiece ([`spm`]) and WordPiece
//! ([`wordpiece`]). Everything else is refused by name: a text split wrongly is fluent nonsense.
//! Nothing is tokenised here; the `text` crate does that.

mod bpe;
mod json;
mod pre;
mod spm;
mod vocab;
mod vocabulary;
mod wordpiece;

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use self::{
    json::{Added, TokenizerJson},
    vocab::{Role, Specials, Vocab},
    vocabulary::Joining,
};
use super::metadata::Metadata;
use crate::{Error, TextFiles, TokenizerFile};

pub use vocabulary::{Joins, Vocabulary};

/// What the metadata says about text.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// The files it stands for.
    pub(super) files: TextFiles,
    /// Tokens that end an answer.
    pub(super) stops: Vec<u64>,
    /// What was odd.
    pub(super) warnings: Vec<String>,
}

/// A tokenizer but for the parts that are the same for every kind.
struct Parts {
    normalizer: Json,
    pre_tokenizer: Json,
    decoder: Json,
    model: Json,
    /// How tokens join, where `model` does not hold the vocabulary itself.
    joining: Option<Joining>,
    /// What stands before and after every text unless the file says otherwise.
    frame: Frame,
}

/// Which special tokens a tokenizer puts around a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// None.
    Bare,
    /// BOS before it.
    Bos,
    /// The same, whatever the file says.
    AlwaysBos,
    /// BOS (there called CLS) before it and SEP after it.
    ClsSep,
}

/// Tokens that end an answer in some family, whatever the file calls its EOS.
const STOPS: [&str; 11] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<eos>",
    "<turn|>",
    // Where a model waits for what a tool says.
    "<|tool_response>",
];

/// The text files of a model. All absent where the file has no vocabulary.
pub(super) fn build(metadata: &Metadata) -> Result<Text, Error> {
    let kind = metadata.text("tokenizer.ggml.model")?.unwrap_or("none");
    let mut text = Text::default();
    if matches!(kind, "none" | "no_vocab") {
        text.warnings.push("the file holds no tokenizer".into());
        return Ok(text);
    }
    if !matches!(kind, "gpt2" | "llama" | "gemma4" | "bert") {
        return Err(Error::Unsupported {
            file: metadata.file.to_path_buf(),
            what: format!("the tokenizer kind {kind:?}"),
            advice: "these are: gpt2 (byte-level BPE), llama and gemma4 (SentencePiece BPE), \
                     bert (WordPiece)"
                .into(),
        });
    }
    let vocab = Vocab::read(metadata)?;
    let specials = Specials::read(metadata, kind, vocab.tokens.len(), &mut text.warnings)?;
    let parts = match kind {
        "gpt2" => bpe::build(metadata, &mut text.warnings)?,
        "llama" => spm::build(metadata, &vocab, &specials, &mut text.warnings)?,
        "gemma4" => spm::ranked(metadata, &vocab, &specials)?,
        _ => wordpiece::build(metadata, &vocab, &specials)?,
    };
    let framing = Framing::of(metadata, parts.frame, &specials)?;
    text.stops = stops(&vocab, &specials);
    text.files.tokenizer_config = Some(tokenizer_config(metadata, &vocab, &specials, &framing)?);
    if let Some(config) = &text.files.tokenizer_config
        && let Some(template) = config.get("chat_template").cloned()
    {
        text.files.set_templates(&template);
    }
    let json = TokenizerJson {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens: added_tokens(metadata, &vocab, &specials)?,
        normalizer: parts.normalizer,
        pre_tokenizer: parts.pre_tokenizer,
        post_processor: framing.post_processor(&vocab)?,
        decoder: parts.decoder,
        model: parts.model,
    };
    let json = Bytes::from(serde_json::to_vec(&json).map_err(|e| vocab.bad(e.to_string()))?);
    text.files.tokenizer = Some(match parts.joining {
        None => TokenizerFile::Json(json),
        Some(joining) => {
            let vocabulary = Vocabulary::new(metadata, joining)?;
            TokenizerFile::Gguf { frame: json, vocabulary }
        }
    });
    Ok(text)
}

/// The special tokens around a text, by id.
#[derive(Debug)]
struct Framing {
    before: Option<usize>,
    after: Option<usize>,
}

impl Framing {
    fn of(metadata: &Metadata, frame: Frame, specials: &Specials) -> Result<Framing, Error> {
        let says = |key: &str| metadata.bool(&format!("tokenizer.ggml.{key}"));
        let bos =
            frame == Frame::AlwaysBos || says("add_bos_token")?.unwrap_or(frame != Frame::Bare);
        let eos = says("add_eos_token")?.unwrap_or(false);
        let sep = says("add_sep_token")?.unwrap_or(false) || frame == Frame::ClsSep;
        let after = if sep && frame == Frame::ClsSep {
            specials.sep
        } else if eos {
            specials.eos
        } else {
            None
        };
        Ok(Framing { before: specials.bos.filter(|_| bos), after })
    }

    fn post_processor(&self, vocab: &Vocab) -> Result<Json, Error> {
        if self.before.is_none() && self.after.is_none() {
            return Ok(Json::Null);
        }
        let mut tokens = Map::new();
        let mut special = |id: Option<usize>| -> Result<Option<Json>, Error> {
            let Some(id) = id else { return Ok(None) };
            let token = vocab.text(id)?;
            let ids = json!({"id": token, "ids": [id], "tokens": [token]});
            tokens.insert(token.to_string(), ids);
            Ok(Some(json!({"SpecialToken": {"id": token, "type_id": 0}})))
        };
        let (before, after) = (special(self.before)?, special(self.after)?);
        let text = |id: &str, type_id: u8| json!({"Sequence": {"id": id, "type_id": type_id}});
        let mut single = Vec::from_iter(before);
        single.push(text("A", 0));
        single.extend(after.clone());
        let mut pair = single.clone();
        pair.push(text("B", 1));
        pair.extend(after);
        Ok(json!({
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": tokens,
        }))
    }
}

/// Tokens that are found in a text before anything else: control tokens, and those the model's
/// authors have set apart.
fn added_tokens<'a>(
    metadata: &Metadata,
    vocab: &Vocab<'a>,
    specials: &Specials,
) -> Result<Vec<Added<'a>>, Error> {
    // Phi-3's own tokens swallow the space after them. The file does not say so; llama.cpp goes by
    // the model's name, too.
    let name = metadata.text("general.name")?.unwrap_or_default().to_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    let keeps_space = |token: &str| matches!(token, "<unk>" | "<s>" | "<|endoftext|>");
    let named: Vec<usize> = specials.all().collect();
    let mut added = Vec::new();
    for (id, (&token, &role)) in vocab.tokens.iter().zip(&vocab.roles).enumerate() {
        let special =
            matches!(role, Role::Control | Role::Unknown) || named.contains(&id) || is_stop(token);
        if special || role == Role::UserDefined || phi3 && token == b"</s>" {
            let token = vocab.text(id)?;
            let rstrip = phi3 && !keeps_space(&token);
            added.push(Added::new(id, token, special, rstrip));
        }
    }
    Ok(added)
}

/// Asked of every token; few even begin like one.
fn is_stop(token: &[u8]) -> bool {
    token.first() == Some(&b'<') && STOPS.iter().any(|stop| stop.as_bytes() == token)
}

/// EOS, end of turn, end of message, and tokens set apart that are known to mean the same.
fn stops(vocab: &Vocab, specials: &Specials) -> Vec<u64> {
    let mut stops: Vec<u64> = [specials.eos, specials.eot, specials.eom]
        .into_iter()
        .flatten()
        .map(|id| id as u64)
        .collect();
    for (id, (&token, &role)) in vocab.tokens.iter().zip(&vocab.roles).enumerate() {
        if matches!(role, Role::Control | Role::UserDefined) && is_stop(token) {
            stops.push(id as u64);
        }
    }
    let mut seen = std::collections::HashSet::new();
    stops.retain(|&id| seen.insert(id));
    stops
}

fn tokenizer_config(
    metadata: &Metadata,
    vocab: &Vocab,
    specials: &Specials,
    framing: &Framing,
) -> Result<Json, Error> {
    let mut out = Map::new();
    out.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
    for (key, id) in [
        ("bos_token", specials.bos),
        ("eos_token", specials.eos),
        ("unk_token", specials.unk),
        ("pad_token", specials.pad),
        ("sep_token", specials.sep),
        ("cls_token", specials.cls),
        ("mask_token", specials.mask),
    ] {
        if let Some(id) = id {
            out.insert(key.into(), json!(vocab.text(id)?));
        }
    }
    out.insert("add_bos_token".into(), json!(framing.before.is_some()));
    out.insert("add_eos_token".into(), json!(framing.after.is_some()));
    out.insert("clean_up_tokenization_spaces".into(), json!(false));
    if let Some(arch) = metadata.text("general.architecture")?
        && let Some(context) = metadata.unsigned(&format!("{arch}.context_length"))?
    {
        out.insert("model_max_length".into(), json!(context));
    }
    if let Some(template) = chat_template(metadata)? {
        out.insert("chat_template".into(), template);
    }
    Ok(Json::Object(out))
}

/// The template, or a list of named ones, as tokenizer_config.json has it.
fn chat_template(metadata: &Metadata) -> Result<Option<Json>, Error> {
    let default = metadata.text("tokenizer.chat_template")?;
    let mut named = Vec::new();
    if let Some(names) = metadata.texts("tokenizer.chat_templates")? {
        for name in names.strings().filter_map(|name| std::str::from_utf8(name).ok()) {
            if let Some(template) = metadata.text(&format!("tokenizer.chat_template.{name}"))? {
                named.push(json!({"name": name, "template": template}));
            }
        }
    }
    if named.is_empty() {
        return Ok(default.map(Json::from));
    }
    if let Some(default) = default {
        named.insert(0, json!({"name": "default", "template": default}));
    }
    Ok(Some(Json::from(named)))
}
