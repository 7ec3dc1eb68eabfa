//! A tokenizer's vocabulary as grammars see it: the bytes of every token.
//!
//! Tokens that leave no text, and those that end an answer, are no bytes: no grammar over text can let
//! them through by accident.

use std::sync::Arc;

use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use crate::Tokenizer;

/// What stands before the spelling of a control token; no text holds this byte.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// How many bytes of a forced text are tokenised at once.
const LOOKAHEAD: usize = 512;

/// The vocabulary of a model with `n_vocab` logits, of which `stops` end an answer.
pub(super) fn environment(tokenizer: &Arc<Tokenizer>, n_vocab: usize, stops: &[u32]) -> TokEnv {
    let words = words(tokenizer, n_vocab, stops);
    let end = stops.first().copied().unwrap_or_default();
    let info = TokRxInfo::new(n_vocab as u32, end);
    let mut trie = TokTrie::from(&info, &words);
    if !stops.is_empty() {
        trie = trie.with_eos_tokens(stops);
    }
    Arc::new(Environment { trie, tokenizer: Arc::clone(tokenizer) })
}

/// Bytes by id. Where two tokens are the same bytes only one has them: the one that is no spelled-out
/// byte, else the first.
fn words(tokenizer: &Tokenizer, n_vocab: usize, stops: &[u32]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new(); n_vocab];
    let mut taken = std::collections::HashSet::new();
    let ids = 0..n_vocab.min(tokenizer.vocab_size()) as u32;
    let is_byte = |id: u32| tokenizer.token(id).is_some_and(|token| tokenizer.is_byte(&token));
    let (bytes, others): (Vec<u32>, Vec<u32>) = ids.partition(|&id| is_byte(id));
    for id in others.into_iter().chain(bytes) {
        let Some(token) = tokenizer.token(id) else { continue };
        let word = if tokenizer.is_special(id) || stops.contains(&id) {
            [&[MARK], token.as_bytes()].concat()
        } else {
            tokenizer.token_bytes(id).unwrap_or_default()
        };
        if taken.insert(word.clone()) {
            words[id as usize] = word;
        }
    }
    words
}

struct Environment {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// The tokens that the model would have read these bytes as; where a tokenizer cannot say, since
    /// it puts a space before every text for instance, the longest ones that fit.
    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        // Only the first token counts, and how it comes out does not depend on what is so far away.
        let bytes = &bytes[..bytes.len().min(LOOKAHEAD)];
        let bytes = match str::from_utf8(bytes) {
            Err(error) if error.valid_up_to() > 0 => &bytes[..error.valid_up_to()],
            _ => bytes,
        };
        let encoded = str::from_utf8(bytes).ok().and_then(|text| self.tokenizer.encode_plain(text));
        let same = |ids: &Vec<u32>| {
            ids.iter().all(|&id| !self.trie.token(id).is_empty())
                && self.trie.decode_raw(ids) == bytes
        };
        encoded.filter(same).unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}
