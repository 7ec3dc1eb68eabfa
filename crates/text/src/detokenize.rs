//! Token ids to text while they arrive. The joined pieces are exactly what the tokenizer's own
//! `decode` gives for the whole list. Stop strings and tags are not its business.

use crate::tokenizer::Tokenizer;
use crate::tokenizer::decoder::{Decoder, PieceRules};

/// What happens to special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// They leave no text.
    Skip,
    /// They appear as they are spelled.
    Keep,
}

/// Where the text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is a text of its own: decoders that drop a leading space drop it.
    Text,
    /// It goes on from an earlier text: nothing is dropped.
    Continuation,
}

/// State of one request. Emits complete characters only; U+FFFD appears for bytes that can no
/// longer become one.
#[derive(Clone, Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    specials: Specials,
    /// Special tokens that appear in any case.
    shown: Vec<u32>,
    /// Bytes that are not text yet.
    pending: Vec<u8>,
    /// No token has been seen that leaves text.
    first: bool,
    /// Leading characters that may still be dropped.
    strip: usize,
}

impl<'a> Detokenizer<'a> {
    /// A fresh state.
    pub fn new(tokenizer: &'a Tokenizer, specials: Specials, start: Start) -> Detokenizer<'a> {
        let strip = match (start, tokenizer.decoder()) {
            (Start::Text, Decoder::Pieces(rules)) => rules.strip_start,
            _ => 0,
        };
        let first = start == Start::Text;
        Detokenizer { tokenizer, specials, shown: Vec::new(), pending: Vec::new(), first, strip }
    }

    /// The same, but these special tokens appear as they are spelled: a
    /// [`Splitter`](crate::Splitter) reads them.
    pub fn showing(self, shown: Vec<u32>) -> Detokenizer<'a> {
        Detokenizer { shown, ..self }
    }

    /// Text that became certain through this token. An id outside the vocabulary leaves none.
    pub fn push(&mut self, id: u32) -> String {
        let skipped = self.specials == Specials::Skip
            && self.tokenizer.is_special(id)
            && !self.shown.contains(&id);
        let Some(token) = self.tokenizer.token(id).filter(|_| !skipped) else {
            return String::new();
        };
        let first = std::mem::replace(&mut self.first, false);
        match self.tokenizer.decoder() {
            Decoder::Bytes => {
                self.pending.extend(crate::tokenizer::decoder::unmap_bytes(&token));
                self.complete_characters()
            }
            Decoder::Pieces(rules) => self.push_piece(&token, rules),
            Decoder::Metaspace(rules) => rules.text(&token, first),
            Decoder::WordPiece(rules) => rules.text(&token, first),
            Decoder::Spaced if first => token,
            Decoder::Spaced => format!(" {token}"),
        }
    }

    /// The answer is over: the rest, with U+FFFD for what stayed incomplete.
    pub fn finish(&mut self) -> String {
        let bytes = std::mem::take(&mut self.pending);
        match self.tokenizer.decoder() {
            Decoder::Pieces(_) => self.stripped(byte_run(bytes)),
            _ => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// Takes everything from `pending` but the beginning of a character at its end.
    fn complete_characters(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[bad..].to_vec();
                }
            }
        }
    }

    /// A run of byte tokens is one unit of the tokenizer's decoder: valid as a whole, or U+FFFD for
    /// each byte. So it waits for the next token that is no byte.
    fn push_piece(&mut self, token: &str, rules: &PieceRules) -> String {
        let token = rules.replaced(token);
        match rules.byte(&token) {
            Some(byte) => {
                self.pending.push(byte);
                String::new()
            }
            None => {
                let mut text = byte_run(std::mem::take(&mut self.pending));
                text.push_str(&token);
                self.stripped(text)
            }
        }
    }

    fn stripped(&mut self, text: String) -> String {
        let Decoder::Pieces(rules) = self.tokenizer.decoder() else { return text };
        let mut rest = text.as_str();
        while self.strip > 0 && !rest.is_empty() {
            match rest.strip_prefix(rules.strip_char) {
                Some(shorter) => {
                    rest = shorter;
                    self.strip -= 1;
                }
                None => self.strip = 0,
            }
        }
        rest.to_owned()
    }
}

fn byte_run(bytes: Vec<u8>) -> String {
    let n = bytes.len();
    String::from_utf8(bytes).unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.to_string().repeat(n))
}
