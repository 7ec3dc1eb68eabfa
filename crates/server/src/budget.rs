//! A bound on how long a model thinks: when it is used up, the end of the thoughts is written for it.
//! What comes next depends on the tokens so far alone, so an answer stays the same however it is
//! computed.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Constraint, TokenId};
use text::{Prompt, Splitter, Tokenizer, Tools};

use crate::voice::Voice;

/// Watches one answer, and holds it to another constraint besides.
pub(crate) struct Budget {
    tokenizer: Arc<Tokenizer>,
    /// Tells whether the model thinks.
    splitter: Splitter,
    /// Thinking tokens that are left.
    left: usize,
    /// What ends the thoughts.
    ending: Vec<TokenId>,
    /// Of the ending, what has yet to come.
    due: VecDeque<TokenId>,
    inner: Option<Box<dyn Constraint>>,
}

impl Budget {
    /// At most so many tokens of thoughts. The answer is held to `inner` too, if there is one.
    pub(crate) fn new(
        tokenizer: &Arc<Tokenizer>,
        voice: &Voice,
        tokens: usize,
        inner: Option<Box<dyn Constraint>>,
    ) -> Budget {
        let silent = Voice { tools: Tools::default(), ..voice.clone() };
        let ending = match inner {
            Some(_) => voice.syntax.end_of_held_thoughts(),
            None => voice.syntax.end_of_thoughts().to_owned(),
        };
        let ending = tokenizer.encode_prompt(&Prompt::trusted(&ending)).unwrap_or_default();
        let bos = tokenizer.bos().filter(|bos| ending.first() == Some(bos));
        let mut budget = Budget {
            tokenizer: tokenizer.clone(),
            splitter: silent.splitter(&[], 0),
            left: tokens,
            ending: ending[usize::from(bos.is_some())..].to_vec(),
            due: VecDeque::new(),
            inner,
        };
        budget.end_thoughts();
        budget
    }

    /// Begins with the ending if it is time.
    fn end_thoughts(&mut self) {
        if self.left == 0 && self.splitter.is_thinking() && self.due.is_empty() {
            self.due.extend(self.ending.drain(..));
        }
    }
}

impl Constraint for Budget {
    fn mask(&mut self, logits: &mut [f32]) {
        match self.due.front() {
            Some(&due) => {
                for (id, logit) in logits.iter_mut().enumerate() {
                    // Whatever the model thinks of it, it can be taken.
                    *logit = if id == due as usize { logit.max(0.0) } else { f32::NEG_INFINITY };
                }
            }
            None => {
                if let Some(inner) = &mut self.inner {
                    inner.mask(logits);
                }
            }
        }
    }

    fn push(&mut self, token: TokenId) {
        if self.due.front() == Some(&token) {
            self.due.pop_front();
        }
        let bytes = self.tokenizer.token_bytes(token).unwrap_or_default();
        self.splitter.push(&String::from_utf8_lossy(&bytes));
        if self.splitter.is_thinking() {
            self.left = self.left.saturating_sub(1);
            self.end_thoughts();
        }
        if let Some(inner) = &mut self.inner {
            inner.push(token);
        }
    }

    fn forced(&mut self) -> Option<TokenId> {
        let inner = self.inner.as_mut();
        self.due.front().copied().or_else(|| inner.and_then(|inner| inner.forced()))
    }
}
