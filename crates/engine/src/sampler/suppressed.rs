//! Tokens that the makers of a model want never to be chosen.
//!
//! Not a setting of a request: nothing that a request says gives them back, and no grammar either.

use backend::TokenId;

/// What may never be chosen, whatever a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// Nowhere.
    pub always: Vec<TokenId>,
    /// Not as the first token of an answer.
    pub first: Vec<TokenId>,
    /// The last token of each of these, where the others stand directly before it, be it in the prompt.
    /// None is empty.
    pub sequences: Vec<Vec<TokenId>>,
}

impl Suppressed {
    /// Nothing is.
    pub fn is_empty(&self) -> bool {
        self.always.is_empty() && self.first.is_empty() && self.sequences.is_empty()
    }

    /// Every token that is named.
    pub fn tokens(&self) -> impl Iterator<Item = TokenId> {
        self.always.iter().chain(&self.first).chain(self.sequences.iter().flatten()).copied()
    }

    /// What may not come after `history`, of which the first `n_prompt` tokens are the prompt.
    fn next<'a>(
        &'a self,
        history: &'a [TokenId],
        n_prompt: usize,
    ) -> impl Iterator<Item = TokenId> + 'a {
        let first = if history.len() == n_prompt { self.first.as_slice() } else { &[] };
        let ends = self.sequences.iter().filter_map(|sequence| {
            let (last, before) = sequence.split_last()?;
            history.ends_with(before).then_some(last)
        });
        self.always.iter().chain(first).chain(ends).copied()
    }

    /// Sets the logits of what may not come next to minus infinity.
    pub(super) fn mask(&self, history: &[TokenId], n_prompt: usize, logits: &mut [f32]) {
        for id in self.next(history, n_prompt) {
            logits[id as usize] = f32::NEG_INFINITY;
        }
    }

    /// `id` may not come next.
    pub(crate) fn forbids(&self, history: &[TokenId], n_prompt: usize, id: TokenId) -> bool {
        self.next(history, n_prompt).any(|forbidden| forbidden == id)
    }
}
