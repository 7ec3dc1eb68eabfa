//! Encodes prompts in which users spelled special tokens. Prompts without such spellings go through
//! the tokenizer in one piece, so that their ids are those of any other program.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::model::Inner;
use crate::tokenizer::{Additions, encode};
use crate::{AddedToken, Error, Piece, Prompt, Tokenizer};

/// Stands before a text that is encoded by itself, so that the tokenizer does not take its start
/// for the start of a sequence (where SentencePiece puts a space).
const GUARD: &str = "<|hearth-guard-4f1c9a|>";

/// Finds the template's own added tokens and encodes what lies between them.
pub(crate) struct PromptEncoder {
    finder: AhoCorasick,
    /// Index into the tokenizer's added tokens by pattern of `finder`.
    patterns: Vec<usize>,
    /// The same tokenizer without added tokens; made when first needed.
    plain: OnceLock<Plain>,
}

struct Plain {
    inner: Inner,
    guard: u32,
}

/// A stretch of a prompt between two added tokens, or such a token.
enum Stretch {
    Token(usize),
    Text { range: Range<usize>, has_literal: bool },
}

impl PromptEncoder {
    pub(crate) fn new(added: &[AddedToken]) -> Result<PromptEncoder, Error> {
        // Tokens of blanks only are ordinary text, and templates and users write them alike.
        let patterns: Vec<usize> = (0..added.len())
            .filter(|&at| !added[at].content.chars().all(char::is_whitespace))
            .collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns.iter().map(|&at| &added[at].content))
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        Ok(PromptEncoder { finder, patterns, plain: OnceLock::new() })
    }

    pub(crate) fn encode(&self, tokenizer: &Tokenizer, prompt: &Prompt) -> Result<Vec<u32>, Error> {
        let text = prompt.text();
        if prompt.pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
            return encode(tokenizer.inner(), &text, Additions::None);
        }
        let mut ids = Vec::new();
        // Start of the stretches not encoded yet, all of them free of literals.
        let mut clean = 0;
        let stretches = self.stretches(prompt);
        for (at, stretch) in stretches.iter().enumerate() {
            let Stretch::Text { range, has_literal: true } = stretch else { continue };
            ids.extend(encode(tokenizer.inner(), &text[clean..range.start], Additions::None)?);
            let before = at.checked_sub(1).and_then(|at| stretches.get(at));
            let after = stretches.get(at + 1);
            let body = self.trimmed(tokenizer, &text[range.clone()], before, after);
            self.encode_plain(tokenizer, body, &mut ids)?;
            clean = range.end;
        }
        ids.extend(encode(tokenizer.inner(), &text[clean..], Additions::None)?);
        Ok(ids)
    }

    /// Added tokens that neighbour a text may eat its blanks.
    fn trimmed<'t>(
        &self,
        tokenizer: &Tokenizer,
        mut text: &'t str,
        before: Option<&Stretch>,
        after: Option<&Stretch>,
    ) -> &'t str {
        let token = |stretch: Option<&Stretch>| match stretch {
            Some(Stretch::Token(at)) => tokenizer.added_tokens().get(*at).cloned(),
            _ => None,
        };
        if token(before).is_some_and(|token| token.trims_after) {
            text = text.trim_start();
        }
        if token(after).is_some_and(|token| token.trims_before) {
            text = text.trim_end();
        }
        text
    }

    /// Cuts the whole text at the added tokens that lie in trusted pieces.
    fn stretches(&self, prompt: &Prompt) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let (mut offset, mut start, mut has_literal) = (0, 0, false);
        for piece in &prompt.pieces {
            match piece {
                Piece::Literal(text) => {
                    has_literal = true;
                    offset += text.len();
                }
                Piece::Text(text) => {
                    for found in self.finder.find_iter(text) {
                        let range = start..offset + found.start();
                        stretches.push(Stretch::Text { range, has_literal });
                        stretches.push(Stretch::Token(self.patterns[found.pattern().as_usize()]));
                        (start, has_literal) = (offset + found.end(), false);
                    }
                    offset += text.len();
                }
            }
        }
        stretches.push(Stretch::Text { range: start..offset, has_literal });
        stretches
    }

    /// Encodes a text so that no control token comes out. Where the model's own vocabulary makes
    /// one from plain letters, the text is cut until it cannot.
    fn encode_plain(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        let plain = self.plain(tokenizer)?;
        let guarded = encode(&plain.inner, &format!("{GUARD}{text}"), Additions::None)?;
        let rest = guarded.strip_prefix(&[plain.guard]).unwrap_or(&guarded);
        let own = plain.as_ids_of(tokenizer, rest);
        if !rest.contains(&plain.guard) && !own.iter().any(|&id| tokenizer.is_special(id)) {
            ids.extend(own);
            return Ok(());
        }
        let n_chars = text.chars().count();
        let Some((middle, _)) = text.char_indices().nth(n_chars / 2).filter(|_| n_chars > 1) else {
            let problem = format!("{text:?} stands for a control token and nothing else");
            return Err(Error::Encode(problem));
        };
        self.encode_plain(tokenizer, &text[..middle], ids)?;
        self.encode_plain(tokenizer, &text[middle..], ids)
    }

    fn plain(&self, tokenizer: &Tokenizer) -> Result<&Plain, Error> {
        if let Some(plain) = self.plain.get() {
            return Ok(plain);
        }
        let plain = Plain::new(tokenizer)?;
        Ok(self.plain.get_or_init(|| plain))
    }
}

impl Plain {
    fn new(tokenizer: &Tokenizer) -> Result<Plain, Error> {
        let wrong = |error: tokenizers::Error| Error::Tokenizer(error.to_string());
        let full = tokenizer.inner();
        let mut inner = Inner::new(full.get_model().clone());
        inner.with_normalizer(full.get_normalizer().cloned()).map_err(wrong)?;
        inner.with_pre_tokenizer(full.get_pre_tokenizer().cloned());
        let blank = |token: &tokenizers::AddedToken| token.content.chars().all(char::is_whitespace);
        let blanks = full.get_added_tokens_decoder().into_values().filter(blank);
        inner.add_tokens(blanks.collect::<Vec<_>>()).map_err(wrong)?;
        let guard = tokenizers::AddedToken::from(GUARD, true).normalized(false);
        inner.add_special_tokens([guard]).map_err(wrong)?;
        let guard = inner.token_to_id(GUARD);
        let guard = guard.ok_or_else(|| Error::Tokenizer("no room for a guard token".into()))?;
        Ok(Plain { inner, guard })
    }

    /// Added tokens have other ids here than in the tokenizer itself.
    fn as_ids_of(&self, tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u32> {
        let added = self.inner.get_added_tokens_decoder();
        let by_text = tokenizer.added_ids();
        let own = |&id: &u32| {
            let twin = added.get(&id).and_then(|token| by_text.get(token.content.as_str()));
            twin.copied().unwrap_or(id)
        };
        ids.iter().map(own).collect()
    }
}
