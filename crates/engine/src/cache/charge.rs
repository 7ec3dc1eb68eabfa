//! What a request costs in cache blocks: the one formula that admission goes by.
//!
//! Not a measurement of bytes: what a block weighs is the model's business.

use backend::BLOCK;

/// Tokens of answer that admission counts on when a request allows more. Clients seldom say how
/// long an answer they want, and what they allow is mostly far more than what comes.
pub(crate) const EXPECTED_ANSWER: usize = 256;

/// Blocks a sequence is charged with.
///
/// A request is admitted when what it is *expected* to need is there, beside what the running
/// ones are still expected to need. *At most* is what it could come to need. That may turn out not
/// to be there; then somebody is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// For the prompt and an ordinary answer.
    pub expected: usize,
    /// For the prompt and the longest answer the request allows.
    pub most: usize,
}

impl Charge {
    /// The charge for `prompt` tokens followed by up to `max_tokens`, `longest` in all. The last
    /// token of an answer is chosen but never run, so it needs no room.
    pub(crate) fn new(prompt: usize, max_tokens: usize, longest: usize) -> Charge {
        let blocks = |answer: usize| {
            let tokens = prompt.saturating_add(answer).min(longest);
            tokens.saturating_sub(1).max(prompt).div_ceil(BLOCK)
        };
        Charge { expected: blocks(max_tokens.min(EXPECTED_ANSWER)), most: blocks(max_tokens) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prompt: usize, max_tokens: usize, longest: usize, expected: usize, most: usize) {
        let charge = Charge::new(prompt, max_tokens, longest);
        assert_eq!(charge, Charge { expected, most }, "{prompt} + {max_tokens} of {longest}");
    }

    #[test]
    fn the_last_token_needs_no_room() {
        check(1, 0, 4096, 1, 1);
        check(32, 1, 4096, 1, 1);
        check(32, 2, 4096, 2, 2);
        check(33, 0, 4096, 2, 2);
        check(32, usize::MAX, 4096, 9, 128);
        check(60, 1000, 64, 2, 2);
        check(64, 1000, 65, 2, 2);
    }
}
