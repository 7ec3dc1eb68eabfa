//! One answer under a grammar, token by token.

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;

/// Where one answer stands in its grammar.
pub struct Run {
    matcher: Matcher,
}

/// The tokens that may come next.
pub struct Allowed {
    set: SimpleVob,
}

impl Run {
    pub(super) fn new(matcher: Matcher) -> Run {
        Run { matcher }
    }

    /// What may come next. Tokens that end the answer are among it exactly where the grammar may end.
    ///
    /// # Errors
    /// The grammar has become too complex, or no token fits. It stays so.
    pub fn allowed(&mut self) -> Result<Allowed, String> {
        let set = self.matcher.compute_mask_or_eos().map_err(|error| short(&error))?;
        Ok(Allowed { set })
    }

    /// The token that comes next in any case, where that is known. [`Run::allowed`] has no other.
    pub fn forced(&mut self) -> Option<u32> {
        match self.matcher.is_stopped() {
            true => None,
            false => self.matcher.compute_ff_tokens().first().copied(),
        }
    }

    /// The token that was chosen. One that was not allowed, or that ends the answer, breaks the run:
    /// from then on [`Run::allowed`] is an error.
    pub fn push(&mut self, token: u32) {
        // The matcher keeps the error and gives it out again.
        let _ = self.matcher.consume_token(token);
    }
}

impl Allowed {
    /// Sets the logits of all other tokens to minus infinity.
    pub fn apply(&self, logits: &mut [f32]) {
        let words = self.set.as_slice();
        for (i, logits) in logits.chunks_mut(32).enumerate() {
            let word = words.get(i).copied().unwrap_or(0);
            match word {
                u32::MAX => {}
                0 => logits.fill(f32::NEG_INFINITY),
                _ => {
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
    }

    /// Whether a token is among them.
    pub fn contains(&self, token: u32) -> bool {
        let word = self.set.as_slice().get(token as usize / 32);
        word.is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

/// The first line of an error; what follows is about the insides.
pub(super) fn short(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
