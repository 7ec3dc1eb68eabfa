//! When MLX gives back what it keeps for arrays to come.
//!
//! Arrays of prompts are of other sizes than those of single rows, so what a prompt leaves is of little
//! use to the answer that follows; and where all of it is kept, it is paid for at once when memory gets
//! short, in the middle of an answer.

/// After so many passes it is done in any case.
const PASSES: usize = 256;

/// Counts passes.
#[derive(Debug)]
pub(crate) struct Rhythm {
    /// Before how many passes from now on nothing is given back.
    left: usize,
    /// Whether the pass before had rows of prompts.
    after_prompt: bool,
}

impl Default for Rhythm {
    fn default() -> Rhythm {
        Rhythm { left: PASSES, after_prompt: false }
    }
}

impl Rhythm {
    /// Whether it is to be done before a pass: after each one with rows of prompts, once more after the
    /// one that follows, which is that of the first token, and every so often.
    pub(crate) fn clears_before(&mut self, has_prompts: bool) -> bool {
        let clears = self.left == 0;
        self.left = match (has_prompts || self.after_prompt, clears) {
            (true, _) => 0,
            (false, true) => PASSES,
            (false, false) => self.left - 1,
        };
        self.after_prompt = has_prompts;
        clears
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_prompts_after_the_first_token_and_every_so_often() {
        let mut rhythm = Rhythm::default();
        let prompts = [true, true, false, false, false, false];
        let clears = prompts.map(|has_prompts| rhythm.clears_before(has_prompts));
        assert_eq!(clears, [false, true, true, true, false, false]);
        let mut until = 0;
        while !rhythm.clears_before(false) {
            until += 1;
        }
        assert_eq!(until, PASSES - 2);
    }
}
