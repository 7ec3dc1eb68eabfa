//! What a model's `generation_config.json` says: how its makers sample, and which tokens they want never to
//! come. What of it would change answers and is not applied here, it tells.
//!
//! Not what ends an answer: that is the text crate's, which asks other files too.

use std::ops::RangeInclusive;

use engine::{Suppressed, TokenId, Xtc};
use serde_json::Value;

use crate::model::Defaults;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// Settings for requests that bring none.
    pub defaults: Defaults,
    /// What no request can have.
    pub suppressed: Suppressed,
    /// What counts for nothing, for people.
    pub notes: Vec<String>,
}

/// Where to read, and what a token is there.
#[derive(Clone, Copy, Debug)]
pub struct GenerationFiles<'a> {
    /// generation_config.json, or what another format has in its place.
    pub generation_config: Option<&'a Value>,
    /// config.json. Old models without the other file have their lists of tokens in this one.
    pub config: &'a Value,
    /// Logits of a row.
    pub vocab: usize,
    /// Tokens that end an answer.
    pub stop_tokens: &'a [TokenId],
}

/// A list of tokens that is none. Without it the model would say what its makers do not want.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "generation_config.json: {field}: expected {expected}, found {found}; mend the file or take {field} out"
)]
pub struct BadTokens {
    /// Which list.
    pub field: &'static str,
    /// What would have been right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Settings that Transformers or llama.cpp act on and nothing here does, each with the number at which it
/// does nothing.
const NOT_APPLIED: [(&str, f64); 24] = [
    ("diversity_penalty", 0.0),
    ("dola_layers", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("exponential_decay_length_penalty", 0.0),
    ("force_words_ids", 0.0),
    ("forced_bos_token_id", f64::NAN),
    ("forced_eos_token_id", f64::NAN),
    ("guidance_scale", 1.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
    ("mirostat", 0.0),
    ("no_repeat_ngram_size", 0.0),
    ("num_beam_groups", 1.0),
    ("num_beams", 1.0),
    ("penalty_alpha", 0.0),
    ("sequence_bias", 0.0),
    ("stop_strings", 0.0),
    ("token_healing", 0.0),
    ("top_h", 1.0),
    ("typical_p", 1.0),
    ("watermarking_config", 0.0),
];

impl Generation {
    /// Reads all of it. A setting that makes no sense counts for nothing, with a note.
    ///
    /// # Errors
    /// A list of tokens with something in it that is none.
    pub fn read(files: GenerationFiles<'_>) -> Result<Generation, BadTokens> {
        let mut reader = Reader { config: files.generation_config, notes: Vec::new() };
        let defaults = reader.defaults();
        reader.note_what_is_not_applied();
        let notes = reader.notes;
        Ok(Generation { defaults, suppressed: suppressed(files)?, notes })
    }
}

struct Reader<'a> {
    config: Option<&'a Value>,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.config?.get(name).filter(|value| !value.is_null())
    }

    /// Says that a value counts for nothing.
    fn note(&mut self, name: &str, value: &Value, why: &str) {
        self.notes.push(format!("generation_config.json: {name} is {}, {why}", short(value)));
    }

    fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Option<f32> {
        let value = self.get(name)?;
        let number = value.as_f64().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = range.into_inner();
            let why = format!("which is no number from {least} to {most}, and counts for nothing");
            self.note(name, value, &why);
        }
        number.map(|number| number as f32)
    }

    /// A number of tokens.
    fn count(&mut self, name: &str) -> Option<usize> {
        let value = self.get(name)?;
        let count = value.as_u64().and_then(|n| usize::try_from(n).ok());
        if count.is_none() {
            self.note(name, value, "which is no number of tokens, and counts for nothing");
        }
        count
    }

    fn defaults(&mut self) -> Defaults {
        let plain = Defaults::default();
        // Who says that a model samples, and nothing of how warm, means its own probabilities; who says that it
        // does not, the likeliest token.
        let temperature = match self.get("do_sample").and_then(Value::as_bool) {
            Some(false) => Some(0.0),
            samples => {
                let own = samples.map(|_| 1.0);
                self.number("temperature", 0.0..=2.0).or(own)
            }
        };
        let xtc = self.number("xtc_probability", 0.0..=1.0).filter(|&chance| chance > 0.0);
        let threshold = self.number("xtc_threshold", 0.0..=1.0);
        Defaults {
            temperature: temperature.unwrap_or(plain.temperature),
            top_p: self.number("top_p", 1e-6..=1.0).unwrap_or(plain.top_p),
            top_k: self.count("top_k").unwrap_or(plain.top_k),
            min_p: self.number("min_p", 0.0..=1.0).unwrap_or(plain.min_p),
            xtc: xtc.map(|probability| Xtc { probability, threshold: threshold.unwrap_or(0.1) }),
            repetition_penalty: self
                .number("repetition_penalty", 1e-6..=2.0)
                .unwrap_or(plain.repetition_penalty),
            repetition_window: self.count("penalty_last_n"),
        }
    }

    fn note_what_is_not_applied(&mut self) {
        for (name, off) in NOT_APPLIED {
            let Some(value) = self.get(name) else { continue };
            let is_empty = value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty);
            if value.as_f64() != Some(off) && *value != Value::Bool(false) && !is_empty {
                self.note(name, value, "which is not applied here");
            }
        }
    }
}

/// A value in a line of text.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn suppressed(files: GenerationFiles<'_>) -> Result<Suppressed, BadTokens> {
    let config = files.generation_config.unwrap_or(files.config);
    let list = |field| match config.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => tokens(field, value, files.vocab),
    };
    let mut suppressed = Suppressed {
        always: list("suppress_tokens")?,
        first: list("begin_suppress_tokens")?,
        sequences: Vec::new(),
    };
    for word in bad_words(config, files.vocab)? {
        match word[..] {
            // As in Transformers an end of the answer is no bad word.
            [end] if files.stop_tokens.contains(&end) => {}
            [token] => suppressed.always.push(token),
            _ => suppressed.sequences.push(word),
        }
    }
    Ok(suppressed)
}

/// `bad_words_ids`, none of them empty.
fn bad_words(config: &Value, vocab: usize) -> Result<Vec<Vec<TokenId>>, BadTokens> {
    let field = "bad_words_ids";
    let value = match config.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value,
    };
    let wrong = |value: &Value| {
        let expected = "a list of lists of tokens".to_owned();
        BadTokens { field, expected, found: short(value) }
    };
    let words = value.as_array().ok_or_else(|| wrong(value))?;
    let word = |word: &Value| match tokens(field, word, vocab)? {
        none if none.is_empty() => Err(wrong(word)),
        word => Ok(word),
    };
    words.iter().map(word).collect()
}

/// A list of ids of tokens.
fn tokens(field: &'static str, value: &Value, vocab: usize) -> Result<Vec<TokenId>, BadTokens> {
    let wrong = |value: &Value| {
        let expected = match vocab {
            0 => "no tokens, since the model has none".to_owned(),
            _ => format!("a list of tokens from 0 to {}", vocab - 1),
        };
        BadTokens { field, expected, found: short(value) }
    };
    let token = |value: &Value| {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.filter(|&id| (id as usize) < vocab).ok_or_else(|| wrong(value))
    };
    value.as_array().ok_or_else(|| wrong(value))?.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(generation_config: Option<Value>, config: &Value) -> Result<Generation, BadTokens> {
        Generation::read(GenerationFiles {
            generation_config: generation_config.as_ref(),
            config,
            vocab: 100,
            stop_tokens: &[7, 8],
        })
    }

    fn of(config: Value) -> Generation {
        read(Some(config), &json!({})).unwrap()
    }

    #[test]
    fn recommended_settings_are_read() {
        let plain = Defaults::default();
        assert_eq!(of(json!({})), Generation::default());
        assert_eq!(read(None, &json!({"temperature": 0.1})).unwrap().defaults, plain);
        let all = json!({"do_sample": true, "temperature": 0.6, "top_p": 0.8, "top_k": 20, "min_p": 0.05,
            "repetition_penalty": 1.05, "penalty_last_n": 64, "xtc_probability": 0.5, "xtc_threshold": 0.2,
            "eos_token_id": [7, 8], "pad_token_id": 0, "max_new_tokens": 2048, "use_cache": true,
            "transformers_version": "5.0.0", "typical_p": 1.0, "num_beams": 1, "no_repeat_ngram_size": 0,
            "guidance_scale": null, "token_healing": false, "stop_strings": []});
        let expected = Defaults {
            temperature: 0.6,
            top_p: 0.8,
            top_k: 20,
            min_p: 0.05,
            xtc: Some(Xtc { probability: 0.5, threshold: 0.2 }),
            repetition_penalty: 1.05,
            repetition_window: Some(64),
        };
        assert_eq!(of(all), Generation { defaults: expected, ..Generation::default() });
    }

    #[test]
    fn who_samples_without_a_temperature_means_one() {
        let check = |config, expected| assert_eq!(of(config).defaults.temperature, expected);
        check(json!({"do_sample": true}), 1.0);
        check(json!({"do_sample": true, "temperature": null}), 1.0);
        check(json!({"do_sample": true, "temperature": 0.3}), 0.3);
        check(json!({"do_sample": false, "temperature": 0.3}), 0.0);
        check(json!({"do_sample": null, "temperature": 0.3}), 0.3);
    }

    #[test]
    fn what_counts_for_nothing_is_told() {
        let check = |config: Value, expected: &[&str]| {
            let found = of(config.clone());
            assert_eq!(found.notes.len(), expected.len(), "{:?}", found.notes);
            for (note, expected) in found.notes.iter().zip(expected) {
                assert!(note.contains(expected), "{note}");
            }
            assert_eq!(found.defaults, Defaults::default(), "{config}");
        };
        check(json!({"temperature": 9}), &["temperature is 9, which is no number from 0 to 2"]);
        check(json!({"top_p": "x"}), &["top_p is \"x\", which is no number"]);
        check(json!({"top_k": -1}), &["top_k is -1, which is no number of tokens"]);
        check(
            json!({"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "num_beams": 4}),
            &[
                "forced_bos_token_id is 0, which is not",
                "no_repeat_ngram_size is 3",
                "num_beams is 4",
            ],
        );
        check(
            json!({"sequence_bias": [[[1], 2.0]], "mirostat": 2}),
            &["mirostat is 2", "sequence_bias is [[[1],2.0]]"],
        );
        let long = "word ".repeat(40);
        assert!(of(json!({"stop_strings": [long]})).notes[0].len() < 150);
    }

    #[test]
    fn lists_of_tokens_are_read() {
        let lists = json!({"suppress_tokens": [3, 99], "begin_suppress_tokens": [5],
            "bad_words_ids": [[4], [7], [1, 2], [9, 7]]});
        let expected = Suppressed {
            always: vec![3, 99, 4],
            first: vec![5],
            sequences: vec![vec![1, 2], vec![9, 7]],
        };
        assert_eq!(of(lists.clone()).suppressed, expected);
        // As in Transformers the older place counts where the newer one is not.
        assert_eq!(read(None, &lists).unwrap().suppressed, expected);
        assert_eq!(read(Some(json!({})), &lists).unwrap().suppressed, Suppressed::default());
        let none =
            json!({"suppress_tokens": null, "begin_suppress_tokens": [], "bad_words_ids": []});
        assert_eq!(of(none).suppressed, Suppressed::default());
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for (config, found) in [
            (json!({"suppress_tokens": [3, 100]}), "100"),
            (json!({"suppress_tokens": [-1]}), "-1"),
            (json!({"suppress_tokens": [1.5]}), "1.5"),
            (json!({"suppress_tokens": 3}), "3"),
            (json!({"suppress_tokens": [4_294_967_299u64]}), "4294967299"),
            (json!({"begin_suppress_tokens": ["<eos>"]}), "\"<eos>\""),
            (json!({"bad_words_ids": [3]}), "3"),
            (json!({"bad_words_ids": [[3], []]}), "[]"),
            (json!({"bad_words_ids": [[3, 100]]}), "100"),
            (json!({"bad_words_ids": {"3": 1}}), "{\"3\":1}"),
        ] {
            let error = read(Some(config.clone()), &json!({})).unwrap_err();
            assert_eq!(error.found, found, "{config}");
            let field = config.as_object().unwrap().keys().next().unwrap();
            assert!(error.to_string().contains(field.as_str()), "{error}");
        }
    }
}
