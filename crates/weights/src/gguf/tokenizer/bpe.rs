//! Byte-level BPE: the text is cut by regular expressions, the bytes of each piece become printable
//! characters, and merges join those by rank.
//!
//! Which expressions, the file only names; [`super::pre`] has them.

use serde_json::{Value as Json, json};

use super::{
    Frame, Parts,
    pre::{self, Pre},
    vocabulary::Joining,
};
use crate::{Error, gguf::metadata::Metadata};

pub(super) fn build(metadata: &Metadata, warnings: &mut Vec<String>) -> Result<Parts, Error> {
    const MERGES: &str = "tokenizer.ggml.merges";
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
    let merges = metadata.texts(MERGES)?;
    let merges = merges.ok_or_else(|| metadata.missing(MERGES, "an array of strings"))?;
    let frame = if pre.begins_with_bos { Frame::Bos } else { Frame::Bare };
    let normalizer = if pre.nfc { json!({"type": "NFC"}) } else { Json::Null };
    Ok(Parts {
        normalizer,
        pre_tokenizer: pre_tokenizer(pre),
        decoder: byte_level(),
        model: json!({
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": pre.ignore_merges,
        }),
        joining: Some(Joining::Ranked(merges.clone())),
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
