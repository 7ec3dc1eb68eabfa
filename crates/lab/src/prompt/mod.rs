//! Prompts: texts that look like what people send, differ in every run, and have as many tokens as was
//! asked for.
//!
//! They are made of our own grammar and word lists, by a seed. Nothing is repeated to fill them up: a
//! cache or a guesser that lives of repetition gains nothing that it would not gain from real texts.

mod code;
mod prose;
mod words;

pub use code::code;
pub use prose::prose;

use crate::rng::Rng;

/// Counts the tokens of texts, as the model does, without special tokens.
pub trait CountTokens: Send + Sync {
    /// Tokens of a text.
    fn count(&self, text: &str) -> usize;

    /// Whether it is the model's own, so that counts may be compared with the server's.
    fn is_exact(&self) -> bool {
        true
    }
}

/// For servers whose tokenizer nobody has: so many characters are one token of English prose.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// Characters per token.
    pub chars: f64,
}

impl Default for Guess {
    fn default() -> Guess {
        Guess { chars: 4.7 }
    }
}

impl CountTokens for Guess {
    fn count(&self, text: &str) -> usize {
        (text.chars().count() as f64 / self.chars).round() as usize
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// What a text is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Prose.
    Prose,
    /// A program.
    Code,
}

/// Words that belong to one text alone, to begin it with: no cached beginning fits then.
pub fn salt(rng: &mut Rng) -> String {
    let number = rng.bits();
    let (word, other) = (prose::name(rng), prose::name(rng));
    format!("{word} {other} {:04x}-{:04x}.", number >> 48, number & 0xffff)
}

/// A text that has exactly `n` tokens, where that can be reached: after whole words it is filled up with
/// short ones. Begins with `front`.
pub fn exactly(
    n: usize,
    kind: Kind,
    front: &str,
    rng: &mut Rng,
    tokens: &dyn CountTokens,
) -> String {
    let mut text = front.to_owned();
    while tokens.count(&text) < n {
        // Four characters per token are a little too few for prose, so this ends after two rounds.
        let missing = n - tokens.count(&text);
        let more = match kind {
            Kind::Prose => prose(rng, 4 * missing + 40),
            Kind::Code => code(rng, 3 * missing + 40),
        };
        if !text.is_empty() {
            text.push_str(if kind == Kind::Code { "\n\n" } else { " " });
        }
        text.push_str(&more);
    }
    cut(&mut text, n, tokens);
    fill(text, n, rng, tokens)
}

/// Cuts before the last word with which the text has at most `n` tokens.
fn cut(text: &mut String, n: usize, tokens: &dyn CountTokens) {
    let mut ends: Vec<usize> =
        text.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, _)| at).collect();
    ends.push(text.len());
    let fits = ends.partition_point(|&end| tokens.count(&text[..end]) <= n);
    text.truncate(fits.checked_sub(1).map_or(0, |last| ends[last]));
}

fn fill(mut text: String, n: usize, rng: &mut Rng, tokens: &dyn CountTokens) -> String {
    for _ in 0..256 {
        let count = tokens.count(&text);
        if count >= n {
            break;
        }
        let word = rng.pick(words::SHORT).copied().unwrap_or("so");
        let longer = format!("{text} {word}");
        if tokens.count(&longer) <= n {
            text = longer;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every word, number and sign is one token, long words are two.
    struct Words;

    impl CountTokens for Words {
        fn count(&self, text: &str) -> usize {
            text.split_whitespace().map(|word| if word.len() > 9 { 2 } else { 1 }).sum()
        }
    }

    #[test]
    fn prompts_have_as_many_tokens_as_was_asked_for() {
        for n in [16, 64, 65, 100, 511, 4096] {
            for seed in 0..3 {
                let mut rng = Rng::new(seed);
                for kind in [Kind::Prose, Kind::Code] {
                    let front = salt(&mut rng);
                    let text = exactly(n, kind, &front, &mut rng, &Words);
                    assert_eq!(Words.count(&text), n, "{kind:?}");
                    assert!(text.starts_with(&front));
                }
            }
        }
    }

    #[test]
    fn prompts_differ_from_their_beginning_on() {
        let mut rng = Rng::new(1);
        let fronts: HashSet<String> =
            (0..500).map(|_| salt(&mut rng).chars().take(12).collect()).collect();
        assert!(fronts.len() > 490, "{}", fronts.len());
    }

    #[test]
    fn a_guess_is_near() {
        let text = exactly(300, Kind::Prose, "", &mut Rng::new(5), &Guess::default());
        assert!((1300..1500).contains(&text.len()), "{}", text.len());
    }
}
