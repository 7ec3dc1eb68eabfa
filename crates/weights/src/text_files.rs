//! The raw files about text that lie beside the weights: tokenizer, chat template, special tokens.
//! Nothing is interpreted here; the `text` crate does that.

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

use crate::{Error, gguf::Vocabulary, mmap};

/// What a tokenizer and a chat template are made of.
#[derive(Clone, Debug, Default)]
pub struct TextFiles {
    /// What splits texts into tokens.
    pub tokenizer: Option<TokenizerFile>,
    /// tokenizer_config.json; for GGUF synthesised.
    pub tokenizer_config: Option<Value>,
    /// The chat template: of chat_template.jinja, else chat_template.json, else tokenizer_config.
    pub chat_template: Option<String>,
    /// A second template for requests with tools, where the model has one.
    pub tool_template: Option<String>,
    /// special_tokens_map.json.
    pub special_tokens_map: Option<Value>,
}

/// A tokenizer as it is stored.
#[derive(Clone, Debug)]
pub enum TokenizerFile {
    /// A Hugging Face tokenizer.json.
    Json(Bytes),
    /// A tokenizer.json whose model lacks `vocab` and `merges`, and the vocabulary where a GGUF has
    /// it: writing a quarter of a million tokens as JSON, to be read right back, takes longer than
    /// everything else about opening a model.
    Gguf {
        /// The tokenizer.json.
        frame: Bytes,
        /// What it lacks.
        vocabulary: Vocabulary,
    },
}

impl TokenizerFile {
    /// A whole tokenizer.json. Errors where the vocabulary of a GGUF contradicts itself.
    pub fn to_json(&self) -> Result<Bytes, Error> {
        match self {
            TokenizerFile::Json(json) => Ok(json.clone()),
            TokenizerFile::Gguf { frame, vocabulary } => vocabulary.complete(frame),
        }
    }

    /// Bytes of all that it is made of.
    pub fn n_bytes(&self) -> usize {
        match self {
            TokenizerFile::Json(json) => json.len(),
            TokenizerFile::Gguf { frame, vocabulary } => frame.len() + vocabulary.n_bytes(),
        }
    }
}

impl TextFiles {
    /// Reads those that exist in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<TextFiles, Error> {
        let tokenizer = match dir.join("tokenizer.json") {
            path if path.exists() => Some(TokenizerFile::Json(mmap::map(&path)?)),
            _ => None,
        };
        let mut files = TextFiles {
            tokenizer,
            tokenizer_config: read_json(&dir.join("tokenizer_config.json"))?,
            special_tokens_map: read_json(&dir.join("special_tokens_map.json"))?,
            ..TextFiles::default()
        };
        if let Some(template) =
            files.tokenizer_config.as_ref().and_then(|config| config.get("chat_template")).cloned()
        {
            files.set_templates(&template);
        }
        if let Some(json) = read_json(&dir.join("chat_template.json"))?
            && let Some(template) = json.get("chat_template")
        {
            files.set_templates(template);
        }
        let jinja = dir.join("chat_template.jinja");
        if jinja.exists() {
            files.chat_template = Some(std::fs::read_to_string(&jinja).map_err(Error::io(&jinja))?);
        }
        let tools = dir.join("additional_chat_templates/tool_use.jinja");
        if tools.exists() {
            files.tool_template = Some(std::fs::read_to_string(&tools).map_err(Error::io(&tools))?);
        }
        Ok(files)
    }

    /// Takes `chat_template` of a tokenizer_config: a string, or a list of named templates, of which
    /// `default` and `tool_use` are used.
    pub(crate) fn set_templates(&mut self, template: &Value) {
        if let Some(text) = template.as_str() {
            self.chat_template = Some(text.to_owned());
        }
        for named in template.as_array().into_iter().flatten() {
            let text = named.get("template").and_then(Value::as_str).map(str::to_owned);
            match named.get("name").and_then(Value::as_str) {
                Some("default") => self.chat_template = text,
                Some("tool_use") => self.tool_template = text,
                _ => {}
            }
        }
    }
}

/// A JSON file, or `None` where it does not exist. Python writes numbers that JSON has no word for as
/// `Infinity` and `NaN`; they become strings.
pub(crate) fn read_json(path: &Path) -> Result<Option<Value>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let parsed = serde_json::from_slice(&bytes);
    match parsed.or_else(|e| serde_json::from_slice(&quote_words(&bytes)).map_err(|_| e)) {
        Ok(value) => Ok(Some(value)),
        Err(e) => Err(Error::BadConfig {
            file: path.to_owned(),
            key: format!("line {}, column {}", e.line(), e.column()),
            expected: "JSON".into(),
            found: e.to_string(),
        }),
    }
}

/// JSON as Python writes it, with quotes around the words for numbers that JSON lacks.
fn quote_words(json: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out = Vec::with_capacity(json.len());
    let (mut rest, mut in_string) = (json, false);
    while let [byte, ..] = rest {
        let word = WORDS.into_iter().find(|word| !in_string && rest.starts_with(word));
        let n = match (word, byte) {
            (Some(word), _) => {
                out.extend([b"\"", word, b"\""].concat());
                rest = &rest[word.len()..];
                continue;
            }
            (None, b'\\') if in_string => 2.min(rest.len()),
            (None, b'"') => {
                in_string = !in_string;
                1
            }
            (None, _) => 1,
        };
        out.extend_from_slice(&rest[..n]);
        rest = &rest[n..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_python_become_strings() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("config.json");
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN \" Infinity \\", "e": 1}"#;
        std::fs::write(&path, text).expect("written");
        let value = read_json(&path).expect("readable").expect("there");
        let expected = serde_json::json!({
            "a": [0.0, "Infinity"], "b": "-Infinity", "c": "NaN", "d": "NaN \" Infinity \\", "e": 1,
        });
        assert_eq!(value, expected);
        std::fs::write(&path, "{\"a\": Infinit}").expect("written");
        assert!(read_json(&path).is_err());
    }
}
