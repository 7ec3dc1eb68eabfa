//! A model that says anything at all, as far as a grammar lets it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::sync::Arc;

use hearth_text::grammar::{Format, GrammarError, Grammars, Run, Strictness};
use hearth_text::{Detokenizer, Specials, Start, Tokenizer};
use serde_json::{Value, json};

use crate::common::{numbers, tokenizer, toy};

pub struct Speaker {
    pub tokenizer: Arc<Tokenizer>,
    pub grammars: Grammars,
    pub stops: Vec<u32>,
    pub n_vocab: usize,
}

impl Speaker {
    /// With one of the fixtures' tokenizers.
    pub fn new(name: &str) -> Speaker {
        let end = match name {
            "sentencepiece" => "</s>",
            "bytelevel" => "<|im_end|>",
            _ => "[SEP]",
        };
        Speaker::with(tokenizer(name), end)
    }

    /// With a vocabulary of single bytes, in which there is one way to spell a text.
    pub fn letters() -> Speaker {
        Speaker::letters_and(&[])
    }

    /// The same with control tokens.
    pub fn letters_and(control: &[&str]) -> Speaker {
        let letters: Vec<String> = (0..=u8::MAX).map(letter).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let end = "<|the end|>";
        let control = [&[end], control].concat();
        Speaker::with(toy(&letters, &control, &json!({"eos_token": end})), end)
    }

    /// There are some logits that belong to no token.
    fn with(tokenizer: Tokenizer, end: &str) -> Speaker {
        let tokenizer = Arc::new(tokenizer);
        let stops = vec![tokenizer.id_of(end).unwrap()];
        let n_vocab = tokenizer.vocab_size() + 37;
        let grammars = Grammars::new(Arc::clone(&tokenizer), n_vocab, stops.clone());
        Speaker { tokenizer, grammars, stops, n_vocab }
    }

    pub fn run(&self, format: &Format) -> Result<Run, GrammarError> {
        Ok(self.grammars.of(format)?.expect("a format that allows not everything").start())
    }

    /// The tokens of an answer that is random, and mostly short. `None`: it does not come to an end.
    pub fn say(&self, format: &Format, seed: u64) -> Option<Vec<u32>> {
        let mut run = self.run(format).unwrap();
        let mut below = numbers(seed);
        let mut said = Vec::new();
        for n in 0..600 {
            let allowed =
                run.allowed().unwrap_or_else(|e| panic!("{e} after {:?}", self.text(&said)));
            let mut all: Vec<u32> =
                (0..self.n_vocab as u32).filter(|id| allowed.contains(*id)).collect();
            assert!(
                all.iter().all(|id| self.stops.contains(id) || self.tokenizer.token(*id).is_some())
            );
            if self.stops.iter().any(|stop| allowed.contains(*stop)) && (n > 60 || below(3) == 0) {
                return Some(said);
            }
            all.retain(|id| !self.stops.contains(id));
            if all.is_empty() {
                return Some(said);
            }
            // Later on it prefers what brings it to an end.
            let closing = |id: &&u32| {
                let bytes = self.tokenizer.token_bytes(**id).unwrap_or_default();
                matches!(bytes.first(), Some(b'"' | b'}' | b']' | b'0'..=b'9'))
            };
            let ends: Vec<u32> = all.iter().filter(closing).copied().collect();
            let pool = if !ends.is_empty() && below(60) < n { &ends } else { &all };
            let token = pool[below(pool.len())];
            run.push(token);
            said.push(token);
        }
        None
    }

    pub fn text(&self, tokens: &[u32]) -> String {
        let mut text = Detokenizer::new(&self.tokenizer, Specials::Skip, Start::Text);
        let mut said: String = tokens.iter().map(|&id| text.push(id)).collect();
        said += &text.finish();
        said
    }

    /// The tokens of a text, control tokens among them. For [`Speaker::letters`].
    pub fn spell(&self, text: &str) -> Vec<u32> {
        let control = self.tokenizer.added_tokens();
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let found = control.iter().find(|token| rest.starts_with(&token.content));
            let (token, len) = match found {
                Some(token) => (self.tokenizer.id_of(&token.content).unwrap(), token.content.len()),
                None => (self.tokenizer.id_of(&letter(rest.as_bytes()[0])).unwrap(), 0),
            };
            tokens.push(token);
            if len > 0 {
                rest = &rest[len..];
                continue;
            }
            let first = rest.chars().next().unwrap();
            let bytes = &rest.as_bytes()[1..first.len_utf8()];
            tokens.extend(bytes.iter().map(|&byte| self.tokenizer.id_of(&letter(byte)).unwrap()));
            rest = &rest[first.len_utf8()..];
        }
        tokens
    }

    /// What a token is in a text in which control tokens are spelled out.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        match self.tokenizer.is_special(token) {
            true => self.tokenizer.token(token).unwrap_or_default().into_bytes(),
            false => self.tokenizer.token_bytes(token).unwrap_or_default(),
        }
    }

    /// A letter, a digit or a blank.
    pub fn is_plain(&self, token: u32) -> bool {
        let bytes = self.bytes(token);
        matches!(bytes[..], [byte] if byte.is_ascii_alphanumeric() || byte == b' ' || byte == b'\n')
    }

    /// Whether a format lets a text through, to its end. For [`Speaker::letters`].
    pub fn accepts(&self, format: &Format, text: &str) -> bool {
        let mut run = self.run(format).unwrap();
        for id in self.tokenizer.encode_raw(text).unwrap() {
            match run.allowed() {
                Ok(allowed) if allowed.contains(id) => run.push(id),
                _ => return false,
            }
        }
        run.allowed().is_ok_and(|allowed| self.stops.iter().any(|stop| allowed.contains(*stop)))
    }
}

/// How byte-level vocabularies spell a byte.
fn letter(byte: u8) -> String {
    let plain = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let code = match plain(&byte) {
        true => u32::from(byte),
        false => 256 + (0..byte).filter(|byte| !plain(byte)).count() as u32,
    };
    char::from_u32(code).unwrap().to_string()
}

pub fn schema(schema: Value) -> Format {
    Format::JsonSchema { schema, strictness: Strictness::Standard }
}
