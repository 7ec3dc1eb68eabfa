//! Byte-level BPE: the text is cut by regular expressions, the bytes of each piece become printable
//! characters, and merges join those by rank.
//!
//! Which expressions, the file only names; [`super::pre`] has them.

use serde_json::{Value as Json, json};

use super::{
    Frame, Parts,
    json::{Ids, Model},
    pre::{self, Pre},
    vocab::Vocab,
};
use crate::{Error, gguf::metadata::Metadata};

pub(super) fn build<'a>(
    metadata: &'a Metadata,
    vocab: &'a Vocab<'a>,
    warnings: &mut Vec<String>,
) -> Result<Parts<'a>, Error> {
    let name = match metadata.text("tokenizer.ggml.pre")? {
        Some(name) => name,
        None => {
            warnings.push(
                "the file does not say how its tokenizer splits words (tokenizer.ggml.pre); texts \
                 may be split wrongly"
                    .into(),
            );
            "default"
        }
    };
    let pre = pre::find(name).ok_or_else(|| Error::Unsupported {
        file: metadata.file.to_path_buf(),
        what: format!("the pre-tokenizer {name:?}"),
        advice: format!("these are: {}", pre::names()),
    })?;
    let frame = if pre.begins_with_bos { Frame::Bos } else { Frame::Bare };
    let normalizer = if pre.nfc { json!({"type": "NFC"}) } else { Json::Null };
    Ok(Parts {
        normalizer,
        pre_tokenizer: pre_tokenizer(pre),
        decoder: byte_level(),
        model: Model::Bpe {
            dropout: None,
            unk_token: None,
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: pre.ignore_merges,
            vocab: Ids(vocab),
            merges: merges(metadata, vocab)?,
        },
        frame,
    })
}

fn pre_tokenizer(pre: &Pre) -> Json {
    let mut steps: Vec<Json> = pre
        .splits
        .iter()
        .map(|regex| {
            json!({
                "type": "Split",
                "pattern": {"Regex": regex},
                "behavior": "Isolated",
                "invert": false,
            })
        })
        .collect();
    steps.push(byte_level());
    json!({"type": "Sequence", "pretokenizers": steps})
}

/// Bytes to printable characters and back, nothing more.
fn byte_level() -> Json {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": false,
        "use_regex": false,
    })
}

fn merges<'a>(metadata: &'a Metadata, vocab: &Vocab) -> Result<Vec<(&'a str, &'a str)>, Error> {
    const KEY: &str = "tokenizer.ggml.merges";
    let array = metadata.texts(KEY)?;
    let array = array.ok_or_else(|| metadata.missing(KEY, "an array of strings"))?;
    let mut merges = Vec::new();
    let mut joined = String::new();
    for merge in array.texts() {
        // A left half may begin with a space of its own, but it is never empty.
        let cut = merge.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
        let halves = cut.map(|at| (&merge[..at], &merge[at + 1..]));
        let known = |&(left, right): &(&str, &str)| {
            joined.clear();
            joined.extend([left, right]);
            [left, right, &joined].iter().all(|&text| vocab.ids.contains_key(text))
        };
        let halves = halves.filter(known).ok_or_else(|| {
            vocab.bad(format!("merge {} ({merge:?}) does not join two tokens", merges.len()))
        })?;
        merges.push(halves);
    }
    Ok(merges)
}
